// What the API server says of nodes and pods, what time brings, and how what is held ends: what was
// only assumed, and pods that are to leave.
#include "services/kubernetes/bridge/cluster_bridge.h"

#include <algorithm>
#include <unistd.h>

#include "runtime/text_hash.h"
#include "services/base/kj_time.h"
#include "services/kubernetes/pods/assigned_annotation.h"
#include "services/kubernetes/pods/pod_names.h"

namespace qgpu {
namespace {

constexpr std::uint32_t kTasksAtOnce = 4'096;
constexpr std::size_t kSettlingMax = 64;  // assumptions that are looked into at once
// What is over is not listed, and tells its end as if it were deleted.
constexpr const char* kPodsPath =
    "/api/v1/pods?fieldSelector=status.phase%21%3DSucceeded%2Cstatus.phase%21%3DFailed";

// The same number for the same task in every life of this process, so that the scheduler knows
// again what it adopted.
std::uint64_t numberOf(const std::string& request) {
  const std::uint64_t hash = textHash(request) & ((std::uint64_t{1} << 62) - 1);
  return hash == 0 ? 1 : hash;
}

// The attempt in request ids of pods that were bound when they were first seen.
constexpr const char* kSeen = "seen";

}  // namespace

std::string ClusterBridge::keyOfTask(const TaskSpec& spec) {
  return std::string(podUidOf(spec.requestId)) + " " + spec.name;
}

ClusterBridge::ClusterBridge(RequestSink& scheduler, ClusterActorClient& actor, ApiClient& api,
                             PodWriter& writer, Log& log, BridgeOptions options)
    : scheduler_(scheduler),
      actor_(actor),
      api_(api),
      writer_(writer),
      log_(log),
      timer_(api.timer()),
      options_(std::move(options)),
      chance_(api.random()),
      tasks_(*this) {}

ClusterBridge::~ClusterBridge() noexcept(false) = default;

void ClusterBridge::start() {
  tasks_.add(recall(0).then([this]() {
    KubeListener<KubeNode>& nodes = *this;
    KubeListener<KubePod>& pods = *this;
    nodeWatch_.emplace(api_, "/api/v1/nodes", nodes, log_, options_.rules, options_.follow);
    podWatch_.emplace(api_, kPodsPath, pods, log_, options_.rules, options_.follow);
    return tick();
  }));
}

// The scheduler's tasks, page by page, so that pods that are seen get their numbers.
kj::Promise<void> ClusterBridge::recall(std::uint64_t after) {
  const Peer self{::geteuid(), static_cast<std::uint32_t>(::getpid()), true, ""};
  auto asked = actor_.ask(self, [after](schema::ClusterRequest::Builder request) {
    request.initTasks(0);
    request.getPage().setAfter(after);
    request.getPage().setMost(kTasksAtOnce);
  });
  return asked.then([this, after](Result<ClusterAnswer> answer) -> kj::Promise<void> {
    if (!answer || !answer->reply().isTasks()) {
      return timer_.afterDelay(toKj(options_.tick)).then([this, after]() { return recall(after); });
    }
    for (const auto task : answer->reply().getTasks()) {
      const TaskSpec spec = readSpec(task.getSpec().getTask());
      if (podUidOf(spec.requestId).empty() || task.getState() == schema::PlaceState::WAITING) {
        continue;
      }
      Known& known = known_[keyOfTask(spec)];
      known.node = text(task.getNode());
      known.held.spec = spec;
      known.held.spec.clusterTask = known.held.nodeTask = task.getId();
      known.held.spec.clusterEpoch = task.getEpoch();
      for (const auto card : task.getCards()) known.held.cards.push_back(text(card));
    }
    const std::uint64_t next = answer->reply().getNext();
    if (next == 0) return kj::READY_NOW;
    return recall(next);
  });
}

// --- nodes ---

std::string ClusterBridge::whyNot(const KubeNode& node, const Result<CardsAnnotation>& cards) {
  if (!node.wholeCards.empty()) {
    return "it serves " + node.wholeCards +
           " too: a card is whole or shared, never both; remove the other device plugin from this "
           "node";
  }
  if (node.cards.empty()) return "its manager has not told its cards yet";
  if (!cards) return cards.error().message;
  return cards->cards.empty() ? "it has no cards" : "";
}

void ClusterBridge::onUpsert(const KubeNode& kube) {
  Node& node = nodes_[kube.name];
  const bool told = node.kube.cards == kube.cards && node.kube.mixed == kube.mixed &&
                    node.kube.policy == kube.policy && node.kube.cordoned == kube.cordoned;
  node.kube = kube;
  const std::set<std::string> cordoned = readCordonedCards(kube.cordoned);
  std::erase_if(node.marks,
                [&](const auto& mark) { return cordoned.contains(mark.first) == mark.second; });
  const auto cards = readCardsAnnotation(kube.cards);
  const bool ours = kube.enabled && !kube.claims;
  const std::string why = ours ? whyNot(kube, cards) : "";
  if (why != node.refused && !why.empty()) {
    log_.warn("kube-node-refused", {{"node", kube.name}, {"why", why}});
  }
  node.refused = why;
  node.cards.reset();
  if (ours && why.empty()) node.cards = *cards;
  if (!told && node.life == Life::Greeting) node.factsLate = true;
  if (!told && node.life == Life::Joined && node.cards) {
    say(node, [&](schema::FromMember::Builder message) { writeFacts(node, message.initFacts()); });
  }
  if (synced_) look(node);
}

void ClusterBridge::onGone(const KubeNode& last) {
  Node& node = nodes_[last.name];
  node.kube = KubeNode{};
  node.kube.name = last.name;
  node.cards.reset();
  node.refused.clear();
  if (synced_) look(node);
}

std::string ClusterBridge::refusal(const std::string& node) const {
  const auto found = nodes_.find(node);
  if (found == nodes_.end()) return "";
  const KubeNode& kube = found->second.kube;
  if (kube.enabled && kube.claims) {
    return "it gives its cards by ResourceClaims (label qgpu.io/claims=enable), and to no pod by "
           "resources";
  }
  return found->second.refused;
}

// --- pods ---

// What the pod's containers hold on its node, by request id.
std::map<std::string, ClusterBridge::NodeTask> ClusterBridge::tasksOf(const KubePod& pod) const {
  std::map<std::string, NodeTask> out;
  const PodDemands& demands = pod.demands;
  if (demands.nodeName.empty() || demands.assigned.empty() || pod.over) return out;
  Result<AssignedCards> assigned = readAssignedAnnotation(demands.assigned);
  if (!assigned) return out;  // its node takes no such pod either
  for (std::size_t i = 0; i < demands.containers.size(); ++i) {
    const ContainerDemand& container = demands.containers[i];
    const auto cards = assigned->find(container.name);
    if (cards == assigned->end() || container.sharesWith || isRoomOver(pod, i)) continue;
    NodeTask held;
    held.spec.name = podTaskName(demands.nameSpace, demands.name, container.name);
    held.spec.requestId = podRequestId(demands.uid, container.name, kSeen);
    held.spec.taskClass = container.ask.taskClass;
    held.spec.mem = container.ask.mem;
    held.spec.share = container.ask.share;
    held.spec.cards = container.ask.cards;
    held.spec.ownerUid = ::geteuid();
    const std::string key = keyOfTask(held.spec);
    held.nodeTask = numberOf(key);
    held.cards = std::move(cards->second);
    held.pod = {demands.nameSpace, demands.name, demands.uid};
    held.priority = demands.priority;
    held.seen = true;
    out.emplace(key, std::move(held));
  }
  return out;
}

void ClusterBridge::onUpsert(const KubePod& pod) {
  if (pod.deleting || pod.over || (pod.gated && pod.demands.nodeName.empty())) {
    options_.onNeither(pod.demands.uid);
  } else {
    (pod.demands.nodeName.empty() ? options_.onWaits : options_.onBound)(pod);
  }
  auto now = tasksOf(pod);
  const std::string key = keyOf(pod);
  const auto before = pods_.find(key);
  if (before != pods_.end()) {
    const auto& [node, requests] = before->second;
    for (const std::string& request : requests) {
      if (node != pod.demands.nodeName || !now.contains(request)) release(node, request);
    }
  }
  releaseAssumed(pod, now);
  if (now.empty()) {
    if (before != pods_.end()) pods_.erase(before);
    return;
  }
  std::set<std::string> requests;
  for (auto& [request, held] : now) {
    requests.insert(request);
    hold(pod.demands.nodeName, request, std::move(held));
  }
  pods_[key] = {pod.demands.nodeName, std::move(requests)};
}

// What was assumed of a pod that is bound now and turned out to hold nothing: its container ended
// before anybody saw it hold a card, or nobody told which.
void ClusterBridge::releaseAssumed(const KubePod& pod, const std::map<std::string, NodeTask>& now) {
  const PodDemands& demands = pod.demands;
  if (demands.nodeName.empty()) return;
  if (!synced_) shown_.insert(demands.uid);
  const auto node = nodes_.find(demands.nodeName);
  if (node == nodes_.end()) return;
  std::vector<std::string> over;
  const std::string prefix = demands.uid + " ";
  for (auto held = node->second.held.lower_bound(prefix);
       held != node->second.held.end() && held->first.starts_with(prefix); ++held) {
    if (!held->second.seen && !now.contains(held->first)) over.push_back(held->first);
  }
  for (const std::string& request : over) release(demands.nodeName, request);
}

void ClusterBridge::onGone(const KubePod& last) {
  options_.onNeither(last.demands.uid);
  const auto before = pods_.find(keyOf(last));
  if (before == pods_.end()) return;
  for (const std::string& request : before->second.second) release(before->second.first, request);
  pods_.erase(before);
}

std::optional<std::int32_t> ClusterBridge::priorityOf(const std::string& name,
                                                      std::string_view uid) const {
  const auto node = nodes_.find(name);
  if (node == nodes_.end()) return std::nullopt;
  const auto held = node->second.held.lower_bound(std::string(uid) + " ");
  const bool seen =
      held != node->second.held.end() && held->second.seen && held->second.pod.uid == uid;
  return seen ? std::optional(held->second.priority) : std::nullopt;
}

void ClusterBridge::hold(const std::string& name, const std::string& request, NodeTask seen) {
  Node& node = nodes_[name];
  const auto found = node.held.find(request);
  if (found != node.held.end()) {
    NodeTask& held = found->second;
    const bool same = held.seen && held.cards == seen.cards;
    held.seen = true;
    held.pod = std::move(seen.pod);
    held.priority = seen.priority;
    if (held.cards != seen.cards) held.cards = std::move(seen.cards);
    if (held.ending) beginEviction(node, request, held);
    if (same) return;
  } else {
    // The scheduler's own number only where it believes the task here too: a pod is not ended for
    // what an older decision says. Without a number it is adopted as it is.
    if (const auto known = known_.find(request);
        known != known_.end() && known->second.node == name) {
      seen.spec.clusterTask = known->second.held.spec.clusterTask;
      seen.spec.clusterEpoch = known->second.held.spec.clusterEpoch;
    }
    node.held.emplace(request, std::move(seen));
  }
  node.changed.insert(request);
  tellChanges(node);
}

void ClusterBridge::release(std::string name, std::string request) {
  Node& node = nodes_[name];
  const auto found = node.held.find(request);
  if (found == node.held.end()) return;
  node.gone.push_back(std::move(found->second));
  node.held.erase(found);
  node.changed.erase(request);
  evicting_.erase({name, request});
  tellChanges(node);
}

void ClusterBridge::onSynced() {
  if (synced_ || !nodeWatch_ || !nodeWatch_->synced() || !podWatch_ || !podWatch_->synced()) return;
  synced_ = true;
  assumeKnown();
  shown_.clear();
  known_.clear();  // what ends from now on must not be told as living
  log_.info("kube-synced", {{"nodes", nodes_.size()}, {"pods", pods_.size()}});
  for (auto& [name, node] : nodes_) look(node);
}

// A bind of the process before this one may have left a Binding on its way.
void ClusterBridge::assumeKnown() {
  for (auto& [request, known] : known_) {
    std::optional<PodRef> pod = podOf(known.held.spec);
    Node& node = nodes_[known.node];
    node.kube.name = known.node;
    if (!pod || shown_.contains(pod->uid) || node.held.contains(request)) continue;
    known.held.pod = std::move(*pod);
    settleAt(timer_.now(), node, known.held);
    node.held.emplace(request, std::move(known.held));
  }
}

// --- what time brings ---

bool ClusterBridge::apiAway() const {
  return !api_.reachable() && timer_.now() - api_.unreachableSince() > toKj(options_.awayMax);
}

kj::Promise<void> ClusterBridge::tick() {
  return timer_.afterDelay(toKj(options_.tick)).then([this]() {
    if (synced_) {
      settleDue();
      evictDue();
      for (auto node = nodes_.begin(); node != nodes_.end();) {
        look(node->second);
        writeMarks(node->second);
        node = isForgotten(node->second) ? nodes_.erase(node) : std::next(node);
      }
      tellReady();
    }
    return tick();
  });
}

void ClusterBridge::tellReady() {
  if (readyTold_) return;
  // What the process before this one left must be known before its pods are tried again.
  const bool settles =
      settling_ != 0 || (!assumed_.empty() && assumed_.begin()->first <= timer_.now());
  if (settles) return;
  for (const auto& [name, node] : nodes_) {
    if (node.cards && node.kube.ready && !node.answered) return;
  }
  readyTold_ = true;
  options_.onReady();
}

// Nothing is left of it: neither the API server nor the scheduler nor a pod speaks of it.
bool ClusterBridge::isForgotten(const Node& node) {
  return node.kube.uid.empty() && node.life == Life::Away && node.messages.empty() &&
         node.held.empty() && node.gone.empty();
}

ClusterBridge::Figures ClusterBridge::figures() const {
  Figures out;
  out.synced = synced_;
  for (const auto& [name, node] : nodes_) {
    if (node.life == Life::Joined) ++out.nodes;
    if (!node.refused.empty()) ++out.refused;
    for (const auto& [request, held] : node.held) ++(held.seen ? out.held : out.assumed);
  }
  return out;
}

void ClusterBridge::taskFailed(kj::Exception&&) {
  QGPU_CHECK(false, "every task of the bridge handles its own failures");
}

// --- assumptions ---

void ClusterBridge::settleAt(kj::TimePoint when, const Node& node, const NodeTask& held) {
  assumed_.emplace(when, Assumption{node.kube.name, keyOfTask(held.spec), held.spec.clusterTask,
                                    held.spec.clusterEpoch});
}

// Null where it is over, seen, or another attempt's.
ClusterBridge::NodeTask* ClusterBridge::stillAssumed(const Assumption& assumed) {
  const auto node = nodes_.find(assumed.node);
  if (node == nodes_.end()) return nullptr;
  const auto found = node->second.held.find(assumed.request);
  if (found == node->second.held.end() || found->second.seen) return nullptr;
  const TaskSpec& spec = found->second.spec;
  const bool same = spec.clusterTask == assumed.task && spec.clusterEpoch == assumed.epoch;
  return same ? &found->second : nullptr;
}

void ClusterBridge::settleDue() {
  while (!assumed_.empty() && assumed_.begin()->first <= timer_.now() && settling_ < kSettlingMax) {
    const auto due = assumed_.extract(assumed_.begin());
    settle(due.mapped());
  }
}

// A bind that is under way may still write, and ends by itself.
void ClusterBridge::settle(const Assumption& assumed) {
  NodeTask* held = stillAssumed(assumed);
  if (held == nullptr || held->settling) return;
  if (options_.bindOf(podUidOf(held->spec.requestId))) {
    assumed_.emplace(timer_.now() + toKj(options_.settleEvery), assumed);
    return;
  }
  held->settling = true;
  ++settling_;
  tasks_.add(writer_.settle(held->pod, assumed.node).then([this, assumed](Result<bool> bound) {
    onSettled(assumed, bound);
  }));
}

void ClusterBridge::onSettled(const Assumption& assumed, const Result<bool>& bound) {
  --settling_;
  ++(!bound ? settled_.unknown : *bound ? settled_.bound : settled_.unbound);
  NodeTask* held = stillAssumed(assumed);
  if (held == nullptr) return;
  held->settling = false;
  const bool begun = options_.bindOf(podUidOf(held->spec.requestId)).has_value();
  if (bound && !*bound && !begun) {
    log_.info("kube-assumption-over", {{"task", assumed.task}, {"name", held->spec.name}});
    return release(assumed.node, assumed.request);
  }
  // It is bound, and the watch will show it; or nobody knows.
  assumed_.emplace(timer_.now() + toKj(options_.settleEvery), assumed);
}

// --- evictions ---

void ClusterBridge::beginEviction(Node& node, const std::string& request, NodeTask& held) {
  if (held.evicting) return;
  held.evicting = true;
  held.evictAt = timer_.now();
  evicting_.insert({node.kube.name, request});
  writer_.tellPod(podEvent(held.pod, EventReason::Preempted, {node.kube.name, held.why}));
  log_.info("kube-evict", {{"pod", held.pod.nameSpace + "/" + held.pod.name}, {"why", held.why}});
}

void ClusterBridge::evictDue() {
  for (const auto& [name, request] : evicting_) {
    NodeTask& held = nodes_.at(name).held.at(request);
    if (!held.asking && held.evictAt <= timer_.now()) evict(name, request, held);
  }
}

void ClusterBridge::evict(const std::string& name, const std::string& request, NodeTask& held) {
  held.asking = true;
  held.evictAt = timer_.now() + toKj(options_.evictEvery);
  tasks_.add(writer_.evictPod(held.pod).then([this, name, request](Status status) {
    Node& node = nodes_[name];
    const auto found = node.held.find(request);
    if (!status) {
      log_.warn("kube-eviction", {{"node", name}, {"why", status.error().message}});
    }
    if (found == node.held.end()) return;
    found->second.asking = false;
  }));
}

}  // namespace qgpu
