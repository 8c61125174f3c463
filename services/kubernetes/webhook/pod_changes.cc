#include "services/kubernetes/webhook/pod_changes.h"

#include <utility>

#include "services/kubernetes/claims/resource_slice.h"
#include "services/kubernetes/pods/json_keys.h"
#include "services/kubernetes/pods/pod_document.h"
#include "services/kubernetes/webhook/pod_claims.h"

namespace qgpu {
namespace {

using simdjson::dom::element;

constexpr const char* kSchedulerLabel = "qgpu.io/scheduler-name";

// The pod that is to be created; nothing where the question is another one.
std::optional<element> newPod(const ReviewQuestion& question) {
  element pod;
  const bool asked = question.isOf("", "Pod") && question.text("/operation") == "CREATE" &&
                     question.text("/subResource").empty() &&
                     question.request().at_pointer("/object").get(pod) == simdjson::SUCCESS;
  return asked ? std::optional(pod) : std::nullopt;
}

std::string templatesPath(std::string_view nameSpace) {
  return std::string(kResourceApi) + "/namespaces/" + urlEscaped(nameSpace) +
         "/resourceclaimtemplates";
}

Review madeOrNot(const ReviewQuestion& question, const PodByClaim& changed,
                 const ApiAnswer& answer) {
  if (answer.ok() || answer.fault == ApiFault::AlreadyExists) return question.change(changed.patch);
  const std::string what = "ResourceClaimTemplate " + changed.templateName + " can't be made: ";
  if (answer.fault == ApiFault::Refused) return question.refuse({what + answer.message});
  if (answer.fault == ApiFault::NotFound) {
    return question.refuse(
        {what + "this API server has no resource.k8s.io/v1: parts of cards by claims need "
                "Kubernetes 1.36 or later"});
  }
  return question.failed(what + answer.message);
}

// Empty: the namespace wants none.
std::string schedulerOf(const std::string& nameSpace) {
  simdjson::dom::parser parser;
  element root;
  if (parser.parse(nameSpace).get(root) != simdjson::SUCCESS) return "";
  const auto metadata = member(root, "metadata");
  const auto labels = metadata ? member(*metadata, "labels") : std::nullopt;
  return labels ? std::string(textAt(*labels, kSchedulerLabel)) : "";
}

}  // namespace

kj::Promise<Result<Review>> PodChanges::byClaims(std::string_view body) {
  auto question = ReviewQuestion::read(body);
  if (!question) return Result<Review>(question.error());
  const auto pod = newPod(*question);
  if (!pod) return Result<Review>(question->allow());
  const std::vector<std::string> broken = brokenRules(*pod, rules_);
  if (!broken.empty()) return Result<Review>(question->refuse(broken));
  auto changed = podByClaim(*pod, rules_);
  if (!changed) return Result<Review>(question->refuse({changed.error().message}));
  if (!*changed) return Result<Review>(question->allow());
  if (question->isDryRun()) return Result<Review>(question->change((*changed)->patch));
  ApiCall call{kj::HttpMethod::POST, templatesPath(question->text("/namespace")),
               (*changed)->templateJson};
  return api_.call(std::move(call))
      .then([asked = std::move(*question), made = std::move(**changed)](ApiAnswer answer) {
        return Result<Review>(madeOrNot(asked, made, answer));
      });
}

kj::Promise<Result<Review>> PodChanges::byScheduler(std::string_view body) {
  auto question = ReviewQuestion::read(body);
  if (!question) return Result<Review>(question.error());
  const auto pod = newPod(*question);
  if (!pod || !leavesScheduler(*pod, rules_)) return Result<Review>(question->allow());
  const std::string nameSpace(question->text("/namespace"));
  return api_.get("/api/v1/namespaces/" + urlEscaped(nameSpace))
      .then([asked = std::move(*question), nameSpace](ApiAnswer answer) {
        if (!answer.ok()) {
          return Result<Review>(
              asked.failed("namespace " + nameSpace + " can't be read: " + answer.message));
        }
        const std::string scheduler = schedulerOf(answer.body);
        return Result<Review>(scheduler.empty() ? asked.allow()
                                                : asked.change(schedulerPatch(scheduler)));
      });
}

}  // namespace qgpu
