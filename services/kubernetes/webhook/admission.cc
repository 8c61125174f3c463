#include "services/kubernetes/webhook/admission.h"

#include "services/kubernetes/claims/claim_document.h"
#include "services/kubernetes/pods/pod_document.h"

namespace qgpu {
namespace {

using simdjson::dom::element;

// The annotation app-class as it stands in the request; equal texts are equal values.
std::string classText(const element& request, const char* object, const PodRules& rules) {
  element annotations;
  element value;
  const std::string at = std::string(object) + "/metadata/annotations";
  if (request.at_pointer(at).get(annotations) != simdjson::SUCCESS ||
      annotations.at_key(rules.prefix + "/app-class").get(value) != simdjson::SUCCESS) {
    return "";
  }
  return simdjson::minify(value);
}

std::vector<std::string> brokenAt(const element& request, const char* object,
                                  const PodRules& rules) {
  element pod;
  if (request.at_pointer(object).get(pod) != simdjson::SUCCESS) return {};
  return brokenRules(pod, rules);
}

bool asksSomething(const element& request, const char* object, const PodRules& rules) {
  element pod;
  if (request.at_pointer(object).get(pod) != simdjson::SUCCESS) return false;
  const auto held = readHeldPod(pod, rules);
  return !held || !held->asksNothing();
}

// Of an update the class alone is judged: nothing else that the rules look at can change. A pod
// that is bound keeps the class in which it runs.
std::vector<std::string> brokenByUpdate(const ReviewQuestion& question, const PodRules& rules) {
  const element& request = question.request();
  if (classText(request, "/object", rules) == classText(request, "/oldObject", rules)) return {};
  if (question.text("/oldObject/spec/nodeName").empty()) {
    return brokenAt(request, "/object", rules);
  }
  if (!asksSomething(request, "/oldObject", rules)) return {};
  return {"annotation " + rules.prefix +
          "/app-class of a pod that is bound to a node stays as it "
          "is: delete the pod, and create it anew with the other class"};
}

std::string specText(const element& request, const char* pointer) {
  element spec;
  return request.at_pointer(pointer).get(spec) == simdjson::SUCCESS ? simdjson::minify(spec) : "";
}

// Where requests and configurations stand in an object of this kind; null: it is not judged.
const char* devicesOf(const ReviewQuestion& question) {
  const auto isOf = [&](const char* kind) { return question.isOf("resource.k8s.io", kind); };
  return isOf("ResourceClaim")           ? "/object/spec/devices"
         : isOf("ResourceClaimTemplate") ? "/object/spec/spec/devices"
         : isOf("DeviceClass")           ? "/object/spec"
                                         : nullptr;
}

std::vector<std::string> brokenBy(const ReviewQuestion& question, const PodRules& rules) {
  const element& request = question.request();
  const bool update = question.text("/operation") == "UPDATE";
  if (!update && question.text("/operation") != "CREATE") return {};
  if (!question.text("/subResource").empty()) return {};
  if (question.isOf("", "Pod")) {
    return update ? brokenByUpdate(question, rules) : brokenAt(request, "/object", rules);
  }
  const char* devices = devicesOf(question);
  element asked;
  if (devices == nullptr || request.at_pointer(devices).get(asked) != simdjson::SUCCESS) return {};
  // One that was there before it was judged can still be labelled, and be deleted.
  if (update && specText(request, "/object/spec") == specText(request, "/oldObject/spec"))
    return {};
  return brokenClaimRules(asked);
}

}  // namespace

Result<Review> answerReview(std::string_view body, const PodRules& rules) {
  const auto question = ReviewQuestion::read(body);
  if (!question) return question.error();
  const std::vector<std::string> broken = brokenBy(*question, rules);
  return broken.empty() ? question->allow() : question->refuse(broken);
}

}  // namespace qgpu
