#include "services/webhook/admission.h"

#include <simdjson.h>

#include "services/admin/json.h"
#include "services/extender/pod_document.h"

namespace qgpu {
namespace {

using simdjson::dom::element;

constexpr std::size_t kMessageBytesMax = 4096;
constexpr std::int64_t kForbidden = 403;

std::string_view textAt(const element& object, std::string_view pointer) {
  std::string_view text;
  return object.at_pointer(pointer).get(text) == simdjson::SUCCESS ? text : std::string_view();
}

std::string messageOf(const std::vector<std::string>& broken) {
  std::string message = "qgpu: ";
  for (const std::string& rule : broken) message += (&rule == &broken.front() ? "" : "; ") + rule;
  if (message.size() > kMessageBytesMax) message.resize(kMessageBytesMax);
  return message;
}

}  // namespace

Result<Review> answerReview(std::string_view body, const PodRules& rules) {
  simdjson::dom::parser parser;
  element root;
  element request;
  if (parser.parse(body.data(), body.size()).get(root) != simdjson::SUCCESS ||
      textAt(root, "/kind") != "AdmissionReview" ||
      root.at_pointer("/request").get(request) != simdjson::SUCCESS || !request.is_object()) {
    return fail(ErrorCode::InvalidArgument, "the body is no AdmissionReview with a request");
  }
  const std::string_view version = textAt(root, "/apiVersion");
  if (version != "admission.k8s.io/v1" && version != "admission.k8s.io/v1beta1") {
    return fail(ErrorCode::InvalidArgument,
                "AdmissionReview is of \"" + std::string(version.substr(0, 64)) +
                    "\": admission.k8s.io/v1 and v1beta1 are spoken here");
  }
  const bool judged = textAt(request, "/kind/kind") == "Pod" &&
                      textAt(request, "/kind/group").empty() &&
                      textAt(request, "/operation") == "CREATE";
  std::vector<std::string> broken;
  element pod;
  if (judged && request.at_pointer("/object").get(pod) == simdjson::SUCCESS) {
    broken = brokenRules(pod, rules);
  }
  Review review;
  review.allowed = broken.empty();
  JsonWriter json;
  json.beginObject().field("kind", "AdmissionReview").field("apiVersion", version);
  json.key("response").beginObject().field("uid", textAt(request, "/uid"));
  json.flag("allowed", review.allowed);
  if (!review.allowed) {
    json.key("status").beginObject().field("message", messageOf(broken));
    json.field("reason", "Forbidden").key("code").number(kForbidden).endObject();
  }
  json.endObject().endObject();
  review.json = json.take();
  return review;
}

}  // namespace qgpu
