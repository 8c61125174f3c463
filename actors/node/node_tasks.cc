// The life of a binding after its row is committed, see the head of schema/envelope.capnp.
#include <algorithm>

#include "actors/base/event_log.h"
#include "actors/node/node_actor.h"
#include "runtime/planted.h"

namespace qgpu {

Binding* NodeActor::find(std::uint64_t task) {
  const auto found = bindings_.find(task);
  return found == bindings_.end() ? nullptr : &found->second;
}

Binding NodeActor::newBinding(const Change& change, Turn& turn) const {
  Binding binding;
  binding.spec = change.spec;
  binding.token = change.token;
  binding.boundUnixMs = change.event.seq != 0 ? change.event.unixMs : unixMs(turn);
  return binding;
}

// --- introduction: task actor, then attach server, then the cards and the asker ---

void NodeActor::introduce(std::uint64_t task, Binding& binding, Turn& turn) {
  binding.stage = Stage::TellingTask;
  tellKnown(peers_.tasks[binding.slot], task, binding);
  tick(turn, options_.introduceMax, TickKind::Introduce, task);
}

void NodeActor::introduceToAttach(std::uint64_t task, Binding& binding) {
  binding.stage = Stage::TellingAttach;
  tellKnown(peers_.attach, task, binding);
}

// An answer is late, since its loop is busy: what was sent there arrives in order all the same. The
// asker is not kept waiting; cards hear of the task only when its gate can be driven.
void NodeActor::onIntroduceDue(std::uint64_t task) {
  Binding* binding = find(task);
  if (binding == nullptr || binding->stage == Stage::Live || toClose_.contains(task)) return;
  QGPU_MARK(IntroducedLate);
  binding->late = true;
  answerWaiting(task, *binding);
}

void NodeActor::onGateOpened(schema::GateRegistered::Reader opened, Turn& turn) {
  const std::uint64_t task = opened.getTask();
  Binding* binding = find(task);
  if (binding == nullptr || binding->stage != Stage::TellingAttach) return;
  const std::string why = text(opened.getFailed()).substr(0, 160);
  if (why.empty())
    becomeLive(task, *binding, turn);
  else
    closeLater(task, *binding, "its pages could not be made: " + why);
}

void NodeActor::answerWaiting(std::uint64_t task, Binding& binding) {
  for (const Asker& asker : binding.waiting) replyBound(asker, task, binding);
  binding.waiting.clear();
}

void NodeActor::becomeLive(std::uint64_t task, Binding& binding, Turn& turn) {
  binding.stage = Stage::Live;
  const Placement* placement = ledger_.placement(TaskId{task});
  const ActorId actor = peers_.tasks[binding.slot];
  if (placement->cards.size() > 1) QGPU_MARK(SeveralCards);
  for (std::size_t i = 0; i < placement->cards.size(); ++i) {
    if (QGPU_PLANTED(PartialMultiCard) && i > 0) break;
    shell_.outbox().put(peers_.cards[placement->cards[i]],
                [task, actor, placement = *placement, i](schema::Envelope::Builder envelope) {
                  auto joined = envelope.initJoined();
                  joined.setTask(task);
                  joined.setClass(word(placement.taskClass));
                  joined.setSharePermille(static_cast<std::uint32_t>(placement.share.value));
                  joined.setExclusive(placement.exclusive);
                  joined.setQuotaBytes(static_cast<std::uint64_t>(placement.mem[i].value));
                  joined.setActor(static_cast<std::uint32_t>(actor));
                });
  }
  answerWaiting(task, binding);
  if (binding.evicting) startEviction(task, binding, turn);
}

void NodeActor::tellKnown(ActorId to, std::uint64_t task, const Binding& binding) {
  const Placement* placement = ledger_.placement(TaskId{task});
  Bytes quota{0};
  for (const Bytes mem : placement->mem) quota += mem;
  std::vector<std::uint32_t> cards;
  for (const std::size_t card : placement->cards) cards.push_back(cards_[card].facts.index);
  const ActorId actor = peers_.tasks[binding.slot];
  const bool forAttach = to == peers_.attach;
  shell_.outbox().put(to, [this, task, quota, cards, actor, forAttach, binding,
                   placement = *placement](schema::Envelope::Builder envelope) {
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
    known.setActor(static_cast<std::uint32_t>(actor));
    if (forAttach) writeTaskRow(task, binding, placement, known.initStored());
  });
}

// --- facts ---

void NodeActor::onTaskFact(schema::TaskFact::Reader fact, Turn& turn) {
  const std::uint64_t task = fact.getTask();
  Binding* binding = find(task);
  if (binding == nullptr) return;
  const std::uint32_t before = binding->processes;
  binding->processes = fact.getProcesses();
  binding->phase = readPhase(fact.getState());
  if (binding->stage == Stage::TellingTask) introduceToAttach(task, *binding);
  if (fact.hasText() && fact.getText().size() != 0) {
    note("task-fault", task, "", text(fact.getText()).substr(0, kEventTextMax), turn);
  }
  if (before == 0 && binding->processes != 0) {
    note("task-attached", task, "", std::to_string(binding->processes) + " process(es)", turn);
  }
  if (before == 0 || binding->processes != 0) return;
  note("task-exited", task, "", "its last process left", turn);
  if (binding->evicting)
    closeLater(task, *binding, binding->endReason);
  else if (binding->ownerGone)
    closeLater(task, *binding, "its owner is gone");
}

void NodeActor::onEventTold(schema::Event::Reader told, Turn& turn) {
  if (find(told.getTask()) == nullptr) return;
  for (const EventKind kind : {kSuspendDoubted, kSuspendUndone, kTaskStopped, kTaskUnattached,
                           kTaskUnheld, kMemoryRefused}) {
    if (kind != text(told.getKind())) continue;
    note(kind, told.getTask(), "", text(told.getText()).substr(0, kEventTextMax), turn);
  }
}

// Told once. Its name makes the member tell the scheduler of the cards.
void NodeActor::onSuspendLost(schema::SuspendLost::Reader lost, Turn& turn) {
  for (CardNow& card : cards_) {
    CardFacts& facts = card.facts;
    if (facts.index != lost.getCard() || facts.suspend == schema::Suspend::GATE) continue;
    facts.suspend = schema::Suspend::GATE;
    facts.suspendWhy = text(lost.getWhy()).substr(0, kCardTextMax);
    note("card-suspend-lost", 0, facts.id, facts.suspendWhy, turn);
  }
}

// Released only when nobody is attached. The grace covers what is still on its way: a process that
// has just attached, or one that comes back after a restart of this manager.
void NodeActor::onOwnerGone(schema::Left::Reader gone, Turn& turn) {
  Binding* binding = find(gone.getTask());
  if (binding == nullptr || binding->ownerGone) return;
  binding->ownerGone = true;
  tick(turn, options_.ownerGrace, TickKind::OwnerCheck, gone.getTask());
}

void NodeActor::onOwnerCheck(std::uint64_t task, Turn&) {
  Binding* binding = find(task);
  if (binding == nullptr || !binding->ownerGone || binding->processes != 0) return;
  QGPU_MARK(OwnerGone);
  closeLater(task, *binding, "its owner is gone");
}

// The store was an older copy: what this manager hands out from now on is above all that guests
// have met. The attach server has refused what no manager can have given out.
void NodeActor::onIncarnationSeen(schema::Incarnation::Reader seen, Turn&) {
  const std::uint32_t value = seen.getValue();
  if (value < incarnation_) return tellIncarnation();
  if (value != UINT32_MAX) incarnationSeen_ = std::max(incarnationSeen_, value);
}

void NodeActor::tellIncarnation() {
  shell_.outbox().put(peers_.attach, [value = incarnation_](schema::Envelope::Builder envelope) {
    envelope.initIncarnationChosen().setValue(value);
  });
}

// --- the end ---

void NodeActor::closeLater(std::uint64_t task, Binding& binding, const std::string& reason) {
  if (binding.endReason.empty()) binding.endReason = reason;
  toClose_.insert(task);
}

void NodeActor::startEviction(std::uint64_t task, const Binding& binding, Turn& turn) {
  tellClosed(peers_.attach, task, false, binding.endReason);
  tick(turn, options_.evictGrace, TickKind::Kill, task);
}

void NodeActor::onKillDue(std::uint64_t task) {
  Binding* binding = find(task);
  if (binding == nullptr || !binding->evicting) return;
  if (binding->processes == 0)
    closeLater(task, *binding, "evicted");
  else
    tellClosed(peers_.attach, task, true, binding->endReason);
  QGPU_MARK(KillDue);
}

void NodeActor::tellClosed(ActorId to, std::uint64_t task, bool kill, const std::string& reason) {
  shell_.outbox().put(to, [task, kill, reason](schema::Envelope::Builder envelope) {
    auto closed = envelope.initTaskClosed();
    closed.setTask(task);
    closed.setKill(kill);
    closed.setReason(reason);
  });
}

}  // namespace qgpu
