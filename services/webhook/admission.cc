#include "services/webhook/admission.h"

#include <algorithm>
#include <simdjson.h>

#include "services/admin/json.h"

namespace qgpu {
namespace {

using simdjson::dom::element;

constexpr std::size_t kMessageBytesMax = 4096;
constexpr std::int64_t kForbidden = 403;

std::string_view textAt(const element& object, std::string_view pointer) {
  std::string_view text;
  return object.at_pointer(pointer).get(text) == simdjson::SUCCESS ? text : std::string_view();
}

std::string minified(const element& object, std::string_view pointer) {
  element found;
  if (object.at_pointer(pointer).get(found) != simdjson::SUCCESS) return "null";
  return simdjson::minify(found);
}

// A pod with the one container, as far as rules look at a pod.
std::string podWith(const std::string& metadata, const char* list, const element& container) {
  std::string pod = R"({"metadata":)" + metadata + R"(,"spec":{")";
  pod += list;
  pod += R"(":[)" + std::string(simdjson::minify(container)) + "]}}";
  return pod;
}

void addNew(std::vector<std::string>& all, std::string one) {
  if (std::find(all.begin(), all.end(), one) == all.end()) all.push_back(std::move(one));
}

std::string messageOf(const std::vector<std::string>& broken) {
  std::string message = "qgpu: ";
  for (const std::string& rule : broken) message += (&rule == &broken.front() ? "" : "; ") + rule;
  if (message.size() > kMessageBytesMax) message.resize(kMessageBytesMax);
  return message;
}

}  // namespace

std::vector<std::string> brokenRules(std::string_view pod, const PodRules& rules) {
  std::vector<std::string> broken;
  const auto whole = readPod(pod, rules);
  if (whole) return broken;
  // The reader stops at the first: each container again, on its own.
  simdjson::dom::parser parser;
  element root;
  if (parser.parse(pod.data(), pod.size()).get(root) == simdjson::SUCCESS) {
    const std::string metadata = minified(root, "/metadata");
    for (const char* list : {"initContainers", "containers"}) {
      simdjson::dom::array containers;
      if (root.at_pointer(std::string("/spec/") + list).get(containers) != simdjson::SUCCESS) {
        continue;
      }
      for (const element container : containers) {
        const auto alone = readPod(podWith(metadata, list, container), rules);
        if (!alone) addNew(broken, alone.error().message);
      }
    }
  }
  // A rule of the pod as a whole, where no container breaks one.
  if (broken.empty()) broken.push_back(whole.error().message);
  return broken;
}

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
  if (judged) broken = brokenRules(minified(request, "/object"), rules);
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
