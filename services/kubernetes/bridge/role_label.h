#pragma once
// The label of a scheduler's own pod that says whether it leads. The Service's selector asks for
// it, so that all replicas may be ready, as rollouts and budgets want them, while the Service leads
// to the one that acts.
//
// The manifest's pods begin as "leads", so a single replica needs no right to change itself. Who
// follows is not ready before its label says so (says()): no follower is ever both ready and led
// to. Whatever fails is tried again.

#include <kj/async.h>
#include <optional>
#include <string>

#include "runtime/log.h"
#include "services/kubernetes/client/api_client.h"

namespace qgpu {

class RoleLabel {
 public:
  static constexpr const char* kLabel = "qgpu.io/scheduler";
  enum class Role : std::uint8_t { Leads, Follows };

  // `api` and `log` outlive it. Where `around` knows no pod there is no label either.
  RoleLabel(ApiClient& api, const KubePlatform& around, Log& log);
  RoleLabel(const RoleLabel&) = delete;
  RoleLabel& operator=(const RoleLabel&) = delete;

  // From now on, whatever was said before.
  void tell(Role role);
  // Whether the API server has it: that of the last tell().
  bool says(Role role) const { return said_ == role; }

 private:
  kj::Promise<void> write();

  ApiClient& api_;
  const std::string path_;  // of the pod; empty: there is none
  Log& log_;
  std::optional<Role> wanted_;
  std::optional<Role> said_;
  Backoff backoff_;
  bool warned_ = false;
  bool writing_ = false;
  kj::Promise<void> running_ = nullptr;  // last
};

}  // namespace qgpu
