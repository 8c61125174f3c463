#pragma once
// Kubelet's driver of this node's claims: told by the manager whether the cards are given by
// claims, it serves kubelet while they are. What a claim gives is written for its containers where
// they will find it, and named to kubelet by CDI:
//
//   RUN_DIR/claims/UID/N/{token,settings,environment}   of the claim's Nth request
//   CDI_DIR/qgpu.io-claim-UID.json                       its devices, qgpu.io/claim=UID-N
//
// Both go when kubelet takes the claim back. Nothing is kept beside them: a plugin that starts
// anew answers for each claim what the one before it did.

#include <kj/async-io.h>
#include <kj/timer.h>
#include <optional>
#include <string>

#include "runtime/log.h"
#include "runtime/loop.h"
#include "services/kubernetes/claim_plugin/claim_server.h"
#include "services/kubernetes/device_plugin/manager_link.h"
#include "services/kubernetes/device_plugin/tenant_files.h"

namespace qgpu {

inline constexpr const char* kClaimCdiKind = "qgpu.io/claim";

struct ClaimPluginConfig {
  std::string manager;     // path of the manager's RPC socket
  std::string kubeletDir;  // holds plugins/ and plugins_registry/
  std::string pool;        // of our slice: the node's name
  std::string cdiDir;
  TenantFilesConfig files;
};

class ClaimPlugin final : private ClaimPreparer, private kj::TaskSet::ErrorHandler {
 public:
  ClaimPlugin(Loop& loop, kj::Network& network, kj::Timer& timer, Log& log,
              ClaimPluginConfig config);
  ClaimPlugin(const ClaimPlugin&) = delete;
  ClaimPlugin& operator=(const ClaimPlugin&) = delete;

  void start();
  // Ends everything and calls `over` when nothing is under way any more; the loop runs until then.
  void stop(std::function<void()> over);

 private:
  kj::Promise<Result<Devices>> prepare(ClaimName claim) override;
  kj::Promise<Status> unprepare(ClaimName claim) override;
  void onRegistered(bool registered, const std::string& why) override;

  void onNode(const NodeNow& node);
  void look();
  void tellHealth();
  kj::Promise<void> lookAgain();
  Result<Devices> give(const ClaimName& claim, const std::vector<ManagerLink::ClaimPart>& parts);
  void waitForEnd();
  void taskFailed(kj::Exception&& exception) override;

  Loop& loop_;
  kj::Timer& timer_;
  Log& log_;
  const ClaimPluginConfig config_;
  const ClaimSockets sockets_;
  TenantFiles files_;
  RetiredServers retired_;
  ManagerLink link_;
  std::optional<NodeNow> node_;
  std::unique_ptr<ClaimServer> server_;
  kj::TimePoint healthTold_ = kj::origin<kj::TimePoint>();
  std::string failure_;  // of its opening, as last told
  std::function<void()> over_;
  std::optional<kj::TaskSet> tasks_;  // last
};

}  // namespace qgpu
