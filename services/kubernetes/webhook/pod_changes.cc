#include "services/kubernetes/webhook/pod_changes.h"

#include <utility>

#include "services/kubernetes/claims/resource_slice.h"
#include "services/kubernetes/pods/json_keys.h"
#include "services/kubernetes/pods/pod_document.h"
#include "services/kubernetes/webhook/pod_claims.h"

namespace qgpu {
namespace {

using simdjson::dom::element;

constexpr const char* kClaimsLabel = "qgpu.io/claims";
constexpr const char* kEnabled = "enable";
constexpr const char* kSchedulerLabel = "qgpu.io/scheduler-name";

// A pod for which a template is being made.
struct Making {
  ReviewQuestion question;
  PodByClaim changed;
};

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

std::string labelIn(const std::string& object, std::string_view name) {
  simdjson::dom::parser parser;
  element root;
  if (parser.parse(object).get(root) != simdjson::SUCCESS) return "";
  const auto metadata = member(root, "metadata");
  const auto labels = metadata ? member(*metadata, "labels") : std::nullopt;
  return labels ? std::string(textAt(*labels, name)) : "";
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
  auto work = kj::heap<Making>(Making{std::move(*question), std::move(**changed)});
  Making& making = *work;
  // Whoever learnt the word asks in vain for what the namespace does not want.
  return readNamespace(making.question)
      .then([this, &making](ApiAnswer read) -> kj::Promise<Result<Review>> {
        if (!read.ok()) return Result<Review>(making.question.failed(read.message));
        if (labelIn(read.body, kClaimsLabel) != kEnabled) {
          return Result<Review>(making.question.allow());
        }
        ApiCall call{kj::HttpMethod::POST, templatesPath(making.question.text("/namespace")),
                     making.changed.templateJson};
        return api_.call(std::move(call)).then([&making](ApiAnswer made) {
          return Result<Review>(madeOrNot(making.question, making.changed, made));
        });
      })
      .attach(kj::mv(work));
}

kj::Promise<Result<Review>> PodChanges::byScheduler(std::string_view body) {
  auto question = ReviewQuestion::read(body);
  if (!question) return Result<Review>(question.error());
  const auto pod = newPod(*question);
  if (!pod || !leavesScheduler(*pod, rules_)) return Result<Review>(question->allow());
  auto read = readNamespace(*question);
  return read.then([asked = std::move(*question)](ApiAnswer answer) {
    if (!answer.ok()) return Result<Review>(asked.failed(answer.message));
    const std::string scheduler = labelIn(answer.body, kSchedulerLabel);
    return Result<Review>(scheduler.empty() ? asked.allow()
                                            : asked.change(schedulerPatch(scheduler)));
  });
}

kj::Promise<ApiAnswer> PodChanges::readNamespace(const ReviewQuestion& question) {
  const std::string name(question.text("/namespace"));
  return api_.get("/api/v1/namespaces/" + urlEscaped(name)).then([name](ApiAnswer answer) {
    answer.message = "namespace " + name + " can't be read: " + answer.message;
    return answer;
  });
}

}  // namespace qgpu
