#include "tests/sim/cluster/check_cluster.h"

#include <algorithm>
#include <iterator>
#include <tuple>

namespace qgpu::sim {
namespace {

std::string text(capnp::Text::Reader reader) {
  return {reader.begin(), reader.size()};
}

std::string taskName(std::uint64_t task, std::uint32_t epoch) {
  return "task " + std::to_string(task) + " epoch " + std::to_string(epoch);
}

std::vector<std::uint32_t> cardsOf(capnp::List<capnp::Text>::Reader ids) {
  std::vector<std::uint32_t> cards;
  for (const auto id : ids) {
    const std::string name = text(id);
    const bool ours = name.size() > 4 && name.size() < 9 && name.rfind("sim-", 0) == 0;
    cards.push_back(ours ? static_cast<std::uint32_t>(std::stoul(name.substr(4))) : UINT32_MAX);
  }
  return cards;
}

schema::Row::Reader readStored(const StoredRow& row) {
  return capnp::readMessageUnchecked<schema::Row>(row.words.data());
}

// Of a task that has ended, kept for its request alone.
bool isOver(schema::Row::Reader row) {
  return row.isClusterTask() && row.getClusterTask().getEndedUnixMs() != 0;
}

ClusterCheck::Copy copyOf(std::uint64_t id, schema::TaskRow::Reader row) {
  ClusterCheck::Copy copy;
  copy.nodeTask = id;
  copy.task = row.getSpec().getClusterTask();
  copy.epoch = row.getSpec().getClusterEpoch();
  copy.token = text(row.getToken());
  copy.cards = cardsOf(row.getCards());
  return copy;
}

}  // namespace

bool ClusterCheck::Row::holds() const {
  return state == schema::PlaceState::ASSUMED || state == schema::PlaceState::BOUND ||
         state == schema::PlaceState::ENDING;
}

bool ClusterCheck::Row::placed() const {
  return state == schema::PlaceState::ASSUMED || state == schema::PlaceState::BOUND;
}

ClusterCheck::ClusterCheck(Verdict& verdict, std::vector<JudgedNode> nodes)
    : verdict_(verdict), nodes_(nodes.size()) {
  for (std::size_t i = 0; i < nodes.size(); ++i) nodes_[i].facts = std::move(nodes[i]);
}

const ClusterCheck::Node* ClusterCheck::named(const std::string& name) const {
  for (const Node& node : nodes_) {
    if (node.facts.name == name) return &node;
  }
  return nullptr;
}

// --- a node ---

void ClusterCheck::nodeBoot(std::size_t index, const Boot& boot) {
  Node& node = nodes_[index];
  node.open.clear();
  node.maybe.clear();
  node.model.boot(boot);
  std::map<std::uint64_t, Copy> before = std::exchange(node.copies, {});
  for (const StoredRow& stored : boot.rows) {
    const auto row = readStored(stored);
    if (row.isNode()) node.term = row.getNode().getClusterTerm();
    if (!row.isTask()) continue;
    const Copy copy = copyOf(stored.key.id, row.getTask());
    node.copies[stored.key.id] = copy;
    if (copy.task != 0) begun_.insert(copy.task);
  }
  // What is gone ended with an answer that never came.
  for (const auto& [id, copy] : before) {
    if (copy.task != 0 && !node.copies.contains(id)) {
      ended_.insert(copy.task);
      node.over[copy.task] = std::max(node.over[copy.task], copy.epoch);
    }
  }
  ++changes_;
}

void ClusterCheck::nodeEnd(std::size_t) {}

void ClusterCheck::nodeStalls(std::size_t node, Nanos until) {
  nodes_[node].stalledUntil = std::max(nodes_[node].stalledUntil, until);
}

void ClusterCheck::nodeAppended(std::size_t index, std::uint64_t number,
                                const std::vector<StoredRow>& rows, Nanos now) {
  Node& node = nodes_[index];
  NodeBatch& batch = node.open.emplace_back();
  batch.number = number;
  for (const StoredRow& stored : rows) {
    const auto row = readStored(stored);
    if (row.isNode()) batch.term = row.getNode().getClusterTerm();
    if (row.isCard()) batch.cards.push_back(stored);
    if (stored.key.kind != RowKind::Task) continue;
    Change& change = batch.changes.emplace_back();
    change.id = stored.key.id;
    change.erased = row.isErased();
    if (change.erased) continue;
    change.copy = copyOf(stored.key.id, row.getTask());
    change.held = LedgerModel::read(row.getTask());
    if (node.copies.contains(change.id)) continue;
    begins(index, change.copy, change.held, now);
    node.maybe[change.id] = change.copy;
  }
}

bool ClusterCheck::holds(const Node& node, std::uint64_t task) const {
  const auto same = [task](const auto& entry) { return entry.second.task == task; };
  return std::any_of(node.copies.begin(), node.copies.end(), same) ||
         std::any_of(node.maybe.begin(), node.maybe.end(), same);
}

// A node begins to hold a task: its row goes to the disk now.
void ClusterCheck::begins(std::size_t index, const Copy& copy, const HeldTask& held, Nanos now) {
  Node& node = nodes_[index];
  const std::string what = node.facts.name + " binds " + taskName(copy.task, copy.epoch);
  const Obstacle obstacle = node.model.obstacle(held);
  if (obstacle.id != nullptr) violated(obstacle.id, what + ": " + obstacle.why);
  if (copy.task == 0) return;
  if (holds(node, copy.task)) violated("P6", what + ", which it holds already");
  if (const auto over = node.over.find(copy.task);
      over != node.over.end() && over->second >= copy.epoch) {
    violated("P6", what + ", which ended there with epoch " + std::to_string(over->second));
  }
  for (const Node& other : nodes_) {
    for (const auto* copies : {&other.copies, &other.maybe}) {
      for (const auto& [id, theirs] : *copies) {
        if (&other == &node || theirs.task != copy.task || theirs.epoch < copy.epoch) continue;
        violated("P3", what + ", and " + other.facts.name + " holds it with epoch " +
                           std::to_string(theirs.epoch));
      }
    }
  }
  begun_.insert(copy.task);
  // Whoever slept between an order and its disk can't know; its next hello ends what it bound.
  if (now < node.stalledUntil + seconds(5)) return;
  if (now > node.heard + kFence) {
    violated("C1", what + " " + std::to_string((now - node.heard) / millis(1)) +
                       " ms after the scheduler heard of it last");
  }
  const auto row = rows_.find(copy.task);
  if (row == rows_.end() || row->second.epoch != copy.epoch ||
      row->second.node != node.facts.name) {
    violated("P3", what + ", which is not what the scheduler has stored: " +
                       (row == rows_.end() ? std::string("nothing")
                                           : "epoch " + std::to_string(row->second.epoch) +
                                                 " on '" + row->second.node + "'"));
  }
}

void ClusterCheck::nodeAnswered(std::size_t index, std::uint64_t number, bool ok) {
  Node& node = nodes_[index];
  if (node.open.empty() || node.open.front().number != number) return;
  const NodeBatch batch = std::move(node.open.front());
  node.open.pop_front();
  for (const Change& change : batch.changes) node.maybe.erase(change.id);
  if (!ok) return;
  ++changes_;
  if (batch.term != 0 && batch.term < node.term) {
    violated("C1", node.facts.name + " forgets term " + std::to_string(node.term));
  }
  node.term = std::max(node.term, batch.term);
  for (const StoredRow& card : batch.cards) node.model.setCard(readStored(card).getCard());
  for (const Change& change : batch.changes) {
    if (!change.erased) {
      node.copies[change.id] = change.copy;
      node.model.setTask(change.id, change.held);
      continue;
    }
    const auto gone = node.copies.find(change.id);
    if (gone == node.copies.end()) continue;
    if (gone->second.task != 0) {
      ended_.insert(gone->second.task);
      node.over[gone->second.task] = gone->second.epoch;
    }
    node.copies.erase(gone);
    node.model.eraseTask(change.id);
  }
  const Obstacle overfull = node.model.overfull();
  if (overfull.id != nullptr) violated(overfull.id, node.facts.name + ": " + overfull.why);
}

void ClusterCheck::memberAsks(std::size_t index, schema::Request::Reader request, Nanos now) {
  if (!request.isPlace()) return;
  const Node& node = nodes_[index];
  const auto place = request.getPlace();
  if (holds(node, place.getTask())) return;  // asked for its answer once more
  if (now > node.heard + kLease + millis(1)) {
    violated("C1", node.facts.name + " starts " + taskName(place.getTask(), place.getEpoch()) +
                       " " + std::to_string((now - node.heard) / millis(1)) +
                       " ms after the scheduler heard of it last");
  }
}

void ClusterCheck::memberSays(std::size_t index, schema::FromMember::Reader words) {
  // What it says of itself and of what it holds is no obedience.
  if (!words.isBeat() && !words.isForward()) return;
  const auto term = sessionTerm_.find(words.getSession());
  if (term == sessionTerm_.end()) {
    return violated("A10", nodes_[index].facts.name + " speaks in a session that nobody opened");
  }
  if (nodes_[index].term != term->second) {
    violated("C1", nodes_[index].facts.name + " obeys term " + std::to_string(term->second) +
                       ", and has stored " + std::to_string(nodes_[index].term));
  }
}

// --- the scheduler's rows ---

void ClusterCheck::readSpec(schema::ClusterSpec::Reader spec, Row& row) {
  row.wantedNode = text(spec.getNode());
  for (const auto model : spec.getModels()) row.models.push_back(text(model));
  row.cpuMilli = spec.getCpuMilli();
  row.held.want = Want::read(spec.getTask());
  row.groupSize = spec.getGroupSize();
  if (row.groupSize == 0) return;
  row.group = std::to_string(spec.getTask().getOwnerUid()) + "/" + text(spec.getGroup());
}

ClusterCheck::Row ClusterCheck::readRow(schema::ClusterTaskRow::Reader stored) {
  const auto task = stored.getTask();
  Row row;
  row.epoch = task.getEpoch();
  row.state = task.getState();
  row.node = text(task.getNode());
  readSpec(task.getSpec(), row);
  row.nodeTask = task.getNodeTask();
  row.token = text(stored.getToken());
  row.held.cards = cardsOf(task.getCards());
  row.forwarded = stored.getForwarded();
  row.adopted = stored.getAdopted();
  row.again = stored.getAgain();
  return row;
}

void ClusterCheck::schedulerBoot(std::size_t scheduler, const Boot& boot) {
  std::set<std::uint64_t> over;
  schedulerEnd(scheduler);
  if (scheduler != acting_) {
    // It may still be told that its term is stored.
    earlierTerms_[acting_] = term_;
    for (const SchedulerBatch& batch : open_) {
      if (batch.term != 0) earlierTerms_[acting_] = batch.term;
    }
  }
  acting_ = scheduler;
  open_.clear();
  term_ = 0;
  rows_.clear();
  for (Node& node : nodes_) node.cordoned = node.marked = node.freed = node.stored = false;
  for (const StoredRow& stored : boot.rows) {
    const auto row = readStored(stored);
    if (row.isCluster()) termMax_ = std::max(termMax_, row.getCluster().getTerm());
    if (isOver(row))
      over.insert(stored.key.id);
    else if (row.isClusterTask())
      rows_[stored.key.id] = readRow(row.getClusterTask());
    if (!row.isClusterNode()) continue;
    for (Node& node : nodes_) {
      if (node.facts.name != text(row.getClusterNode().getName())) continue;
      node.stored = true;
      node.cordoned = row.getClusterNode().getCordoned() || row.getClusterNode().getDraining();
      node.marked = node.cordoned || row.getClusterNode().getDrains().size() != 0;
    }
  }
  promisesHold(rows_, over);
  noteStarted({});
  // Of tasks that ended those are remembered that the store has.
  std::erase_if(requests_, [&](const auto& known) {
    return !rows_.contains(known.second) && !over.contains(known.second);
  });
  ++changes_;
}

// What one scheduler answered, the next one knows.
void ClusterCheck::promisesHold(const std::map<std::uint64_t, Row>& rows,
                                const std::set<std::uint64_t>& over) {
  for (const std::uint64_t task : promised_) {
    if (rows.contains(task) || over.contains(task)) continue;
    violated("D1", "task " + std::to_string(task) + " was promised, and is lost");
  }
  for (const auto& [task, row] : rows) staysDeleted(task, row);
}

void ClusterCheck::staysDeleted(std::uint64_t task, const Row& row) {
  if (!gone_.contains(task)) return;
  if (row.state == schema::PlaceState::ENDING && !row.again) return;
  violated("D1", taskName(task, row.epoch) + " was deleted, and is in state " +
                     std::to_string(static_cast<int>(row.state)));
}

void ClusterCheck::schedulerEnd(std::size_t scheduler) {
  std::erase_if(asked_, [&](const auto& asked) {
    if (asked.second != scheduler) return false;
    submits_.erase(asked.first);
    deletes_.erase(asked.first);
    return true;
  });
}

void ClusterCheck::schedulerAppended(std::uint64_t number, const std::vector<StoredRow>& rows,
                                     Nanos now) {
  SchedulerBatch& batch = open_.emplace_back();
  batch.number = number;
  for (const StoredRow& stored : rows) {
    const auto row = readStored(stored);
    if (row.isCluster()) batch.term = row.getCluster().getTerm();
    if (row.isClusterNode()) {
      const auto node = row.getClusterNode();
      const bool cordoned = node.getCordoned() || node.getDraining();
      batch.marks[text(node.getName())] = {cordoned, cordoned || node.getDrains().size() != 0};
    }
    if (stored.key.kind != RowKind::ClusterTask) continue;
    if (row.isErased() || isOver(row))
      batch.erased.insert(stored.key.id);
    else
      batch.rows[stored.key.id] = readRow(row.getClusterTask());
  }
  for (const auto& [task, row] : batch.rows) staysDeleted(task, row);
  for (const std::uint64_t task : batch.erased) {
    promised_.erase(task);
    const auto before = rows_.find(task);
    if (before != rows_.end()) dropped(task, before->second, now);
  }
  std::vector<std::uint64_t> decisions;
  for (const auto& [task, row] : batch.rows) {
    const auto before = rows_.find(task);
    if (before != rows_.end()) moved(task, before->second, row, now);
    const bool isNew = before == rows_.end() || before->second.epoch < row.epoch ||
                       before->second.state == schema::PlaceState::WAITING;
    if (isNew && row.state == schema::PlaceState::ASSUMED) decisions.push_back(task);
  }
  if (!decisions.empty()) judgeDecisions(batch, decisions, now);
  judgeGroups(batch, decisions);
  for (Node& node : nodes_) {
    if (batch.marks.contains(node.facts.name)) node.freed = false;
  }
}

void ClusterCheck::judgeDecisions(const SchedulerBatch& batch,
                                  const std::vector<std::uint64_t>& decisions, Nanos now) {
  // What the others hold once this batch is stored.
  std::map<std::uint64_t, Row> after = rows_;
  for (const std::uint64_t task : batch.erased) after.erase(task);
  for (const auto& [task, row] : batch.rows) after[task] = row;
  for (const std::uint64_t task : decisions) after.erase(task);
  for (const std::uint64_t task : decisions) {
    const Row& row = batch.rows.at(task);
    // Who is cordoned before and after this batch was so all the time, unless it was given free in
    // between.
    const Node* node = named(row.node);
    const auto mark = batch.marks.find(row.node);
    const bool stays = mark == batch.marks.end() || (mark->second.first && !node->freed);
    if (node != nullptr && node->cordoned && stays) {
      violated("P8", taskName(task, row.epoch) + " goes to " + row.node + ", which is cordoned");
    }
    decided(task, row, after, now);
    after[task] = batch.rows.at(task);
  }
}

// --- groups ---

std::map<std::string, ClusterCheck::Group> ClusterCheck::groupsIn(
    const std::map<std::uint64_t, Row>& rows) const {
  std::map<std::string, Group> groups;
  for (const auto& [task, row] : rows) {
    if (row.group.empty()) continue;
    Group& group = groups[row.group];
    group.size = row.groupSize;
    if (row.state == schema::PlaceState::WAITING) group.waiting.insert(task);
    if (row.placed()) group.placed.insert(task);
    if (row.state == schema::PlaceState::BOUND) group.bound.insert(task);
    const bool leaves = row.state == schema::PlaceState::ENDING && !row.again;
    group.started = group.started || (!leaves && started_.contains(task));
  }
  for (auto& [name, group] : groups) {
    group.started = group.started || group.bound.size() >= group.size;
  }
  return groups;
}

// Of what is committed, and of the groups before that: a task may have come to one that started, in
// the batch that ends the others.
void ClusterCheck::noteStarted(const std::map<std::string, Group>& before) {
  for (const auto& [name, group] : groupsIn(rows_)) {
    const auto was = before.find(name);
    const bool started = group.started || (was != before.end() && was->second.started);
    if (started) started_.insert(group.placed.begin(), group.placed.end());
  }
  std::erase_if(started_, [this](std::uint64_t task) { return !rows_.contains(task); });
}

// Whole or without a place, until it has started. Then tasks get places so many at once that it is
// whole, or that none waits; whoever lost his place in the same batch, or was ended in it, may have
// had one when they got theirs, and whoever came in it may have come later.
void ClusterCheck::judgeGroups(const SchedulerBatch& batch,
                               const std::vector<std::uint64_t>& decisions) {
  std::map<std::uint64_t, Row> after = rows_;
  for (const auto& [task, row] : batch.rows) after[task] = row;
  for (const std::uint64_t task : batch.erased) after.erase(task);
  const std::map<std::string, Group> before = groupsIn(rows_);
  for (const auto& [name, group] : groupsIn(after)) {
    const auto was = before.find(name);
    const bool started = group.started || (was != before.end() && was->second.started);
    const std::string what = "of group " + name + ", which is of " + std::to_string(group.size) +
                             ", " + std::to_string(group.placed.size()) + " have a place";
    if (group.placed.size() >= group.size) continue;
    if (!started && !group.placed.empty()) violated("P11", what);
    const bool gained =
        std::any_of(decisions.begin(), decisions.end(),
                    [&placed = group.placed](std::uint64_t task) { return placed.contains(task); });
    if (!started || !gained) continue;
    std::size_t waited = 0, lost = 0;
    for (const std::uint64_t task : group.waiting) {
      const auto row = rows_.find(task);
      if (row == rows_.end()) continue;
      if (row->second.holds())
        lost += !row->second.placed();
      else
        ++waited;
    }
    if (was != before.end()) {
      for (const std::uint64_t task : was->second.placed) lost += !group.placed.contains(task);
    }
    if (waited != 0 && group.placed.size() + lost < group.size) {
      violated("P11", what + " since this decision, and " + std::to_string(waited) + " wait");
    }
  }
}

// How many such tasks would fit at once, on one card each.
std::size_t ClusterCheck::fitting(const Row& row, std::size_t most) const {
  std::size_t count = 0;
  for (const Node& node : nodes_) {
    if (node.marked || !suits(node, row)) continue;
    std::uint64_t cpu = 0;
    for (const auto& [id, other] : rows_) {
      if (other.holds() && other.node == node.facts.name) cpu += other.cpuMilli;
    }
    LedgerModel model = node.model;
    HeldTask one = row.held;
    for (std::uint32_t card = 0; card < model.cards().size(); ++card) {
      one.cards = {card};
      while (count < most && cpu + row.cpuMilli <= node.facts.cpuMilli &&
             model.room(one.want) == Room::Fits && model.obstacle(one).id == nullptr) {
        model.setTask((std::uint64_t{1} << 62) + count++, one);
        cpu += row.cpuMilli;
      }
    }
  }
  return count;
}

bool ClusterCheck::asksAlike(const Row& one, const Row& other) {
  const auto asked = [](const Row& row) {
    const Want& want = row.held.want;
    return std::tie(want.taskClass, want.mem, want.share, want.cards, row.cpuMilli, row.models);
  };
  return asked(one) == asked(other);
}

// No group waits for which there is room, where its tasks ask for the same: what fits of others
// depends on the order in which they are tried.
void ClusterCheck::groupsRest() {
  for (const auto& [name, group] : groupsIn(rows_)) {
    if (group.waiting.empty()) continue;
    const std::size_t here = group.placed.size() + group.waiting.size();
    const std::size_t goal = group.started ? std::min<std::size_t>(group.size, here) : group.size;
    if (here < goal) continue;
    const std::size_t due =
        std::max<std::size_t>(goal, group.placed.size() + 1) - group.placed.size();
    const Row& row = rows_.at(*group.waiting.begin());
    const auto end = std::next(group.waiting.begin(), static_cast<std::ptrdiff_t>(due));
    const bool alike = std::all_of(group.waiting.begin(), end, [&](std::uint64_t task) {
      return asksAlike(rows_.at(task), row);
    });
    if (!alike || fitting(row, due) < due) continue;
    violated("P10", "group " + name + " waits for room for " + std::to_string(due) +
                        " tasks, and there is");
  }
}

LedgerModel ClusterCheck::viewOf(const Node& node, const std::map<std::uint64_t, Row>& rows) const {
  Boot boot;
  boot.cards = node.facts.cards;
  boot.mixed = node.facts.mixed;
  LedgerModel view;
  view.boot(boot);
  for (const auto& [task, row] : rows) {
    if (row.holds() && row.node == node.facts.name) view.setTask(task, row.held);
  }
  return view;
}

// A task gets a place.
void ClusterCheck::decided(std::uint64_t task, const Row& row,
                           const std::map<std::uint64_t, Row>& others, Nanos now) {
  const std::string what = taskName(task, row.epoch) + " goes to " + row.node;
  const Node* node = named(row.node);
  if (node == nullptr) return violated("P8", what + ", which is no node");
  // Whoever slept forgives what it may have missed.
  const bool slept = now < stalledUntil_ + kFence;
  if (!slept && now - std::max(node->heard, node->helloAt) > kLease + kLookLate) {
    violated("P8", what + ", of which nothing was heard for " +
                       std::to_string((now - node->heard) / millis(1)) + " ms");
  }
  if (!suits(*node, row)) violated("P8", what + ", which is not what it asked for");
  std::uint64_t cpu = row.cpuMilli;
  for (const auto& [id, other] : others) {
    if (other.holds() && other.node == row.node) cpu += other.cpuMilli;
  }
  if (cpu > node->facts.cpuMilli) violated("P8", what + ", which has not the CPU for it");
  const Obstacle obstacle = viewOf(*node, others).obstacle(row.held);
  if (obstacle.id != nullptr) violated(obstacle.id, what + ": " + obstacle.why);
}

// A row becomes another. With a new epoch the scheduler gives up the old one, so whoever may hold
// it has to be lost by then.
void ClusterCheck::moved(std::uint64_t task, const Row& before, const Row& after, Nanos now) {
  const std::string what = taskName(task, before.epoch) + " on '" + before.node + "'";
  if (after.epoch < before.epoch) {
    violated("P6", what + " goes back to epoch " + std::to_string(after.epoch));
  }
  if (before.holds() && after.holds() && before.node != after.node && after.epoch <= before.epoch) {
    violated("P3", what + " moves to " + after.node + " under the same epoch");
  }
  if (after.epoch <= before.epoch) return;
  for (const Node& node : nodes_) {
    for (const auto* copies : {&node.copies, &node.maybe}) {
      for (const auto& [id, copy] : *copies) {
        if (copy.task != task || copy.epoch < before.epoch) continue;
        if (now - node.heardActing >= kFence) continue;
        violated("C3", what + " is given up for epoch " + std::to_string(after.epoch) + ", and " +
                           node.facts.name + " holds it and was heard of " +
                           std::to_string((now - node.heardActing) / millis(1)) + " ms ago");
      }
    }
  }
}

// A task leaves the store.
void ClusterCheck::dropped(std::uint64_t task, const Row& before, Nanos now) {
  if (deleted_.contains(task) || ended_.contains(task)) return;
  // Nobody waits for it any more, or it was never the scheduler's.
  if (before.forwarded || before.adopted) return;
  // The time of a drain is over: its node is told to end it, unless that is lost just now.
  const Node* node = named(before.node);
  const bool ending = before.state == schema::PlaceState::ENDING && !before.again;
  const bool lost = before.state == schema::PlaceState::BOUND && !before.wantedNode.empty() &&
                    node != nullptr && node->marked && now - node->heard >= kFence;
  if (drained_ && (ending || lost)) return;
  violated("D1", taskName(task, before.epoch) + " of request '" + before.held.want.requestId +
                     "' is dropped, which nobody deleted and no node ended");
}

void ClusterCheck::termStored(std::uint64_t term) {
  if (term == term_) return;
  if (term <= termMax_) {
    violated("C1", "a scheduler takes term " + std::to_string(term) + " after term " +
                       std::to_string(termMax_));
  }
  term_ = term;
  termMax_ = std::max(termMax_, term);
}

void ClusterCheck::schedulerAnswered(std::uint64_t number, bool ok) {
  if (open_.empty() || open_.front().number != number) return;
  const SchedulerBatch batch = std::move(open_.front());
  open_.pop_front();
  if (!ok) return;
  if (!batch.rows.empty() || !batch.erased.empty()) ++changes_;
  if (batch.term != 0) termStored(batch.term);
  const std::map<std::string, Group> groups = groupsIn(rows_);
  for (const auto& [task, row] : batch.rows) rows_[task] = row;
  for (const std::uint64_t task : batch.erased) rows_.erase(task);
  noteStarted(groups);
  for (Node& node : nodes_) {
    const auto mark = batch.marks.find(node.facts.name);
    if (mark == batch.marks.end()) continue;
    node.cordoned = mark->second.first;
    node.marked = mark->second.second;
    node.stored = true;
  }
}

// --- what the scheduler hears and says ---

void ClusterCheck::schedulerAsked(std::size_t scheduler, schema::ClusterRequest::Reader request) {
  asked_[request.getCorr()] = scheduler;
  if (request.isDelete()) {
    deleted_.insert(request.getDelete());
    deletes_[request.getCorr()] = request.getDelete();
  }
  drained_ = drained_ || request.isDrain();
  if (request.isUncordon() && request.getUncordon().getCard().size() == 0) {
    for (Node& node : nodes_) {
      if (node.facts.name == text(request.getUncordon().getNode())) node.freed = true;
    }
  }
  if (!request.isSubmit()) return;
  const auto task = request.getSubmit().getTask();
  const std::uint32_t uid = request.getMayChange() ? task.getOwnerUid() : request.getPeerUid();
  Submit& submit = submits_[request.getCorr()];
  submit.key = {uid, text(task.getRequestId())};
  readSpec(request.getSubmit(), submit.row);
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i].stored) submit.known.insert(i);
  }
}

void ClusterCheck::schedulerReplies(std::size_t scheduler, schema::ClusterReply::Reader reply) {
  const std::uint64_t corr = reply.getCorr();
  if (asked_.erase(corr) == 0) {
    violated("C2", "request " + std::to_string(corr) + " is answered a second time");
  }
  const auto submit = submits_.extract(corr);
  const auto removal = deletes_.extract(corr);
  if (!acts(scheduler)) return;
  if (removal && !reply.isFailed()) gone_.insert(removal.mapped());
  if (!submit) return;
  if (reply.isAssigned()) assigned(submit.mapped(), reply.getAssigned());
  if (reply.isFailed() && text(reply.getFailed().getCode()) == "infeasible") {
    infeasible(submit.mapped());
  }
}

// What a task names beside cards: the node, the model and the processors.
bool ClusterCheck::suits(const Node& node, const Row& row) {
  if (!row.wantedNode.empty() && row.wantedNode != node.facts.name) return false;
  if (row.cpuMilli > node.facts.cpuMilli) return false;
  return row.models.empty() ||
         std::find(row.models.begin(), row.models.end(), "imaginary") != row.models.end();
}

void ClusterCheck::infeasible(const Submit& submit) {
  for (const std::size_t i : submit.known) {
    const Node& node = nodes_[i];
    if (!suits(node, submit.row)) continue;
    if (viewOf(node, {}).room(submit.row.held.want) != Room::Fits) continue;
    violated("P7", "request '" + submit.key.second + "' is called infeasible, and fits an empty " +
                       node.facts.name);
  }
}

void ClusterCheck::assigned(const Submit& submit, schema::Assigned::Reader said) {
  const std::uint64_t task = said.getTask();
  const std::string what =
      "request '" + submit.key.second + "' is answered with " + taskName(task, said.getEpoch());
  const auto [known, isNew] = requests_.try_emplace(submit.key, task);
  if (known->second != task) {
    violated("P6", what + ", and was task " + std::to_string(known->second));
  }
  const auto row = rows_.find(task);
  if (row == rows_.end()) {
    // What ended gets the answer that it had.
    if (isNew && !deleted_.contains(task) && !ended_.contains(task)) {
      violated("D2", what + ", not stored");
    }
    return;
  }
  promised_.insert(task);
  if (said.getWaiting() || !row->second.holds()) return;
  const std::string token = text(said.getToken());
  if (token.empty()) return;
  if (!row->second.group.empty() && !started_.contains(task)) {
    violated("P11", what + " and its token, before its group was whole");
  }
  const auto [first, isFirst] = tokens_.try_emplace({task, said.getEpoch()}, token);
  if (first->second != token) violated("P6", what + " and another token than before");
  if (text(said.getNode()) != row->second.node) {
    violated("D2", what + " on " + text(said.getNode()) + ", and stored on " + row->second.node);
  }
  for (const Node& node : nodes_) {
    for (const auto& [id, copy] : node.copies) {
      if (copy.task != task || copy.epoch != said.getEpoch()) continue;
      if (node.facts.name != text(said.getNode()) || copy.token != token) {
        violated("P6", what + ", and " + node.facts.name + " holds it otherwise");
      }
    }
  }
  if (!begun_.contains(task)) violated("P6", what + ", which no node ever held");
}

void ClusterCheck::schedulerHears(std::size_t node, std::uint32_t link,
                                  schema::FromMember::Reader words, Nanos now) {
  if (!words.isHello()) return;
  helloAt_[link] = now;
  nodes_[node].helloAt = now;
}

void ClusterCheck::schedulerSays(std::size_t scheduler, std::size_t index,
                                 schema::ToMember::Reader words, Nanos now) {
  Node& node = nodes_[index];
  const std::uint64_t term = acts(scheduler) ? term_ : earlierTerms_[scheduler];
  if (words.getTerm() != term && !words.isTurnedAway()) {
    violated("C1", "a scheduler speaks in term " + std::to_string(words.getTerm()) +
                       ", and has stored " + std::to_string(term));
  }
  if (words.isWelcome()) sessionTerm_[words.getSession()] = words.getTerm();
  if (!words.isBeatSeen() && !words.isWelcome()) return;
  const Nanos heard = words.isBeatSeen() ? now : helloAt_[words.getLink()];
  node.heard = std::max(node.heard, heard);
  if (acts(scheduler)) node.heardActing = std::max(node.heardActing, heard);
}

// --- at rest ---

std::vector<ClusterCheck::Copy> ClusterCheck::copiesOn(std::size_t node) const {
  std::vector<Copy> all;
  for (const auto& [id, copy] : nodes_[node].copies) all.push_back(copy);
  return all;
}

std::set<std::string> ClusterCheck::differences() const {
  std::set<std::string> found;
  std::set<std::uint64_t> there;
  for (const Node& node : nodes_) {
    for (const auto& [id, copy] : node.copies) {
      const std::string what = node.facts.name + " holds " + taskName(copy.task, copy.epoch);
      const auto row = rows_.find(copy.task);
      if (row == rows_.end() || !row->second.holds() || row->second.node != node.facts.name ||
          row->second.epoch != copy.epoch) {
        found.insert(what + ", and the scheduler does not think so");
        continue;
      }
      there.insert(copy.task);
      if (row->second.held.cards != copy.cards) found.insert(what + " on other cards");
      const bool bound = row->second.state == schema::PlaceState::BOUND;
      if (bound && row->second.nodeTask != copy.nodeTask) found.insert(what + " by another number");
    }
  }
  for (const auto& [task, row] : rows_) {
    if (row.state == schema::PlaceState::WAITING || there.contains(task)) continue;
    found.insert(taskName(task, row.epoch) + " in state " +
                 std::to_string(static_cast<int>(row.state)) + " is thought to be on '" + row.node +
                 "'");
  }
  return found;
}

// Whether there is room for what waits.
void ClusterCheck::waits(std::uint64_t task, const Row& row) {
  if (!row.group.empty()) return;
  for (const Node& node : nodes_) {
    if (node.marked || !suits(node, row)) continue;
    std::uint64_t cpu = row.cpuMilli;
    for (const auto& [id, other] : rows_) {
      if (other.holds() && other.node == node.facts.name) cpu += other.cpuMilli;
    }
    if (cpu > node.facts.cpuMilli) continue;
    if (node.model.room(row.held.want) != Room::Fits) continue;
    violated("P10",
             taskName(task, row.epoch) + " waits, and " + node.facts.name + " has room for it");
  }
}

void ClusterCheck::atRest() {
  for (const std::string& difference : differences()) violated("P4", difference);
  for (const auto& [task, row] : rows_) {
    const std::string what = taskName(task, row.epoch);
    if (row.state == schema::PlaceState::WAITING) {
      waits(task, row);
    } else if (row.state != schema::PlaceState::BOUND) {
      violated("P9", what + " rests in state " + std::to_string(static_cast<int>(row.state)));
    }
  }
  groupsRest();
  if (!asked_.empty()) {
    violated("C2", "request " + std::to_string(asked_.begin()->first) + " has no answer");
  }
}

}  // namespace qgpu::sim
