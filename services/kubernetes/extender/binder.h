#pragma once
// The bind verb: from a pod that filter has seen and a node to tasks of the scheduler, the pod's
// annotation and its Binding, all or nothing.
//
//   pod         read from the API server: anybody on the scheduler's machine may say what he likes
//               of a pod to the verbs, so what it asks is what its own object says. A pod that
//               names no resource of ours is not bound here
//   tasks       one for each container with room of its own, submitted for this node and, where
//               there are several containers, each for its card; never waiting, never evicting
//   annotation  qgpu.io/assigned = {"container":["card id"]}, if the pod is still as it was read
//               (its UID and resource version; a later one that asks the same will do)
//   group       a pod of one waits until so many others of it are as far (pod_groups.h)
//   Binding     created last, so that the node finds the decision when the pod arrives
//
// A failure takes back what was done, in the reverse order, and is told as the reason. Where nobody
// knows whether the Binding was created it is tried again, since creating it twice is no failure;
// if the API server stays away the tasks are left to the bridge of pods, which ends what does not
// show up. Binds are known by the pod's UID: a repeated one for the same node gets the first one's
// answer, one for another node is refused while the first lives. An interrupted caller changes
// nothing: a bind runs to its end (C2, P3).

#include <cstdint>
#include <deque>
#include <functional>
#include <kj/async.h>
#include <kj/timer.h>
#include <map>
#include <string>
#include <vector>

#include "actors/scheduler/cluster_view.h"
#include "services/api/commands/cluster_actor_client.h"
#include "services/kubernetes/client/api_server.h"
#include "services/kubernetes/extender/pod_groups.h"
#include "services/kubernetes/extender/pods_under_way.h"
#include "services/kubernetes/extender/seen_pods.h"
#include "services/kubernetes/extender/waiting_pods.h"
#include "services/kubernetes/extender/wire.h"

namespace qgpu {

class Binder final : private kj::TaskSet::ErrorHandler {
 public:
  static constexpr std::size_t kBindsMax = 8'192;  // under way; more are refused
  static constexpr std::size_t kWritesMax = 128;   // binds that use the API server at once
  static constexpr std::size_t kRememberedMax = 20'000;
  static constexpr int kTriesMax = 4;     // to place, while others take the same cards
  static constexpr int kVersionsMax = 5;  // of a pod, that are waited for while it is annotated
  static constexpr kj::Duration kVersionEvery = 20 * kj::MILLISECONDS;
  static constexpr kj::Duration kRetryEvery = 500 * kj::MILLISECONDS;
  static constexpr kj::Duration kRetryFor = 25 * kj::SECONDS;  // less than a bind is assumed for

  struct Counts {
    std::uint64_t bound = 0;
    std::uint64_t refused = 0;  // before anything was written
    std::uint64_t rolledBack = 0;
  };

  // All of these outlive the binder. `boot`: another one in each process, a part of request ids.
  Binder(ClusterActorClient& actor, const ClusterView& cluster, const SeenPods& seen,
         PodRules rules, WaitingPods& waiting, PodsUnderWay& underWay, PodGroups& groups,
         kj::Timer& timer, std::uint64_t boot);
  ~Binder() noexcept(false);

  // Whose pods these are; without it every bind is refused.
  void setApi(ApiServer* api) { api_ = api; }

  // Empty where the pod is bound, else why not. Never fails.
  kj::Promise<std::string> bind(ExtenderBindingArgs args);

  // The bind of this pod, by its UID, while it has not ended.
  std::optional<BindUnderWay> underWayOf(std::string_view uid) const;

  const Counts& counts() const { return counts_; }
  std::size_t underWay() const { return running_; }

 private:
  struct Bind;
  struct Known {  // a bind by its pod's UID
    std::string node;
    kj::Maybe<kj::ForkedPromise<std::string>> result;  // while it is under way
    const Bind* bind = nullptr;                        // and how far it is
  };

  kj::Promise<std::string> start(const ExtenderBindingArgs& args, const SeenPod& seen);
  kj::Promise<Status> run(Bind& bind);
  kj::Promise<Status> together(const Bind& bind);
  kj::Promise<Status> read(Bind& bind);
  Status take(Bind& bind, const Result<std::string>& json) const;
  Status plan(Bind& bind);
  kj::Promise<Status> place(Bind& bind, int tries);
  kj::Promise<Status> submitAll(Bind& bind);
  Status takeAnswer(Bind& bind, std::size_t demand, const Result<ClusterAnswer>& answer);
  Status stillPlaced(const Bind& bind) const;
  kj::Promise<Status> annotate(Bind& bind, int versions);
  kj::Promise<Status> annotateLater(Bind& bind, Error why, int versions);
  kj::Promise<Status> createBinding(Bind& bind, kj::TimePoint until);
  kj::Promise<Status> takeBack(Bind& bind, Error why);
  kj::Promise<void> deleteTasks(Bind& bind);
  kj::Promise<Status> calling(std::function<kj::Promise<Status>()> call);
  kj::Promise<void> mayCall();
  void doneCalling();
  void ended(const std::string& uid, const Status& how);
  void tell(const Bind& bind, EventReason reason, const std::vector<std::string>& values);
  void taskFailed(kj::Exception&& exception) override;

  ClusterActorClient& actor_;
  const ClusterView& cluster_;
  const ClusterLedger& ledger_;
  const SeenPods& seen_;
  const PodRules rules_;
  WaitingPods& waiting_;
  PodsUnderWay& underWay_;
  PodGroups& groups_;
  kj::Timer& timer_;
  const std::uint64_t boot_;
  ApiServer* api_ = nullptr;
  Counts counts_;
  std::uint64_t attempts_ = 0;
  std::size_t running_ = 0;
  std::size_t calling_ = 0;
  std::deque<kj::Own<kj::PromiseFulfiller<void>>> callers_;
  std::map<std::string, Known, std::less<>> known_;
  std::deque<std::string> bound_;  // of known_, oldest first
  kj::TaskSet tasks_;              // last
};

}  // namespace qgpu
