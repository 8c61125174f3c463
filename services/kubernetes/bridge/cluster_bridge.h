#pragma once
// Kubernetes nodes as members of the cluster: for each node the bridge says to the scheduler actor
// what a manager's member actor would say of it, and hears what the scheduler orders. What is true
// it learns from the API server alone:
//
//   node   with label qgpu-device-enable=enable and the annotation qgpu.io/cards, and without
//          nvidia.com/gpu or amd.com/gpu: a member; Ready: it beats
//   pod    bound to it, with the annotation qgpu.io/assigned: its containers are tasks that the
//          node holds, until the pod is gone, over, or the container has ended for good. A pod
//          that is being deleted keeps its card.
//   order to bind   confirmed at once and assumed, until the pod is seen bound with its annotation;
//          after `assumeMax` the API server is asked
//   order to end    a pod is evicted, and ends when it ends
//   order to mark   kept as the node's annotation qgpu.io/cordoned
//
// What is assumed ends in one way: nobody binds the pod any more, and the API server, asked for
// that pod, has no Binding of it (PodWriter::settle). Until then its cards are nobody else's: a pod
// that is bound late brings no decision with it, or finds its cards as it left them (P1 to P3).
//
// A task is known by its pod's UID and its name, whichever attempt bound it, so that after a
// restart, or for a new leader, held tasks keep the scheduler's numbers: its list of tasks is asked
// before anything is told, and those whose pods are not bound are assumed. While the API server is
// away everything stays as it was last seen, and orders to bind are refused.
//
// Kept here: C1 in part (one process, so no lease to lose), C5 (messages wait per node, bounded),
// C6, P3 and P6 (as for any member), C7 (annotations of pods and nodes may hold anything).

#include <capnp/message.h>
#include <cstdint>
#include <deque>
#include <functional>
#include <kj/async.h>
#include <kj/timer.h>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "actors/base/codec.h"
#include "services/api/commands/cluster_actor_client.h"
#include "services/api/rpc/links.h"
#include "services/kubernetes/client/pod_writer.h"
#include "services/kubernetes/client/reflector.h"
#include "services/kubernetes/pods/cards_annotation.h"

namespace qgpu {

struct BridgeOptions {
  PodRules rules;
  ReflectorOptions follow;
  Nanos assumeMax = seconds(30);
  Nanos tick = millis(100);
  Nanos helloMax = seconds(10);           // for the welcome
  Nanos retryAfter = seconds(2);          // after the scheduler turned a node away
  Nanos settleEvery = seconds(5);         // while a pod that is assumed is not known to be unbound
  Nanos markEvery = seconds(5);           // while the API server does not take a mark
  Nanos evictEvery = seconds(5);          // while a budget forbids it, or nobody answers
  Nanos awayMax = seconds(5);             // of the API server; after it nothing is bound
  std::function<void()> onReady = [] {};  // once: every usable node is a member, or was turned away
  // Of each pod, whenever it changes, one of these: it is bound to no node and may be; it is bound,
  // and not about to go; it is neither, by its UID.
  std::function<void(const KubePod&)> onWaits = [](const KubePod&) {};
  std::function<void(const KubePod&)> onBound = [](const KubePod&) {};
  std::function<void(const std::string&)> onNeither = [](const std::string&) {};
  std::function<bool()> mayBind = [] { return true; };  // asked before each
  // By the pod's UID.
  std::function<std::optional<BindUnderWay>(std::string_view)> bindOf = [](std::string_view) {
    return std::nullopt;
  };
  std::size_t messagesMax = 4'096;  // of one node, that wait
};

class ClusterBridge final : public Links::LocalMembers,
                            private KubeListener<KubeNode>,
                            private KubeListener<KubePod>,
                            private kj::TaskSet::ErrorHandler {
 public:
  // All outlive the bridge. It runs from start() on.
  ClusterBridge(RequestSink& scheduler, ClusterActorClient& actor, ApiClient& api,
                PodWriter& writer, Log& log, BridgeOptions options = {});
  ClusterBridge(const ClusterBridge&) = delete;
  ClusterBridge& operator=(const ClusterBridge&) = delete;
  ~ClusterBridge() noexcept(false);

  void start();

  // What the scheduler says to a link from kLocalLinks on.
  void onToMember(schema::ToMember::Reader message) override;

  struct Figures {
    std::size_t nodes = 0;    // that are members
    std::size_t refused = 0;  // labelled, and not usable
    std::size_t held = 0;
    std::size_t assumed = 0;
    bool synced = false;
  };
  Figures figures() const;
  // These and others as Prometheus text.
  std::string metrics() const;
  // Of a pod that was seen to hold cards there.
  std::optional<std::int32_t> priorityOf(const std::string& node, std::string_view uid) const;
  // Why a labelled node is no member, also where its cards are given by claims; empty: it is one,
  // or has no label.
  std::string refusal(const std::string& node) const;

 private:
  enum class Life : std::uint8_t { Away, Greeting, Joined };
  struct NodeTask {  // a task on its node
    TaskSpec spec;   // with the scheduler's number and epoch; 0: not known
    std::uint64_t nodeTask = 0;
    std::vector<std::string> cards;
    PodRef pod;
    std::int32_t priority = 0;  // of the pod, once it is seen
    bool seen = false;          // else assumed
    bool settling = false;      // the API server is being asked
    bool ending = false;        // ordered to end before it was seen
    std::string why;            // it ends
    bool evicting = false;
    bool asking = false;  // an eviction is under way
    kj::TimePoint evictAt = kj::origin<kj::TimePoint>();
  };
  struct Node {
    KubeNode kube;
    std::optional<CardsAnnotation> cards;
    std::string refused;  // why it is no member
    Life life = Life::Away;
    bool factsLate = false;  // they changed since the hello that is not answered yet
    bool answered = false;   // was a member, or turned away, once
    std::uint32_t link = 0;
    std::uint64_t session = 0;
    std::uint64_t seq = 0;
    std::uint64_t nonce = 0;
    Nanos beatEvery = seconds(5);
    kj::TimePoint due = kj::origin<kj::TimePoint>();  // next beat, hello or end of waiting
    std::map<std::string, NodeTask> held;             // by pod and name
    std::set<std::string> changed;                    // of them, to be told
    std::vector<NodeTask> gone;                       // ended, to be told
    std::map<std::string, bool> marks;    // of cards, that the node's annotation does not show yet
    std::optional<kj::TimePoint> markAt;  // when they are to be written
    std::deque<kj::Own<capnp::MallocMessageBuilder>> messages;  // that wait for the mailbox
  };
  struct Assumption {
    std::string node;
    std::string request;
    std::uint64_t task;
    std::uint32_t epoch;
  };
  struct Known {  // a task of the scheduler's list
    std::string node;
    NodeTask held;  // as if it were assumed
  };
  using Say = std::function<void(schema::FromMember::Builder)>;

  // What the API server says (cluster_bridge.cc).
  void onUpsert(const KubeNode& node) override;
  void onGone(const KubeNode& last) override;
  void onUpsert(const KubePod& pod) override;
  void onGone(const KubePod& last) override;
  void onSynced() override;
  kj::Promise<void> recall(std::uint64_t after);
  void assumeKnown();
  void releaseAssumed(const KubePod& pod, const std::map<std::string, NodeTask>& now);
  void hold(const std::string& node, const std::string& request, NodeTask seen);
  void release(std::string node, std::string request);
  std::map<std::string, NodeTask> tasksOf(const KubePod& pod) const;
  static std::string whyNot(const KubeNode& node, const Result<CardsAnnotation>& cards);
  kj::Promise<void> tick();
  static std::string keyOfTask(const TaskSpec& spec);
  static bool isForgotten(const Node& node);
  void tellReady();

  // How what is held ends.
  void settleDue();
  void settle(const Assumption& assumed);
  void onSettled(const Assumption& assumed, const Result<bool>& bound);
  NodeTask* stillAssumed(const Assumption& assumed);
  void settleAt(kj::TimePoint when, const Node& node, const NodeTask& held);
  void beginEviction(Node& node, const std::string& request, NodeTask& held);
  void evictDue();
  void evict(const std::string& node, const std::string& request, NodeTask& held);

  // Messages of members and to them (cluster_bridge_codec.cc).
  void look(Node& node);
  void greet(Node& node);
  void leave(Node& node, Nanos pause);
  void flush(Node& node);
  void tellChanges(Node& node);
  void say(Node& node, const Say& fill);
  void put(Node& node, const Say& fill);
  void onWelcome(Node& node, schema::ToMember::Reader message);
  void onBind(Node& node, schema::OrderBind::Reader order);
  void sayBound(Node& node, schema::OrderBind::Reader order, const NodeTask& held);
  void onEnd(Node& node, schema::OrderEnd::Reader order);
  void onMark(Node& node, schema::OrderMark::Reader order);
  void writeMarks(Node& node);
  std::set<std::string> cordonedOf(const Node& node) const;
  std::optional<PodRef> podOf(const TaskSpec& spec) const;
  void refuse(Node& node, schema::OrderBind::Reader order, const Error& why);
  void writeFacts(const Node& node, schema::NodeFacts::Builder facts) const;
  static void writeNodeTask(const NodeTask& held, bool ended, schema::HeldTask::Builder builder);
  bool apiAway() const;

  void taskFailed(kj::Exception&& exception) override;

  RequestSink& scheduler_;
  ClusterActorClient& actor_;
  ApiClient& api_;
  PodWriter& writer_;
  Log& log_;
  kj::Timer& timer_;
  const BridgeOptions options_;
  Prng chance_;
  std::map<std::string, Node> nodes_;
  std::map<std::uint32_t, Node*> links_;
  std::uint32_t lastLink_ = 0;
  std::map<std::string, std::pair<std::string, std::set<std::string>>> pods_;  // node, requests
  std::map<std::string, Known> known_;                      // by pod and name, until all is synced
  std::set<std::string> shown_;                             // UIDs of bound pods, until then
  std::multimap<kj::TimePoint, Assumption> assumed_;        // by when they are looked at again
  std::set<std::pair<std::string, std::string>> evicting_;  // node and request
  std::size_t settling_ = 0;
  struct Settled {
    std::uint64_t bound = 0;
    std::uint64_t unbound = 0;
    std::uint64_t unknown = 0;
  } settled_;
  bool synced_ = false;
  bool readyTold_ = false;
  std::optional<Reflector<KubeNode>> nodeWatch_;
  std::optional<Reflector<KubePod>> podWatch_;
  kj::TaskSet tasks_;  // last
};

}  // namespace qgpu
