#include "actors/card/card_actor.h"

#include <algorithm>
#include <utility>

#include "actors/policies.h"
#include "runtime/planted.h"
#include "schema/envelope.actor.h"

namespace qgpu {
namespace {

constexpr Permille kMedian(500);
constexpr Permille kNinetyNinth(990);

constexpr std::uint64_t ns(Nanos t) {
  return static_cast<std::uint64_t>(t.value);
}

// The entry of the trace that a note becomes.
CardTrace::Kind kindOf(ArbiterNote::Kind note) {
  using Note = ArbiterNote::Kind;
  using Kind = CardTrace::Kind;
  switch (note) {
    case Note::Ready:
      return Kind::READY;
    case Note::Running:
      return Kind::RUNNING;
    case Note::Idle:
      return Kind::IDLE;
    case Note::Suspending:
      return Kind::SUSPENDING;
    case Note::Suspended:
      return Kind::SUSPENDED;
    case Note::Overrun:
      return Kind::OVERRUN;
    case Note::QuarantineOver:
      return Kind::QUARANTINE_OVER;
    case Note::OnlineActive:
      return Kind::ONLINE_ACTIVE;
    case Note::OnlineIdle:
      break;
  }
  return Kind::RELEASED;
}

// The entries, and the names of the tasks that they are about.
void writeTrace(const CardTrace& trace, const CardTrace::Part& part,
                schema::CardTrace::Builder builder) {
  builder.setFirst(part.first);
  builder.setNewest(trace.newest());
  builder.setLost(part.lost);
  auto entries = builder.initEntries(static_cast<unsigned>(part.count));
  std::vector<std::uint64_t> ids;
  for (unsigned i = 0; i < entries.size(); ++i) {
    const CardTrace::Entry& entry = trace[part.first + i];
    entries[i].setKind(entry.kind);
    entries[i].setTask(entry.task);
    entries[i].setAtNs(ns(entry.at));
    entries[i].setSinceNs(ns(entry.since));
    ids.push_back(entry.task);
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  std::erase_if(ids, [&](std::uint64_t task) { return trace.nameOf(task) == nullptr; });
  auto tasks = builder.initTasks(static_cast<unsigned>(ids.size()));
  for (unsigned i = 0; i < tasks.size(); ++i) {
    const CardTrace::Named& named = *trace.nameOf(ids[i]);
    tasks[i].setId(ids[i]);
    tasks[i].setName(named.name);
    tasks[i].setClass(word(named.taskClass));
  }
}

// What a person should know of a task on this card.
std::string noteOf(const Arbiter::TaskView& view, Policy policy) {
  if (view.away) return "its memory is not all on the card, or is on its way";
  if (view.quarantined) {
    return "ran on after a hold: no turn until it retires work, or waits for long";
  }
  if (rulesOf(policy).ownersFirst && view.task.share.value == 0 &&
      view.task.taskClass != TaskClass::Online) {
    return "share 0 under " + policyName(policy) + ": lives on idle time only";
  }
  return "";
}

}  // namespace

void CardActor::handle(schema::Envelope::Reader message, Turn& turn) {
  dispatch(*this, message, turn);
}

CardActor::CardTask* CardActor::find(std::uint64_t task) {
  const auto found = tasks_.find(task);
  return found == tasks_.end() ? nullptr : &found->second;
}

Nanos CardActor::clamp(std::uint64_t stamp, Nanos from, Nanos now) {
  return std::clamp(Nanos(bounded(stamp)), std::min(from, now), now);
}

void CardActor::onJoined(schema::Joined::Reader joined, Turn& turn) {
  if (joined.getTask() == 0 || joined.getActor() == 0) return;
  if (tasks_.size() >= Arbiter::kTasksMax) return;
  const auto [entry, isNew] = tasks_.try_emplace(joined.getTask());
  if (!isNew) return;
  CardTask& known = entry->second;
  known.actor = ActorId{joined.getActor()};
  known.taskClass = readClass(joined.getClass());
  known.reportedAt = turn.now();
  ArbiterTask task;
  task.id = TaskId{joined.getTask()};
  task.taskClass = known.taskClass;
  task.share = std::min(Permille(joined.getSharePermille()), kWholeCard);
  trace_.name(joined.getTask(), {text(joined.getName()).substr(0, kNameMax), known.taskClass});
  trace_.add(CardTrace::Kind::JOINED, joined.getTask(), turn.now());
  if (QGPU_PLANTED(ShareRoundedUp)) task.share = (task.share + Permille(99)) / 100 * 100;
  task.exclusive = joined.getExclusive();
  arbiter_.join(task, turn.now(), decisions_);
  if (paging_.on()) {
    paging_.join(task.id, Bytes(bounded(joined.getPageableBytes())), turn.now());
    if (paging_.isPageable(task.id)) {
      arbiter_.setAway(task.id, Arbiter::Away::Waits, turn.now(), decisions_);
    }
  }
  carryOut(turn, Nanos(0));
  if (known.epoch == 0) introduce(joined.getTask(), turn);
  if (paging_.on()) watchMemory(joined.getTask(), turn);
}

void CardActor::watchMemory(std::uint64_t task, Turn& turn) {
  turn.sendUrgent(peers_.gatePort, [task](schema::Envelope::Builder envelope) {
    auto order = envelope.initPagingOrder();
    order.setTask(task);
    order.setWhat(schema::PagingOrder::What::WATCH);
  });
}

// The gate port speaks of a task only after its first order. The arbiter gives none to a task that
// starts shut, so it gets a hold here, of epoch 0: nobody waits for that one to settle.
void CardActor::introduce(std::uint64_t task, Turn& turn) {
  turn.sendUrgent(peers_.gatePort, [task](schema::Envelope::Builder envelope) {
    auto gate = envelope.initGateOrder();
    gate.setTask(task);
    gate.setOrder(schema::GateOrder::Order::HOLD);
  });
}

void CardActor::onLeft(schema::Left::Reader left, Turn& turn) {
  const std::uint64_t task = left.getTask();
  const CardTask* known = find(task);
  if (known == nullptr) return;
  const std::uint32_t epoch = known->epoch;
  if (known->taskClass == TaskClass::Online) onlineQuietAt_ = turn.now();
  tasks_.erase(task);
  trace_.add(left.getDrained() ? CardTrace::Kind::DRAINED : CardTrace::Kind::LEFT, task,
             turn.now());
  trace_.gone(task);
  turn.sendUrgent(peers_.gatePort, [task, epoch](schema::Envelope::Builder envelope) {
    auto gate = envelope.initGateOrder();
    gate.setTask(task);
    gate.setEpoch(epoch);
    gate.setOrder(schema::GateOrder::Order::CLOSE);
  });
  paging_.leave(TaskId{task}, turn.now());
  arbiter_.leave(TaskId{task}, turn.now(), decisions_);
  carryOut(turn, Nanos(0));
}

void CardActor::onPolicyChosen(schema::PolicyChosen::Reader chosen, Turn& turn) {
  arbiter_.setPolicy(readPolicy(chosen.getPolicy()), turn.now(), decisions_);
  carryOut(turn, Nanos(0));
}

void CardActor::onBusy(schema::Busy::Reader busy, Turn& turn) {
  CardTask* known = find(busy.getTask());
  if (known == nullptr) return;
  const Nanos since = clamp(busy.getSinceNs(), known->reportedAt, turn.now());
  known->reportedAt = since;
  arbiter_.busy(TaskId{busy.getTask()}, since, turn.now(), decisions_);
  carryOut(turn, known->taskClass == TaskClass::Online ? since : Nanos(0), {busy.getTask(), since});
}

void CardActor::onQuiet(schema::Quiet::Reader quiet, Turn& turn) {
  CardTask* known = find(quiet.getTask());
  if (known == nullptr) return;
  const Nanos since = clamp(quiet.getSinceNs(), known->reportedAt, turn.now());
  known->reportedAt = since;
  if (known->taskClass == TaskClass::Online) onlineQuietAt_ = std::max(onlineQuietAt_, since);
  arbiter_.quiet(TaskId{quiet.getTask()}, since, turn.now(), decisions_);
  carryOut(turn, Nanos(0), {quiet.getTask(), since});
}

void CardActor::onSettled(schema::Settled::Reader settled, Turn& turn) {
  CardTask* known = find(settled.getTask());
  if (known == nullptr) return;
  const bool current = known->holdEpoch != 0 && known->holdEpoch == settled.getEpoch();
  if (!current) QGPU_MARK(StaleSettled);
  const Nanos at = clamp(settled.getAtNs(), current ? known->holdAt : turn.now(), turn.now());
  if (current) {
    settle_.add(at - known->holdAt);
    known->holdEpoch = 0;
  }
  arbiter_.settled(TaskId{settled.getTask()}, settled.getEpoch(), at, turn.now(), decisions_);
  carryOut(turn, Nanos(0), {settled.getTask(), at});
}

void CardActor::onOwnerDied(schema::OwnerDied::Reader died, Turn& turn) {
  CardTask* known = find(died.getTask());
  if (known == nullptr) return;
  known->holdEpoch = 0;
  if (known->taskClass == TaskClass::Online) onlineQuietAt_ = turn.now();
  arbiter_.died(TaskId{died.getTask()}, turn.now(), decisions_);
  carryOut(turn, Nanos(0));
}

void CardActor::onRetiredLate(schema::RetiredLate::Reader retired, Turn& turn) {
  if (find(retired.getTask()) == nullptr) return;
  arbiter_.retired(TaskId{retired.getTask()}, turn.now(), decisions_);
  carryOut(turn, Nanos(0));
}

void CardActor::onGateDone(schema::GateDone::Reader done, Turn& turn) {
  CardTask* known = find(done.getTask());
  if (known == nullptr || known->causeNs == 0 || known->epoch != done.getEpoch()) return;
  const Nanos cause(bounded(known->causeNs));
  known->causeNs = 0;
  const Nanos stored = clamp(done.getStoredNs(), cause, turn.now());
  if (stored - cause > kPreemptMax) return;
  preempt_.add(stored - cause);
  trace_.add(CardTrace::Kind::GATE_SHUT, done.getTask(), stored, cause);
}

void CardActor::onMemoryRefused(schema::MemoryRefused::Reader refused, Turn& turn) {
  if (find(refused.getTask()) == nullptr) return;
  trace_.add(CardTrace::Kind::MEMORY_REFUSED, refused.getTask(),
             clamp(refused.getAtNs(), Nanos(0), turn.now()));
}

void CardActor::onPaged(schema::Paged::Reader paged, Turn& turn) {
  if (find(paged.getTask()) == nullptr) return;
  paging_.told(paged, turn.now());
  carryOut(turn, Nanos(0));
}

void CardActor::onTick(schema::Tick::Reader, Turn& turn) {
  timer_ = TimerId::kNone;
  armedFor_ = kNever;
  paging_.expire(turn.now());
  arbiter_.expire(turn.now(), decisions_);
  carryOut(turn, Nanos(0));
}

void CardActor::carryOut(Turn& turn, Nanos cause, GateReport report) {
  if (paging_.on()) carryPaging(turn);
  for (const GateDecision& gate : decisions_.gates) order(gate, turn, cause);
  for (const ArbiterNote& n : decisions_.notes) {
    record(n, turn.now(), cause, report);
    note(n, turn.now());
  }
  decisions_.clear();
  tellMoves(turn);
  arm(turn);
}

// Gates of who is away are shut in this turn too.
void CardActor::carryPaging(Turn& turn) {
  for (const ArbiterNote& note : decisions_.notes) {
    if (note.kind == ArbiterNote::Kind::OnlineActive) paging_.online(true, turn.now());
    if (note.kind == ArbiterNote::Kind::OnlineIdle) paging_.online(false, turn.now());
  }
  for (const ResidencyOrder& order : std::exchange(paging_.orders(), {})) orderPaging(order, turn);
}

void CardActor::orderPaging(const ResidencyOrder& order, Turn& turn) {
  using Away = Arbiter::Away;
  using Kind = ResidencyOrder::Kind;
  using What = schema::PagingOrder::What;
  const bool drains = order.word.phase == PagingWord::Phase::Drain;
  switch (order.kind) {
    case Kind::Tell:
      arbiter_.setAway(order.task, drains ? Away::Drains : Away::Waits, turn.now(), decisions_);
      turn.sendUrgent(peers_.gatePort, [&order](schema::Envelope::Builder envelope) {
        auto word = envelope.initPagingOrder();
        word.setTask(raw(order.task));
        word.setWhat(What::WORD);
        word.setEpoch(order.word.epoch);
        word.setPhase(static_cast<std::uint32_t>(order.word.phase));
        word.setPermille(static_cast<std::uint32_t>(order.word.out.value));
      });
      return;
    case Kind::Hurry:
      return arbiter_.setAway(order.task, Away::DrainsNow, turn.now(), decisions_);
    case Kind::Back:
      return arbiter_.setAway(order.task, Away::Back, turn.now(), decisions_);
    case Kind::Limit: {
      const std::uint64_t number = paging_.numberLimit(order.task);
      turn.sendUrgent(peers_.gatePort, [&order, number](schema::Envelope::Builder envelope) {
        auto limit = envelope.initPagingOrder();
        limit.setTask(raw(order.task));
        limit.setWhat(What::LIMIT);
        limit.setLimitBytes(static_cast<std::uint64_t>(order.bytes.value));
        limit.setOrder(number);
      });
      return;
    }
    case Kind::End:
      return askForEnd(order.task, turn);
    case Kind::Answered:  // who asked tries again by itself, for as long as its gate page says
      return paging_.answered(order.request, order.room, turn.now());
  }
}

void CardActor::askForEnd(TaskId task, Turn& turn) {
  const auto [needs, bytes] = paging_.waiting();
  turn.sendUrgent(peers_.node,
                  [&, needs = needs, bytes = bytes](schema::Envelope::Builder envelope) {
                    auto room = envelope.initRoomNeeded();
                    room.setTask(raw(task));
                    room.setNeeds(raw(needs));
                    room.setBytes(static_cast<std::uint64_t>(bytes.value));
                  });
}

void CardActor::order(const GateDecision& gate, Turn& turn, Nanos cause) {
  CardTask* known = find(raw(gate.task));
  if (known == nullptr) return;
  using Order = schema::GateOrder::Order;
  using Kind = GateDecision::Kind;
  const Order kind = gate.kind == Kind::Open   ? Order::OPEN
                     : gate.kind == Kind::Hold ? Order::HOLD
                                               : Order::HASTEN;
  known->epoch = gate.epoch;
  known->causeNs = kind == Order::OPEN ? 0 : ns(cause);
  if (kind == Order::HOLD) {
    known->holdEpoch = gate.epoch;
    known->holdAt = turn.now();
  }
  const std::uint64_t causeNs = known->causeNs;
  turn.sendUrgent(peers_.gatePort, [&gate, kind, causeNs](schema::Envelope::Builder envelope) {
    auto order = envelope.initGateOrder();
    order.setTask(raw(gate.task));
    order.setEpoch(gate.epoch);
    order.setOrder(kind);
    order.setNotify(gate.notify);
    order.setContended(gate.contended);
    order.setCauseNs(causeNs);
    order.setPatienceNs(ns(gate.patience));
  });
}

// What is over was over when the gate said so; what begins does so with the orders of this turn.
void CardActor::record(const ArbiterNote& note, Nanos now, Nanos cause, const GateReport& report) {
  using Note = ArbiterNote::Kind;
  const std::uint64_t task = raw(note.task);
  const bool ofGate = report.task != 0 && report.task == task;
  Nanos at = now, since{0};
  switch (note.kind) {
    case Note::Idle:
    case Note::Suspended:
      if (ofGate) at = report.at;
      break;
    case Note::Ready:
      if (ofGate) since = report.at;
      break;
    case Note::Running:
    case Note::Suspending:
    case Note::OnlineActive:
      since = cause;
      break;
    case Note::OnlineIdle:
      since = onlineQuietAt_;
      break;
    case Note::Overrun:
    case Note::QuarantineOver:
      break;
  }
  trace_.add(kindOf(note.kind), task, at, since);
}

void CardActor::note(const ArbiterNote& note, Nanos now) {
  using Kind = ArbiterNote::Kind;
  if (note.kind == Kind::OnlineIdle) release_.add(now - onlineQuietAt_);
  CardTask* known = find(raw(note.task));
  if (known == nullptr) return;
  switch (note.kind) {
    case Kind::Ready:
      known->state = schema::TaskState::READY;
      break;
    case Kind::Running:
      known->state = schema::TaskState::RUNNING;
      break;
    case Kind::Idle:
      known->state = schema::TaskState::IDLE;
      break;
    case Kind::Suspending:
      known->state = schema::TaskState::SUSPENDING;
      break;
    case Kind::Suspended:
      known->state = schema::TaskState::SUSPENDED;
      break;
    case Kind::Overrun:
      known->quarantined = true;
      break;
    case Kind::QuarantineOver:
      known->quarantined = false;
      // Its hold is over at last: had it stopped to want the card, it were idle.
      if (known->state == schema::TaskState::SUSPENDING) known->state = schema::TaskState::READY;
      break;
    case Kind::OnlineActive:
    case Kind::OnlineIdle:
      return;
  }
  if (!known->moveOwed) movesOwed_.push_back(raw(note.task));
  known->moveOwed = true;
}

void CardActor::tellMoves(Turn& turn) {
  std::erase_if(movesOwed_, [&](std::uint64_t task) {
    CardTask* known = find(task);
    if (known == nullptr) return true;
    const SendResult sent =
        turn.send(known->actor, [task, known](schema::Envelope::Builder envelope) {
          auto moved = envelope.initMoved();
          moved.setTask(task);
          moved.setState(known->state);
          moved.setQuarantined(known->quarantined);
        });
    known->moveOwed = sent == SendResult::Refused;
    if (known->moveOwed) QGPU_MARK(MoveRefused);
    return !known->moveOwed;
  });
  resendAt_ = movesOwed_.empty() ? kNever : turn.now() + kResend;
}

// One timer, moved only when what it waits for changed.
void CardActor::arm(Turn& turn) {
  const Nanos due = std::min({arbiter_.nextDeadline(), resendAt_, paging_.nextDeadline()});
  if (due == armedFor_) return;
  turn.cancel(timer_);
  timer_ = TimerId::kNone;
  armedFor_ = due;
  if (due == kNever) return;
  const Nanos delay = std::max(Nanos(0), due - turn.now());
  timer_ = turn.after(delay, [](schema::Envelope::Builder e) { e.initTick(); });
}

void CardActor::writeFigures(Nanos now, schema::CardStatus::Builder status) const {
  const Arbiter::CardView view = arbiter_.card(now);
  status.setHolder(raw(view.holder));
  status.setOnlineActive(view.onlineActive);
  status.setUsedNs(ns(view.used));
  status.setIdleNs(ns(view.idle));
  status.setOnlineNs(ns(view.online));
  status.setHolds(view.holds);
  status.setOverruns(view.overruns);
  status.setSettleP50Ns(ns(settle_.percentile(kMedian)));
  status.setSettleP99Ns(ns(settle_.percentile(kNinetyNinth)));
  status.setSettleCount(settle_.count());
  status.setPreemptP50Ns(ns(preempt_.percentile(kMedian)));
  status.setPreemptP99Ns(ns(preempt_.percentile(kNinetyNinth)));
  status.setPreemptCount(preempt_.count());
  status.setReleaseP50Ns(ns(release_.percentile(kMedian)));
  status.setReleaseP99Ns(ns(release_.percentile(kNinetyNinth)));
  status.setReleaseCount(release_.count());
  if (preempt_.count() != 0) writeTimes(preempt_.times(), status.initPreemptTimes());
  if (release_.count() != 0) writeTimes(release_.times(), status.initReleaseTimes());
}

// The client's own deadline answers where its mailbox is full.
void CardActor::onTraceAsked(schema::TraceAsked::Reader asked, Turn& turn) {
  const ActorId client{asked.getClient()};
  if (client == ActorId::kNobody) return;
  const CardTrace::Part part = trace_.after(asked.getQuery().getSince());
  const auto build = [&](schema::Envelope::Builder envelope) {
    auto reply = envelope.initReply();
    reply.setCorr(asked.getCorr());
    auto told = reply.initTrace();
    told.setCard(asked.getQuery().getCard());
    told.setNowNs(ns(turn.now()));
    writeTrace(trace_, part, told);
  };
  static_cast<void>(turn.send(client, build));
}

void CardActor::onReportAsked(schema::ReportAsked::Reader asked, Turn& turn) {
  const auto build = [&](schema::Envelope::Builder envelope) {
    auto report = envelope.initCardReport();
    report.setCorr(asked.getCorr());
    auto status = report.initStatus();
    status.initInfo().setIndex(index_);
    status.setTasks(static_cast<std::uint32_t>(tasks_.size()));
    writeFigures(turn.now(), status);
    auto shares = report.initShares(static_cast<unsigned>(tasks_.size()));
    unsigned i = 0;
    for (const auto& entry : tasks_) {
      const auto view = arbiter_.task(TaskId{entry.first}, turn.now());
      auto share = shares[i++];
      share.setTask(entry.first);
      if (!view) continue;
      share.setUsedNs(ns(view->used));
      share.setHeldNs(ns(view->held));
      share.setTurns(view->turns);
      share.setOverrunNs(ns(view->overrun));
      share.setQuarantined(view->quarantined);
      share.setNote(noteOf(*view, arbiter_.config().policy));
    }
  };
  // A refusal is the node's own full mailbox: it answers with the last report instead.
  static_cast<void>(turn.send(peers_.node, build));
}

}  // namespace qgpu
