#include "actors/placement/cluster_ledger.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "actors/ledger/card_name.h"
#include "actors/placement/index.h"
#include "actors/placement/placement.h"
#include "runtime/check.h"
#include "runtime/planted.h"

namespace qgpu {

// Each change of a node ends in touch(), which keeps the fragments, the sums and the index beside
// the rooms.
struct ClusterLedger::Parts {
  struct Node {
    ClusterNodeFacts facts;
    std::vector<TaskId> tasks;                      // ascending
    std::vector<std::vector<OfflineHeld>> offline;  // by card, each ascending
  };
  struct Holding {
    Spot spot;
    std::string application;
  };
  struct Learnt {
    CardAsk card;
    std::uint32_t cards = 0;
    std::int64_t cpuMilli = 0;
    Bytes hostMem{0};
    auto operator<=>(const Learnt&) const = default;
  };

  Options options;
  std::vector<Node> nodes;
  std::vector<NodeRoom> rooms;  // of the nodes
  std::map<std::string, NodeId> byName;
  std::map<TaskId, Holding> tasks;
  std::map<std::string, std::map<NodeId, Replicas>> applications;
  std::map<std::string, std::uint32_t> models;
  Fragments fragments;
  std::int64_t fragmentSum = 0;
  bool typicalGiven = false;
  std::map<Learnt, std::int64_t> learnt;
  std::int64_t binds = 0;
  std::int64_t learnAt = 1;  // binds; doubled each time, so that few looks are anew
  ClusterSums sums;
  std::uint64_t draws = 0;
  std::uint64_t evaluations = 0;         // by rank(); the index counts its own
  std::uint64_t changes = 0;             // of rooms
  std::vector<std::uint64_t> changedAt;  // of each node: its last one
  std::uint64_t learnings = 0;
  bool tries = false;  // rooms change for a question alone
  PlacementIndex index;

  Node& at(NodeId node) {
    QGPU_CHECK(raw(node) < nodes.size(), "positions come from setNode() or findNode()");
    return nodes[raw(node)];
  }
  const Node& at(NodeId node) const {
    QGPU_CHECK(raw(node) < nodes.size(), "positions come from setNode() or findNode()");
    return nodes[raw(node)];
  }
  NodeRoom& room(NodeId node) { return at(node), rooms[raw(node)]; }
  const NodeRoom& room(NodeId node) const { return at(node), rooms[raw(node)]; }
  static std::uint32_t raw(NodeId node) { return static_cast<std::uint32_t>(node); }

  // An ask that has passed check(), in the terms of this ledger.
  Shape shapeOf(const ClusterAsk& ask) const;
  std::uint32_t modelOf(const std::string& name);
  const Replicas* replicasOf(const ClusterAsk& ask, const Shape& shape, NodeId node) const;
  // SIZE_MAX where the node has no such card, of any name.
  static std::size_t cardOf(const Node& node, const std::string& text);
  std::uint64_t rank(NodeId node, const ClusterAsk& ask, const Shape& shape, std::size_t card,
                     Pick& pick);
  Spot spotOf(NodeId node, const Shape& shape, const Pick& pick) const;
  Result<Spot> scan(const ClusterAsk& ask, const Shape& shape);
  Result<Spot> search(const ClusterAsk& ask, const Shape& shape);
  Result<Spot> placeOn(NodeId node, const ClusterAsk& ask, const Shape& shape);
  Error refuse(const ClusterAsk& ask, const Shape& shape, std::uint64_t rank) const;
  Error refuseModels(const ClusterAsk& ask, const Shape& shape, const std::string& what) const;

  void take(const Spot& spot, std::int64_t sign);
  void listOffline(TaskId task, const Spot& spot);
  void unlistOffline(TaskId task, const Spot& spot);
  void hold(TaskId task, Holding held);
  Holding drop(TaskId task);
  void learn(const Spot& spot);
  std::vector<TypicalShape> learntTypical() const;
  void lookAnew();
  void touch(NodeId node);
  // What explanations count while they go from node to node.
  struct Tally {
    std::array<std::size_t, kReasons> counts{};  // cards
    std::vector<Reason> reasons;                 // of the cards of one node
  };
  // Without its text, which costs more than all the rest and is said of few nodes.
  NodeVerdict nearest(NodeId node, const ClusterAsk& ask, const Shape& shape, Tally& tally) const;
  std::string textOf(const NodeVerdict& verdict, const Shape& shape) const;
  std::int64_t distanceOf(const NodeVerdict& verdict) const;
};

namespace {

constexpr std::int64_t kWholeCardPart = 2;  // of what was seen: how often a whole card is wanted

CardRoom roomOf(const ClusterCard& card, const ClusterNodeFacts& facts, std::uint32_t model) {
  CardRoom room;
  room.mem = card.mem;
  room.tasksMax = tasksMaxOf(card.mem, facts.tasks);
  room.model = model;
  room.policy = card.policy;
  room.mark = card.mark;
  room.place = card.place;
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

constexpr std::size_t kModelsSaid = 8;  // of a cluster, where others are asked

std::string wanted(const Shape& shape) {
  std::string what;
  if (shape.card.whole && shape.cards != 0)
    what = std::to_string(shape.cards) + " whole card(s)";
  else if (shape.cards != 0)
    what = sizeText(shape.card.mem);
  if (shape.cards != 0 && !shape.card.whole && shape.card.share.value != 0) {
    what += " and " + percentText(shape.card.share) + " percent";
  }
  if (shape.cpuMilli != 0) {
    what += (what.empty() ? "" : ", ") + std::to_string(shape.cpuMilli) + "m of processors";
  }
  if (shape.hostMem.value != 0) {
    what += (what.empty() ? "" : ", ") + sizeText(shape.hostMem) + " of host memory";
  }
  return what;
}

Score resolve(Score asked, TaskClass taskClass, Score priority) {
  if (asked != Score::ClassDefault) return asked;
  if (taskClass == TaskClass::Online) return Score::Spread;
  return taskClass == TaskClass::Offline ? Score::Binpack : priority;
}

// How far a card or node is from taking the task: amounts in permille of a card, other reasons by
// how lasting they are.
std::int64_t distance(Reason reason, std::int64_t missing, Bytes cardMem) {
  switch (reason) {
    case Reason::Fits:
      return 0;
    case Reason::MemShort:
      return 1 + (cardMem.value == 0 ? 0 : mulDiv(missing, 1000, cardMem.value));
    case Reason::CoreShort:
    case Reason::GreedyShort:
      return 1 + missing;
    case Reason::SlotsFull:
      return 200 * missing;
    case Reason::CpuShort:
    case Reason::HostMemShort:
      return 500;
    case Reason::NotWholeFree:
    case Reason::HeldWhole:
      return 1000 + missing;
    case Reason::NotEnoughCards:
      return 1000 + 1000 * missing;
    case Reason::ShareNeeded:
      return 20'000;
    case Reason::WrongTenancy:
      return 21'000;
    case Reason::ManagerStarting:
      return 21'500;
    case Reason::CardCordoned:
      return 22'000;
    case Reason::ReportNeeded:
      return 22'500;
    case Reason::NodeCordoned:
      return 23'000;
    case Reason::StaleState:
      return 24'000;
    case Reason::NodeLost:
      return 25'000;
    case Reason::CardUnhealthy:
      return 26'000;
    case Reason::CardTooSmall:
      return 30'000 + (cardMem.value == 0 ? 0 : mulDiv(missing, 1000, cardMem.value));
    case Reason::ModelMismatch:
      return 1'000'000;
    case Reason::NotMixedNode:
      return 1'100'000;
    default:
      return 2'000'000;
  }
}

std::string nodeText(Reason reason, std::int64_t missing) {
  switch (reason) {
    case Reason::Fits:
      return "fits";
    case Reason::NoQgpuNode:
      return "has no cards";
    case Reason::NotMixedNode:
      return "takes ordinary tasks only: start its manager with --mixed";
    case Reason::NodeLost:
      return "is lost";
    case Reason::StaleState:
      return "has not said yet what it holds";
    case Reason::NodeCordoned:
      return "takes no new tasks: uncordon it";
    case Reason::OtherNode:
      return "is not the node that was named";
    case Reason::CpuShort:
      return "lacks " + std::to_string(missing) + "m of processors";
    case Reason::HostMemShort:
      return "lacks " + sizeText(Bytes(missing)) + " of host memory";
    case Reason::NotEnoughCards:
      return "lacks " + std::to_string(missing) + " free card(s)";
    default:
      return reasonName(reason);
  }
}

std::string cardText(const CardRoom& card, const Shape& shape, Reason reason,
                     std::int64_t missing) {
  const std::string has = describe(card, shape.card, reason);
  switch (reason) {
    case Reason::CardTooSmall:
    case Reason::MemShort:
      return "lacks " + sizeText(Bytes(missing)) + ": " + has;
    case Reason::CoreShort:
    case Reason::GreedyShort:
      return "lacks " + percentText(Permille(missing)) + " percent: " + has;
    default:
      return has;
  }
}

std::int64_t missingOnNode(const NodeRoom& room, const Shape& shape, Reason reason) {
  if (reason == Reason::CpuShort) return shape.cpuMilli - room.cpuFree();
  if (reason == Reason::HostMemShort) return (shape.hostMem - room.hostMemFree()).value;
  return 0;
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
  const OfflineHeld held{task, placement.mem.front(), placement.share, spot.cpuMilli, spot.hostMem};
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

void ClusterLedger::Parts::hold(TaskId task, Holding held) {
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

ClusterLedger::Parts::Holding ClusterLedger::Parts::drop(TaskId task) {
  auto found = tasks.extract(task);
  Holding held = std::move(found.mapped());
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
    const auto least = std::min_element(learnt.begin(), learnt.end(),
                                        [](auto& a, auto& b) { return a.second < b.second; });
    count += least->second;
    learnt.erase(least);
  }
  learnt[kind] += count;
  if (++binds < learnAt || typicalGiven) return;
  learnAt = binds * 2;
  fragments.setTypical(learntTypical());
  for (auto& [seen, weight] : learnt) weight = (weight + 1) / 2;  // the past counts less and less
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
  if (!tries) changedAt[raw(node)] = ++changes;
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

  std::map<TaskId, Parts::Holding> stay;
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
    if (all)
      p.hold(task, std::move(held));
    else
      lost.push_back(task);
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

void ClusterLedger::setPriority(Score priority) {
  parts_->options.priority = priority;
}

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

ClusterLedger::Trial::Trial(ClusterLedger& ledger) : ledger_(ledger) {
  QGPU_CHECK(!ledger_.parts_->tries, "one question at a time");
  ledger_.parts_->tries = true;
}

ClusterLedger::Trial::~Trial() {
  for (const TaskId task : tasks_) ledger_.parts_->drop(task);
  ledger_.parts_->tries = false;
}

void ClusterLedger::Trial::bind(TaskId task, const Spot& spot, const std::string& application) {
  ledger_.parts_->hold(task, {spot, application});
  tasks_.push_back(task);
}

// --- status ---

std::size_t ClusterLedger::nodes() const {
  return parts_->nodes.size();
}

std::optional<NodeId> ClusterLedger::findNode(const std::string& name) const {
  const auto found = parts_->byName.find(name);
  if (found == parts_->byName.end()) return std::nullopt;
  return found->second;
}

const ClusterNodeFacts& ClusterLedger::facts(NodeId node) const {
  return parts_->at(node).facts;
}
NodeLife ClusterLedger::life(NodeId node) const {
  return parts_->room(node).life;
}
bool ClusterLedger::cordoned(NodeId node) const {
  return parts_->room(node).cordoned;
}

const CardRoom& ClusterLedger::room(NodeId node, std::size_t card) const {
  const NodeRoom& on = parts_->room(node);
  QGPU_CHECK(card < on.cards.size(), "positions of cards come from facts()");
  return on.cards[card];
}

std::int64_t ClusterLedger::cpuBound(NodeId node) const {
  return parts_->room(node).cpuBound;
}
Bytes ClusterLedger::hostMemBound(NodeId node) const {
  return parts_->room(node).hostMemBound;
}
std::vector<TaskId> ClusterLedger::tasksOn(NodeId node) const {
  return parts_->at(node).tasks;
}

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

std::size_t ClusterLedger::tasks() const {
  return parts_->tasks.size();
}
ClusterSums ClusterLedger::sums() const {
  return parts_->sums;
}
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

// --- places ---

Status ClusterLedger::check(const ClusterAsk& ask) const {
  const auto invalid = [](std::string text) {
    return Status(fail(ErrorCode::InvalidArgument, std::move(text)));
  };
  if (ask.cpuMilli < 0 || ask.hostMem.value < 0) return invalid("less than no host resources");
  if (ask.models.size() > kModelsMax) {
    return invalid("at most " + std::to_string(kModelsMax) + " card models may be named");
  }
  if (!ask.task.card.empty() && ask.node.empty()) {
    return invalid("card '" + ask.task.card + "' is of some node: name that as well");
  }
  if (ask.task.cards != 0) return checkAsk(ask.task);
  if (ask.task.mem.value != 0 || ask.task.share.value != 0 || !ask.task.card.empty()) {
    return invalid("memory and share are of a card, and no card is asked");
  }
  if (ask.cpuMilli == 0 && ask.hostMem.value == 0) return invalid("nothing is asked at all");
  return ok();
}

Shape ClusterLedger::Parts::shapeOf(const ClusterAsk& ask) const {
  Shape shape;
  const TaskClass taskClass = ask.task.taskClass;
  shape.cards = 0;
  if (ask.task.cards != 0) {
    const LedgerAsk normal = normalAsk(ask.task);
    shape.card = cardAsk(normal);
    if (shape.card.whole) shape.card.mem = Bytes(0);  // all of it, whatever it is
    shape.cards = normal.cards;
    shape.anyModel = ask.models.empty();
    for (const std::string& name : ask.models) {
      const auto known = models.find(name);
      if (known != models.end()) shape.models.push_back(known->second);
    }
    std::sort(shape.models.begin(), shape.models.end());
  }
  shape.cpuMilli = ask.cpuMilli;
  shape.hostMem = ask.hostMem;
  shape.nodeScore = resolve(ask.nodeScore, taskClass, options.priority);
  shape.cardScore = resolve(ask.cardScore, taskClass, options.priority);
  return shape;
}

const Replicas* ClusterLedger::Parts::replicasOf(const ClusterAsk& ask, const Shape& shape,
                                                 NodeId node) const {
  if (shape.nodeScore != Score::Spread && shape.cardScore != Score::Spread) return nullptr;
  if (ask.application.empty()) return nullptr;
  const auto application = applications.find(ask.application);
  if (application == applications.end()) return nullptr;
  const auto on = application->second.find(node);
  return on == application->second.end() ? nullptr : &on->second;
}

std::size_t ClusterLedger::Parts::cardOf(const Node& node, const std::string& text) {
  for (std::size_t i = 0; i < node.facts.cards.size(); ++i) {
    const ClusterCard& card = node.facts.cards[i];
    if (isCardCalled(text, card.id, card.index)) return i;
  }
  return SIZE_MAX;
}

std::uint64_t ClusterLedger::Parts::rank(NodeId node, const ClusterAsk& ask, const Shape& shape,
                                         std::size_t card, Pick& pick) {
  ++evaluations;
  const Particulars particulars{replicasOf(ask, shape, node), card, options.seed + draws};
  return rankNode(room(node), raw(node), shape, fragments, particulars, pick);
}

Spot ClusterLedger::Parts::spotOf(NodeId node, const Shape& shape, const Pick& pick) const {
  Spot spot;
  spot.node = node;
  spot.cpuMilli = QGPU_PLANTED(CpuOverbooked) ? shape.cpuMilli / 2 : shape.cpuMilli;
  spot.hostMem = shape.hostMem;
  spot.placement.taskClass = shape.card.taskClass;
  if (pick.count == 0) return spot;
  spot.placement.exclusive = shape.card.whole;
  spot.placement.share = shape.card.share;
  for (std::size_t n = 0; n < pick.count; ++n) {
    const std::size_t card = pick.cards[n];
    spot.placement.cards.push_back(card);
    spot.placement.mem.push_back(shape.card.whole ? room(node).cards[card].mem : shape.card.mem);
  }
  return spot;
}

Error ClusterLedger::Parts::refuse(const ClusterAsk& ask, const Shape& shape,
                                   std::uint64_t rank) const {
  const std::string what = wanted(shape);
  switch (rank) {
    case kNeverRank:
      if (nodes.empty()) {
        return fail(ErrorCode::Infeasible,
                    "no node has joined this cluster yet: start qgpu-manager --scheduler on one");
      }
      if (!ask.models.empty() && shape.cards != 0) return refuseModels(ask, shape, what);
      return fail(ErrorCode::Infeasible,
                  "not even an empty cluster would do for " + what + "; ask for less");
    case kConflictRank:
      return fail(ErrorCode::Conflict, "every card that would do for " + what +
                                           " holds tasks of the other kind, or needs a share");
    case kCordonedRank:
      return fail(ErrorCode::Cordoned,
                  "every card that would do for " + what + " takes no new tasks: uncordon one");
    default:
      return fail(ErrorCode::NoRoom,
                  "no card has room for " + what + " now: wait until a task ends, or ask for less");
  }
}

// No node has such a card, or those that are would not do.
Error ClusterLedger::Parts::refuseModels(const ClusterAsk& ask, const Shape& shape,
                                         const std::string& what) const {
  std::string named;
  for (const std::string& model : ask.models) named += (named.empty() ? "" : " or ") + model;
  if (!shape.models.empty()) {
    return fail(ErrorCode::Infeasible, "not even an empty cluster would do for " + what +
                                           " on a card of model " + named +
                                           "; ask for less, or allow other models");
  }
  std::string known;
  std::size_t count = 0;
  for (const auto& [model, number] : models) {
    if (++count <= kModelsSaid) known += (known.empty() ? "" : ", ") + model;
  }
  if (count > kModelsSaid) known += ", and others";
  return fail(ErrorCode::Infeasible,
              "no node has a card of model " + named +
                  "; the models that there are: " + (known.empty() ? "none" : known));
}

Result<Spot> ClusterLedger::Parts::placeOn(NodeId node, const ClusterAsk& ask, const Shape& shape) {
  std::size_t card = SIZE_MAX;
  if (!ask.task.card.empty()) {
    card = cardOf(at(node), ask.task.card);
    if (card == SIZE_MAX) {
      return fail(ErrorCode::NotFound, "no card '" + ask.task.card + "' on node " + ask.node);
    }
  }
  Pick pick;
  const std::uint64_t found = rank(node, ask, shape, card, pick);
  if (fitsAt(found)) return spotOf(node, shape, pick);
  Error error = refuse(ask, shape, found);
  Tally tally;
  error.message = "on node " + ask.node + ": " + textOf(nearest(node, ask, shape, tally), shape) +
                  "; " + error.message;
  return error;
}

Result<Spot> ClusterLedger::Parts::scan(const ClusterAsk& ask, const Shape& shape) {
  std::uint64_t least = kNeverRank;
  NodeId best{};
  Pick pick;
  Pick bestPick;
  for (std::uint32_t i = 0; i < nodes.size(); ++i) {
    const std::uint64_t ranked = rank(NodeId{i}, ask, shape, SIZE_MAX, pick);
    if (ranked >= least) continue;
    least = ranked;
    best = NodeId{i};
    bestPick = pick;
  }
  if (!fitsAt(least)) return refuse(ask, shape, least);
  return spotOf(best, shape, bestPick);
}

// By the index. Nodes with replicas of the application rank lower than the shape alone says, so
// they are left out there and ranked one by one.
Result<Spot> ClusterLedger::Parts::search(const ClusterAsk& ask, const Shape& shape) {
  std::vector<std::size_t> apart;
  const bool spreads = shape.nodeScore == Score::Spread || shape.cardScore == Score::Spread;
  const auto application =
      spreads && !ask.application.empty() ? applications.find(ask.application) : applications.end();
  if (application != applications.end()) {
    for (const auto& [node, replicas] : application->second) apart.push_back(raw(node));
  }
  PlacementIndex::Best best = index.best(shape, rooms, fragments, apart);
  // A node without replicas comes before all that have some, unless its class keeps off it.
  const bool isApart = shape.nodeScore == Score::Spread && !isAvoided(best.rank);
  if (isApart && fitsAt(best.rank)) apart.clear();
  Pick pick;
  for (const std::size_t i : apart) {
    const std::uint64_t ranked =
        rank(NodeId{static_cast<std::uint32_t>(i)}, ask, shape, SIZE_MAX, pick);
    if (ranked < best.rank || (ranked == best.rank && i < best.node)) best = {i, ranked};
  }
  if (!fitsAt(best.rank)) return refuse(ask, shape, best.rank);
  const NodeId node{static_cast<std::uint32_t>(best.node)};
  rank(node, ask, shape, SIZE_MAX, pick);
  return spotOf(node, shape, pick);
}

Result<Spot> ClusterLedger::scan(const ClusterAsk& ask) const {
  if (Status valid = check(ask); !valid) return valid.error();
  const Shape shape = parts_->shapeOf(ask);
  if (ask.node.empty()) return parts_->scan(ask, shape);
  const std::optional<NodeId> node = findNode(ask.node);
  if (!node) return fail(ErrorCode::NotFound, "no node '" + ask.node + "'");
  return parts_->placeOn(*node, ask, shape);
}

Result<Spot> ClusterLedger::place(const ClusterAsk& ask) {
  Parts& p = *parts_;
  if (!ask.node.empty() || !check(ask)) return scan(ask);
  const Shape shape = p.shapeOf(ask);
  const bool isRandom = shape.nodeScore == Score::Random || shape.cardScore == Score::Random;
  if (p.options.indexed && !isRandom) return p.search(ask, shape);
  Result<Spot> spot = p.scan(ask, shape);
  if (isRandom) ++p.draws;
  return spot;
}

Error ClusterLedger::refusalWithout(const ClusterAsk& ask, NodeId node,
                                    std::optional<std::size_t> card) const {
  Pick pick;
  std::uint64_t least = kNeverRank;
  if (card) {
    NodeRoom others = nodeRoom(node);
    others.cards[*card].healthy = false;
    others.cards[*card].mem = Bytes(0);
    least = rankIn(others, node, ask, pick);
  }
  for (std::uint32_t i = 0; i < parts_->nodes.size(); ++i) {
    if (NodeId{i} != node) least = std::min(least, rankOn(NodeId{i}, ask, pick));
  }
  return parts_->refuse(ask, parts_->shapeOf(ask), std::max(least, kNoRoomRank));
}

bool ClusterLedger::fitsOn(NodeId node, const ClusterAsk& ask) const {
  if (!check(ask)) return false;
  std::size_t card = SIZE_MAX;
  if (!ask.node.empty() && parts_->at(node).facts.name != ask.node) return false;
  if (!ask.task.card.empty()) {
    card = Parts::cardOf(parts_->at(node), ask.task.card);
    if (card == SIZE_MAX) return false;
  }
  Pick pick;
  return fitsAt(parts_->rank(node, ask, parts_->shapeOf(ask), card, pick));
}

Shape ClusterLedger::shape(const ClusterAsk& ask) const {
  return parts_->shapeOf(ask);
}
const NodeRoom& ClusterLedger::nodeRoom(NodeId node) const {
  return parts_->room(node);
}
const Fragments& ClusterLedger::fragments() const {
  return parts_->fragments;
}

const std::vector<std::uint64_t>& ClusterLedger::ranks(const ClusterAsk& ask) const {
  Parts& p = *parts_;
  return p.index.ranks(p.shapeOf(ask), p.rooms, p.fragments);
}

std::uint64_t ClusterLedger::rankOn(NodeId node, const ClusterAsk& ask, Pick& pick) const {
  return rankIn(parts_->room(node), node, ask, pick);
}

std::uint64_t ClusterLedger::rankIn(const NodeRoom& room, NodeId node, const ClusterAsk& ask,
                                    Pick& pick) const {
  const Shape shape = parts_->shapeOf(ask);
  const Particulars particulars{parts_->replicasOf(ask, shape, node), SIZE_MAX,
                                parts_->options.seed + parts_->draws};
  return rankNode(room, Parts::raw(node), shape, parts_->fragments, particulars, pick);
}

std::vector<NodeId> ClusterLedger::replicas(const std::string& application) const {
  std::vector<NodeId> nodes;
  const auto found = parts_->applications.find(application);
  if (application.empty() || found == parts_->applications.end()) return nodes;
  for (const auto& [node, replicas] : found->second) nodes.push_back(node);
  return nodes;
}

// --- explanations ---

NodeVerdict ClusterLedger::Parts::nearest(NodeId node, const ClusterAsk& ask, const Shape& shape,
                                          Tally& tally) const {
  const Node& on = at(node);
  const NodeRoom& room = rooms[raw(node)];
  Reason whole = judgeNode(room, shape);
  if (!ask.node.empty() && on.facts.name != ask.node) whole = Reason::OtherNode;
  const std::size_t wanted = ask.task.card.empty() ? SIZE_MAX : cardOf(on, ask.task.card);
  // Host resources are looked at last: a card that is short says more.
  const bool isHost = whole == Reason::CpuShort || whole == Reason::HostMemShort;
  NodeVerdict verdict{node, std::nullopt, whole, missingOnNode(room, shape, whole), ""};
  if (whole != Reason::Fits && !isHost) {
    tally.counts[static_cast<std::size_t>(whole)] += room.cards.size();
    return verdict;
  }
  tally.reasons.clear();
  std::size_t fitting = 0;
  for (std::size_t i = 0; i < room.cards.size() && shape.cards != 0; ++i) {
    const bool isOther = !ask.task.card.empty() && i != wanted;
    tally.reasons.push_back(isOther ? Reason::OtherNode : judgeCard(room.cards[i], shape));
    fitting += tally.reasons.back() == Reason::Fits ? 1 : 0;
  }
  const bool isShort = fitting < shape.cards;
  std::int64_t least = INT64_MAX;
  for (std::size_t i = 0; i < tally.reasons.size(); ++i) {
    Reason reason = tally.reasons[i];
    if (reason == Reason::Fits) reason = isShort ? Reason::NotEnoughCards : whole;
    ++tally.counts[static_cast<std::size_t>(reason)];
    const CardRoom& card = room.cards[i];
    std::int64_t missing = shortfall(card, shape.card, reason);
    const bool isFew = reason == Reason::NotEnoughCards;
    if (isFew) missing = static_cast<std::int64_t>(shape.cards - fitting);
    const std::int64_t far = distance(reason, missing, card.mem);
    if (!(isShort || whole == Reason::Fits) || far >= least) continue;
    least = far;
    verdict.reason = reason;
    verdict.missing = missing;
    verdict.card = isFew ? std::nullopt : std::optional(i);
  }
  return verdict;
}

std::string ClusterLedger::Parts::textOf(const NodeVerdict& verdict, const Shape& shape) const {
  if (!verdict.card || verdict.reason == Reason::OtherNode) {
    return nodeText(verdict.reason, verdict.missing);
  }
  const std::size_t card = *verdict.card;
  return at(verdict.node).facts.cards[card].id + ": " +
         cardText(room(verdict.node).cards[card], shape, verdict.reason, verdict.missing);
}

std::int64_t ClusterLedger::Parts::distanceOf(const NodeVerdict& verdict) const {
  const Bytes mem = verdict.card ? room(verdict.node).cards[*verdict.card].mem : Bytes(0);
  return distance(verdict.reason, verdict.missing, mem);
}

ClusterVerdict ClusterLedger::explain(const ClusterAsk& ask) const {
  ClusterVerdict verdict;
  verdict.counts.assign(kReasons, 0);
  if (Status valid = check(ask); !valid) {
    verdict.considered = static_cast<std::size_t>(parts_->sums.cards);
    verdict.counts[static_cast<std::size_t>(Reason::InvalidRequest)] = verdict.considered;
    return verdict;
  }
  const Shape shape = parts_->shapeOf(ask);
  Parts::Tally tally;
  std::vector<std::pair<std::int64_t, NodeVerdict>> all;
  for (std::uint32_t i = 0; i < parts_->nodes.size(); ++i) {
    verdict.considered += parts_->rooms[i].cards.size();
    NodeVerdict nearest = parts_->nearest(NodeId{i}, ask, shape, tally);
    verdict.fits = verdict.fits || nearest.reason == Reason::Fits;
    const std::int64_t far = parts_->distanceOf(nearest);
    all.emplace_back(far, std::move(nearest));
  }
  const std::size_t shown = std::min(all.size(), ClusterVerdict::kVerdictsMax);
  std::partial_sort(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(shown), all.end(),
                    [](const auto& a, const auto& b) {
                      return std::tie(a.first, a.second.node) < std::tie(b.first, b.second.node);
                    });
  for (std::size_t i = 0; i < shown; ++i) {
    NodeVerdict& line = verdict.nodes.emplace_back(std::move(all[i].second));
    line.text = parts_->textOf(line, shape);
  }
  std::copy(tally.counts.begin(), tally.counts.end(), verdict.counts.begin());
  return verdict;
}

std::optional<NodeVerdict> ClusterLedger::nearest(const ClusterAsk& ask) const {
  const Shape shape = parts_->shapeOf(ask);
  std::uint32_t from = 0;
  auto to = static_cast<std::uint32_t>(parts_->nodes.size());
  if (!ask.node.empty()) {
    const std::optional<NodeId> named = findNode(ask.node);
    if (!named) return std::nullopt;
    from = Parts::raw(*named);
    to = from + 1;
  }
  Parts::Tally tally;
  std::optional<NodeVerdict> best;
  std::int64_t least = INT64_MAX;
  for (std::uint32_t i = from; i < to; ++i) {
    const NodeVerdict verdict = parts_->nearest(NodeId{i}, ask, shape, tally);
    const std::int64_t far = parts_->distanceOf(verdict);
    if (far >= least) continue;
    least = far;
    best = verdict;
  }
  if (best) best->text = parts_->textOf(*best, shape);
  return best;
}

}  // namespace qgpu
