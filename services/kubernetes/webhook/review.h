#pragma once
// A question of the API server, an AdmissionReview v1 or v1beta1, and the answers that it may be
// given. Pure. What is asked about stands in the review's own JSON and is looked at there.

#include <memory>
#include <simdjson.h>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/result.h"

namespace qgpu {

// The API server takes no larger request, so no larger object; stored ones have 1.5 MiB at most.
inline constexpr std::size_t kReviewBytesMax = std::size_t{3} << 20;

struct Review {
  std::string json;  // the AdmissionReview that answers
  bool allowed = true;
};

class ReviewQuestion {
 public:
  // InvalidArgument: no AdmissionReview with a request, or of a version that we don't speak.
  static Result<ReviewQuestion> read(std::string_view body);

  const simdjson::dom::element& request() const { return request_; }
  // Empty where it is absent or no text.
  std::string_view text(std::string_view pointer) const;
  bool isOf(std::string_view group, std::string_view kind) const;
  bool isDryRun() const;  // nothing may be changed anywhere

  Review allow() const;
  // With a JSON patch of the object.
  Review change(const std::string& patch) const;
  // For the rules that it breaks.
  Review refuse(const std::vector<std::string>& broken) const;
  // Because something else did not work: whoever asked may ask again.
  Review failed(const std::string& why) const;

 private:
  enum class Fault : std::uint8_t { Broken, Failed };
  Review refuse(const std::vector<std::string>& sentences, Fault fault) const;

  std::unique_ptr<simdjson::dom::parser> parser_;  // has what the elements point to
  std::string_view version_;
  simdjson::dom::element request_;
};

}  // namespace qgpu
