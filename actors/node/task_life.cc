#include "actors/node/task_life.h"

#include "actors/base/event_log.h"
#include "runtime/planted.h"

namespace qgpu {
namespace {

bool mayEnd(const NodeChange& end, const TaskSpec& spec) {
  return !end.asker || end.who.mayChange || end.who.uid == spec.ownerUid;
}

}  // namespace

// --- introduction: task actor, then attach server, then the cards and the asker ---

void TaskLife::introduce(std::uint64_t task, Binding& binding, Turn& turn) {
  binding.stage = Stage::TellingTask;
  tellKnown(bindings_.actorOf(binding), task, binding);
  NodeContext::later(turn, node_.options().introduceMax, NodeTick::Introduce, task);
}

void TaskLife::introduceAll(Turn& turn) {
  for (auto& [task, binding] : bindings_.all()) introduce(task, binding, turn);
}

void TaskLife::tellKnown(ActorId to, std::uint64_t task, const Binding& binding) {
  const Placement& placement = bindings_.placement(task);
  Bytes quota{0};
  for (const Bytes mem : placement.mem) quota += mem;
  std::vector<std::uint32_t> cards;
  for (const std::size_t card : placement.cards) cards.push_back(cards_.facts(card).index);
  node_.tell(
      to, [this, to, task, quota, cards, binding, placement](schema::Envelope::Builder envelope) {
        const TaskSpec& spec = binding.spec;
        auto known = envelope.initTaskKnown();
        known.setTask(task);
        known.setToken(binding.token);
        known.setClass(word(spec.taskClass));
        known.setQuotaBytes(static_cast<std::uint64_t>(quota.value));
        auto list = known.initCards(static_cast<unsigned>(cards.size()));
        for (unsigned i = 0; i < list.size(); ++i) list.set(i, cards[i]);
        known.setOwnerUid(spec.ownerUid);
        known.setOwnerPid(spec.ownerPid);
        known.setOwnerStart(spec.ownerStart);
        known.setActor(static_cast<std::uint32_t>(bindings_.actorOf(binding)));
        const bool overcommitted = node_.options().overcommit > Permille(0);
        known.setOvercommitted(overcommitted);
        if (overcommitted) known.setPageableBytes(static_cast<std::uint64_t>(spec.pageable.value));
        if (to == node_.peers().attach)
          bindings_.writeRow(task, binding, placement, known.initStored());
      });
}

// An answer is late, since its loop is busy: what was sent there arrives in order all the same. The
// asker is not kept waiting; cards hear of the task only when its gate can be driven.
void TaskLife::onIntroduceDue(std::uint64_t task, Binding& binding) {
  if (binding.stage == Stage::Live || toClose_.contains(task)) return;
  QGPU_MARK(IntroducedLate);
  binding.late = true;
  bindings_.answerWaiting(task, binding);
}

void TaskLife::onGateOpened(schema::GateRegistered::Reader opened, Turn& turn) {
  const std::uint64_t task = opened.getTask();
  Binding* binding = bindings_.find(task);
  if (binding == nullptr || binding->stage != Stage::TellingAttach) return;
  const std::string why = text(opened.getFailed()).substr(0, 160);
  if (why.empty())
    becomeLive(task, *binding, turn);
  else
    closeLater(task, *binding, "its pages could not be made: " + why);
}

void TaskLife::becomeLive(std::uint64_t task, Binding& binding, Turn& turn) {
  binding.stage = Stage::Live;
  cards_.join(task, binding.spec.name, bindings_.placement(task), bindings_.actorOf(binding));
  bindings_.answerWaiting(task, binding);
  if (binding.evicting) startEviction(task, binding, node_.options().evictGrace, turn);
}

// --- facts ---

void TaskLife::onTaskFact(schema::TaskFact::Reader fact) {
  const std::uint64_t task = fact.getTask();
  Binding* binding = bindings_.find(task);
  if (binding == nullptr) return;
  const std::uint32_t before = binding->processes;
  binding->processes = fact.getProcesses();
  binding->phase = readPhase(fact.getState());
  if (binding->stage == Stage::TellingTask) {
    binding->stage = Stage::TellingAttach;
    tellKnown(node_.peers().attach, task, *binding);
  }
  if (fact.hasText() && fact.getText().size() != 0) {
    node_.note("task-fault", task, "", text(fact.getText()).substr(0, kEventTextMax));
  }
  if (before == 0 && binding->processes != 0) {
    node_.note("task-attached", task, "", std::to_string(binding->processes) + " process(es)");
  }
  if (before == 0 || binding->processes != 0) return;
  node_.note("task-exited", task, "", "its last process left");
  if (binding->evicting)
    closeLater(task, *binding, binding->endReason);
  else if (binding->ownerGone)
    closeLater(task, *binding, "its owner is gone");
}

// The kernel refuses processes also when their task has ended.
void TaskLife::onEventTold(schema::Event::Reader told) {
  const bool lives = bindings_.find(told.getTask()) != nullptr;
  for (const EventKind kind : {kSuspendDoubted, kSuspendUndone, kTaskStopped, kTaskUnattached,
                               kTaskUnheld, kMemoryRefused, kGuardRefused}) {
    if (kind != text(told.getKind()) || (!lives && kind != kGuardRefused.name())) continue;
    node_.note(kind, told.getTask(), "", text(told.getText()).substr(0, kEventTextMax));
  }
}

// Both are named, so that who looks for the reason finds it at either.
void TaskLife::onRoomNeeded(schema::RoomNeeded::Reader room) {
  const std::uint64_t task = room.getTask();
  const Binding* binding = bindings_.find(task);
  if (binding == nullptr) return;
  const Binding* needs = bindings_.find(room.getNeeds());
  const std::string whose =
      needs == nullptr ? std::string("another task")
                       : "task " + std::to_string(room.getNeeds()) + " (" + needs->spec.name + ")";
  const std::string why = "it gave no room for " + sizeText(Bytes(bounded(room.getBytes()))) +
                          " of memory that " + whose + " was refused";
  node_.note("task-gave-no-room", task, bindings_.cardIds(bindings_.placement(task)), why);
  endsForRoom(task, why);
}

NodeChange TaskLife::takeEndForRoom() {
  NodeChange end;
  const auto first = forRoom_.begin();
  end.kind = NodeChange::Kind::End;
  end.forRoom = true;
  end.task = first->first;
  end.text = first->second;
  forRoom_.erase(first);
  return end;
}

// Released only when nobody is attached. The grace covers what is still on its way: a process that
// has just attached, or one that comes back after a restart of this manager.
void TaskLife::onOwnerGone(schema::Left::Reader gone, Turn& turn) {
  Binding* binding = bindings_.find(gone.getTask());
  if (binding == nullptr || binding->ownerGone) return;
  binding->ownerGone = true;
  NodeContext::later(turn, node_.options().ownerGrace, NodeTick::OwnerCheck, gone.getTask());
}

void TaskLife::onTick(NodeTick kind, std::uint64_t task) {
  Binding* binding = bindings_.find(task);
  if (binding == nullptr) return;
  if (kind == NodeTick::Introduce) onIntroduceDue(task, *binding);
  if (kind == NodeTick::OwnerCheck) onOwnerCheck(task, *binding);
  if (kind == NodeTick::Kill) onKillDue(task, *binding);
}

void TaskLife::onOwnerCheck(std::uint64_t task, Binding& binding) {
  if (!binding.ownerGone || binding.processes != 0) return;
  QGPU_MARK(OwnerGone);
  closeLater(task, binding, "its owner is gone");
}

// --- the end ---

void TaskLife::closeLater(std::uint64_t task, Binding& binding, const std::string& reason) {
  if (binding.endReason.empty()) binding.endReason = reason;
  toClose_.insert(task);
}

// An order names a task of the scheduler up to an epoch. One that was bound before this node joined
// has no such name: the scheduler knows it by its number here.
void TaskLife::findOrdered(NodeChange& end) {
  const Binding* numbered = bindings_.find(end.task);
  if (numbered != nullptr && numbered->spec.clusterTask == 0) return;
  end.task = 0;
  for (const auto& [task, binding] : bindings_.all()) {
    const bool named = binding.spec.clusterTask == end.spec.clusterTask;
    if (named && binding.spec.clusterTask != 0 &&
        binding.spec.clusterEpoch <= end.spec.clusterEpoch) {
      end.task = task;
    }
  }
}

Result<Need> TaskLife::check(NodeChange& change) {
  if (change.kind == NodeChange::Kind::Bind) return bindings_.check(change);
  if (change.kind == NodeChange::Kind::Close) return checkClose(change);
  return checkEnd(change);
}

Need TaskLife::checkClose(NodeChange& close) const {
  const Binding* binding = bindings_.find(close.task);
  QGPU_CHECK(binding != nullptr, "a task leaves toClose_ when it is closed");
  close.text = binding->endReason;
  close.tells("task-ended", close.task, "", close.text);
  return Need::Commit;
}

// Ends at once where nobody is attached; otherwise its processes get the grace first.
Result<Need> TaskLife::checkEnd(NodeChange& end) {
  if (end.ordered) findOrdered(end);
  const Binding* binding = bindings_.find(end.task);
  const std::string name = "task " + std::to_string(end.task);
  if (binding == nullptr) {
    if (!end.asker) return Need::Nothing;
    return fail(ErrorCode::NotFound, "no " + name + " here");
  }
  // Its card was uncordoned meanwhile.
  if (end.isOwnEnd() && !cards_.isDraining(bindings_.placement(end.task))) return Need::Nothing;
  if (!mayEnd(end, binding->spec)) {
    return fail(ErrorCode::Denied, name + " belongs to uid " +
                                       std::to_string(binding->spec.ownerUid) +
                                       ": only it, root or group qgpu may end it");
  }
  if (binding->processes == 0) {
    end.kind = NodeChange::Kind::Close;
    end.tells("task-ended", end.task, "", end.text);
    return Need::Commit;
  }
  if (binding->evicting) {
    if (end.forRoom) node_.tellClosed(node_.peers().attach, end.task, true, binding->endReason);
    node_.replyDone(end.asker, name + " is being evicted already");
    return Need::Nothing;
  }
  end.tells("task-evicting", end.task, "", end.text);
  return Need::Commit;
}

void TaskLife::persist(const NodeChange& change, Turn& turn) {
  if (change.kind == NodeChange::Kind::Bind) return bindings_.persist(change, turn);
  if (change.kind == NodeChange::Kind::Close) return Bindings::erase(change.task, turn);
  Binding evicted = *bindings_.find(change.task);
  evicted.evicting = true;
  bindings_.persist(change.task, evicted, bindings_.placement(change.task), turn);
}

void TaskLife::apply(const NodeChange& change, Turn& turn) {
  if (change.kind == NodeChange::Kind::Bind) {
    return introduce(change.task, bindings_.apply(change), turn);
  }
  if (change.kind == NodeChange::Kind::Close) return applyClose(change);
  applyEvict(change, turn);
}

void TaskLife::applyEvict(const NodeChange& end, Turn& turn) {
  Binding* binding = bindings_.find(end.task);
  QGPU_CHECK(binding != nullptr, "one change at a time: nobody else ended it");
  binding->evicting = true;
  binding->endReason = end.text;
  const std::string name = "task " + std::to_string(end.task);
  if (binding->processes == 0) {  // the last one left during the commit
    closeLater(end.task, *binding, end.text);
    return node_.replyDone(end.asker, name + " ends");
  }
  // Who was refused memory waits for it: programs that end for that have no grace.
  startEviction(end.task, *binding, end.forRoom ? Nanos(0) : node_.options().evictGrace, turn);
  node_.replyDone(end.asker, name + " ends: its " + std::to_string(binding->processes) +
                                 " process(es) can launch nothing more and have " +
                                 std::to_string(node_.options().evictGrace / seconds(1)) +
                                 " s left");
}

void TaskLife::startEviction(std::uint64_t task, const Binding& binding, Nanos grace, Turn& turn) {
  node_.tellClosed(node_.peers().attach, task, false, binding.endReason);
  NodeContext::later(turn, grace, NodeTick::Kill, task);
}

void TaskLife::onKillDue(std::uint64_t task, Binding& binding) {
  if (!binding.evicting) return;
  if (binding.processes == 0)
    closeLater(task, binding, "evicted");
  else
    node_.tellClosed(node_.peers().attach, task, true, binding.endReason);
  QGPU_MARK(KillDue);
}

void TaskLife::applyClose(const NodeChange& end) {
  const Binding* binding = bindings_.find(end.task);
  QGPU_CHECK(binding != nullptr, "one change at a time: nobody else ended it");
  cards_.leave(end.task, bindings_.placement(end.task), end.text);
  node_.tellClosed(bindings_.actorOf(*binding), end.task, true, end.text);
  node_.tellClosed(node_.peers().attach, end.task, true, end.text);
  for (const Asker& asker : binding->waiting) {
    node_.replyFailed(
        asker, fail(ErrorCode::Unavailable, "the task ended while it was bound: " + end.text));
  }
  toClose_.erase(end.task);
  bindings_.release(end.task);
  node_.replyDone(end.asker, "task " + std::to_string(end.task) + " ended");
}

}  // namespace qgpu
