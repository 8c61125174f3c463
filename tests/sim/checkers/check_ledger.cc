#include "tests/sim/checkers/check_ledger.h"

#include <algorithm>

#include "actors/base/durable_shell.h"

namespace qgpu::sim {
namespace {

std::uint64_t bit(int card) {
  return std::uint64_t{1} << card;
}

}  // namespace

void LedgerCheck::bad(const char* invariant, std::uint64_t task, const std::string& what) {
  verdict_.violated(invariant, "task " + std::to_string(task) + " " + what);
}

// --- life ---

void LedgerCheck::onBoot(const Boot& boot, Nanos) {
  boot_ = boot;
  model_.boot(boot);
  pending_.clear();
  told_.clear();
  mayEnd_.clear();
  opened_.clear();
  firstBatch_ = true;
  onCard_.assign(boot.cards.size(), {});
  std::uint32_t first = static_cast<std::uint32_t>(boot.node);
  std::uint32_t last = first;
  const auto include = [&](ActorId id) {
    first = std::min(first, static_cast<std::uint32_t>(id));
    last = std::max(last, static_cast<std::uint32_t>(id));
  };
  include(boot.attach);
  for (const ActorId id : boot.clients) include(id);
  for (const CardFact& card : boot.cards) include(card.actor);
  for (const ActorId id : boot.tasks) include(id);
  firstId_ = first;
  lagging_.assign(last - first + 1, 0);
  refusedNow_.clear();
  sentNow_.clear();
  bool hasNode = false;
  lastAudit_ = 0;
  for (const StoredRow& stored : boot.rows) {
    const auto row = readRow(stored);
    if (row.isAudit()) lastAudit_ = std::max(lastAudit_, stored.key.id);
    if (!row.isNode()) continue;
    hasNode = true;
    incarnation_ = row.getNode().getIncarnation();
    nextTask_ = row.getNode().getNextTask();
  }
  if (!hasNode) {  // a new database
    used_.clear();
    requests_.forget();
    incarnation_ = 0;
    nextTask_ = 0;
  }
  // Numbers that only a batch without an answer had used are given again.
  used_.erase(used_.lower_bound(nextTask_), used_.end());
  for (const auto& [id, task] : model_.tasks()) used_.insert(id);
  requests_.boot();
  const Obstacle full = model_.overfull();
  if (full.id != nullptr) bad(full.id, "in stored rows: " + full.why);
}

void LedgerCheck::onPhase(Phase phase, Nanos) {
  if (phase == Phase::Restart) atRest();
}

void LedgerCheck::atRest() {
  requests_.atRest();
  for (const auto& [task, told] : told_) {
    if (told.owed != 0) return bad("P9", task, "is gone, and a card was never told so");
  }
  for (const auto& [id, task] : model_.tasks()) {
    if (!opened_.contains(id) || mayEnd_.contains(id)) continue;
    const auto told = told_.find(id);
    for (const std::uint32_t card : task.cards) {
      if (told != told_.end() && (told->second.joined & bit(static_cast<int>(card))) != 0) continue;
      return bad("P5", id, "is bound, and card " + std::to_string(card) + " was never told so");
    }
  }
}

int LedgerCheck::cardOf(ActorId id) const {
  for (std::size_t i = 0; i < boot_.cards.size(); ++i) {
    if (boot_.cards[i].actor == id) return static_cast<int>(i);
  }
  return -1;
}

// --- rows ---

void LedgerCheck::onAppended(std::uint64_t batch, ActorId, const std::vector<StoredRow>& rows,
                             Nanos) {
  pending_.push_back({batch, rows});
}

void LedgerCheck::onAnswered(std::uint64_t batch, const Status& status, Nanos) {
  if (pending_.empty() || pending_.front().number != batch) {
    return bad("D2", "batch " + std::to_string(batch) + " was answered out of turn");
  }
  const Batch answered = std::move(pending_.front());
  pending_.pop_front();
  if (status.ok()) commit(answered.rows);
}

LedgerCheck::Audit LedgerCheck::auditOf(const std::vector<StoredRow>& rows) {
  Audit audit;
  for (const StoredRow& stored : rows) {
    const auto row = readRow(stored);
    if (!row.isAudit()) continue;
    const auto event = row.getAudit();
    ++audit.rows;
    audit.seq = event.getSeq();
    audit.kind = textOf(event.getKind());
    audit.actor = textOf(event.getActor());
    if (audit.seq != stored.key.id || audit.seq <= lastAudit_) {
      bad("C7", "audit row " + std::to_string(stored.key.id) + " is not the next one");
    }
    lastAudit_ = std::max(lastAudit_, audit.seq);
  }
  return audit;
}

void LedgerCheck::commit(const std::vector<StoredRow>& rows) {
  const Audit audit = auditOf(rows);
  for (const StoredRow& stored : rows) {
    const auto row = readRow(stored);
    const std::uint64_t id = stored.key.id;
    switch (stored.key.kind) {
      case RowKind::Node:
        if (row.isNode()) commitNode(row.getNode());
        break;
      case RowKind::Card:
        if (row.isCard()) commitCard(row.getCard(), audit);
        break;
      case RowKind::Task:
        if (row.isTask())
          commitTask(id, row.getTask(), audit);
        else
          commitEnd(id, audit);
        break;
      case RowKind::Audit:
        break;
      case RowKind::Cluster:
      case RowKind::ClusterNode:
      case RowKind::ClusterTask:
        bad("D1", "a node stored a row of the scheduler");
        break;
    }
  }
  if (audit.kind == "permitted") requests_.permitted();
  firstBatch_ = false;
  const Obstacle full = model_.overfull();
  if (full.id != nullptr) bad(full.id, full.why);
  requests_.modelChanged();
}

void LedgerCheck::wantAudit(const Audit& audit, const char* kind, const std::string& what) {
  if (firstBatch_) return;
  if (audit.rows == 1 && audit.kind == kind && !audit.actor.empty()) return;
  bad("C7", what + " has " + std::to_string(audit.rows) + " audit rows ('" + audit.kind +
                "'), not one of kind '" + kind + "'");
}

void LedgerCheck::commitNode(schema::NodeRow::Reader row) {
  if (row.getIncarnation() < incarnation_) bad("A10", "the stored incarnation went back");
  if (row.getNextTask() < nextTask_) bad("P6", "the stored number of the next task went back");
  incarnation_ = row.getIncarnation();
  nextTask_ = row.getNextTask();
}

void LedgerCheck::commitTask(std::uint64_t id, schema::TaskRow::Reader row, const Audit& audit) {
  const HeldTask task = LedgerModel::read(row);
  if (row.getId() != id) bad("P6", id, "has another id in its row");
  if (const HeldTask* before = model_.find(id)) {
    const bool same = before->token == task.token && before->cards == task.cards &&
                      before->want.mem == task.want.mem && before->want.share == task.want.share &&
                      before->want.taskClass == task.want.taskClass &&
                      before->want.requestId == task.want.requestId;
    if (!same) bad("P6", id, "was bound again, to something else");
    if (before->evicting && !task.evicting) bad("P9", id, "is no longer evicting");
    if (!mayEnd(id, *before)) bad("C7", id, "is evicted, and nobody asked for it");
    wantAudit(audit, "task-evicting", "the eviction of task " + std::to_string(id));
    return model_.setTask(id, row);
  }
  if (!used_.insert(id).second && !firstBatch_) bad("P6", id, "was another task before");
  if (id >= nextTask_) bad("P6", id, "has a number that the next manager would give again");
  if (!firstBatch_) {  // there: tasks that live, which a new database takes in as they are
    const Obstacle obstacle = model_.obstacle(task);
    if (obstacle.id != nullptr) bad(obstacle.id, id, "was bound, but " + obstacle.why);
    if (const std::string flaw = task.want.flaw(); !flaw.empty()) bad("C7", id, "has " + flaw);
    wantAudit(audit, "task-bound", "task " + std::to_string(id));
    model_.setTask(id, row);
    return requests_.taskBound(id, task);
  }
  model_.setTask(id, row);
  requests_.learnTasks();
}

bool LedgerCheck::mayEnd(std::uint64_t id, const HeldTask& task) const {
  if (task.evicting || mayEnd_.contains(id) || requests_.endAsked(id, task)) return true;
  return std::any_of(task.cards.begin(), task.cards.end(), [this](std::uint32_t card) {
    return card < model_.cards().size() && model_.cards()[card].draining;
  });
}

void LedgerCheck::commitEnd(std::uint64_t id, const Audit& audit) {
  const HeldTask* task = model_.find(id);
  if (task == nullptr) return bad("P9", id, "was released, and held nothing");
  if (!firstBatch_ && !mayEnd(id, *task)) bad("C7", id, "was ended, and nobody asked for it");
  wantAudit(audit, "task-ended", "the end of task " + std::to_string(id));
  requests_.taskErased(*task);
  model_.eraseTask(id);
  Told& told = told_[id];
  told.owed = told.joined & ~told.left;
}

void LedgerCheck::commitCard(schema::CardRow::Reader row, const Audit& audit) {
  const int index = model_.cardNamed(textOf(row.getId()));
  if (index < 0) return bad("C7", "a row of card " + textOf(row.getId()) + ", which is not there");
  const HeldCard before = model_.cards()[static_cast<std::size_t>(index)];
  model_.setCard(row);
  const HeldCard& after = model_.cards()[static_cast<std::size_t>(index)];
  const std::string name = "card " + std::to_string(index);
  const auto card = static_cast<std::uint32_t>(index);
  if (before.cordoned != after.cordoned || before.draining != after.draining) {
    const auto mark = after.draining   ? schema::Request::DRAIN
                      : after.cordoned ? schema::Request::CORDON
                                       : schema::Request::UNCORDON;
    if (!requests_.markAsked(card, mark)) bad("C7", name + " was marked, and nobody asked for it");
    const char* kind = after.draining   ? "card-draining"
                       : after.cordoned ? "card-cordoned"
                                        : "card-uncordoned";
    return wantAudit(audit, kind, "the mark of " + name);
  }
  if (before.policy != after.policy && !requests_.policyAsked(card, after.policy)) {
    bad("C7", name + " has another policy, and nobody asked for it");
  }
  wantAudit(audit, "policy-changed", "the policy of " + name);
}

// --- messages ---

void LedgerCheck::onSent(const Carried& message, Nanos) {
  const bool fromNode = message.from == boot_.node;
  if (fromNode && message.lane == Lane::Ordinary) sentNow_.push_back(message.to);
  switch (message.message.which()) {
    case schema::Envelope::JOINED:
      return toldJoined(message.to, message.message.getJoined());
    case schema::Envelope::LEFT:
      return toldLeft(message.to, message.message.getLeft().getTask());
    case schema::Envelope::TASK_KNOWN:
      return toldKnown(message.message.getTaskKnown().getTask());
    case schema::Envelope::TASK_CLOSED:
      return toldClosed(message);
    case schema::Envelope::REPLY:
      if (fromNode) toldReply(message.to, message.message.getReply());
      return;
    case schema::Envelope::CARD_REPORT:
      return judgeCardView(message.from, message.message.getCardReport());
    case schema::Envelope::INCARNATION_CHOSEN:
      if (message.message.getIncarnationChosen().getValue() > incarnation_) {
        bad("D2", "an incarnation was chosen before its row was committed");
      }
      return;
    default:
      return;
  }
}

void LedgerCheck::onRefused(ActorId from, ActorId to, Nanos) {
  if (from == boot_.node) refusedNow_.push_back(to);
}

void LedgerCheck::onTurn(const Carried& message, Nanos) {
  const bool toNode = message.to == boot_.node;
  switch (message.message.which()) {
    case schema::Envelope::REQUEST:
      if (toNode) requests_.asked(message.from, message.message.getRequest());
      return;
    case schema::Envelope::OWNER_GONE:
      mayEnd_.insert(message.message.getOwnerGone().getTask());
      return;
    case schema::Envelope::GATE_OPENED: {
      const auto opened = message.message.getGateOpened();
      if (opened.getFailed().size() != 0)
        mayEnd_.insert(opened.getTask());
      else
        opened_.insert(opened.getTask());
      return;
    }
    case schema::Envelope::STORAGE_HEALTH:
      if (toNode && !message.message.getStorageHealth().getOk()) requests_.storageFailed();
      return;
    case schema::Envelope::COMMITTED:
      if (toNode) requests_.storageWorks();
      return;
    case schema::Envelope::JOINED:
      if (const int card = cardOf(message.to); card >= 0) {
        onCard_[static_cast<std::size_t>(card)].insert(message.message.getJoined().getTask());
      }
      return;
    case schema::Envelope::LEFT:
      if (const int card = cardOf(message.to); card >= 0) {
        onCard_[static_cast<std::size_t>(card)].erase(message.message.getLeft().getTask());
      }
      return;
    default:
      return;
  }
}

void LedgerCheck::onTurnEnd(ActorId self, Nanos) {
  if (self != boot_.node) return;
  const auto lag = [this](ActorId id, std::uint8_t value) {
    const std::uint32_t at = static_cast<std::uint32_t>(id) - firstId_;
    if (at < lagging_.size()) lagging_[at] = value;
  };
  for (const ActorId id : sentNow_) lag(id, 0);
  for (const ActorId id : refusedNow_) lag(id, 1);
  if (judgeNow_) judgeTurn();
  judgeNow_ = false;
  sentNow_.clear();
  refusedNow_.clear();
}

// What one turn tells several cards it tells all of them, but for full mailboxes.
void LedgerCheck::judgeTurn() {
  const auto lags = [this](int card) {
    const ActorId id = boot_.cards[static_cast<std::size_t>(card)].actor;
    return lagging_[static_cast<std::uint32_t>(id) - firstId_] != 0;
  };
  for (const auto& [id, told] : told_) {
    const HeldTask* task = model_.find(id);
    for (int card = 0; card < static_cast<int>(boot_.cards.size()); ++card) {
      if ((told.owed & bit(card)) != 0 && told.closed && !lags(card)) {
        return bad("P9", id, "is over, and card " + std::to_string(card) + " was not told so");
      }
      const bool holds = task != nullptr && told.joined != 0 &&
                         std::find(task->cards.begin(), task->cards.end(),
                                   static_cast<std::uint32_t>(card)) != task->cards.end();
      if (holds && (told.joined & bit(card)) == 0 && !lags(card)) {
        return bad("P5", id, "joined a card, but not card " + std::to_string(card));
      }
    }
  }
}

void LedgerCheck::toldJoined(ActorId to, schema::Joined::Reader joined) {
  const std::uint64_t id = joined.getTask();
  const int card = cardOf(to);
  const HeldTask* task = model_.find(id);
  judgeNow_ = true;
  if (card < 0 || !used_.contains(id)) return bad("D2", id, "joined before its row was committed");
  if (task == nullptr) {  // the card's mailbox was full, and the task has ended since
    told_[id].joined |= bit(card);
    told_[id].owed |= bit(card);
    return;
  }
  const auto index = static_cast<std::uint32_t>(card);
  const Want& want = task->want;
  const std::int64_t quota =
      want.whole() ? model_.cards()[index].total : static_cast<std::int64_t>(want.mem);
  if (std::find(task->cards.begin(), task->cards.end(), index) == task->cards.end()) {
    bad("P3", id, "joined card " + std::to_string(card) + ", which its row does not have");
  } else if (joined.getSharePermille() != want.share ||
             static_cast<std::uint16_t>(joined.getClass()) !=
                 static_cast<std::uint16_t>(want.taskClass) ||
             joined.getExclusive() != want.whole() ||
             joined.getQuotaBytes() != static_cast<std::uint64_t>(quota)) {
    bad("P4", id, "joined card " + std::to_string(card) + " with other terms than its row has");
  }
  Told& told = told_[id];
  if ((told.joined & bit(card)) != 0) bad("P3", id, "joined a card twice");
  told.joined |= bit(card);
}

void LedgerCheck::toldLeft(ActorId to, std::uint64_t task) {
  const int card = cardOf(to);
  if (card < 0) return;
  judgeNow_ = true;
  if (model_.find(task) != nullptr) bad("D2", task, "left a card while its row is there");
  Told& told = told_[task];
  if ((told.left & bit(card)) != 0) bad("P9", task, "left a card twice");
  told.left |= bit(card);
  told.owed &= ~bit(card);
  if (told.joined != 0 && (told.joined & bit(card)) == 0) {
    bad("P5", task, "left card " + std::to_string(card) + ", which it had never joined");
  }
  if (told.owed == 0 && (told.joined == 0 || told.joined == told.left)) told_.erase(task);
}

void LedgerCheck::toldKnown(std::uint64_t task) {
  if (!used_.contains(task)) bad("D2", task, "was made known before its row was committed");
}

// To a task actor, or with `kill` and no process left, it is the end; to the attach server it may
// be an eviction, which has a row of its own.
void LedgerCheck::toldClosed(const Carried& message) {
  if (message.from != boot_.node) return;
  const auto closed = message.message.getTaskClosed();
  const HeldTask* task = model_.find(closed.getTask());
  if (task == nullptr) {
    judgeNow_ = true;
    if (const auto told = told_.find(closed.getTask()); told != told_.end()) {
      told->second.closed = true;
    }
    return;
  }
  if (message.to != boot_.attach)
    bad("D2", closed.getTask(), "was closed while its row is there");
  else if (!task->evicting)
    bad("D2", closed.getTask(), "is evicted, and its row does not say so");
}

void LedgerCheck::toldReply(ActorId to, schema::Reply::Reader reply) {
  // Tasks that live are told of before a new database has their rows.
  const bool rowsTell = !firstBatch_ || boot_.survivors.empty();
  if (rowsTell && reply.isCards()) judgeCards(reply.getCards());
  if (rowsTell && reply.isTasks()) judgeTasks(reply.getTasks());
  if (rowsTell && reply.isInfo() && reply.getInfo().getTasks() != model_.tasks().size()) {
    bad("P4", "info tells of " + std::to_string(reply.getInfo().getTasks()) + " tasks, rows of " +
                  std::to_string(model_.tasks().size()));
  }
  requests_.answered(to, reply);
}

void LedgerCheck::judgeCards(capnp::List<schema::CardStatus>::Reader list) {
  if (list.size() != model_.cards().size()) return bad("P4", "cards are missing in the list");
  for (unsigned i = 0; i < list.size(); ++i) {
    const auto told = list[i];
    const HeldCard& card = model_.cards()[i];
    schema::CardState state = schema::CardState::READY;
    if (card.cordoned) state = schema::CardState::CORDONED;
    if (card.draining && card.tasks != 0) state = schema::CardState::DRAINING;
    const schema::Tenancy tenancy = card.tasks == 0        ? schema::Tenancy::FREE
                                    : card.mixedTasks != 0 ? schema::Tenancy::HYBRID
                                                           : schema::Tenancy::ORDINARY;
    const bool same =
        told.getTasks() == card.tasks &&
        told.getMemBound() == static_cast<std::uint64_t>(card.mem) &&
        told.getShareBound() == card.ordinary && told.getGreedyBound() == card.greedy &&
        told.getState() == state && told.getTenancy() == tenancy &&
        static_cast<std::uint16_t>(told.getPolicy()) == static_cast<std::uint16_t>(card.policy);
    if (same) continue;
    return bad("P4", "card " + std::to_string(i) + " is told as " +
                         std::to_string(told.getTasks()) + " tasks, " +
                         std::to_string(told.getMemBound()) + " bytes, " +
                         std::to_string(told.getShareBound()) + " and greedy " +
                         std::to_string(told.getGreedyBound()) + " permille; its rows say " +
                         std::to_string(card.tasks) + ", " + std::to_string(card.mem) + ", " +
                         std::to_string(card.ordinary) + ", " + std::to_string(card.greedy));
  }
}

void LedgerCheck::judgeTasks(capnp::List<schema::TaskInfo>::Reader list) {
  if (list.size() != model_.tasks().size()) {
    return bad("P4", std::to_string(list.size()) + " tasks are told, rows have " +
                         std::to_string(model_.tasks().size()));
  }
  for (const auto told : list) {
    const HeldTask* task = model_.find(told.getId());
    if (task == nullptr) return bad("P4", told.getId(), "is told, and has no row");
    std::string cards;
    for (const std::uint32_t card : task->cards) {
      cards += (cards.empty() ? "sim-" : ",sim-") + std::to_string(card);
    }
    const auto spec = told.getSpec();
    if (textOf(told.getCard()) != cards || spec.getMemBytes() != task->want.mem ||
        spec.getSharePermille() != task->want.share || told.getEvicting() != task->evicting) {
      return bad("P4", told.getId(), "is told otherwise than its row says");
    }
  }
}

void LedgerCheck::judgeCardView(ActorId card, schema::CardReport::Reader report) {
  const int index = cardOf(card);
  if (index < 0) return;
  const auto& here = onCard_[static_cast<std::size_t>(index)];
  bool same = report.getShares().size() == here.size();
  for (const auto share : report.getShares()) same = same && here.contains(share.getTask());
  if (!same) {
    bad("P4", "card " + std::to_string(index) + " reports " +
                  std::to_string(report.getShares().size()) + " tasks, it was told of " +
                  std::to_string(here.size()));
  }
}

}  // namespace qgpu::sim
