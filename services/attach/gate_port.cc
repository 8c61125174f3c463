#include "services/attach/gate_port.h"

#include <algorithm>
#include <bit>
#include <signal.h>
#include <utility>

#include "runtime/planted.h"

namespace qgpu {
namespace {

// Launches wait on the same word and don't pass a wake on while the gate stays shut; frozen threads
// that are not among the woken ones look again by themselves.
constexpr int kThawWakes = 2 * QGPU_DRIVER_THREADS;
constexpr std::uint32_t kAgainsTold = 3;  // once may be a guest that looked late

std::uint64_t unsignedNs(Nanos t) {
  return static_cast<std::uint64_t>(t.value);
}

bool heldByGate(const GuestTask& task) {
  return task.heldBy == QGPU_SUSPEND_GATE || task.doubted;
}

bool usableSignal(std::uint32_t signal) {
  return signal >= static_cast<std::uint32_t>(SIGRTMIN) &&
         signal <= static_cast<std::uint32_t>(SIGRTMAX);
}

}  // namespace

GatePort::GatePort(GatePlatform& around, Outlet& outlet, TaskTable& tasks, GatePortOptions options)
    : around_(around), outlet_(outlet), tasks_(tasks), options_(options), paging_(outlet, tasks) {}

GatePort::~GatePort() {
  around_.cancel(heartbeat_);
}

// --- orders ---

void GatePort::order(schema::GateOrder::Reader order, ActorId from) {
  const auto found = tasks_.find(order.getTask());
  if (found == tasks_.end()) return;
  GuestTask& task = *found->second;
  GateState& gate = task.gate;
  const bool wasFrozen = gate.frozen;
  counters_.orders++;
  if (order.getOrder() == schema::GateOrder::Order::HASTEN) {
    hasten(task, order.getEpoch());
    return tellDone(task, order.getCauseNs());
  }
  gate.card = from;
  gate.epoch = order.getEpoch();
  // A closed gate never opens, but what was in flight then has its turns until it ends.
  gate.open = order.getOrder() == schema::GateOrder::Order::OPEN && !task.pages.closed();
  gate.notify = gate.open && order.getNotify();
  gate.contended = order.getContended();
  gate.ordered = order.getOrder() != schema::GateOrder::Order::CLOSE;
  if (!gate.ordered) task.paging.card = ActorId::kNobody;
  gate.settling = order.getOrder() == schema::GateOrder::Order::HOLD;
  gate.settleDelay = options_.settleFirst;
  gate.parked = false;
  gate.worked = false;
  gate.rung = false;
  gate.offAt = kNever;
  gate.offInPart = false;
  gate.agains = 0;
  const Nanos patience(static_cast<std::int64_t>(order.getPatienceNs()));
  const bool patient = gate.settling && patience > Nanos(0) && !heldByGate(task);
  gate.stopAt = patient ? around_.now() + patience : kNever;
  // A task that leaves its card has no turn left: what it has frozen stays so until it is killed.
  gate.frozen = gate.settling ? !patient && !heldByGate(task) : wasFrozen && !gate.ordered;
  store(task);
  if (wasFrozen && !gate.frozen) letRun(task);
  tellDone(task, order.getCauseNs());
  gate.rearm = gate.disarmed;
  look(task);
  if (gate.frozen && gate.settling) stopWork(task);
}

void GatePort::tellDone(const GuestTask& task, std::uint64_t causeNs) {
  if (causeNs == 0) return;
  outlet_.sendUrgent(task.gate.card, [&](schema::Envelope::Builder message) {
    auto done = message.initGateDone();
    done.setTask(task.id);
    done.setEpoch(task.gate.epoch);
    done.setStoredNs(unsignedNs(task.gate.storedAt));
    done.setCauseNs(causeNs);
  });
}

// What is in flight had its time to end by itself, or somebody online waits.
void GatePort::hasten(GuestTask& task, std::uint32_t epoch) {
  GateState& gate = task.gate;
  if (!gate.settling || gate.epoch != epoch || gate.stopAt == kNever) return;
  gate.stopAt = kNever;
  gate.settleDelay = options_.settleFirst;
  gate.frozen = !heldByGate(task);
  if (!gate.frozen) return;
  store(task);
  stopWork(task);
  schedule(task, gate.settleDelay, around_.now());
}

void GatePort::stopWork(GuestTask& task) {
  if (task.heldBy == QGPU_SUSPEND_RM) return takeOff(task);
  freezeThreads(task);
}

void GatePort::takeOff(GuestTask& task) {
  ++task.gate.ask;
  task.gate.offInPart = false;
  around_.takeOff(task);
}

void GatePort::store(GuestTask& task) {
  GateState& gate = task.gate;
  const std::uint32_t flags =
      (gate.open ? QGPU_GATE_OPEN : 0u) | (gate.notify ? QGPU_GATE_NOTIFY : 0u) |
      (gate.contended ? QGPU_GATE_CONTENDED : 0u) | (gate.frozen ? QGPU_GATE_FROZEN : 0u);
  // Closing took a number of its own (A10), and each card of a task has its own numbers: a word
  // that repeats would be one for which the guest has rung already.
  const std::uint32_t stored = task.pages.gateWord() >> QGPU_GATE_SEQ_SHIFT;
  const bool mixed = task.pages.closed() || task.cardActors.size() > 1;
  const bool late = mixed && gate.epoch <= stored;
  gate.storedAt = task.pages.storeGate(late ? stored + 1 : gate.epoch, flags);
  if (gate.open) task.pages.wake(1);
}

// Lets driver threads and channels go on behind a shut gate: nothing is in flight that they could
// run, but one of the threads may hold a lock of the driver that the task's own threads wait for,
// and a driver that sets up a context waits for channels of its own.
void GatePort::thaw(GuestTask& task) {
  QGPU_MARK(Thawed);
  task.gate.frozen = false;
  store(task);
  letRun(task);
}

// What the stored word has freed. An open gate has woken its waiters.
void GatePort::letRun(GuestTask& task) {
  if (task.heldBy == QGPU_SUSPEND_RM) around_.putBack(task);
  if (task.heldBy == QGPU_SUSPEND_FREEZE && !task.gate.open) task.pages.wake(kThawWakes);
}

// Stops the driver threads of every process that has work in flight. A process that does not say
// which threads these are falls back to `gate`: it settles when its work retires.
void GatePort::freezeThreads(GuestTask& task) {
  const Nanos now = around_.now();
  for (auto& [slot, process] : task.processes) {
    if (!usableSignal(process->freezeSignal) || task.pages.slotDead(slot)) continue;
    const std::uint32_t threads = task.pages.driverThreads(slot);
    // A pid that was given out again belongs to somebody else; a pidfd does not lie.
    if (threads == 0 || !around_.lives(*process)) continue;
    for (std::uint32_t i = 0; i < threads; i++) {
      const std::uint32_t tid = process->threads.host(task.pages.driverThread(slot, i), now);
      if (tid == 0 || tid > INT32_MAX) continue;
      // Nothing follows where it fails: the task has settled once all of its threads say that they
      // wait, or its work has retired.
      ++(around_.stopThread(*process, tid) ? counters_.freezeSignals : counters_.freezeFailed);
    }
  }
}

// --- who comes and goes ---

void GatePort::added(GuestTask& task) {
  task.gate.addedAt = around_.now();
  task.pages.heartbeat(task.gate.addedAt);
  arm(task);
  if (heartbeat_ == 0) beatAgain(around_.now());
}

void GatePort::removed(GuestTask& task) {
  around_.unwatchBell(task);
  schedule(task, kNever, around_.now());
}

void GatePort::processAttached(GuestTask& task) {
  task.gate.life = Life::Alive;
  task.gate.cameBack = true;
  look(task);
}

// Work that a process brought back from under an earlier manager, after the hold of its task had
// found nothing to stop. Nobody waits for this hold to settle.
void GatePort::stopReturned(GuestTask& task) {
  GateState& gate = task.gate;
  const bool patient = gate.settling && !gate.frozen;
  if (!gate.ordered || gate.open || patient || heldByGate(task)) return;
  const bool wasFrozen = std::exchange(gate.frozen, true);
  if (wasFrozen && task.heldBy == QGPU_SUSPEND_RM) return;  // what it tells of goes off at once
  QGPU_MARK(ReturnedAtWork);
  if (!wasFrozen) {
    gate.settling = true;
    gate.stopAt = kNever;  // of a patient hold that settled before
    gate.settleDelay = options_.settleFirst;
    gate.offAt = kNever;
    gate.offInPart = false;
    store(task);
  }
  stopWork(task);
}

void GatePort::processGone(GuestTask& task) {
  const Nanos now = around_.now();
  tellRefused(task, task.pages.use().refused, now);  // often why it ended, and its task with it
  tellUseIfChanged(task, now);
  look(task);
}

void GatePort::close(GuestTask& task) {
  task.pages.close(around_.now());
  task.gate.open = false;
  task.gate.notify = false;
  look(task);
}

// --- channels ---

void GatePort::channelsTold(GuestTask& task, GuestProcess& process) {
  if (std::exchange(process.channels, true)) return;
  const GateState& gate = task.gate;
  // That all is stopped may be on its way, said before these were known.
  if (gate.settling && gate.frozen && gate.offAt == kNever) takeOff(task);
}

void GatePort::stopped(GuestTask& task, std::uint32_t ask, Nanos at) {
  GateState& gate = task.gate;
  if (!gate.settling || gate.ask != ask) return;  // of a hold that is over, or asked for anew
  gate.offInPart = hasUnseenWork(task);
  if (gate.offInPart) return;
  QGPU_MARK(ChannelsOff);
  gate.offAt = at;
  look(task);
}

// Of a process that has told of no channel nothing was taken off.
bool GatePort::hasUnseenWork(GuestTask& task) const {
  return std::any_of(task.processes.begin(), task.processes.end(), [&](const auto& each) {
    return !each.second->channels && !task.pages.slotDead(each.first) &&
           task.pages.inFlight(each.first) != 0;
  });
}

void GatePort::doubted(GuestTask& task, const std::string& why) {
  if (task.heldBy != QGPU_SUSPEND_RM || std::exchange(task.doubted, true)) return;
  task.pages.setWindow(task.window);
  // Once it was settled others have the card: what is off stays off until its next turn.
  if (task.gate.settling && task.gate.frozen) thaw(task);
  tellNode(task, kSuspendDoubted, "held by its gate alone from now on: " + why);
}

// --- looking ---

// What it rang in this window stays counted, so that no order lets it ring more often.
void GatePort::arm(GuestTask& task) {
  task.gate.disarmed = false;
  task.gate.rearm = false;
  around_.watchBell(task, [this, &task] { ring(task); });
}

void GatePort::ring(GuestTask& task) {
  GateState& gate = task.gate;
  const Nanos now = around_.now();
  counters_.rings++;
  if (now - gate.ringsFrom >= options_.ringWindow) {
    gate.rings = 0;
    gate.ringsFrom = now;
  }
  if (++gate.rings > options_.ringsMax) {
    counters_.disarmed++;
    QGPU_MARK(BellDisarmed);
    gate.disarmed = true;
    around_.unwatchBell(task);
  }
  look(task, true);
  if (heard_) heard_();
}

void GatePort::look(GuestTask& task, bool rang) {
  GateState& gate = task.gate;
  const Nanos now = around_.now();
  counters_.samples++;
  // Before the page is read: what comes after that rings.
  if (gate.rearm && now - gate.ringsFrom >= options_.ringWindow) arm(task);
  const GateSample sample = task.pages.sample(now);
  // A guest also rings when it has just attached. Its one ring for work under this order comes
  // after that work shows in the page, so a ring before anything showed was not that one.
  gate.worked = gate.worked || sample.busy() || sample.admitted != gate.admitted ||
                sample.retired != gate.retired;
  if (rang && gate.worked) gate.rung = true;
  if (rang || sample.admitted != gate.admitted || sample.retired != gate.retired) {
    gate.ranAt = now;
    gate.stopped = false;
  }
  if (sample.retired != gate.retired) gate.stuck = 0;
  if (!sample.anyAlive) {
    if (gate.life == Life::Alive) tellDeath(task, now);
  } else if (gate.ordered) {
    tellWork(task, sample, now);
  }
  // Work that waits for the host ends nothing by itself.
  const bool over = now >= gate.stopAt || sample.anyParked;
  if (gate.settling && over && sample.inFlight != 0) hasten(task, gate.epoch);
  // Once more as it obeys, of which it rings: until then it may not have heard.
  if (gate.cameBack && sample.inFlight != 0) stopReturned(task);
  if (rang) gate.cameBack = false;
  if (gate.settling) tellSettled(task, sample, now);
  if (gate.offAt != kNever) keepOff(task, sample, now);
  if (gate.frozen && sample.inFlight == 0) thaw(task);
  gate.admitted = sample.admitted;
  gate.retired = sample.retired;
  gate.sampledAt = now;
  if (now - gate.useToldAt >= options_.useEvery) tellUseIfChanged(task, now);
  paging_.look(task);
  schedule(task, nextLook(task, sample, now), now);
}

// How long until the task must be looked at again without a ring; kNever: its doorbell tells.
Nanos GatePort::nextLook(const GuestTask& task, const GateSample& sample, Nanos now) const {
  const GateState& gate = task.gate;
  if (gate.life != Life::Alive) return kNever;
  if (gate.settling && gate.stopAt != kNever) {  // its doorbell tells of the end, if it comes
    return std::clamp(gate.stopAt - now, Nanos(0), options_.busyEvery);
  }
  if (gate.settling) {
    const Nanos held = now - gate.storedAt;
    if (held >= seconds(1)) return options_.lateEvery;
    return held >= options_.lateAfter ? options_.lateFirst : gate.settleDelay;
  }
  if (gate.frozen && gate.offAt != kNever) return options_.heldEvery;
  if (!gate.ordered) return kNever;
  // An online task does not ring when its work ends, and a dead one never does.
  if (task.pages.closed() && gate.toldBusy) return options_.lateEvery;
  if (gate.open) {
    if (gate.notify && !gate.rung && !gate.disarmed) return kNever;
    const bool untold = gate.contended && (task.taskClass == QGPU_ONLINE || gate.disarmed);
    return untold ? options_.untoldEvery : options_.busyEvery;
  }
  if (gate.disarmed || (gate.parked && sample.inFlight != 0)) return options_.lateEvery;
  return kNever;
}

void GatePort::schedule(GuestTask& task, Nanos delay, Nanos now) {
  GateState& gate = task.gate;
  around_.cancel(gate.timer);
  gate.timer = 0;
  gate.timerAt = delay == kNever ? kNever : now + delay;
  if (delay == kNever) return;
  if (gate.settling) gate.settleDelay = std::min(gate.settleDelay * 2, options_.settleEvery);
  gate.timer = around_.at(gate.timerAt, [this, &task] {
    task.gate.timer = 0;
    look(task);
  });
}

// --- telling ---

void GatePort::tellDeath(GuestTask& task, Nanos now) {
  GateState& gate = task.gate;
  gate.life = Life::Dead;
  gate.toldBusy = false;
  if (QGPU_PLANTED(DeathUntold)) return;
  if (!gate.ordered) return;
  for (const ActorId card : task.cardActors) {
    outlet_.sendUrgent(card, [&](schema::Envelope::Builder message) {
      auto died = message.initOwnerDied();
      died.setTask(task.id);
      died.setAtNs(unsignedNs(now));
    });
  }
}

void GatePort::tellWork(GuestTask& task, const GateSample& sample, Nanos now) {
  GateState& gate = task.gate;
  const Nanos stamp = std::max(sample.lastSubmit, sample.lastRetire);
  const bool active = sample.admitted != gate.admitted || sample.retired != gate.retired;
  const bool news = active && !(sample.admitted < gate.admitted);
  const bool idles = gate.stopped && task.taskClass != QGPU_ONLINE;
  if (sample.busy() && !idles) {
    if (!gate.toldBusy)
      busy(task, sample, sample.lastSubmit > gate.toldStamp ? sample.lastSubmit : now);
    return;
  }
  if (!gate.toldBusy && !news && stamp <= gate.toldStamp) return;
  // Stamps come from a coarse clock: what was seen to change since the last look is newer.
  const Nanos since = active ? std::max(stamp, std::min(gate.sampledAt, now)) : stamp;
  if (!gate.toldBusy) busy(task, sample, since);  // it came and went between two looks
  quiet(task, since);
}

void GatePort::tellSettled(GuestTask& task, const GateSample& sample, Nanos now) {
  GateState& gate = task.gate;
  const bool late = now - gate.storedAt >= options_.lateAfter;
  if (late && sample.retired != gate.retired) {
    outlet_.sendUrgent(gate.card, [&](schema::Envelope::Builder message) {
      auto retired = message.initRetiredLate();
      retired.setTask(task.id);
      retired.setAtNs(unsignedNs(now));
    });
  }
  if (late && task.heldBy == QGPU_SUSPEND_RM && !task.doubted && hasUnseenWork(task)) {
    doubted(task, "a process at work has told of none of its channels");
  }
  // A hold is told stopped once, so it is asked for again.
  if (gate.offInPart && gate.frozen && !hasUnseenWork(task)) takeOff(task);
  // The look before this one saw it run, so it stopped in between.
  const Nanos from = std::max(gate.storedAt, gate.sampledAt);
  if (!sample.anyAlive) {
    const bool died = gate.life == Life::Dead;
    settled(task, died ? schema::Settled::How::DEAD : schema::Settled::How::RETIRED, now);
  } else if (sample.inFlight == 0 ||
             (QGPU_PLANTED(SettledTooEarly) && task.heldBy == QGPU_SUSPEND_GATE)) {
    settled(task, schema::Settled::How::RETIRED,
            std::clamp(sample.lastRetire, std::min(from, now), now));
  } else if (gate.offAt != kNever) {
    settled(task, schema::Settled::How::FROZEN, std::clamp(gate.offAt, gate.storedAt, now));
  } else if (gate.stopAt != kNever) {
    // Nothing was stopped yet: who stands still is late to go on from the hold before, and will.
  } else if (sample.stopped && (late || !sample.anyParked)) {
    // Work that waits for the host may start at any moment: it counts only once time is up.
    if (sample.anyParked) QGPU_MARK(SettledParked);
    gate.parked = sample.anyParked;
    settled(task, gate.parked ? schema::Settled::How::PARKED : schema::Settled::How::FROZEN,
            gate.parked ? now : std::clamp(sample.frozenAt, gate.storedAt, now));
  } else if (isStuck(task, sample, now)) {
    QGPU_MARK(SettledStuck);
    ++gate.stuck;
    gate.parked = true;
    settled(task, schema::Settled::How::PARKED, now);
  }
}

// A kernel that runs long looks the same, and then others wait for it once more.
bool GatePort::isStuck(const GuestTask& task, const GateSample& sample, Nanos now) const {
  const GateState& gate = task.gate;
  if (sample.waiting == 0) return false;
  const std::uint32_t doublings = std::min(gate.stuck, 16u);
  const Nanos patience = std::min(options_.stuckAfter * (1 << doublings), options_.stuckAfterMax);
  return now - std::max(gate.storedAt, sample.lastRetire) >= patience;
}

// Work that retires though its channels are off: the driver put them on by itself, or the guest saw
// late what had ended before; or it lies, which gains it nothing: where it goes on, each time comes
// after twice as long.
void GatePort::keepOff(GuestTask& task, const GateSample& sample, Nanos now) {
  GateState& gate = task.gate;
  const std::uint32_t more = gate.agains > kAgainsTold ? gate.agains - kAgainsTold : 0;
  if (!gate.frozen || gate.settling || sample.inFlight == 0 || sample.retired == gate.retired ||
      now - gate.againAt < options_.heldEvery * (1 << std::min(more, 16u))) {
    return;
  }
  QGPU_MARK(TakenOffAgain);
  gate.againAt = now;
  around_.takeOffAgain(task);
  if (++gate.agains != kAgainsTold) return;
  tellNode(task, kSuspendUndone,
           "its work goes on while it is held: " + std::to_string(kAgainsTold) +
               " times in one hold its channels had to be taken off the card again");
}

void GatePort::settled(GuestTask& task, schema::Settled::How how, Nanos at) {
  GateState& gate = task.gate;
  gate.settling = false;
  outlet_.sendUrgent(gate.card, [&](schema::Envelope::Builder message) {
    auto settled = message.initSettled();
    settled.setTask(task.id);
    settled.setEpoch(gate.epoch);
    settled.setAtNs(unsignedNs(at));
    settled.setHow(how);
  });
}

void GatePort::busy(GuestTask& task, const GateSample& sample, Nanos since) {
  task.gate.toldBusy = true;
  task.gate.toldStamp = std::max(task.gate.toldStamp, since);
  for (const ActorId card : task.cardActors) {
    outlet_.sendUrgent(card, [&](schema::Envelope::Builder message) {
      auto busy = message.initBusy();
      busy.setTask(task.id);
      busy.setSinceNs(unsignedNs(since));
      busy.setInFlight(sample.inFlight);
      busy.setWaiting(sample.waiting);
    });
  }
}

void GatePort::quiet(GuestTask& task, Nanos since) {
  task.gate.toldBusy = false;
  task.gate.toldStamp = std::max(task.gate.toldStamp, since);
  for (const ActorId card : task.cardActors) {
    outlet_.sendUrgent(card, [&](schema::Envelope::Builder message) {
      auto quiet = message.initQuiet();
      quiet.setTask(task.id);
      quiet.setSinceNs(unsignedNs(since));
    });
  }
}

void GatePort::tellUse(GuestTask& task) {
  sendUse(task, task.pages.use(), around_.now());
}

void GatePort::tellUseIfChanged(GuestTask& task, Nanos now) {
  const UseSample use = task.pages.use();
  const bool same =
      task.gate.useTold && use == task.gate.use && task.pages.faults() == task.gate.faultsTold;
  if (!same) sendUse(task, use, now);
}

void GatePort::sendUse(GuestTask& task, const UseSample& use, Nanos now) {
  const std::uint32_t faults = task.pages.faults();
  const SendResult sent = outlet_.send(task.actor, [&](schema::Envelope::Builder message) {
    auto used = message.initUsed();
    used.setTask(task.id);
    used.setMemBytes(use.memBytes);
    used.setMemPeak(use.memPeak);
    used.setLaunches(use.launches);
    used.setGpuNs(use.gpuNs);
    used.setPageableHeld(use.pageableHeld);
    used.setPageableOut(use.pageableOut);
    if (faults != 0) used.setFault(TaskPages::faultText(faults));
  });
  task.gate.useToldAt = now;
  if (sent == SendResult::Refused) return;  // told again with the next change or heartbeat
  task.gate.useTold = true;
  task.gate.use = use;
  task.gate.faultsTold = faults;
}

void GatePort::beat() {
  heartbeat_ = 0;
  if (tasks_.empty()) return;
  const Nanos now = around_.now();
  for (auto& [id, task] : tasks_) {
    task->pages.heartbeat(now);
    task->pages.judgeQuota();
    tellRefused(*task, task->pages.use().refused, now);
    paging_.look(*task);
    judgeStopped(*task, now);
    judgeUnattached(*task, now);
    if (!task->processes.empty()) tellUseIfChanged(*task, now);
  }
  beatAgain(now);
}

SendResult GatePort::tellNode(const GuestTask& task, EventKind kind, const std::string& text) {
  if (options_.node == ActorId::kNobody) return SendResult::Sent;
  return outlet_.send(options_.node, [&](schema::Envelope::Builder message) {
    auto event = message.initEventTold();
    event.setKind(kind.name());
    event.setTask(task.id);
    event.setText(text);
  });
}

// For the node's story and the traces of its cards: at once, and then once in a while for all that
// came since.
void GatePort::tellRefused(GuestTask& task, std::uint64_t refused, Nanos now) {
  const bool told = task.gate.refusedTold != 0;
  if (refused <= task.gate.refusedTold ||
      (told && now - task.gate.refusedToldAt < options_.refusedEvery)) {
    return;
  }
  const SendResult sent =
      tellNode(task, kMemoryRefused,
               std::to_string(refused) + " allocations failed so far, since they would pass " +
                   std::to_string(task.pages.quota() / mebibytes(1)) + " MiB, its share of memory");
  if (sent == SendResult::Refused) return;  // with the next heartbeat
  task.gate.refusedTold = refused;
  task.gate.refusedToldAt = now;
  for (const ActorId card : task.cardActors) {
    // Where its mailbox is full its trace lacks this one.
    static_cast<void>(outlet_.send(card, [&](schema::Envelope::Builder message) {
      auto refusal = message.initMemoryRefused();
      refusal.setTask(task.id);
      refusal.setAtNs(static_cast<std::uint64_t>(now.value));
    }));
  }
}

// Its page says that it works for as long as nobody lets it go on. So it counts as idle until then;
// but an online task, which may still have work on the card, only has this said.
void GatePort::judgeStopped(GuestTask& task, Nanos now) {
  GateState& gate = task.gate;
  if (task.processes.empty() || (!gate.toldBusy && !gate.stopped)) gate.ranAt = now;
  if (now - gate.ranAt < options_.heartbeatEvery) return;
  const bool runs = std::any_of(task.processes.begin(), task.processes.end(), [&](const auto& p) {
    return !task.pages.slotDead(p.first) && !around_.isStopped(*p.second);
  });
  if (runs) {
    gate.ranAt = now;
    if (std::exchange(gate.stopped, false)) look(task);
    return;
  }
  if (gate.stopped || now - gate.ranAt < options_.stoppedAfter) return;
  const std::string until = " until one of them goes on";
  const SendResult sent =
      tellNode(task, kTaskStopped,
               "its processes are stopped with work under way: " +
                   (task.taskClass == QGPU_ONLINE ? "nobody else gets its card" + until
                                                  : "it counts as idle" + until));
  if (sent == SendResult::Refused) return;  // with the next heartbeat
  gate.stopped = true;
  look(task);
}

// Said once. Whether it uses a card all the same can't be seen from here.
void GatePort::judgeUnattached(GuestTask& task, Nanos now) {
  GateState& gate = task.gate;
  if (gate.life != Life::Never || gate.unattachedTold) return;
  if (now - gate.addedAt < options_.unattachedAfter) return;
  const SendResult sent = tellNode(
      task, kTaskUnattached,
      "no process of it has attached for " + std::to_string(options_.unattachedAfter / seconds(1)) +
          " s: it uses no card, or runs without libqgpu.so, and so without quota and turns");
  if (sent == SendResult::Refused) return;  // with the next heartbeat
  gate.unattachedTold = true;
  unattached_.fetch_add(1, std::memory_order_relaxed);
}

void GatePort::beatAgain(Nanos now) {
  heartbeat_ = around_.at(now + options_.heartbeatEvery, [this] { beat(); });
}

}  // namespace qgpu
