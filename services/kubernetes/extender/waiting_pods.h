#pragma once
// The pods that wait for a node, as the API server has them, and who wakes those that could go now.
//
// kube-scheduler tries a pod that an extender refused again only after events of its own: with 1.26
// those of a node's allocatable, labels, taints and conditions, and of pods that go; else after
// five minutes. What opens room here (a manager that is back, a card that is uncordoned, a task
// that ended on a card, a label) is none of these. So the pod itself is updated: the
// annotation qgpu.io/woken moves this one pod in every version, and no other. A condition of the
// node would move every pod of the cluster that waits for any node, and in 1.26 to 1.31 not even
// those that another node refused for a reason of its own.
//
// A pod is woken once for each node that was closed to it and opens: kAtOnce of a kind (pods that
// ask the same) in each look, those of high priority first, for as long as the node stays open. One
// that was not judged since this process is ready is woken where it fits at all: its last try may
// have met the process before this one, or nobody; and so is one that filter passed on and that is
// not bound after kBinds, since its bind may be lost. Pods of a group are woken together, once
// there is room for all that it is short of (pod_groups.h). Memory is bounded: beyond kPodsMax pods
// are left to kube-scheduler's own patience (C5).

#include <cstdint>
#include <kj/async.h>
#include <kj/timer.h>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "services/kubernetes/client/api_server.h"
#include "services/kubernetes/extender/pod_groups.h"
#include "services/kubernetes/extender/pod_verdicts.h"
#include "services/kubernetes/extender/seen_pods.h"

namespace qgpu {

inline constexpr const char* kWokenAnnotation = "qgpu.io/woken";

class WaitingPods final : private kj::TaskSet::ErrorHandler {
 public:
  static constexpr std::size_t kPodsMax = 20'000;
  static constexpr std::size_t kAtOnce = 16;                     // of a kind, in one look
  static constexpr kj::Duration kLook = 100 * kj::MILLISECONDS;  // room is seen within it
  static constexpr kj::Duration kUnjudged =
      500 * kj::MILLISECONDS;                               // kube-scheduler's own first try
  static constexpr kj::Duration kBinds = 10 * kj::SECONDS;  // after filter passed it on

  // All outlive it. `boot`: another one in each process.
  WaitingPods(const ClusterLedger& ledger, PodVerdicts& verdicts, PodGroups& groups,
              kj::Timer& timer, std::uint64_t boot);
  ~WaitingPods() noexcept(false);

  void setApi(ApiServer& api) { api_ = &api; }
  // Looks from now on.
  void start();

  // What the API server says. Who waits has demands; a pod that is told again
  // keeps its place.
  void waits(SeenPod seen);
  void waitsNoMore(const std::string& uid);
  // Null where it is not known to wait.
  const PodDemands* find(const std::string& uid) const;

  // What kube-scheduler was answered.
  void judged(const std::string& uid, bool fits);
  void notBound(const std::string& uid);

  std::size_t size() const { return pods_.size(); }
  std::uint64_t woken() const { return woken_; }

 private:
  // What pods ask; a model that no card has yet is in no shape.
  using Key = std::pair<std::vector<Shape>, std::vector<std::string>>;
  using Place = std::pair<std::int64_t, std::uint64_t>;  // in the order in which pods are woken
  struct Kind;
  struct Waiting {
    PodDemands pod;
    Kind* kind = nullptr;
    Place place;
    bool judged = false;
    std::uint64_t judgedAt = 0;  // changes of the ledger; or it was woken then
    kj::TimePoint quietUntil = kj::origin<kj::TimePoint>();  // it is tried, bound or updated
  };
  struct Kind {
    PodAsk ask;
    std::vector<bool> fits;                       // nodes by position
    std::map<std::size_t, std::uint64_t> opened;  // of them: since this change it fits
    std::map<Place, Waiting*> pods;
  };

  kj::Promise<void> lookForEver();
  void look();
  void takeChanges();
  std::vector<std::size_t> changedNodes();
  void judge(Kind& kind, const std::vector<std::size_t>& nodes);
  void wakeOf(Kind& kind);
  bool isDue(const Waiting& waiting, std::uint64_t newest) const;
  void wake(Waiting& waiting);
  Kind& kindOf(const PodAsk& ask);
  void leaveKind(Waiting& waiting);
  void taskFailed(kj::Exception&& exception) override;

  const ClusterLedger& ledger_;
  PodVerdicts& verdicts_;
  PodGroups& groups_;
  kj::Timer& timer_;
  const std::uint64_t boot_;
  ApiServer* api_ = nullptr;
  std::map<std::string, Waiting> pods_;  // by UID
  std::map<Key, Kind> kinds_;
  std::uint64_t lookedAt_ = 0;  // changes of the ledger
  std::uint64_t lastPlace_ = 0;
  std::uint64_t woken_ = 0;
  bool started_ = false;
  kj::TaskSet tasks_;  // last
};

}  // namespace qgpu
