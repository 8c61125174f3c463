#pragma once
// The scheduler extender of Kubernetes in qgpu-scheduler: POST /scheduler/{filter, priorities,
// bind, preempt}, as kube-scheduler asks (wire.h).
//
// It lives on the loop of the scheduler actor and looks at its ledger between turns: 5,000 names
// and as many verdicts would be copied three times on their way as messages. It changes nothing
// there; what bind changes goes through the client like every other request. Filter, priorities and
// preempt have no effect but that filter remembers the pod for bind.
//
// kube-scheduler takes any status but 200 for a broken extender, so every answer is 200 and says
// what went wrong in its Error, except where the type has none: then nodes are all equal
// (priorities), or none has victims (preempt). Kept here: C2, C5 (bodies and pods are bounded), C7.

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "actors/base/latency_record.h"
#include "actors/scheduler/cluster_view.h"
#include "services/base/net/http_server.h"
#include "services/kubernetes/extender/binder.h"
#include "services/kubernetes/extender/pod_groups.h"
#include "services/kubernetes/extender/pod_verdicts.h"
#include "services/kubernetes/extender/pods_under_way.h"
#include "services/kubernetes/extender/seen_pods.h"
#include "services/kubernetes/extender/victims.h"
#include "services/kubernetes/extender/wire.h"
#include "services/kubernetes/pods/pod_rules.h"

namespace qgpu {

class Extender {
 public:
  struct Counts {
    std::uint64_t filters = 0;
    std::uint64_t priorities = 0;
    std::uint64_t binds = 0;
    std::uint64_t preempts = 0;
    std::uint64_t malformed = 0;  // bodies that are no such JSON
    std::uint64_t fitting = 0;    // names that filter passed on
    std::uint64_t failing = 0;    // names that it did not
  };

  // Everything outlives the extender. `boot`: another one in each process. `groupHold`: how long
  // binds of a group wait for each other.
  Extender(ClusterActorClient& actor, const ClusterView& cluster, kj::Timer& timer, PodRules rules,
           std::uint64_t boot, kj::Duration groupHold = PodGroups::kHold);

  // Those of the verbs, for the daemon's HTTP server.
  std::vector<HttpRoute> routes();

  // The API server that binds; without it bind is refused. It outlives the extender.
  void setApi(ApiServer& api);
  // The priorities of pods that hold cards, by node and UID. One whose priority nobody knows is
  // never named as a victim.
  using Priorities =
      std::function<std::optional<std::int32_t>(const std::string& node, std::string_view uid)>;
  void setPriorities(Priorities priorities) { priorityOf_ = std::move(priorities); }
  // Why a node that is in no ledger is not, as far as somebody knows; empty: nobody does.
  using WhyNot = std::function<std::string(const std::string& node)>;
  void setWhyNot(WhyNot whyNot) { whyNot_ = std::move(whyNot); }
  // Whether all nodes of the cluster are known; until then filter says so instead of telling pods
  // that they fit nowhere. Ready unless told otherwise.
  void setReady(bool ready);
  bool ready() const { return ready_; }

  // What the API server's watch tells of pods: it waits for a node, or is bound to one and not
  // about to go, or is neither.
  void waits(const PodDemands& pod);
  void bound(const PodDemands& pod);
  void gone(const std::string& uid);
  WaitingPods& waiting() { return waiting_; }

  // One body in, one out.
  std::string filter(std::string body);
  std::string priorities(std::string body);
  kj::Promise<std::string> bind(std::string body);
  std::string preempt(std::string body);

  const Counts& counts() const { return counts_; }
  // As Prometheus text.
  std::string metrics() const;
  const Binder& binder() const { return binder_; }

 private:
  struct TextHash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const {
      return std::hash<std::string_view>()(text);
    }
  };

  // What it takes to answer.
  struct Latencies {
    LatencyRecord filter;
    LatencyRecord priorities;
    LatencyRecord bind;
    LatencyRecord preempt;
  };
  std::string filterNow(std::string body);
  std::string prioritiesNow(std::string body);
  kj::Promise<std::string> bindNow(std::string body);
  std::string preemptNow(std::string body);
  void judge(const ExtenderArgs& args, const SeenPod& seen, FilterResult& result);
  std::optional<PodGroups::Turn> turnOf(const ExtenderArgs& args, const PodDemands& pod);
  void tellBroken(const PodDemands& who, const Error& error);
  std::vector<HostPriority> score(const std::vector<std::string_view>& names, const PodAsk& ask);
  std::optional<NodeId> nodeOf(std::string_view name);
  std::string_view whyNone(std::string_view node);
  PodTasks podTasks() const;

  const ClusterView& cluster_;
  kj::Timer& timer_;
  const PodRules rules_;
  bool ready_ = true;
  ApiServer* api_ = nullptr;
  Priorities priorityOf_ = [](const std::string&, std::string_view) { return std::nullopt; };
  WhyNot whyNot_ = [](const std::string&) { return std::string(); };
  std::deque<std::string> whys_;  // of the answer that is being written, as JSON
  Counts counts_;
  Latencies latencies_;
  WireReader reader_;
  SeenPods seen_;
  PodVerdicts verdicts_;
  PodsUnderWay underWay_;
  PodGroups groups_;
  WaitingPods waiting_;
  // Nodes keep their places while the process lives, so this never goes stale.
  std::unordered_map<std::string, NodeId, TextHash, std::equal_to<>> nodes_;
  Binder binder_;
};

}  // namespace qgpu
