// Each kind of durable change: what is checked, which rows say it, and what it does once they are
// committed.
#include <algorithm>

#include "actors/node/node_actor.h"

#include "runtime/planted.h"

namespace qgpu {
namespace {

std::string actorOf(const Change& change) {
  if (!change.asker) return "node";
  if (change.ordered) return "scheduler";
  return "uid " + std::to_string(change.who.uid) + " pid " + std::to_string(change.who.pid);
}

bool mayEnd(const Change& change, const TaskSpec& spec) {
  return !change.asker || change.who.mayChange || change.who.uid == spec.ownerUid;
}

EventKind markEvent(CardMark mark) {
  switch (mark) {
    case CardMark::Ready: return "card-uncordoned";
    case CardMark::Cordoned: return "card-cordoned";
    case CardMark::Draining: return "card-draining";
    case CardMark::Starting: break;  // a node never says it of itself
  }
  return "card-cordoned";
}

// Whole cards take all of each card, whatever was asked.
void settleSpec(TaskSpec& spec, const Placement& placement) {
  spec.share = placement.share;
  spec.cards = static_cast<std::uint32_t>(placement.cards.size());
  if (placement.exclusive) {
    spec.mem = *std::min_element(placement.mem.begin(), placement.mem.end());
  }
}

bool sameAsk(const TaskSpec& bound, const TaskSpec& asked) {
  if (bound.name != asked.name || bound.taskClass != asked.taskClass) return false;
  const bool whole = bound.taskClass == TaskClass::Ordinary && bound.share >= kWholeCard;
  if (whole) return asked.share >= kWholeCard;
  return bound.mem == asked.mem && bound.share == asked.share;
}

std::string describe(const TaskSpec& spec) {
  std::string said = spec.name + ": " + className(spec.taskClass) + ", " +
                     std::to_string(spec.mem / gibibytes(1)) + " GiB";
  if (spec.taskClass != TaskClass::Online) {
    said += ", " + std::to_string(spec.share.value) + " permille";
  }
  return said;
}

}  // namespace

Result<NodeActor::Need> NodeActor::check(Change& change, Turn& turn) {
  Result<Need> need = Need::Commit;
  switch (change.kind) {
    case Change::Kind::Node:
    case Change::Kind::Permit: break;
    case Change::Kind::Term:
      if (change.term > clusterTerm_) break;
      replyDone(change.asker, "term " + std::to_string(clusterTerm_) + " is stored");
      return Need::Nothing;
    case Change::Kind::Bind: need = checkBind(change); break;
    case Change::Kind::End: need = checkEnd(change); break;
    case Change::Kind::Close: {
      const Binding* binding = find(change.task);
      QGPU_CHECK(binding != nullptr, "a task leaves toClose_ when it is closed");
      change.text = binding->endReason;
      change.tells("task-ended", change.task, "", change.text);
      break;
    }
    case Change::Kind::Policy: need = checkPolicy(change); break;
    case Change::Kind::Mark: need = checkMark(change); break;
  }
  if (!need || *need == Need::Nothing) return need;
  change.incarnation = std::max(incarnation_, incarnationSeen_ + 1);
  if (change.kind == Change::Kind::Permit) {
    change.tells("permitted", 0, "", change.text);
  }
  if (!change.event.kind.empty()) {
    change.event.seq = feed_.take();
    change.event.unixMs = unixMs(turn);
    change.event.actor = actorOf(change);
  }
  return need;
}

Result<NodeActor::Need> NodeActor::checkRepeated(const Change& change, std::uint64_t task) {
  Binding* binding = find(task);
  if (binding == nullptr) {
    return fail(ErrorCode::Conflict, "request '" + change.spec.requestId + "' was task " +
                                         std::to_string(task) +
                                         ", which has ended: use a new request id");
  }
  if (!sameAsk(binding->spec, change.spec)) {
    return fail(ErrorCode::Conflict, "request '" + change.spec.requestId + "' is task " +
                                         std::to_string(task) +
                                         " and asked for something else: use a new request id");
  }
  return answerBound(*change.asker, task, *binding);
}

Result<NodeActor::Need> NodeActor::answerBound(const Asker& asker, std::uint64_t task,
                                               Binding& binding) {
  if (binding.stage == Stage::Live || binding.late) {
    replyBound(asker, task, binding);
  } else {
    binding.waiting.push_back(asker);
  }
  return Need::Nothing;
}

// A repeated order has one effect and one answer, and what ended stays ended.
Result<NodeActor::Need> NodeActor::checkOrdered(const Change& change) {
  const std::uint64_t wanted = change.spec.clusterTask;
  const std::string name = "cluster task " + std::to_string(wanted);
  for (auto& [task, binding] : bindings_) {
    if (binding.spec.clusterTask != wanted) continue;
    if (binding.spec.clusterEpoch == change.spec.clusterEpoch) {
      return answerBound(*change.asker, task, binding);
    }
    return fail(ErrorCode::Conflict, name + " is here with epoch " +
                                         std::to_string(binding.spec.clusterEpoch) + ", not " +
                                         std::to_string(change.spec.clusterEpoch));
  }
  const auto over = overAt_.find(wanted);
  if (over == overAt_.end() || over->second < change.spec.clusterEpoch) return Need::Commit;
  return fail(ErrorCode::Conflict, name + " has ended here with epoch " +
                                       std::to_string(over->second));
}

// Where the scheduler chose cards, these and no others. Several are whole cards.
Result<Placement> NodeActor::placementOf(const Change& change) const {
  LedgerAsk ask = askOf(change.spec);
  if (change.wanted.size() <= 1) {
    if (!change.wanted.empty()) ask.card = change.wanted.front();
    return ledger_.place(ask);
  }
  Result<Placement> asked = ledger_.place(ask);
  if (!asked) return asked.error();
  if (asked->cards.size() != change.wanted.size()) {
    return fail(ErrorCode::InvalidArgument, std::to_string(change.wanted.size()) +
                                                " cards were chosen for a task of " +
                                                std::to_string(asked->cards.size()));
  }
  ask.cards = 1;
  ask.share = kWholeCard;
  std::map<std::size_t, Bytes> chosen;
  for (const std::string& card : change.wanted) {
    ask.card = card;
    Result<Placement> one = ledger_.place(ask);
    if (!one) return one.error();
    chosen[one->cards.front()] = one->mem.front();
  }
  if (chosen.size() != change.wanted.size()) {
    return fail(ErrorCode::InvalidArgument, "a card was chosen twice");
  }
  asked->cards.clear();
  asked->mem.clear();
  for (const auto& [card, mem] : chosen) {
    asked->cards.push_back(card);
    asked->mem.push_back(mem);
  }
  return asked;
}

Result<NodeActor::Need> NodeActor::checkBind(Change& change) {
  TaskSpec& spec = change.spec;
  if (Status valid = checkSpec(spec); !valid) return valid.error();
  if (!change.who.mayChange) spec.ownerUid = change.who.uid;
  if (spec.clusterTask != 0) {
    const Result<Need> need = checkOrdered(change);
    if (!need || *need == Need::Nothing) return need;
  }
  if (isLocalRequest(spec)) {
    const auto known = requests_.find({spec.ownerUid, spec.requestId});
    if (known != requests_.end() && !QGPU_PLANTED(RequestForgotten)) {
      QGPU_MARK(RequestRepeated);
      return checkRepeated(change, known->second);
    }
  }
  if (freeSlots_.empty()) {
    return fail(ErrorCode::Overloaded, std::to_string(peers_.tasks.size()) +
                                           " tasks are bound, and this node has no room for more");
  }
  if (options_.labelled && !mixed_ && isHybrid(spec.taskClass)) {
    return fail(ErrorCode::Infeasible,
                "online and offline tasks run on mixed nodes only: label the node "
                "mixed-qgpu-enable=enable, or ask for an ordinary task");
  }
  Result<Placement> placement = placementOf(change);
  if (!placement) return placement.error();
  change.placement = std::move(placement).value();
  settleSpec(spec, change.placement);
  change.task = nextTask_++;
  change.token = tokens_.next();
  change.tells("task-bound", change.task, cardIds(change.placement), describe(spec));
  return Need::Commit;
}

bool NodeActor::isDraining(std::uint64_t task) const {
  const auto& cards = ledger_.placement(TaskId{task})->cards;
  return std::any_of(cards.begin(), cards.end(), [this](std::size_t card) {
    return ledger_.mark(card) == CardMark::Draining;
  });
}

// An order names a task of the scheduler up to an epoch. One that was bound before this node joined
// has no such name: the scheduler knows it by its number here.
void NodeActor::findOrdered(Change& change) {
  const Binding* numbered = find(change.task);
  if (numbered != nullptr && numbered->spec.clusterTask == 0) return;
  change.task = 0;
  for (const auto& [task, binding] : bindings_) {
    const bool named = binding.spec.clusterTask == change.spec.clusterTask;
    if (named && binding.spec.clusterTask != 0 &&
        binding.spec.clusterEpoch <= change.spec.clusterEpoch) {
      change.task = task;
    }
  }
}

// Ends at once where nobody is attached; otherwise its processes get the grace first.
Result<NodeActor::Need> NodeActor::checkEnd(Change& change) {
  if (change.ordered) findOrdered(change);
  Binding* binding = find(change.task);
  if (binding == nullptr) {
    if (!change.asker) return Need::Nothing;
    return fail(ErrorCode::NotFound, "no task " + std::to_string(change.task) + " here");
  }
  if (!change.asker && !isDraining(change.task)) return Need::Nothing;   // uncordoned meanwhile
  if (!mayEnd(change, binding->spec)) {
    return fail(ErrorCode::Denied, "task " + std::to_string(change.task) + " belongs to uid " +
                                       std::to_string(binding->spec.ownerUid) +
                                       ": only it, root or group qgpu may end it");
  }
  if (binding->processes == 0) {
    change.kind = Change::Kind::Close;
    change.tells("task-ended", change.task, "", change.text);
    return Need::Commit;
  }
  if (binding->evicting) {
    replyDone(change.asker, "task " + std::to_string(change.task) + " is being evicted already");
    return Need::Nothing;
  }
  change.tells("task-evicting", change.task, "", change.text);
  return Need::Commit;
}

Result<NodeActor::Need> NodeActor::checkPolicy(Change& change) {
  if (change.cardText.empty() || change.cardText == "all") {
    for (std::size_t card = 0; card < cards_.size(); ++card) change.cards.push_back(card);
  } else {
    Result<std::size_t> card = ledger_.findCard(change.cardText);
    if (!card) return card.error();
    change.cards = {*card};
  }
  for (const std::size_t card : change.cards) {
    if (Status may = ledger_.mayChoosePolicy(card, change.policy); !may) return may.error();
  }
  const bool one = change.cards.size() == 1;
  const std::string name = one ? cards_[change.cards[0]].facts.id : std::string("all");
  change.tells("policy-changed", 0, name, policyName(change.policy));
  return Need::Commit;
}

Result<NodeActor::Need> NodeActor::checkMark(Change& change) {
  Result<std::size_t> card = ledger_.findCard(change.cardText);
  if (!card) return card.error();
  change.cards = {*card};
  const std::string& id = cards_[*card].facts.id;
  const CardMark now = ledger_.mark(*card);
  // What watches the cards knows of no drain: only a person's cordon ends one.
  const bool drains = now == CardMark::Draining && change.mark == CardMark::Cordoned &&
                      change.who.pid == options_.pid;
  if (now == change.mark || drains) {
    const char* already = now == CardMark::Ready      ? " takes tasks already"
                          : now == CardMark::Cordoned ? " is cordoned already"
                                                      : " is being drained already";
    replyDone(change.asker, "card " + id + already);
    return Need::Nothing;
  }
  change.tells(markEvent(change.mark), 0, id, "");
  return Need::Commit;
}

// --- rows ---

void NodeActor::persist(const Change& change, Turn& turn) {
  persistNode(change, turn);
  if (change.event.seq != 0) persistAudit(change, turn);
  switch (change.kind) {
    case Change::Kind::Node:
      if (started_) break;
      for (const std::uint64_t task : lostTasks_) {
        turn.persist({RowKind::Task, task}, [](schema::Row::Builder row) { row.setErased(); });
      }
      for (const std::uint64_t task : takenOver_) {
        persistTask(task, bindings_.at(task), *ledger_.placement(TaskId{task}), turn);
      }
      break;
    case Change::Kind::Bind:
      persistTask(change.task, newBinding(change, turn), change.placement, turn);
      break;
    case Change::Kind::End: {
      Binding evicted = *find(change.task);
      evicted.evicting = true;
      persistTask(change.task, evicted, *ledger_.placement(TaskId{change.task}), turn);
      break;
    }
    case Change::Kind::Close:
      turn.persist({RowKind::Task, change.task}, [](schema::Row::Builder row) { row.setErased(); });
      break;
    case Change::Kind::Policy:
    case Change::Kind::Mark:
      for (const std::size_t card : change.cards) persistCard(card, change, turn);
      break;
    case Change::Kind::Permit:
    case Change::Kind::Term: break;
  }
}

void NodeActor::persistNode(const Change& change, Turn& turn) {
  turn.persist({RowKind::Node, 0}, [&](schema::Row::Builder row) {
    auto node = row.initNode();
    node.setIncarnation(change.incarnation);
    node.setNextTask(nextTask_);
    node.setNextEvent(feed_.toStore());
    node.setUnknownFrom(unknownFrom_);
    node.setUnknownTo(unknownTo_);
    node.setClusterTerm(std::max(clusterTerm_, change.term));
  });
}

void NodeActor::persistTask(std::uint64_t id, const Binding& binding, const Placement& placement,
                            Turn& turn) {
  turn.persist({RowKind::Task, id}, [&](schema::Row::Builder row) {
    writeTaskRow(id, binding, placement, row.initTask());
  });
}

void NodeActor::writeTaskRow(std::uint64_t id, const Binding& binding, const Placement& placement,
                             schema::TaskRow::Builder row) const {
  row.setId(id);
  writeSpec(binding.spec, row.initSpec());
  row.setToken(binding.token);
  auto cards = row.initCards(static_cast<unsigned>(placement.cards.size()));
  for (unsigned i = 0; i < cards.size(); ++i) {
    cards.set(i, cards_[placement.cards[i]].facts.id);
  }
  row.setBoundUnixMs(binding.boundUnixMs);
  row.setEvicting(binding.evicting);
}

void NodeActor::persistCard(std::size_t card, const Change& change, Turn& turn) {
  const bool isPolicy = change.kind == Change::Kind::Policy;
  const CardMark mark = isPolicy ? ledger_.mark(card) : change.mark;
  const CardNow& now = cards_[card];
  for (std::size_t old = 1; old < now.rowKeys.size(); ++old) {
    turn.persist({RowKind::Card, now.rowKeys[old]},
                 [](schema::Row::Builder row) { row.setErased(); });
  }
  turn.persist({RowKind::Card, now.rowKeys.front()}, [&](schema::Row::Builder row) {
    auto stored = row.initCard();
    stored.setId(now.facts.id);
    stored.setPolicy(word(isPolicy ? change.policy : ledger_.policy(card)));
    stored.setPolicyChosen(isPolicy || now.policyChosen);
    stored.setCordoned(mark != CardMark::Ready);
    stored.setDraining(mark == CardMark::Draining);
  });
}

void NodeActor::persistAudit(const Change& change, Turn& turn) {
  if (QGPU_PLANTED(NoAudit) && change.kind == Change::Kind::Mark) return;
  feed_.persistAudits({change.event}, turn);
}

// --- effects, after the commit ---

void NodeActor::apply(Change& change, Turn& turn) {
  // Every change wrote the node's row, and with it a higher ceiling for event numbers.
  feed_.stored();
  if (change.event.seq != 0) feed_.auditsStored({change.event});
  if (change.incarnation != incarnation_) applyIncarnation(change, turn);
  switch (change.kind) {
    case Change::Kind::Node: return applyNode(turn);
    case Change::Kind::Bind: return applyBind(change, turn);
    case Change::Kind::End: return applyEvict(change, turn);
    case Change::Kind::Close: return applyClose(change, turn);
    case Change::Kind::Policy: return applyPolicy(change);
    case Change::Kind::Mark: return applyMark(change);
    case Change::Kind::Permit: return replyDone(change.asker, change.text);
    case Change::Kind::Term:
      clusterTerm_ = change.term;
      return replyDone(change.asker, "term " + std::to_string(clusterTerm_) + " is stored");
  }
}

void NodeActor::applyNode(Turn& turn) {
  if (started_) return;
  started_ = true;
  note("node-started", 0, "",
       options_.version + ", incarnation " + std::to_string(incarnation_), turn);
  for (const std::uint64_t task : lostTasks_) {
    const char* why = "its card is not on this node any more";
    note("task-lost", task, "", why, turn);
    tellClosed(peers_.attach, task, true, why);
  }
  lostTasks_.clear();
  for (const std::uint64_t task : takenOver_) {
    note("task-taken-over", task, cardIds(*ledger_.placement(TaskId{task})),
         "it lives, and the database was new", turn);
  }
  takenOver_.clear();
  for (const std::uint64_t task : notTakenOver_) {
    note("task-not-taken-over", task, "", "it was ending, and its room is another task's", turn);
  }
  notTakenOver_.clear();
  for (const std::uint64_t task : outlived_) {
    note("task-outlived", task, "", "it had ended, and its processes had not: they are told to go",
         turn);
    tellClosed(peers_.attach, task, true, "it had ended before the manager did");
  }
  outlived_.clear();
  introduceAll(turn);
}

// Every change may carry it, since each writes the node's row.
void NodeActor::applyIncarnation(const Change& change, Turn& turn) {
  QGPU_MARK(IncarnationRaised);
  note("incarnation-raised", 0, "",
       std::to_string(incarnation_) + " to " + std::to_string(change.incarnation) +
           ": a guest has met a later one than the store knew",
       turn);
  incarnation_ = change.incarnation;
  tellIncarnation();
}

void NodeActor::applyBind(Change& change, Turn& turn) {
  Binding binding = newBinding(change, turn);
  binding.slot = freeSlots_.back();
  freeSlots_.pop_back();
  binding.waiting.push_back(*change.asker);
  if (isLocalRequest(binding.spec)) {
    requests_[{binding.spec.ownerUid, binding.spec.requestId}] = change.task;
  }
  ledger_.bind(TaskId{change.task}, change.placement);
  const auto entry = bindings_.emplace(change.task, std::move(binding)).first;
  introduce(change.task, entry->second, turn);
}

void NodeActor::applyEvict(Change& change, Turn& turn) {
  Binding* binding = find(change.task);
  QGPU_CHECK(binding != nullptr, "one change at a time: nobody else ended it");
  binding->evicting = true;
  binding->endReason = change.text;
  const std::string task = "task " + std::to_string(change.task);
  if (binding->processes == 0) {   // the last one left during the commit
    closeLater(change.task, *binding, change.text);
    return replyDone(change.asker, task + " ends");
  }
  startEviction(change.task, *binding, turn);
  replyDone(change.asker, task + " ends: its " + std::to_string(binding->processes) +
                              " process(es) can launch nothing more and have " +
                              std::to_string(options_.evictGrace / seconds(1)) + " s left");
}

void NodeActor::applyClose(Change& change, Turn&) {
  const auto entry = bindings_.find(change.task);
  QGPU_CHECK(entry != bindings_.end(), "one change at a time: nobody else ended it");
  Binding& binding = entry->second;
  const Placement* placement = ledger_.placement(TaskId{change.task});
  for (const std::size_t card : placement->cards) {
    cards_[card].shares.erase(change.task);
    if (QGPU_PLANTED(CloseKeepsCard)) continue;
    shell_.outbox().put(peers_.cards[card],
                [task = change.task, why = change.text](schema::Envelope::Builder envelope) {
                  auto left = envelope.initLeft();
                  left.setTask(task);
                  left.setReason(why);
                });
  }
  tellClosed(peers_.tasks[binding.slot], change.task, true, change.text);
  tellClosed(peers_.attach, change.task, true, change.text);
  for (const Asker& asker : binding.waiting) {
    replyFailed(asker, fail(ErrorCode::Unavailable, "the task ended while it was bound: " +
                                                        change.text));
  }
  if (binding.spec.clusterTask != 0) {
    const bool known = overAt_.contains(binding.spec.clusterTask);
    overAt_[binding.spec.clusterTask] = binding.spec.clusterEpoch;
    if (!known) over_.push_back(binding.spec.clusterTask);
    if (over_.size() > kFinishedKept) {
      overAt_.erase(over_.front());
      over_.pop_front();
    }
  }
  if (isLocalRequest(binding.spec)) {
    finished_.push_back({binding.spec.ownerUid, binding.spec.requestId});
    if (finished_.size() > kFinishedKept) {
      requests_.erase(finished_.front());
      finished_.pop_front();
    }
  }
  freeSlots_.push_back(binding.slot);
  ledger_.release(TaskId{change.task});
  toClose_.erase(change.task);
  bindings_.erase(entry);
  replyDone(change.asker, "task " + std::to_string(change.task) + " ended");
}

void NodeActor::applyPolicy(const Change& change) {
  for (const std::size_t card : change.cards) {
    ledger_.choosePolicy(card, change.policy);
    cards_[card].policyChosen = true;
    shell_.outbox().put(peers_.cards[card],
                [policy = change.policy](schema::Envelope::Builder envelope) {
                  envelope.initPolicyChosen().setPolicy(word(policy));
                });
  }
  replyDone(change.asker, policyName(change.policy) + " on " +
                              std::to_string(change.cards.size()) +
                              " card(s), from the end of the running slice");
}

void NodeActor::applyMark(const Change& change) {
  const std::size_t card = change.cards.front();
  const std::string& id = cards_[card].facts.id;
  ledger_.mark(card, change.mark);
  if (change.mark != CardMark::Draining) {
    return replyDone(change.asker, "card " + id + (change.mark == CardMark::Ready
                                                       ? " takes tasks again"
                                                       : " takes no new tasks"));
  }
  QGPU_MARK(CardDrained);
  queueDrain(card);
  replyDone(change.asker, "card " + id + " takes no new tasks; " +
                              std::to_string(ledger_.use(card).tasks) + " task(s) are evicted");
}

// Whoever bears it best goes first: offline tasks, then ordinary ones, then online ones.
void NodeActor::queueDrain(std::size_t card) {
  for (const TaskClass turnOf : {TaskClass::Offline, TaskClass::Ordinary, TaskClass::Online}) {
    for (const TaskId task : ledger_.tasksOn(card)) {
      if (ledger_.placement(task)->taskClass == turnOf) toEvict_.push_back(raw(task));
    }
  }
}

}  // namespace qgpu
