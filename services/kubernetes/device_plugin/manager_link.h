#pragma once
// The way to the manager of this node: its KubeletHandler over Cap'n Proto RPC. It connects, asks
// what the node has, asks again at each event and every moment, and connects anew when the manager
// is gone. What it was told last stays known meanwhile: kubelet keeps the same devices while a
// manager is replaced.

#include <functional>
#include <kj/async-io.h>
#include <kj/timer.h>
#include <string>
#include <vector>

#include "runtime/result.h"
#include "runtime/units.h"
#include "services/kubernetes/device_plugin/node_now.h"
#include "services/kubernetes/device_plugin/placeholders.h"
#include "services/kubernetes/device_plugin/reconciler.h"

namespace qgpu {

struct ManagerLinkConfig {
  std::string socket;           // path of the manager's RPC
  Nanos poll = millis(400);     // labels of the node act within a second
  Nanos deadline = seconds(5);  // of one call
  Nanos pauseMin = millis(50);  // between attempts; doubled to the next
  Nanos pauseMax = seconds(1);
};

class ManagerLink final : private kj::TaskSet::ErrorHandler {
 public:
  using OnNode = std::function<void(const NodeNow&)>;
  using OnState = std::function<void(const std::string&)>;  // for the log

  ManagerLink(kj::Network& network, kj::Timer& timer, ManagerLinkConfig config, OnNode onNode,
              OnState onState);
  ManagerLink(const ManagerLink&) = delete;
  ManagerLink& operator=(const ManagerLink&) = delete;
  ~ManagerLink() noexcept;

  void start();

  // All fail as Unavailable while there is no manager.
  // The task of whoever has these devices and starts with `resource`. See KubeletHandler.start.
  kj::Promise<Result<Grant>> startTask(const DevicesOwner& owner, Resource resource);
  kj::Promise<Result<std::vector<PodTask>>> tasks();
  kj::Promise<Status> endTask(std::uint64_t task);
  // What a claim gives here, in the words of KubeletHandler.prepare.
  struct ClaimPart {
    std::string request;
    bool admin = false;
    Grant grant;  // its container's name is the claim's
    struct Device {
      std::string name;
      std::string share;
    };
    std::vector<Device> devices;
  };
  kj::Promise<Result<std::vector<ClaimPart>>> prepareClaim(const std::string& nameSpace,
                                                           const std::string& name,
                                                           const std::string& uid);
  kj::Promise<Status> unprepareClaim(const std::string& uid);
  // The cards whose devices kubelet counts. See KubeletHandler.counted.
  kj::Promise<Status> tellCounted(const std::vector<std::string>& cards);

 private:
  struct Connection;

  kj::Promise<void> live();
  kj::Promise<void> attempt();
  kj::Promise<void> talk();
  kj::Promise<void> poll();
  kj::Promise<void> ask();
  template <typename T, typename Send>
  kj::Promise<Result<T>> call(Send send);
  void setState(std::string state);
  void taskFailed(kj::Exception&& exception) override;

  kj::Network& network_;
  kj::Timer& timer_;
  const ManagerLinkConfig config_;
  OnNode onNode_;
  OnState onState_;
  std::string state_;
  Nanos pause_;
  kj::Own<Connection> connection_;  // only while it is up
  kj::TaskSet tasks_;               // last
};

}  // namespace qgpu
