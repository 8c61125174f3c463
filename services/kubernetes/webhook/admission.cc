#include "services/kubernetes/webhook/admission.h"

#include <simdjson.h>

#include "services/base/json.h"
#include "services/kubernetes/pods/pod_document.h"

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
std::vector<std::string> brokenByUpdate(const element& request, const PodRules& rules) {
  if (classText(request, "/object", rules) == classText(request, "/oldObject", rules)) return {};
  if (textAt(request, "/oldObject/spec/nodeName").empty()) {
    return brokenAt(request, "/object", rules);
  }
  if (!asksSomething(request, "/oldObject", rules)) return {};
  return {"annotation " + rules.prefix +
          "/app-class of a pod that is bound to a node stays as it "
          "is: delete the pod, and create it anew with the other class"};
}

std::vector<std::string> brokenBy(const element& request, const PodRules& rules) {
  if (textAt(request, "/kind/kind") != "Pod" || !textAt(request, "/kind/group").empty()) return {};
  const std::string_view operation = textAt(request, "/operation");
  if (operation == "CREATE") return brokenAt(request, "/object", rules);
  if (operation == "UPDATE" && textAt(request, "/subResource").empty()) {
    return brokenByUpdate(request, rules);
  }
  return {};
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
  const std::vector<std::string> broken = brokenBy(request, rules);
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
