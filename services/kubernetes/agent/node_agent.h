#pragma once
// The manager's words with the Kubernetes API server about its own node:
//
//   cards and their health -> the node's ResourceSlice, where its label says that they are given by
//                             claims (node_claims.h); else
//                             node annotation qgpu.io/cards, through nodes/status; a card whose
//                             devices kubelet does not count at that moment is "starting" and takes
//                             nothing new, since kubelet fails a pod for good that asks for them
//   labels of the node     -> policy of its cards, mixed or not, served at all; at once
//                             with `labelNode` a node with cards and without the label gets it
//   pods of the node       -> the book of pods (annotation qgpu.io/assigned), and the end of the
//                             tasks of pods that are over
//   what became of pods    -> events that `kubectl describe pod` shows
//
// Nothing here is waited for by a pod that runs. While the server is away, everything stays as it
// was; each round compares what is wanted with what is, so that whatever was missed is made up for.

#include <functional>
#include <kj/async.h>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "runtime/log.h"
#include "services/api/commands/node_actor_client.h"
#include "services/cards/health.h"
#include "services/kubernetes/agent/kubelet_handler.h"
#include "services/kubernetes/agent/namespace_use.h"
#include "services/kubernetes/claims/node_claims.h"
#include "services/kubernetes/claims/other_drivers.h"
#include "services/kubernetes/client/api_server.h"
#include "services/kubernetes/client/reflector.h"
#include "services/kubernetes/pods/cards_annotation.h"
#include "services/kubernetes/pods/pod_names.h"

namespace qgpu {

struct NodeAgentConfig {
  std::string node;
  std::string version;
  std::string attachSocket;
  std::uint32_t maxTasksPerCard = 0;
  schema::Policy policy = schema::Policy::BEST_EFFORT;  // of a node without the label
  PodRules rules;
  bool labelNode = false;  // it gets the label qgpu-device-enable=enable, where it has none
  std::function<void(bool)> onMixed = [](bool) {};  // whether the node's label says so; each time
  ReflectorOptions follow;
  Nanos round = seconds(1);              // at the latest; labels and pods start one at once
  Nanos suspendedEvery = seconds(60);    // one summary of each container, the first at once
  Nanos suspendedAtLeast = millis(100);  // in that time; less is not told
};

class NodeAgent final : private KubeListener<KubeNode>,
                        private KubeListener<KubePod>,
                        private StartListener,
                        private kj::TaskSet::ErrorHandler {
 public:
  // All of them outlive the agent, which runs from here on. `events` tells pods.
  NodeAgent(NodeActorClient& actor, KubeletHandler& handler, ApiClient& api, ApiServer& events,
            Log& log, NodeAgentConfig config);
  NodeAgent(const NodeAgent&) = delete;
  NodeAgent& operator=(const NodeAgent&) = delete;
  ~NodeAgent() noexcept;

  // Before the manager ends: nothing new until the next one is there.
  kj::Promise<void> leave();
  // What the watch of NVIDIA's cards says.
  void onHealth(const HealthChange& change);
  // What namespaces used, as Prometheus text.
  std::string metrics() const { return use_.metrics(); }
  // Whose task it is, as long as nothing else is done here; empty where it is no container's, or
  // not known yet, as for a moment after a restart.
  PodTaskParts containerOf(std::uint64_t task) const;

 private:
  using Cards = std::vector<AnnotatedCard>;
  struct Holding {                      // a task of a container or of a claim, as events need it
    std::vector<PodRef> pods;           // one, but of a claim all that it is reserved for
    std::vector<std::string> unjudged;  // of these, by uid: the guard has not been told
    std::string container;              // or the request of the claim
    std::string what;                   // as messages call it
    std::vector<std::string> cards;
    kj::TimePoint heldFrom;  // when it was told of last
    NamespaceUse::Seen counted;
    std::uint64_t heldNs = 0;  // as it was then
    bool heldTold = false;     // else never, since it began
    bool quarantined = false;  // as it was told of last
  };

  void onUpsert(const KubeNode& node) override;
  void onGone(const KubeNode& last) override;
  void onUpsert(const KubePod& pod) override;
  void onGone(const KubePod& last) override;
  void onSynced() override {}
  void onStarted(const PodPlan& pod, const std::string& container, std::uint64_t task,
                 const std::vector<std::string>& cards) override;
  void onRefused(const PodPlan& pod, const std::string& container, const Error& why) override;
  void onClaimPrepared(const ClaimName& claim, const PreparedClaim& prepared) override;
  void onClaimRefused(const ClaimName& claim, const Error& why) override;
  void onCounted() override { ring(); }

  void readLabels(const KubeNode& node);
  // Why nothing of this node may be shared, whichever way; null: it may.
  const char* refused(const KubeNode& node) const;
  void closeOrServe(const KubeNode& node);
  void over(const PodDemands& pod);
  void endRooms(const KubePod& pod);
  void endLater(const std::string& key, PodPlan plan);
  kj::Promise<void> follow();
  kj::Promise<void> hear(kj::Own<EventFeed> feed);
  void onEvent(schema::Event::Reader event);

  kj::Promise<void> rounds();
  kj::Promise<void> round();
  void ring();
  kj::Promise<void> readCards();
  kj::Promise<void> lookForOthers();
  kj::Promise<void> giveCards();
  kj::Promise<void> labelNode();
  kj::Promise<void> annotate();
  kj::Promise<ApiAnswer> patchNode(std::string change);
  kj::Promise<void> writeAnnotation(std::optional<std::string> text);
  kj::Promise<void> choosePolicy();
  kj::Promise<void> endOverPods();
  kj::Promise<void> readTasks();
  Holding holdingOf(std::vector<PodRef> pods, std::string container, std::string what,
                    std::vector<std::string> cards) const;
  Nanos now() const;
  void inherit(Holding& holding, schema::TaskInfo::Reader task) const;
  void findHoldings(capnp::List<schema::TaskInfo>::Reader tasks);
  void findClaims(capnp::List<schema::TaskInfo>::Reader tasks);
  void findClaim(schema::TaskInfo::Reader task);
  void judgePods(capnp::List<schema::TaskInfo>::Reader tasks);
  void judgePods(std::uint64_t task, Holding& holding);
  void limitPods(capnp::List<schema::TaskInfo>::Reader tasks);
  void findSharers(schema::TaskInfo::Reader task);
  void use(Holding& holding, const std::vector<PodRef>& pods);
  void tellEarly(capnp::List<schema::TaskInfo>::Reader tasks);
  void tellTrouble(const Holding& holding, EventReason reason, const std::string& what);
  void tellTask(Holding& holding, schema::TaskInfo::Reader task);
  void tellHeld(Holding& holding, std::uint64_t heldNs);
  void tellRecovered(const Cards& now);
  void tellOfCard(const std::string& card, EventReason reason, const std::string& what);
  using Values = std::vector<std::string>;  // of a reason's shape
  void tell(const PodRef& pod, EventReason reason, const Values& values);
  void tell(const Holding& holding, EventReason reason, const Values& values);
  void tellNode(EventReason reason, const Values& values);
  void tellAll(EventReason reason, const Values& values);
  void taskFailed(kj::Exception&& exception) override;

  NodeActorClient& actor_;
  KubeletHandler& handler_;
  ApiClient& api_;
  ApiServer& events_;
  Log& log_;
  const NodeAgentConfig config_;
  kj::Timer& timer_;
  const Peer self_;
  const std::map<std::string, PciPlace> places_;
  NodeClaims claims_;
  OtherDrivers others_;

  Cards cards_;                           // as the node has them
  std::optional<KubeNode> node_;          // as the server has it
  std::optional<schema::Policy> policy_;  // wanted by the label; none: whatever is
  std::string label_;                     // its value, as last read
  bool labelWasThere_ = false;
  bool leaving_ = false;
  std::string trouble_;  // last said of the server or the node, once each
  std::string labelTrouble_;
  std::map<std::string, PodPlan> over_;  // their tasks end; by uid, or uid and '/' for rooms of it
  std::map<std::uint64_t, Holding> holdings_;
  NamespaceUse use_;
  // Tasks of claims that a manager before this one bound and whose pods are still to be asked for;
  // none: not looked yet.
  std::optional<std::set<std::uint64_t>> inherited_;
  // What happened to tasks of pods that are not known yet, as after a restart.
  std::map<std::uint64_t, std::pair<EventReason, std::string>> early_;
  std::map<std::string, bool> ill_;  // cards by id; true: seen out of use since
  kj::Own<kj::PromiseFulfiller<void>> rung_;
  std::optional<Reflector<KubeNode>> nodes_;
  std::optional<Reflector<KubePod>> pods_;
  kj::TaskSet tasks_;  // last
};

}  // namespace qgpu
