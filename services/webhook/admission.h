#pragma once
// What the API server is answered when it asks whether a pod may be created: AdmissionReview v1 and
// v1beta1, one JSON in, one out. Pure.
//
// A pod is refused for the rules of services/extender/pod_rules.h alone, which the scheduler knows
// too: the webhook says them at once, to whoever wrote the pod, and for each container that breaks
// one. What is no pod, or asks nothing of qgpu, is allowed: others judge it.

#include <string>
#include <string_view>
#include <vector>

#include "runtime/result.h"
#include "services/extender/pod_rules.h"

namespace qgpu {

// The API server's own limit of a request is 3 MiB, and a review has an object twice at most.
inline constexpr std::size_t kReviewBytesMax = std::size_t{8} << 20;

// Every rule that the pod breaks, a sentence each; empty: none.
std::vector<std::string> brokenRules(std::string_view pod, const PodRules& rules);

struct Review {
  std::string json;  // the AdmissionReview that answers
  bool allowed = true;
};

// InvalidArgument: no AdmissionReview with a request, or of a version that we don't speak.
Result<Review> answerReview(std::string_view body, const PodRules& rules);

}  // namespace qgpu
