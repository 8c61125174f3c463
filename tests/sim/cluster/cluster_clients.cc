#include "tests/sim/cluster/cluster_clients.h"

#include <algorithm>
#include <utility>

#include "services/api/rpc/standing_by.h"

namespace qgpu::sim {
namespace {

constexpr std::size_t kAskedMax = 64;
constexpr std::size_t kLocalTasks = 3;    // that people on a node keep, at most
constexpr Nanos kPatience = seconds(35);  // as services/api/commands/cluster_actor_client.h
constexpr std::uint64_t kWandersPercent = 3;
constexpr std::uint32_t kGroupTasks = 4;  // that start together, at most

// Says nothing of what became of it.
bool busyNow(const std::string& code) {
  return code == "overloaded" || code == "unavailable";
}

std::string codeOf(schema::Failure::Reader failure) {
  return {failure.getCode().cStr()};
}

}  // namespace

Wish Wish::draw(const ClusterOptions& options, Dice& dice, const std::string& id) {
  Wish wish;
  wish.requestId = id;
  wish.taskClass = static_cast<std::uint32_t>(dice.below(3));
  wish.mib = 1024 * dice.between(1, std::max<std::int64_t>(1, options.cardGib / 2));
  if (dice.percent(50)) wish.mib -= dice.between(1, 1000);
  wish.uid = static_cast<std::uint32_t>(dice.below(3));
  if (wish.taskClass != 0) {
    wish.share = static_cast<std::uint32_t>(10 + 10 * dice.below(60));
  }
  if (wish.taskClass == 2 && dice.percent(15)) {
    wish.share = 1000;
    wish.cards = static_cast<std::uint32_t>(1 + dice.below(options.cards));
  }
  if (dice.percent(10)) wish.application = "application";
  if (dice.percent(5)) wish.model = dice.percent(70) ? "imaginary" : "unheard-of";
  if (dice.percent(15)) wish.cpuMilli = 100 + dice.below(6'000);
  wish.preempt = wish.taskClass != 1 && wish.uid == 0 && dice.percent(90);  // who may change
  return wish;
}

void Wish::write(schema::TaskSpec::Builder spec) const {
  spec.setName(requestId);
  spec.setClass(static_cast<schema::TaskClass>(taskClass));
  spec.setMemBytes(static_cast<std::uint64_t>(mebibytes(mib).value));
  spec.setSharePermille(share);
  spec.setCards(cards);
  spec.setCard(card);
  spec.setOwnerPid(ownerPid);
  spec.setOwnerStart(ownerPid);
  spec.setOwnerUid(uid);
  spec.setRequestId(requestId);
}

// --- whoever asks ---

std::optional<AskingClient::Asked> AskingClient::answered(std::uint64_t corr) {
  const auto found = asked_.find(corr);
  if (found == asked_.end()) return std::nullopt;
  const Asked asked = found->second;
  asked_.erase(found);
  return asked;
}

// --- at the scheduler ---

ClusterClient::ClusterClient(std::vector<Site*> schedulers, SchedulerFacts facts,
                             const ClusterOptions& options, std::vector<std::string> nodes,
                             Dice dice)
    : AskingClient(options, dice),
      facts_(std::move(facts)),
      nodes_(std::move(nodes)),
      groupDice_(options.seed ^ 0x67726f7570ULL) {
  for (Site* site : schedulers) doors_.push_back({site, ActorId::kNobody, ActorId::kNobody});
  doors_[at_].site->after(millis(1), [this] { act(); });
}

void ClusterClient::connect(std::size_t scheduler, ActorId self, ActorId actor) {
  doors_[scheduler].self = self;
  doors_[scheduler].scheduler = actor;
}

void ClusterClient::disconnect(std::size_t scheduler) {
  doors_[scheduler].self = ActorId::kNobody;
  forget([&](const Asked& asked) { return asked.door == scheduler; });
}

void ClusterClient::calm() {
  calm_ = true;
  if (options_.has(ClusterFault::Operators)) toFree_ = nodes_.size();
}

std::string ClusterClient::waitsFor() const {
  std::string text =
      std::to_string(asked_.size()) + " answers, has " + std::to_string(wishes_.size()) + " tasks";
  for (const auto& [id, wish] : wishes_) {
    if (wish.asked) text += "; " + wish.requestId + " task " + std::to_string(wish.task);
  }
  return text;
}

// Where to ask from now on.
std::size_t ClusterClient::nextDoor() {
  if (doors_.size() == 1) return at_;
  const std::size_t other = (at_ + 1) % doors_.size();
  const Nanos now = doors_[at_].site->now();
  const auto late = [&](const Asked& asked) { return now - asked.at > kPatience; };
  const bool silent = std::any_of(asked_.begin(), asked_.end(), [&](const auto& entry) {
    return entry.second.door == at_ && late(entry.second);
  });
  forget(late);
  if (silent) return other;
  if (const auto refused = facts_.refusal(at_)) {
    const std::string acting = actingOf(refused->message).value_or("");
    const auto named = std::find_if(doors_.begin(), doors_.end(),
                                    [&](const Door& door) { return door.site->name == acting; });
    return named == doors_.end() ? other : static_cast<std::size_t>(named - doors_.begin());
  }
  return dice_.percent(kWandersPercent) ? dice_.below(doors_.size()) : at_;
}

void ClusterClient::act() {
  Site& here = *doors_[at_].site;
  const std::size_t next = nextDoor();
  const Nanos again = dice_.magnitude(options_.think / 8, options_.think * 2);
  doors_[next].site->at(here.now() + again, [this] { act(); });
  if (std::exchange(at_, next) != next) return;
  if (doors_[at_].self == ActorId::kNobody || asked_.size() >= kAskedMax) return;
  for (auto& [id, wish] : wishes_) visit(id, wish);
  while (toFree_ > 0) {
    const std::string& node = nodes_[toFree_ - 1];
    if (!ask({What::Operate, toFree_}, 0, [&](auto r) { r.initUncordon().setNode(node); })) break;
    --toFree_;
  }
  if (calm_) return;
  for (int i = 0; i < 4 && wishes_.size() < options_.tasks && dice_.percent(50); ++i) {
    const std::uint64_t id = ++lastWish_;
    Wish& wish = wishes_[id] = Wish::draw(options_, dice_, "job-" + std::to_string(id));
    if (dice_.percent(options_.pinnedPercent)) {
      wish.node = dice_.pick(nodes_);
      if (wish.cards == 1 && dice_.percent(30)) wish.card = "sim-0";
      if (dice_.percent(30)) wish.ownerPid = static_cast<std::uint32_t>(1'000 + id);
    }
    wish.endAt = here.now() + dice_.magnitude(options_.lifeMin, options_.lifeMax);
    submit(id, wish);
  }
  if (groupDice_.percent(options_.groupsPercent)) submitGroup();
  if (options_.has(ClusterFault::Operators) && dice_.percent(10)) operate();
  if (dice_.percent(15)) question();
}

void ClusterClient::visit(std::uint64_t id, Wish& wish) {
  if (wish.asked) return;
  if (wish.task == 0 || (!ending_ && dice_.percent(3))) return submit(id, wish);
  if (!ending_ && (calm_ || wish.endAt > doors_[at_].site->now())) return;
  wish.asked = ask({What::End, id}, wish.uid, [&](auto r) { r.setDelete(wish.task); });
}

void ClusterClient::submit(std::uint64_t id, Wish& wish) {
  wish.asked = ask({What::Bind, id}, wish.uid, [&](schema::ClusterRequest::Builder request) {
    auto spec = request.initSubmit();
    wish.write(spec.initTask());
    spec.setNode(wish.node);
    spec.setApplication(wish.application);
    spec.setCpuMilli(wish.cpuMilli);
    spec.setPreempt(wish.preempt);
    spec.setGroup(wish.group);
    spec.setGroupSize(wish.groupSize);
    if (!wish.model.empty()) spec.initModels(1).set(0, wish.model);
  });
}

// Tasks that ask for the same, sometimes fewer or more than make the group whole. Few names are
// used, so a group meets others of its name, of its size or another one.
void ClusterClient::submitGroup() {
  if (wishes_.size() > options_.tasks + kGroupTasks) return;
  Wish shape = Wish::draw(options_, groupDice_, "");
  shape.cards = 1;
  shape.preempt = false;
  shape.groupSize = static_cast<std::uint32_t>(groupDice_.between(1, kGroupTasks));
  shape.group = "group-" + std::to_string(groupDice_.below(3));
  const std::int64_t tasks = shape.groupSize + groupDice_.between(-1, 1);
  for (std::int64_t i = 0; i < tasks; ++i) {
    const std::uint64_t id = ++lastWish_;
    Wish& wish = wishes_[id] = shape;
    wish.requestId = "job-" + std::to_string(id);
    wish.endAt = doors_[at_].site->now() + groupDice_.magnitude(options_.lifeMin, options_.lifeMax);
    if (groupDice_.percent(80)) submit(id, wish);  // the others are asked for at the next visit
  }
}

void ClusterClient::operate() {
  const std::string node = dice_.pick(nodes_);
  const std::string card = dice_.percent(50) ? "" : "sim-0";
  const std::uint64_t kind = dice_.below(10);
  ask({What::Operate, 0}, 0, [&](schema::ClusterRequest::Builder request) {
    if (kind == 0) return request.setPriority(static_cast<schema::Score>(1 + dice_.below(3)));
    if (kind == 1) return static_cast<void>(request.setSnapshot());
    auto target = kind < 4   ? request.initCordon()
                  : kind < 8 ? request.initUncordon()
                             : request.initDrain().initTarget();
    if (kind >= 8) {
      const Nanos patience = dice_.magnitude(millis(100), seconds(60));
      request.getDrain().setTimeoutNs(static_cast<std::uint64_t>(patience.value));
    }
    target.setNode(node);
    target.setCard(card);
  });
}

void ClusterClient::question() {
  const std::uint64_t task = dice_.below(lastWish_ + 2);
  const std::uint64_t kind = dice_.below(6);
  ask({What::Ask, 0}, 0, [&](schema::ClusterRequest::Builder request) {
    switch (kind) {
      case 0:
        return request.setInfo();
      case 1:
        return request.setNodes();
      case 2:
        return request.setCards();
      case 3:
        return request.setExplain(task);
      case 4:
        return request.setEvents(0);
      default:
        return static_cast<void>(request.initTasks(0));
    }
  });
}

bool ClusterClient::ask(Asked what, std::uint32_t uid, const Fill& fill) {
  const Door& door = doors_[at_];
  what.door = at_;
  const auto make = [&](schema::Envelope::Builder envelope) {
    auto request = envelope.initClusterRequest();
    fill(request);
    return request;
  };
  return AskingClient::ask(*door.site, door.self, door.scheduler, what, uid, make);
}

// What a scheduler says that may have lost its seat is no answer (while_seated.h).
void ClusterClient::handle(schema::Envelope::Reader message, Turn&) {
  if (!message.isClusterReply()) return;
  const auto reply = message.getClusterReply();
  const std::optional<Asked> asked = answered(reply.getCorr());
  if (!asked) return;
  if (facts_.holds(asked->door)) return onReply(*asked, reply);
  if (const auto wish = wishes_.find(asked->wish); wish != wishes_.end()) {
    wish->second.asked = false;
  }
}

void ClusterClient::onReply(const Asked& asked, schema::ClusterReply::Reader reply) {
  if (asked.what == What::Operate && asked.wish != 0 && reply.isFailed() &&
      busyNow(codeOf(reply.getFailed()))) {
    toFree_ = std::max<std::size_t>(toFree_, asked.wish);
  }
  if (asked.what != What::Bind && asked.what != What::End) return;
  const auto found = wishes_.find(asked.wish);
  if (found == wishes_.end()) return;
  Wish& wish = found->second;
  wish.asked = false;
  if (reply.isAssigned()) {
    if (wish.task == 0) ++tasks_;
    wish.task = reply.getAssigned().getTask();
    return;
  }
  // A delete that was taken may meet a task that is ending for some time: it is asked again.
  if (!reply.isFailed() || busyNow(codeOf(reply.getFailed()))) return;
  wishes_.erase(found);
}

// --- on a node ---

NodeClient::NodeClient(Site& site, const ClusterOptions& options, std::uint32_t cards, Dice dice)
    : AskingClient(options, dice), site_(site), cards_(cards) {
  const bool lives = options.has(ClusterFault::Forwards) || options.has(ClusterFault::Operators) ||
                     options.has(ClusterFault::Endings);
  if (lives) site_.after(millis(1), [this] { act(); });
}

void NodeClient::connect(ActorId self, ActorId node, ActorId member) {
  self_ = self;
  node_ = node;
  member_ = member;
}

void NodeClient::disconnect() {
  self_ = ActorId::kNobody;
  forget([](const Asked&) { return true; });
}

void NodeClient::act() {
  site_.after(dice_.magnitude(options_.think / 2, options_.think * 8), [this] { act(); });
  if (self_ == ActorId::kNobody || asked_.size() >= kAskedMax) return;
  for (auto& [id, wish] : wishes_) visit(id, wish);
  if (calm_) return;
  if (options_.has(ClusterFault::Forwards) && wishes_.size() < kLocalTasks && dice_.percent(40)) {
    const std::uint64_t id = ++lastWish_;
    Wish& wish = wishes_[id] = Wish::draw(options_, dice_, site_.name + "-" + std::to_string(id));
    if (dice_.percent(50)) wish.ownerPid = static_cast<std::uint32_t>(10'000 + id);
    wish.endAt = site_.host.now() + dice_.magnitude(options_.lifeMin, options_.lifeMax);
    visit(id, wish);
  }
  wander();
}

void NodeClient::visit(std::uint64_t id, Wish& wish) {
  if (wish.asked) return;
  if (wish.task == 0) {
    wish.asked = ask(member_, {What::Bind, id}, wish.uid,
                     [&](schema::Request::Builder request) { wish.write(request.initBind()); });
  } else if (ending_ || (!calm_ && wish.endAt <= site_.host.now())) {
    wish.asked = ask(node_, {What::End, id}, wish.uid,
                     [&](schema::Request::Builder request) { request.setUnbind(wish.task); });
  }
}

void NodeClient::wander() {
  if (options_.has(ClusterFault::Endings) && dice_.percent(5)) {
    const std::uint64_t task = dice_.below(20) + 1;
    ask(node_, {}, 0, [&](schema::Request::Builder request) { request.setEvict(task); });
  }
  if (!options_.has(ClusterFault::Operators) || !dice_.percent(5)) return;
  const std::string card = "sim-" + std::to_string(dice_.below(cards_));
  const std::uint64_t kind = dice_.below(5);
  ask(node_, {}, 0, [&](schema::Request::Builder request) {
    if (kind == 0) return request.setCordon(card);
    if (kind == 1) return request.setDrain(card);
    return request.setUncordon(card);
  });
}

bool NodeClient::ask(ActorId whom, Asked what, std::uint32_t uid, const Fill& fill) {
  const auto make = [&](schema::Envelope::Builder envelope) {
    auto request = envelope.initRequest();
    fill(request);
    return request;
  };
  return AskingClient::ask(site_, self_, whom, what, uid, make);
}

void NodeClient::handle(schema::Envelope::Reader message, Turn&) {
  if (!message.isReply()) return;
  const auto reply = message.getReply();
  const std::optional<Asked> asked = answered(reply.getCorr());
  if (!asked) return;
  const auto mine = wishes_.find(asked->wish);
  if (mine == wishes_.end()) return;
  Wish& wish = mine->second;
  wish.asked = false;
  if (reply.isBound()) wish.task = reply.getBound().getTask();
  // Who found no room, or hears that it is over, goes away.
  if (!reply.isFailed() || busyNow(codeOf(reply.getFailed()))) return;
  wishes_.erase(mine);
}

}  // namespace qgpu::sim
