#include "actors/placement/cluster_ledger.h"

#include <algorithm>
#include <utility>

#include "actors/placement/cluster_ledger_parts.h"

namespace qgpu {
namespace {

constexpr std::int64_t kWholeCardPart = 2;   // of what was seen: how often a whole card is wanted

CardRoom roomOf(const ClusterCard& card, const ClusterNodeFacts& facts, std::uint32_t model) {
  CardRoom room;
  room.mem = card.mem;
  room.tasksMax = tasksMaxOf(card.mem, facts.maxTasksPerCard);
  room.model = model;
  room.policy = card.policy;
  room.mark = card.mark;
  room.healthy = card.healthy;
  return room;
}

void mix(std::uint64_t& digest, std::uint64_t value) {
  digest = (digest ^ value) * 0x100000001b3ULL;
  digest ^= digest >> 29;
}

void mix(std::uint64_t& digest, const std::string& text) {
  for (const char c : text) mix(digest, static_cast<std::uint8_t>(c));
  mix(digest, text.size());
}

}  // namespace

ClusterLedger::ClusterLedger(Options options) : parts_(std::make_unique<Parts>()) {
  parts_->options = options;
  parts_->fragments.setTypical(parts_->learntTypical());
}

ClusterLedger::~ClusterLedger() = default;
ClusterLedger::ClusterLedger(ClusterLedger&&) noexcept = default;

ClusterLedger ClusterLedger::clone() const {
  ClusterLedger copy(parts_->options);
  *copy.parts_ = *parts_;
  copy.parts_->learnAt = INT64_MAX;
  return copy;
}

// --- parts ---

std::uint32_t ClusterLedger::Parts::modelOf(const std::string& name) {
  return models.emplace(name, static_cast<std::uint32_t>(models.size())).first->second;
}

void ClusterLedger::Parts::take(const Spot& spot, std::int64_t sign) {
  NodeRoom& on = room(spot.node);
  const Placement& placement = spot.placement;
  for (std::size_t n = 0; n < placement.cards.size(); ++n) {
    const CardAsk ask = cardAsk(placement, n);
    QGPU_CHECK(placement.cards[n] < on.cards.size(), "a spot names cards of its node");
    account(on.cards[placement.cards[n]], ask, sign);
    sums.memBound += ask.mem * sign;
    (ask.taskClass == TaskClass::Offline ? sums.greedy : sums.ordinary) += ask.share * sign;
  }
  on.cpuBound += spot.cpuMilli * sign;
  on.hostMemBound += spot.hostMem * sign;
  on.tasks = static_cast<std::uint32_t>(std::int64_t{on.tasks} + sign);
  sums.tasks += sign;
}

void ClusterLedger::Parts::listOffline(TaskId task, const Spot& spot) {
  const Placement& placement = spot.placement;
  if (placement.taskClass != TaskClass::Offline || placement.cards.size() != 1) return;
  std::vector<OfflineHeld>& on = at(spot.node).offline[placement.cards.front()];
  const OfflineHeld held{task, placement.mem.front(), placement.share, spot.cpuMilli,
                         spot.hostMem};
  on.insert(std::upper_bound(on.begin(), on.end(), task,
                             [](TaskId id, const OfflineHeld& other) { return id < other.task; }),
            held);
}

void ClusterLedger::Parts::unlistOffline(TaskId task, const Spot& spot) {
  const Placement& placement = spot.placement;
  if (placement.taskClass != TaskClass::Offline || placement.cards.size() != 1) return;
  std::erase_if(at(spot.node).offline[placement.cards.front()],
                [task](const OfflineHeld& held) { return held.task == task; });
}

void ClusterLedger::Parts::hold(TaskId task, Held held) {
  Node& node = at(held.spot.node);
  take(held.spot, 1);
  listOffline(task, held.spot);
  node.tasks.insert(std::lower_bound(node.tasks.begin(), node.tasks.end(), task), task);
  if (!held.application.empty()) {
    Replicas& replicas = applications[held.application][held.spot.node];
    replicas.onCard.resize(room(held.spot.node).cards.size());
    ++replicas.onNode;
    for (const std::size_t card : held.spot.placement.cards) ++replicas.onCard[card];
  }
  const NodeId where = held.spot.node;
  const bool isNew = tasks.emplace(task, std::move(held)).second;
  QGPU_CHECK(isNew, "task ids are given once");
  touch(where);
}

ClusterLedger::Parts::Held ClusterLedger::Parts::drop(TaskId task) {
  auto found = tasks.extract(task);
  Held held = std::move(found.mapped());
  Node& node = at(held.spot.node);
  take(held.spot, -1);
  unlistOffline(task, held.spot);
  node.tasks.erase(std::lower_bound(node.tasks.begin(), node.tasks.end(), task));
  if (!held.application.empty()) {
    const auto application = applications.find(held.application);
    const auto replicas = application->second.find(held.spot.node);
    for (const std::size_t card : held.spot.placement.cards) --replicas->second.onCard[card];
    if (--replicas->second.onNode == 0) application->second.erase(replicas);
    if (application->second.empty()) applications.erase(application);
  }
  touch(held.spot.node);
  return held;
}

// The least counted makes room for a kind that is new, which takes over its count.
void ClusterLedger::Parts::learn(const Spot& spot) {
  const Placement& placement = spot.placement;
  Learnt kind;
  kind.cards = static_cast<std::uint32_t>(placement.cards.size());
  if (kind.cards != 0) kind.card = cardAsk(placement, 0);
  if (placement.exclusive) kind.card.mem = Bytes(0);
  kind.cpuMilli = spot.cpuMilli;
  kind.hostMem = spot.hostMem;
  std::int64_t count = 1;
  if (learnt.size() >= kTypicalMax && learnt.find(kind) == learnt.end()) {
    const auto least = std::min_element(learnt.begin(), learnt.end(), [](auto& a, auto& b) {
      return a.second < b.second;
    });
    count += least->second;
    learnt.erase(least);
  }
  learnt[kind] += count;
  if (++binds < learnAt || typicalGiven) return;
  learnAt = binds * 2;
  fragments.setTypical(learntTypical());
  for (auto& [seen, weight] : learnt) weight = (weight + 1) / 2;   // the past counts less and less
  lookAnew();
}

// What was seen, and a whole card, which anybody may want at any time: where little was seen yet,
// tasks would else open one card after another.
std::vector<TypicalShape> ClusterLedger::Parts::learntTypical() const {
  std::vector<TypicalShape> typical;
  std::int64_t total = 0;
  for (const auto& [seen, weight] : learnt) {
    typical.push_back({seen.card, seen.cards, seen.cpuMilli, seen.hostMem, true, {}, weight});
    total += weight;
  }
  const CardAsk whole{TaskClass::Ordinary, Bytes(0), kWholeCard, true};
  typical.push_back({whole, 1, 0, Bytes(0), true, {}, total / kWholeCardPart + 1});
  return typical;
}

void ClusterLedger::Parts::lookAnew() {
  ++learnings;
  fragmentSum = 0;
  for (NodeRoom& on : rooms) {
    fragments.look(on);
    fragmentSum += on.fragments.amount;
  }
  index.clear();
}

void ClusterLedger::Parts::touch(NodeId node) {
  changedAt.resize(nodes.size());
  changedAt[raw(node)] = ++changes;
  NodeRoom& on = room(node);
  fragmentSum -= on.fragments.amount;
  fragments.look(on);
  fragmentSum += on.fragments.amount;
  if (options.indexed) index.changed(raw(node));
}

// --- inventory ---

std::pair<NodeId, std::vector<TaskId>> ClusterLedger::setNode(const ClusterNodeFacts& facts) {
  Parts& p = *parts_;
  const auto next = static_cast<NodeId>(p.nodes.size());
  const auto [named, isNew] = p.byName.emplace(facts.name, next);
  const NodeId id = named->second;
  if (isNew) {
    p.nodes.emplace_back();
    p.rooms.emplace_back();
  }
  Parts::Node& node = p.at(id);
  NodeRoom& room = p.room(id);

  std::map<TaskId, Parts::Held> stay;
  const std::vector<TaskId> were = node.tasks;
  for (const TaskId task : were) stay.emplace(task, p.drop(task));
  for (const CardRoom& card : room.cards) p.sums.mem -= card.mem;
  p.sums.cards -= static_cast<std::int64_t>(room.cards.size());

  const std::vector<ClusterCard> old = std::exchange(node.facts, facts).cards;
  room.cards.clear();
  node.offline.assign(facts.cards.size(), {});
  for (const ClusterCard& card : facts.cards) {
    room.cards.push_back(roomOf(card, facts, p.modelOf(card.model)));
    p.sums.mem += card.mem;
  }
  p.sums.cards += static_cast<std::int64_t>(facts.cards.size());
  room.mixed = facts.mixed;
  room.cpu = facts.cpuMilli;
  room.hostMem = facts.hostMem;
  p.touch(id);

  std::vector<TaskId> lost;
  for (auto& [task, held] : stay) {
    bool all = true;
    for (std::size_t& card : held.spot.placement.cards) {
      const std::string& wanted = old[card].id;
      const auto now = std::find_if(facts.cards.begin(), facts.cards.end(),
                                    [&](const ClusterCard& c) { return c.id == wanted; });
      all = all && now != facts.cards.end();
      card = static_cast<std::size_t>(now - facts.cards.begin());
    }
    if (all) p.hold(task, std::move(held));
    else lost.push_back(task);
  }
  return {id, lost};
}

void ClusterLedger::setLife(NodeId node, NodeLife life) {
  parts_->room(node).life = life;
  parts_->touch(node);
}

void ClusterLedger::setCordoned(NodeId node, bool cordoned) {
  parts_->room(node).cordoned = cordoned;
  parts_->touch(node);
}

void ClusterLedger::setMark(NodeId node, std::size_t card, CardMark mark) {
  NodeRoom& on = parts_->room(node);
  QGPU_CHECK(card < on.cards.size(), "positions of cards come from facts()");
  on.cards[card].mark = mark;
  parts_->at(node).facts.cards[card].mark = mark;
  parts_->touch(node);
}

void ClusterLedger::setPriority(Score priority) { parts_->options.priority = priority; }

void ClusterLedger::setTypical(std::vector<Typical> typical) {
  std::vector<TypicalShape> shapes;
  for (Typical& t : typical) {
    TypicalShape shape{t.card, t.cards, t.cpuMilli, t.hostMem, t.models.empty(), {}, t.weight};
    for (const std::string& model : t.models) shape.models.push_back(parts_->modelOf(model));
    shapes.push_back(std::move(shape));
  }
  parts_->typicalGiven = !shapes.empty();
  parts_->learnAt = parts_->binds + 1;
  if (shapes.empty()) shapes = parts_->learntTypical();
  parts_->fragments.setTypical(std::move(shapes));
  parts_->lookAnew();
}

// --- tasks ---

void ClusterLedger::bind(TaskId task, const Spot& spot, const std::string& application) {
  const Placement& placement = spot.placement;
  QGPU_CHECK(placement.mem.size() == placement.cards.size(), "one amount for each card");
  parts_->hold(task, {spot, application});
  parts_->learn(spot);
}

bool ClusterLedger::release(TaskId task) {
  if (parts_->tasks.find(task) == parts_->tasks.end()) return false;
  parts_->drop(task);
  return true;
}

// --- status ---

std::size_t ClusterLedger::nodes() const { return parts_->nodes.size(); }

std::optional<NodeId> ClusterLedger::findNode(const std::string& name) const {
  const auto found = parts_->byName.find(name);
  if (found == parts_->byName.end()) return std::nullopt;
  return found->second;
}

const ClusterNodeFacts& ClusterLedger::facts(NodeId node) const { return parts_->at(node).facts; }
NodeLife ClusterLedger::life(NodeId node) const { return parts_->room(node).life; }
bool ClusterLedger::cordoned(NodeId node) const { return parts_->room(node).cordoned; }

const CardRoom& ClusterLedger::room(NodeId node, std::size_t card) const {
  const NodeRoom& on = parts_->room(node);
  QGPU_CHECK(card < on.cards.size(), "positions of cards come from facts()");
  return on.cards[card];
}

std::int64_t ClusterLedger::cpuBound(NodeId node) const { return parts_->room(node).cpuBound; }
Bytes ClusterLedger::hostMemBound(NodeId node) const { return parts_->room(node).hostMemBound; }
std::vector<TaskId> ClusterLedger::tasksOn(NodeId node) const { return parts_->at(node).tasks; }

std::vector<TaskId> ClusterLedger::tasksOn(NodeId node, std::size_t card) const {
  std::vector<TaskId> on;
  for (const TaskId task : parts_->at(node).tasks) {
    const auto& cards = parts_->tasks.at(task).spot.placement.cards;
    if (std::find(cards.begin(), cards.end(), card) != cards.end()) on.push_back(task);
  }
  return on;
}

const std::vector<OfflineHeld>& ClusterLedger::offlineOn(NodeId node, std::size_t card) const {
  const Parts::Node& on = parts_->at(node);
  QGPU_CHECK(card < on.offline.size(), "positions of cards come from facts()");
  return on.offline[card];
}

const Spot* ClusterLedger::spot(TaskId task) const {
  const auto found = parts_->tasks.find(task);
  return found == parts_->tasks.end() ? nullptr : &found->second.spot;
}

std::size_t ClusterLedger::tasks() const { return parts_->tasks.size(); }
ClusterSums ClusterLedger::sums() const { return parts_->sums; }
std::uint64_t ClusterLedger::evaluations() const {
  return parts_->evaluations + parts_->index.ranked();
}

std::uint64_t ClusterLedger::changes() const {
  return parts_->changes;
}

std::uint64_t ClusterLedger::changedAt(NodeId node) const {
  QGPU_CHECK(Parts::raw(node) < parts_->changedAt.size(), "positions come from setNode()");
  return parts_->changedAt[Parts::raw(node)];
}

std::uint64_t ClusterLedger::learnings() const {
  return parts_->learnings;
}

std::int64_t ClusterLedger::fragmentPermille() const {
  const std::int64_t all = parts_->sums.cards * parts_->fragments.weight();
  return all == 0 ? 0 : mulDiv(parts_->fragmentSum, 1, all);
}

std::uint64_t ClusterLedger::digest() const {
  std::uint64_t digest = 0xcbf29ce484222325ULL;
  for (const auto& [task, held] : parts_->tasks) {
    const Placement& placement = held.spot.placement;
    const ClusterNodeFacts& facts = parts_->at(held.spot.node).facts;
    mix(digest, static_cast<std::uint64_t>(task));
    mix(digest, facts.name);
    mix(digest, static_cast<std::uint64_t>(placement.taskClass));
    mix(digest, static_cast<std::uint64_t>(placement.share.value));
    mix(digest, static_cast<std::uint64_t>(held.spot.cpuMilli));
    mix(digest, static_cast<std::uint64_t>(held.spot.hostMem.value));
    for (std::size_t n = 0; n < placement.cards.size(); ++n) {
      mix(digest, facts.cards[placement.cards[n]].id);
      mix(digest, static_cast<std::uint64_t>(placement.mem[n].value));
    }
  }
  return digest;
}

}  // namespace qgpu
