#include "services/kubernetes/bridge/role_label.h"

#include "services/base/json.h"

namespace qgpu {
namespace {

constexpr Nanos kRetryFirst = millis(500);
constexpr Nanos kRetryMost = seconds(15);

const char* word(RoleLabel::Role role) {
  return role == RoleLabel::Role::Leads ? "leads" : "follows";
}

std::string pathOf(const KubePlatform& around) {
  if (around.pod.empty() || around.podNameSpace.empty()) return {};
  return "/api/v1/namespaces/" + urlEscaped(around.podNameSpace) + "/pods/" +
         urlEscaped(around.pod) + "/status";  // see pod_writer.h
}

std::string patch(RoleLabel::Role role) {
  JsonWriter json;
  json.beginObject().key("metadata").beginObject().key("labels").beginObject();
  json.field(RoleLabel::kLabel, word(role)).endObject().endObject().endObject();
  return json.take();
}

}  // namespace

RoleLabel::RoleLabel(ApiClient& api, const KubePlatform& around, Log& log)
    : api_(api), path_(pathOf(around)), log_(log), backoff_(api.backoff(kRetryFirst, kRetryMost)) {}

void RoleLabel::tell(Role role) {
  if (wanted_ == role) return;
  wanted_ = role;
  if (path_.empty()) {
    said_ = role;
    return;
  }
  said_.reset();
  if (std::exchange(writing_, true)) return;  // what is under way goes on with this
  running_ = write().eagerlyEvaluate(
      [](kj::Exception&&) { QGPU_CHECK(false, "the label handles its own failures"); });
}

kj::Promise<void> RoleLabel::write() {
  const Role role = *wanted_;
  return api_.call({kj::HttpMethod::PATCH, path_, patch(role), kMergePatch})
      .then([this, role](ApiAnswer answer) -> kj::Promise<void> {
        const bool current = wanted_ == role;
        if (answer.ok() && current) {
          said_ = role;
          writing_ = warned_ = false;
          backoff_.reset();
          return kj::READY_NOW;
        }
        if (answer.ok()) return write();
        if (!std::exchange(warned_, true)) {
          log_.warn("role-label", {{"pod", path_}, {"role", word(role)}, {"why", answer.message}});
        }
        return api_.timer().afterDelay(backoff_.next().value * kj::NANOSECONDS).then([this]() {
          return write();
        });
      });
}

}  // namespace qgpu
