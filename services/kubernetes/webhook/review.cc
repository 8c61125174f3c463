#include "services/kubernetes/webhook/review.h"

#include "services/base/base64.h"
#include "services/base/json.h"

namespace qgpu {
namespace {

constexpr std::size_t kMessageBytesMax = 4096;
constexpr std::int64_t kForbidden = 403;
constexpr std::int64_t kUnavailable = 503;

std::string_view reviewTextAt(const simdjson::dom::element& object, std::string_view pointer) {
  std::string_view text;
  return object.at_pointer(pointer).get(text) == simdjson::SUCCESS ? text : std::string_view();
}

std::string messageOf(const std::vector<std::string>& sentences) {
  std::string message = "qgpu: ";
  for (const std::string& one : sentences)
    message += (&one == &sentences.front() ? "" : "; ") + one;
  if (message.size() > kMessageBytesMax) message.resize(kMessageBytesMax);
  return message;
}

// Up to `response`, which is open.
void beginAnswer(JsonWriter& json, std::string_view version, std::string_view uid, bool allowed) {
  json.beginObject().field("kind", "AdmissionReview").field("apiVersion", version);
  json.key("response").beginObject().field("uid", uid).flag("allowed", allowed);
}

}  // namespace

Result<ReviewQuestion> ReviewQuestion::read(std::string_view body) {
  ReviewQuestion question;
  question.parser_ = std::make_unique<simdjson::dom::parser>();
  simdjson::dom::element root;
  if (question.parser_->parse(body.data(), body.size()).get(root) != simdjson::SUCCESS ||
      reviewTextAt(root, "/kind") != "AdmissionReview" ||
      root.at_pointer("/request").get(question.request_) != simdjson::SUCCESS ||
      !question.request_.is_object()) {
    return fail(ErrorCode::InvalidArgument, "the body is no AdmissionReview with a request");
  }
  question.version_ = reviewTextAt(root, "/apiVersion");
  if (question.version_ != "admission.k8s.io/v1" &&
      question.version_ != "admission.k8s.io/v1beta1") {
    return fail(ErrorCode::InvalidArgument,
                "AdmissionReview is of \"" + std::string(question.version_.substr(0, 64)) +
                    "\": admission.k8s.io/v1 and v1beta1 are spoken here");
  }
  return question;
}

std::string_view ReviewQuestion::text(std::string_view pointer) const {
  return reviewTextAt(request_, pointer);
}

bool ReviewQuestion::isOf(std::string_view group, std::string_view kind) const {
  return text("/kind/kind") == kind && text("/kind/group") == group;
}

bool ReviewQuestion::isDryRun() const {
  bool dry = false;
  return request_.at_pointer("/dryRun").get(dry) == simdjson::SUCCESS && dry;
}

Review ReviewQuestion::allow() const {
  JsonWriter json;
  beginAnswer(json, version_, text("/uid"), true);
  json.endObject().endObject();
  return {json.take(), true};
}

Review ReviewQuestion::change(const std::string& patch) const {
  JsonWriter json;
  beginAnswer(json, version_, text("/uid"), true);
  json.field("patchType", "JSONPatch").field("patch", toBase64(patch)).endObject().endObject();
  return {json.take(), true};
}

Review ReviewQuestion::refuse(const std::vector<std::string>& broken) const {
  return refuse(broken, Fault::Broken);
}

Review ReviewQuestion::failed(const std::string& why) const {
  return refuse({why}, Fault::Failed);
}

Review ReviewQuestion::refuse(const std::vector<std::string>& sentences, Fault fault) const {
  const bool broken = fault == Fault::Broken;
  JsonWriter json;
  beginAnswer(json, version_, text("/uid"), false);
  json.key("status").beginObject().field("message", messageOf(sentences));
  json.field("reason", broken ? "Forbidden" : "ServiceUnavailable");
  json.key("code").number(broken ? kForbidden : kUnavailable);
  json.endObject().endObject().endObject();
  return {json.take(), false};
}

}  // namespace qgpu
