#include "services/kubernetes/agent/node_agent.h"

#include <algorithm>
#include <iterator>
#include <unistd.h>
#include <utility>

#include "actors/base/event_kinds.h"
#include "actors/ledger/fit.h"
#include "runtime/config.h"
#include "services/api/commands/schema_names.h"
#include "services/base/json.h"
#include "services/base/kj_time.h"
#include "services/cards/amd/topology.h"
#include "services/cards/paths/nvidia_paths.h"
#include "services/kubernetes/pods/assigned_annotation.h"

namespace qgpu {
namespace {

constexpr std::size_t kHoldingsMax = PodBook::kPodsMax;
constexpr const char* kGivenWhole =
    "this node also serves nvidia.com/gpu or amd.com/gpu: cards that are given whole can't be "
    "divided; take that device plugin away";
constexpr const char* kOtherDriver =
    "driver gpu.nvidia.com or gpu.amd.com gives this node's cards too, by ResourceSlices of its "
    "own: a card is whole or shared, never both; take that driver away from this node";
constexpr Nanos kOthersEvery = seconds(10);
constexpr const char* kDecision = "what was decided for it";
constexpr const char* kByClaims = "its cards are given by claims: label qgpu.io/claims=enable";
constexpr const char* kDisabled = "this node has no label qgpu-device-enable=enable";

AnnotatedCard annotated(schema::CardStatus::Reader status) {
  AnnotatedCard card{readCardFacts(status.getInfo())};
  card.nominalGib = static_cast<std::uint32_t>(nominalGib(card.mem));
  card.policy = status.getPolicy();
  card.health = status.getState();
  card.reportUnixMs = status.getReportUnixMs();
  return card;
}

ContainerPlan planOf(const PodDemands& pod, const ContainerDemand& demand,
                     const AssignedCards& assigned) {
  const LedgerAsk ask = normalAsk(demand.ask);
  ContainerPlan plan;
  plan.name = demand.name;
  plan.mem = ask.mem;
  plan.share = ask.share;
  plan.init = demand.kind == ContainerKind::Init;
  if (demand.sharesWith) plan.uses = pod.containers[*demand.sharesWith].name;
  const auto cards = assigned.find(plan.uses.empty() ? plan.name : plan.uses);
  if (cards != assigned.end()) plan.cards = cards->second;
  return plan;
}

// What the scheduler decided for it. InvalidArgument where that can't be read.
Result<PodPlan> planOf(const PodDemands& pod) {
  const auto assigned = readAssignedAnnotation(pod.assigned);
  if (!assigned) return assigned.error();
  PodPlan plan{pod.uid, pod.nameSpace, pod.name, pod.taskClass, {}};
  for (const ContainerDemand& demand : pod.containers) {
    plan.containers.push_back(planOf(pod, demand, *assigned));
  }
  return plan;
}

PodRef refOf(const PodPlan& pod) {
  return {pod.nameSpace, pod.name, pod.uid};
}

// By card, where its driver says where it is. They stay there while a manager runs.
std::map<std::string, PciPlace> placesOfCards() {
  std::map<std::string, PciPlace> places;
  for (const NvidiaCardFile& card : nvidiaCardFiles("")) {
    places.emplace(card.uuid, pciPlaceOf("/sys", card.pciBus));
  }
  for (const AmdDevice& card : amdDevices(kKfdNodes)) {
    places.emplace(card.uuid, pciPlaceOf("/sys", card.bus));
  }
  return places;
}

std::string whatOf(const std::string& container) {
  return "container " + container;
}
std::string whatOf(std::string_view claim, std::string_view request) {
  return "request " + std::string(request) + " of claim " + std::string(claim);
}

std::vector<PodRef> refsOf(std::string_view nameSpace, const ClaimUsers& users) {
  std::vector<PodRef> pods;
  for (const ClaimUsers::Pod& pod : users.pods) {
    pods.push_back({std::string(nameSpace), pod.name, pod.uid});
  }
  return pods;
}

bool isClaims(schema::TaskInfo::Reader task) {
  return view(task.getSpec().getRequestId()).starts_with(ClaimTasks::kRequestStart);
}

std::string joined(const std::vector<std::string>& names) {
  std::string all;
  for (const std::string& name : names) all += (all.empty() ? "" : ", ") + name;
  return all;
}

}  // namespace

NodeAgent::NodeAgent(NodeActorClient& actor, KubeletHandler& handler, ApiClient& api,
                     ApiServer& events, Log& log, NodeAgentConfig config)
    : actor_(actor),
      handler_(handler),
      api_(api),
      events_(events),
      log_(log),
      config_(std::move(config)),
      timer_(api.timer()),
      self_{::geteuid(), static_cast<std::uint32_t>(::getpid()), true, {}},
      places_(placesOfCards()),
      claims_(actor, api, log, config_.node, [this] { return handler_.mixed(); }),
      others_(api, log, config_.node),
      tasks_(*this) {
  handler_.setListener(static_cast<StartListener&>(*this));
  handler_.setClaims(claims_.tasks());
  const std::string name = urlEscaped(config_.node);
  KubeListener<KubeNode>& nodes = *this;
  KubeListener<KubePod>& pods = *this;
  nodes_.emplace(api_, "/api/v1/nodes?fieldSelector=metadata.name%3D" + name, nodes, log_,
                 config_.rules, config_.follow);
  pods_.emplace(api_, "/api/v1/pods?fieldSelector=spec.nodeName%3D" + name, pods, log_,
                config_.rules, config_.follow);
  tasks_.add(rounds());
  tasks_.add(follow());
  tasks_.add(lookForOthers());
}

NodeAgent::~NodeAgent() noexcept {
  handler_.setListener(nullptr);
  handler_.setClaims(nullptr);
  handler_.giveByClaims(false);
}

void NodeAgent::taskFailed(kj::Exception&& exception) {
  log_.error("unexpected", {{"why", exception.getDescription().cStr()}});
}

void NodeAgent::ring() {
  if (rung_.get() != nullptr) rung_->fulfill();
}

// --- the node ---

void NodeAgent::onUpsert(const KubeNode& node) {
  if (node.name != config_.node) return;
  node_ = node;
  handler_.setRuntime(node.runtime);
  readLabels(node);
  ring();
}

void NodeAgent::onGone(const KubeNode& last) {
  if (last.name == config_.node) node_.reset();
}

void NodeAgent::readLabels(const KubeNode& node) {
  handler_.setMixed(node.mixed);
  config_.onMixed(node.mixed);
  closeOrServe(node);
  const bool there = !node.policy.empty();
  if (node.policy == label_ && there == labelWasThere_) return;
  const auto read = parsePolicy(node.policy);
  if (!there && labelWasThere_) policy_ = config_.policy;  // as if it had never been there
  if (there) policy_ = read ? *read : schema::Policy::BEST_EFFORT;
  label_ = node.policy;
  labelWasThere_ = there;
  if (there && !read) {
    tellNode(EventReason::PolicyUnknown,
             {config_.rules.prefix + "/qgpu-schedule-policy", read.error().message});
  }
}

const char* NodeAgent::refused(const KubeNode& node) const {
  return !node.wholeCards.empty() ? kGivenWhole : others_.give() ? kOtherDriver : nullptr;
}

// As devices: claims are served apart.
void NodeAgent::closeOrServe(const KubeNode& node) {
  const bool neither = claims_.way() == NodeClaims::Way::Neither;
  const char* const why = refused(node);
  const std::string closed = why != nullptr  ? why
                             : !node.enabled ? kDisabled
                             : neither       ? claims_.why()
                             : node.claims   ? kByClaims
                                             : "";
  if (closed == handler_.closed()) return;
  log_.info("kubelet-served", {{"served", closed.empty()}, {"why", closed}});
  const bool refusedBefore = handler_.closed() == kGivenWhole || handler_.closed() == kOtherDriver;
  if (why != nullptr) tellNode(EventReason::NodeRefused, {closed});
  if (closed.empty() && refusedBefore) tellNode(EventReason::NodeServed, {});
  handler_.close(closed);
}

// --- pods ---

void NodeAgent::onUpsert(const KubePod& pod) {
  const PodDemands& demands = pod.demands;
  if (demands.nodeName != config_.node) return;
  if (pod.over) return over(demands);
  if (!pod.ended.empty()) endRooms(pod);
  if (demands.assigned.empty() || demands.asksNothing()) return;
  Result<PodPlan> plan = planOf(demands);
  const PodRef ref{demands.nameSpace, demands.name, demands.uid};
  if (!plan) return tell(ref, EventReason::Refused, {kDecision, plan.error().message});
  const auto known = handler_.book().pods().find(plan->uid);
  if (known != handler_.book().pods().end() && known->second == *plan) return;
  if (Status put = handler_.book().put(std::move(*plan)); !put) {
    tell(ref, EventReason::Refused, {kDecision, put.error().message});
  }
}

void NodeAgent::onGone(const KubePod& last) {
  if (last.demands.nodeName == config_.node) over(last.demands);
}

// Its tasks end as its processes do, also those that a manager before this one bound.
void NodeAgent::over(const PodDemands& pod) {
  Result<PodPlan> plan = planOf(pod);
  handler_.book().forget(pod.uid);
  if (plan) endLater(pod.uid, std::move(*plan));
}

// The scheduler gives away the room of a container that has ended for good, so its task ends here
// too, whatever kubelet lists while its pod lives.
void NodeAgent::endRooms(const KubePod& pod) {
  Result<PodPlan> plan = planOf(pod.demands);
  if (!plan) return;
  std::vector<ContainerPlan> rooms;
  for (std::size_t i = 0; i < plan->containers.size(); ++i) {
    if (!pod.demands.containers[i].sharesWith && isRoomOver(pod, i)) {
      rooms.push_back(plan->containers[i]);
    }
  }
  plan->containers = std::move(rooms);
  if (!plan->containers.empty()) endLater(pod.demands.uid + "/", std::move(*plan));
}

void NodeAgent::endLater(const std::string& key, PodPlan plan) {
  if (over_.size() >= PodBook::kPodsMax) return;
  over_[key] = std::move(plan);
  ring();
}

PodTaskParts NodeAgent::containerOf(std::uint64_t task) const {
  const auto found = holdings_.find(task);
  if (found == holdings_.end()) return {};
  const Holding& holding = found->second;
  if (holding.pods.empty()) return {};
  const PodRef& pod = holding.pods.front();
  return {pod.nameSpace, pod.name, holding.container};
}

void NodeAgent::onStarted(const PodPlan& pod, const std::string& container, std::uint64_t task,
                          const std::vector<std::string>& cards) {
  const std::string what = whatOf(container);
  if (holdings_.size() < kHoldingsMax && !holdings_.contains(task)) {
    holdings_.emplace(task, holdingOf({refOf(pod)}, container, what, cards));
  }
  tell(refOf(pod), EventReason::Allocated, {what, joined(cards)});
}

void NodeAgent::onRefused(const PodPlan& pod, const std::string& container, const Error& why) {
  tell(refOf(pod), EventReason::Refused, {whatOf(container), why.message});
}

// A pod that shares a claim which others use already is told of it as well.
void NodeAgent::onClaimPrepared(const ClaimName& claim, const PreparedClaim& prepared) {
  const std::vector<PodRef> pods = refsOf(claim.nameSpace, prepared.users);
  for (const PreparedPart& part : prepared.parts) {
    if (part.admin || holdings_.size() >= kHoldingsMax) continue;
    Holding& holding =
        holdings_
            .try_emplace(part.task,
                         holdingOf({}, part.request, whatOf(claim.name, part.request), part.cards))
            .first->second;
    use(holding, pods);
  }
}

// These are the ones that use it from now on; who is new is told so.
void NodeAgent::use(Holding& holding, const std::vector<PodRef>& pods) {
  const std::vector<PodRef> before = std::exchange(holding.pods, pods);
  for (const PodRef& pod : pods) {
    const bool told = std::any_of(before.begin(), before.end(),
                                  [&](const PodRef& one) { return one.uid == pod.uid; });
    if (told) continue;
    holding.unjudged.push_back(pod.uid);
    tell(pod, EventReason::Allocated, {holding.what, joined(holding.cards)});
  }
}

void NodeAgent::onClaimRefused(const ClaimName& claim, const Error& why) {
  tell({claim.nameSpace, claim.name, claim.uid}, EventReason::ClaimRefused,
       {config_.node, why.message});
}

// --- rounds ---

kj::Promise<void> NodeAgent::rounds() {
  auto rung = kj::newPromiseAndFulfiller<void>();
  rung_ = kj::mv(rung.fulfiller);
  return round()
      .then([this, next = kj::mv(rung.promise)]() mutable {
        return timer_.afterDelay(toKj(config_.round)).exclusiveJoin(kj::mv(next));
      })
      .then([this] { return rounds(); });
}

kj::Promise<void> NodeAgent::round() {
  return readCards()
      .then([this] { return choosePolicy(); })
      .then([this] { return labelNode(); })
      .then([this] { return giveCards(); })
      .then([this] { return annotate(); })
      .then([this] { return endOverPods(); })
      .then([this] { return readTasks(); });
}

kj::Promise<void> NodeAgent::readCards() {
  return actor_.ask(self_, [](schema::Request::Builder request) { request.setCards(); })
      .then([this](Result<Answer> answer) {
        if (!answer) return;
        Cards now;
        for (const auto card : answer->reply().getCards()) {
          now.push_back(annotated(card));
          if (now.back().health != schema::CardState::READY) handler_.uncount(now.back().id);
        }
        tellRecovered(now);
        cards_ = std::move(now);
      });
}

// A refusal is said once, and made up for when what stands in the way has ended.
kj::Promise<void> NodeAgent::choosePolicy() {
  const auto differs = [this](const AnnotatedCard& card) { return card.policy != *policy_; };
  if (!policy_ || std::none_of(cards_.begin(), cards_.end(), differs)) return kj::READY_NOW;
  const schema::Policy wanted = *policy_;
  return actor_
      .ask(self_,
           [wanted](schema::Request::Builder request) {
             auto policy = request.initPolicy();
             policy.setCard("all");
             policy.setPolicy(wanted);
           })
      .then([this, wanted](Result<Answer> answer) {
        const std::string name(policyName(wanted));
        if (!answer) {
          if (trouble_ == answer.error().message) return;
          trouble_ = answer.error().message;
          return tellNode(EventReason::PolicyRefused, {name, trouble_});
        }
        trouble_.clear();
        for (AnnotatedCard& card : cards_) card.policy = wanted;
        log_.info("policy-label", {{"policy", name}});
        tellAll(EventReason::PolicyChanged, {name});
      });
}

// Apart from the rounds, which go on while the API server is away.
kj::Promise<void> NodeAgent::lookForOthers() {
  return others_.look()
      .then([this] {
        ring();
        return timer_.afterDelay(toKj(others_.known() ? kOthersEvery : config_.round));
      })
      .then([this] { return lookForOthers(); });
}

// By claims or as devices.
kj::Promise<void> NodeAgent::giveCards() {
  if (!node_ || leaving_ || !others_.known()) return kj::READY_NOW;
  const bool byClaims = node_->claims && node_->enabled && refused(*node_) == nullptr;
  SliceFacts facts{config_.node,       node_->uid, node_->mixed, config_.maxTasksPerCard,
                   config_.rules.unit, cards_,     places_};
  return claims_.round(self_, byClaims, std::move(facts)).then([this] {
    handler_.giveByClaims(claims_.way() == NodeClaims::Way::Claims);
    if (node_) closeOrServe(*node_);
  });
}

// Whatever the label says is somebody's word, and so is its absence on a node that others serve. A
// word that comes meanwhile makes the patch a conflict.
kj::Promise<void> NodeAgent::labelNode() {
  const bool wanted = config_.labelNode && node_ && !node_->labelled && !leaving_;
  const bool ours = others_.known() && node_ && refused(*node_) == nullptr;
  if (!wanted || !ours || cards_.empty()) return kj::READY_NOW;
  JsonWriter json;
  json.beginObject().key("metadata").beginObject();
  json.field("resourceVersion", node_->resourceVersion).key("labels").beginObject();
  json.field(kEnableLabel, "enable").endObject().endObject().endObject();
  return patchNode(json.take()).then([this](ApiAnswer answer) {
    if (answer.ok()) return log_.info("node-labelled", {{"label", kEnableLabel}});
    if (answer.fault == ApiFault::Conflict || labelTrouble_ == answer.message) return;
    labelTrouble_ = answer.message;
    log_.warn("node-not-labelled", {{"why", labelTrouble_}});
  });
}

kj::Promise<ApiAnswer> NodeAgent::patchNode(std::string change) {
  return api_.call({kj::HttpMethod::PATCH, "/api/v1/nodes/" + urlEscaped(config_.node) + "/status",
                    std::move(change), kMergePatch});
}

// What the server has is compared, so that a patch that was lost, or undone by others, is made
// again.
kj::Promise<void> NodeAgent::annotate() {
  if (!node_ || cards_.empty() || cards_.size() > kAnnotatedCardsMax) return kj::READY_NOW;
  if (claims_.way() == NodeClaims::Way::Unknown) return kj::READY_NOW;
  if (claims_.way() != NodeClaims::Way::Devices || others_.give()) {
    return node_->cards.empty() ? kj::Promise<void>(kj::READY_NOW) : writeAnnotation({});
  }
  CardsAnnotation annotation;
  annotation.version = config_.version;
  annotation.mixed = node_->mixed;
  annotation.maxTasksPerCard = config_.maxTasksPerCard;
  annotation.attachSocket = config_.attachSocket;
  annotation.cards = cards_;
  for (AnnotatedCard& card : annotation.cards) {
    const bool counted = !leaving_ && handler_.counts(card.id);
    if (card.health == schema::CardState::READY && !counted) {
      card.health = schema::CardState::STARTING;
    }
  }
  std::string text = writeCardsAnnotation(annotation);
  if (text == node_->cards) return kj::READY_NOW;
  return writeAnnotation(std::move(text));
}

// None: the node has none, as one whose cards are given by claims.
kj::Promise<void> NodeAgent::writeAnnotation(std::optional<std::string> text) {
  JsonWriter json;
  json.beginObject().key("metadata").beginObject().key("annotations").beginObject();
  json.key(kCardsAnnotation);
  if (text) {
    json.string(*text);
  } else {
    json.null();
  }
  json.endObject().endObject().endObject();
  return patchNode(json.take()).then([this, text = std::move(text)](ApiAnswer answer) mutable {
    if (answer.ok()) {
      log_.info("cards-annotated", {{"cards", text ? cards_.size() : 0}});
      if (node_) node_->cards = std::move(text).value_or("");
    } else if (trouble_ != answer.message) {
      trouble_ = answer.message;
      log_.warn("cards-not-annotated", {{"why", trouble_}});
    }
  });
}

kj::Promise<void> NodeAgent::leave() {
  leaving_ = true;
  return annotate();
}

kj::Promise<void> NodeAgent::endOverPods() {
  kj::Promise<void> all = kj::READY_NOW;
  for (const auto& [uid, pod] : over_) {
    all = all.then([this, pod = pod] { return handler_.endPod(self_, pod); })
              .then([this, uid = uid](Result<bool> none) {
                if (none && *none) over_.erase(uid);
              });
  }
  return all;
}

kj::Promise<void> NodeAgent::readTasks() {
  const bool looked = inherited_ && inherited_->empty();
  if (looked && holdings_.empty() && handler_.book().pods().empty()) return kj::READY_NOW;
  return actor_.ask(self_, [](schema::Request::Builder request) { request.setTasks(); })
      .then([this](Result<Answer> answer) {
        if (!answer) return;
        const auto tasks = answer->reply().getTasks();
        judgePods(tasks);
        findHoldings(tasks);
        findClaims(tasks);
        limitPods(tasks);
        std::map<std::uint64_t, Holding> live;
        for (const auto task : tasks) {
          const auto known = holdings_.find(task.getId());
          if (known == holdings_.end()) continue;
          tellTask(live.emplace(task.getId(), std::move(known->second)).first->second, task);
        }
        holdings_ = std::move(live);
        tellEarly(tasks);
      });
}

void NodeAgent::tellEarly(capnp::List<schema::TaskInfo>::Reader tasks) {
  auto early = std::exchange(early_, {});
  if (early.empty()) return;
  for (const auto task : tasks) {
    const auto found = early.find(task.getId());
    const bool ours = isClaims(task) ||
                      !KubeletHandler::requestStartOf(view(task.getSpec().getRequestId())).empty();
    if (found == early.end() || !ours) continue;
    const auto holding = holdings_.find(task.getId());
    if (holding == holdings_.end()) {
      early_.insert(*found);
    } else {
      tellTrouble(holding->second, found->second.first, found->second.second);
    }
  }
}

NodeAgent::Holding NodeAgent::holdingOf(std::vector<PodRef> pods, std::string container,
                                        std::string what, std::vector<std::string> cards) const {
  std::vector<std::string> unjudged;
  for (const PodRef& pod : pods) unjudged.push_back(pod.uid);
  return {std::move(pods),  std::move(unjudged), std::move(container), std::move(what),
          std::move(cards), timer_.now(),        {0, 0, now()}};
}

Nanos NodeAgent::now() const {
  return Nanos((timer_.now() - kj::origin<kj::TimePoint>()) / kj::NANOSECONDS);
}

void NodeAgent::inherit(Holding& holding, schema::TaskInfo::Reader task) const {
  const auto use = task.getUse();
  holding.counted = {use.getUsedNs(), use.getGpuNs(), now()};
  holding.heldNs = use.getHeldNs();
  holding.heldTold = true;
  holding.quarantined = task.getQuarantined();
}

// Those that a manager before this one bound; what it told of them is not told again.
void NodeAgent::findHoldings(capnp::List<schema::TaskInfo>::Reader tasks) {
  std::map<std::string_view, schema::TaskInfo::Reader> unknown;
  for (const auto task : tasks) {
    const auto start = KubeletHandler::requestStartOf(view(task.getSpec().getRequestId()));
    if (!start.empty() && !holdings_.contains(task.getId())) unknown.emplace(start, task);
  }
  if (unknown.empty()) return;
  for (const auto& [uid, pod] : handler_.book().pods()) {
    for (const ContainerPlan& container : pod.containers) {
      const auto found = unknown.find(KubeletHandler::requestOf(uid, container.name));
      if (found == unknown.end() || holdings_.size() >= kHoldingsMax) continue;
      const schema::TaskInfo::Reader task = found->second;
      const std::string what = whatOf(container.name);
      Holding holding = holdingOf({refOf(pod)}, container.name, what, container.cards);
      inherit(holding, task);
      holdings_.emplace(task.getId(), std::move(holding));
    }
  }
}

// Kubelet does not say again whose claims these are.
void NodeAgent::findClaims(capnp::List<schema::TaskInfo>::Reader tasks) {
  const bool first = !inherited_;
  std::set<std::uint64_t> wanted;
  for (const auto task : tasks) {
    const std::uint64_t id = task.getId();
    const bool unknown = first ? isClaims(task) : inherited_->contains(id);
    if (unknown && !holdings_.contains(id)) wanted.insert(id);
  }
  inherited_.emplace();  // those whose question fails come back
  for (const auto task : tasks) {
    if (wanted.contains(task.getId())) findClaim(task);
  }
}

void NodeAgent::findClaim(schema::TaskInfo::Reader task) {
  const std::string name = task.getSpec().getName();
  Holding found = holdingOf({}, {}, {}, cardsIn(view(task.getCard())));
  inherit(found, task);
  tasks_.add(claims_.tasks()
                 .usersOf(name, task.getSpec().getRequestId())
                 .then([this, name, id = task.getId(),
                        found = std::move(found)](Result<ClaimUsers> users) mutable {
                   if (!users) {
                     if (users.error().code != ErrorCode::NotFound) inherited_->insert(id);
                     return;
                   }
                   const auto parts = podTaskParts(name);
                   found.pods = refsOf(parts->nameSpace, *users);
                   for (const PodRef& pod : found.pods) found.unjudged.push_back(pod.uid);
                   found.container = parts->container;
                   found.what = whatOf(parts->pod, parts->container);
                   if (holdings_.size() < kHoldingsMax) holdings_.try_emplace(id, std::move(found));
                 }));
}

// Pods that were there before the guard, and those that came to a claim that kubelet had prepared
// for others already, of which it tells nobody. A holding that this round finds waits for the next:
// the tasks then come by way of the attach room, which has let in by then who was attached.
void NodeAgent::judgePods(capnp::List<schema::TaskInfo>::Reader tasks) {
  KJ_IF_MAYBE (guard, handler_.guard()) {
    for (auto& [task, holding] : holdings_) judgePods(task, holding);
    bool claims = false;
    for (const auto task : tasks) claims = claims || isClaims(task);
    if (!claims || !guard->hasNewPods()) return;
    for (const auto task : tasks) {
      if (isClaims(task)) findSharers(task);
    }
  }
}

// A pod of a claim that has no cgroup yet comes again.
void NodeAgent::judgePods(std::uint64_t task, Holding& holding) {
  KJ_IF_MAYBE (guard, handler_.guard()) {
    std::erase_if(holding.unjudged,
                  [&](const std::string& uid) { return guard->judge(uid, task).ok(); });
  }
}

// Each round says it of all: of pods that a manager before this one started, and of those that came
// to a claim, for the first time; of others it is nothing new.
void NodeAgent::limitPods(capnp::List<schema::TaskInfo>::Reader tasks) {
  KJ_IF_MAYBE (limits, handler_.limits()) {
    std::set<std::uint64_t> live;
    for (const auto task : tasks) {
      live.insert(task.getId());
      const auto holding = holdings_.find(task.getId());
      if (holding == holdings_.end()) continue;
      for (const PodRef& pod : holding->second.pods) tasks_.add(limits->hold(pod.uid, task));
    }
    limits->keep(live);
  }
}

void NodeAgent::findSharers(schema::TaskInfo::Reader task) {
  const std::string name = task.getSpec().getName();
  tasks_.add(claims_.tasks()
                 .usersOf(name, task.getSpec().getRequestId())
                 .then([this, name, id = task.getId()](Result<ClaimUsers> users) {
                   const auto holding = holdings_.find(id);
                   if (holding == holdings_.end()) return;
                   if (!users) {
                     KJ_IF_MAYBE (guard, handler_.guard()) guard->lookAgain();
                     return;
                   }
                   use(holding->second, refsOf(podTaskParts(name)->nameSpace, *users));
                   judgePods(id, holding->second);
                 }));
}

void NodeAgent::tellTask(Holding& holding, schema::TaskInfo::Reader task) {
  if (!holding.pods.empty()) {
    const auto use = task.getUse();
    const auto mem = static_cast<std::int64_t>(task.getSpec().getMemBytes());
    use_.count(holding.pods.front().nameSpace, holding.counted,
               {use.getUsedNs(), use.getGpuNs(), now()}, Bytes(mem * task.getSpec().getCards()));
  }
  tellHeld(holding, task.getUse().getHeldNs());
  if (task.getQuarantined() == holding.quarantined) return;
  holding.quarantined = task.getQuarantined();
  if (holding.quarantined) {
    return tell(holding, EventReason::TaskQuarantined,
                {holding.what, std::string(view(task.getNote()))});
  }
  tell(holding, EventReason::TaskReturned, {holding.what});
}

// --- events ---

// The node's own story: what concerns a card starts a round, what concerns a pod it is told.
kj::Promise<void> NodeAgent::follow() {
  return EventFeed::open(actor_, self_, 0)
      .then([this](Result<kj::Own<EventFeed>> feed) -> kj::Promise<void> {
        if (feed) return hear(kj::mv(*feed));
        return timer_.afterDelay(toKj(config_.round)).then([this] { return follow(); });
      });
}

kj::Promise<void> NodeAgent::hear(kj::Own<EventFeed> feed) {
  EventFeed& from = *feed;
  return from.next().then([this, feed = kj::mv(feed)](
                              kj::Maybe<EventFeed::EventCopy> event) mutable -> kj::Promise<void> {
    KJ_IF_MAYBE (copy, event) {
      onEvent((*copy)->getRoot<schema::Event>().asReader());
      return hear(kj::mv(feed));
    }
    return follow();
  });
}

void NodeAgent::onEvent(schema::Event::Reader event) {
  const std::string_view kind = view(event.getKind());
  if (kind.starts_with("card-") || kind == "policy-changed") ring();
  static constexpr std::pair<EventKind, EventReason> kTroubles[] = {
      {kMemoryRefused, EventReason::MemoryOverrun},
      {kTaskUnattached, EventReason::Unattached},
      {kTaskUnheld, EventReason::Unheld},
      {EventKind("task-fault"), EventReason::TaskFault}};
  const auto* known = std::find_if(std::begin(kTroubles), std::end(kTroubles),
                                   [&](const auto& entry) { return entry.first == kind; });
  if (known == std::end(kTroubles)) return;
  const EventReason reason = known->second;
  std::string what(view(event.getText()));
  const auto holding = holdings_.find(event.getTask());
  if (holding != holdings_.end()) return tellTrouble(holding->second, reason, what);
  if (early_.size() < kHoldingsMax) early_[event.getTask()] = {reason, std::move(what)};
}

void NodeAgent::tellTrouble(const Holding& holding, EventReason reason, const std::string& what) {
  tell(holding, reason, {holding.what, what});
}

// The first time that it is worth telling at once, then a summary now and again.
void NodeAgent::tellHeld(Holding& holding, std::uint64_t heldNs) {
  const kj::TimePoint now = timer_.now();
  const bool due = now - holding.heldFrom >= toKj(config_.suspendedEvery);
  if (holding.heldTold && !due) return;
  const Nanos held(static_cast<std::int64_t>(heldNs - std::min(heldNs, holding.heldNs)));
  const auto passed = (now - holding.heldFrom) / kj::MILLISECONDS;
  const bool worth = held >= config_.suspendedAtLeast;
  if (!worth && !due) return;
  holding.heldNs = heldNs;
  holding.heldFrom = now;
  if (!worth) return;
  holding.heldTold = true;
  tell(holding, EventReason::Suspended,
       {holding.what, std::to_string(held / millis(1)), std::to_string(passed)});
}

// An ill card is cordoned by the watch; what it does to pods is told here, and when that is over.
void NodeAgent::onHealth(const HealthChange& change) {
  switch (change.kind) {
    case HealthChange::Kind::ProgramFault:
      return tellOfCard(change.uuid, EventReason::ProgramFault, change.why);
    case HealthChange::Kind::Answers:
      return tellOfCard(change.uuid, EventReason::CardRecovered,
                        change.why + "; `qgpuctl uncordon` gives it new tasks");
    case HealthChange::Kind::Note:
    case HealthChange::Kind::Blind:
    case HealthChange::Kind::Sees:
      return;
    case HealthChange::Kind::Ill:
      break;
  }
  ill_.emplace(change.uuid, false);
  tellOfCard(change.uuid, EventReason::CardFault, change.why + "; it takes no new tasks");
}

void NodeAgent::tellRecovered(const Cards& now) {
  for (const AnnotatedCard& card : now) {
    const auto ill = ill_.find(card.id);
    if (ill == ill_.end()) continue;
    const bool used = card.health == schema::CardState::READY;
    if (used && ill->second) {
      tellOfCard(card.id, EventReason::CardRecovered, "it takes new tasks again");
      ill_.erase(ill);
    } else if (!used) {
      ill->second = true;
    }
  }
}

void NodeAgent::tellOfCard(const std::string& card, EventReason reason, const std::string& what) {
  tellNode(reason, {card, what});
  for (const auto& [task, holding] : holdings_) {
    const auto& cards = holding.cards;
    if (std::find(cards.begin(), cards.end(), card) == cards.end()) continue;
    tell(holding, reason, {card, what});
  }
}

void NodeAgent::tell(const PodRef& pod, EventReason reason, const Values& values) {
  events_.tellPod(podEvent(pod, reason, values));
}

void NodeAgent::tell(const Holding& holding, EventReason reason, const Values& values) {
  for (const PodRef& pod : holding.pods) tell(pod, reason, values);
}

void NodeAgent::tellNode(EventReason reason, const Values& values) {
  PodEvent event = podEvent({"", config_.node, config_.node}, reason, values);
  const EventEntry& entry = eventEntry(reason);
  const bool normal = entry.type == EventType::Normal;
  if (normal) log_.info("node", {{"reason", entry.name}, {"what", event.message}});
  if (!normal) log_.warn("node", {{"reason", entry.name}, {"why", event.message}});
  events_.tellPod(std::move(event));
}

void NodeAgent::tellAll(EventReason reason, const Values& values) {
  std::map<std::string, PodRef> all;
  for (const auto& [uid, pod] : handler_.book().pods()) all.emplace(uid, refOf(pod));
  for (const auto& [task, holding] : holdings_) {
    for (const PodRef& pod : holding.pods) all.emplace(pod.uid, pod);
  }
  for (const auto& [uid, pod] : all) tell(pod, reason, values);
}

}  // namespace qgpu
