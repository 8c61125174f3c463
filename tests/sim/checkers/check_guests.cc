#include "tests/sim/checkers/check_guests.h"

#include <algorithm>
#include <bit>
#include <string>

#include "services/wire/gate_abi.h"

namespace qgpu::sim {
namespace {

// A new manager may open gates once every process of the last one is accounted for, or so long
// after its node has started (HAZARDS 8).
constexpr Nanos kRecovery = millis(500);
// From when the driver puts a held task's channel back on the card by itself until it is off again;
// and from when work is seen to retire.
constexpr Nanos kUndoneUnseen = millis(2'300);
constexpr Nanos kUndoneSeen = millis(250);
// From OWNER_DIED in the page to the card (A11). An open gate is looked at every 4 ms.
constexpr Nanos kDeath = millis(5);
// From the submit that rings to the card (A2): the doorbell's way, and a look where it is disarmed.
constexpr Nanos kNotice = millis(5);
// A loop that is not seen to do anything for so long may have stalled.
constexpr Nanos kStall = millis(5);
// Stamps of work come from a coarse clock (4 ms), stored every 50 us at the most.
constexpr Nanos kCoarse = millis(4) + micros(50);

}  // namespace

void GuestCheck::violated(const char* invariant, const Task& task, const std::string& what) {
  verdict_.violated(invariant, "task " + std::to_string(task.id) + " " + what);
}

GuestCheck::Task& GuestCheck::taskOf(std::uint64_t id) {
  const auto next = static_cast<std::uint32_t>(tasks_.size());
  const auto [entry, isNew] = taskIndex_.try_emplace(id, next);
  if (isNew) tasks_.emplace_back().id = id;
  return tasks_[entry->second];
}

// --- lives ---

void GuestCheck::onBoot(const Boot& boot, Nanos now) {
  for (Task& task : tasks_) {
    for (const std::uint32_t id : task.processes) {
      Process& process = processes_.at(id);
      if (process.life == life_) process.pastOpen = task.open;
    }
    task.ordered = task.open = task.notify = task.closed = task.settled = task.toldBusy = false;
    task.epoch = task.admitted = 0;
    task.noticeBy = task.deathBy = kNever;
  }
  cards_.clear();
  for (const CardFact& card : boot.cards) cards_.push_back(card.actor);
  openOn_.assign(cards_.size(), {});
  attach_ = boot.attach;
  active_ = resumed_ = now;
  life_ = boot.life;
  bootAt_ = now;
  startedAt_ = kNever;
  serves_ = true;
  due_ = kNever;
}

void GuestCheck::onEnd(Ending, Nanos) {
  serves_ = false;
  due_ = kNever;
}

// --- gates ---

void GuestCheck::onTurn(const Carried& message, Nanos now) {
  const bool toCard = std::find(cards_.begin(), cards_.end(), message.to) != cards_.end();
  if (toCard || message.to == attach_) cardLoopRuns(now);
  if (now > due_) overdue(now);
  if (message.message.isJoined()) return joined(message);
  if (message.to != attach_) return;
  if (message.message.isIncarnationChosen()) startedAt_ = std::min(startedAt_, now);
  if (!message.message.isGateOrder()) return;
  const auto order = message.message.getGateOrder();
  if (order.getOrder() == schema::GateOrder::Order::CLOSE) shut(taskOf(order.getTask()));
}

void GuestCheck::joined(const Carried& message) {
  const auto joined = message.message.getJoined();
  for (std::size_t card = 0; card < cards_.size(); ++card) {
    if (cards_[card] != message.to) continue;
    Task& task = taskOf(joined.getTask());
    if (task.joinedIn != life_) task.cards = 0;  // a new database may give out its id again
    task.joinedIn = life_;
    task.taskClass = static_cast<Class>(joined.getClass());
    task.exclusive = joined.getExclusive();
    task.cards |= 1u << card;
  }
}

void GuestCheck::shut(Task& task) {
  task.open = task.notify = false;
  for (std::vector<std::uint64_t>& open : openOn_) std::erase(open, task.id);
}

void GuestCheck::onGate(const GateStore& store, Nanos now) {
  Task& task = taskOf(store.task);
  if (store.epoch < task.epoch && !task.closed && std::popcount(task.cards) == 1) {
    violated("A10", task,
             "has epoch " + std::to_string(store.epoch) + " after " + std::to_string(task.epoch) +
                 " in its page");
  }
  const bool thawed = store.epoch == task.epoch && (store.flags & QGPU_GATE_OPEN) == 0;
  task.epoch = store.epoch;
  task.ordered = true;
  task.closed = task.closed || store.closed;
  const bool open = (store.flags & QGPU_GATE_OPEN) != 0 && !task.closed;
  if (!open) {
    shut(task);
    if (!thawed) task.settled = false;
    task.deathBy = kNever;  // who has no slice keeps nobody out
    if (task.closed) task.noticeBy = kNever;
    return;
  }
  task.settled = false;
  task.notify = (store.flags & QGPU_GATE_NOTIFY) != 0;
  if (task.notify) task.deathBy = kNever;
  if (!task.open && !task.online()) opened(task, now);
  task.open = true;
}

void GuestCheck::opened(Task& task, Nanos now) {
  for (std::uint32_t card = 0; card < openOn_.size(); ++card) {
    if ((task.cards >> card & 1) != 0) openedOn(task, card, now);
  }
}

void GuestCheck::openedOn(Task& task, std::uint32_t card, Nanos now) {
  std::vector<std::uint64_t>& open = openOn_[card];
  for (const std::uint64_t other : open) {
    if (other == task.id) continue;
    violated("A1", task,
             "and task " + std::to_string(other) + " both have an open gate on card " +
                 std::to_string(card));
  }
  open.push_back(task.id);
  if (startedAt_ != kNever && now - startedAt_ >= kRecovery) return;
  for (const Task& other : tasks_) {
    if (other.id == task.id || other.online() || !other.honest) continue;
    if ((other.cards >> card & 1) == 0) continue;
    for (const std::uint32_t id : other.processes) {
      const Process& process = processes_.at(id);
      if (!process.lives || !process.pastOpen) continue;
      violated("A1", task,
               "is let in " + std::to_string((now - bootAt_).value) +
                   " ns after a restart, though process " + std::to_string(id) +
                   " still obeys an open gate of the last manager");
    }
  }
}

// --- guests ---

void GuestCheck::onGuest(const GuestNews& news, Nanos now) {
  if (now > due_) overdue(now);
  Task& task = taskOf(news.task);
  const auto [entry, isNew] = processes_.try_emplace(news.process);
  Process& process = entry->second;
  if (isNew) {
    process.task = news.task;
    task.processes.push_back(news.process);
  }
  process.inFlight = news.inFlight;
  switch (news.kind) {
    case GuestNews::Kind::Attached:
      return attached(task, process);
    case GuestNews::Kind::Submitted:
      return submitted(task, process, now);
    case GuestNews::Kind::Started:
    case GuestNews::Kind::Thawed:
      process.frozen = false;
      if (!task.honest || !task.settled || task.open || task.closed || task.online()) return;
      if (now < process.undoneBy && process.undoneBy != kNever) return;
      if (process.life == life_ && serves_) violated("A1", task, "runs though it was told settled");
      return;
    case GuestNews::Kind::Frozen:
      process.frozen = true;
      process.undoneBy = kNever;
      return;
    case GuestNews::Kind::Undone:
      process.undoneBy = now + kUndoneUnseen;
      return;
    case GuestNews::Kind::Retired:
      process.lastRetired = now;
      if (process.undoneBy != kNever) {
        process.undoneBy = std::min(process.undoneBy, now + kUndoneSeen);
      }
      return;
    case GuestNews::Kind::Died:
      return died(task, process, now);
    case GuestNews::Kind::Orphaned:
    case GuestNews::Kind::Lies:
    case GuestNews::Kind::Silent:
    case GuestNews::Kind::Disobeys:
      task.honest = false;
      task.noticeBy = task.deathBy = kNever;
      return;
    default:
      return;
  }
}

void GuestCheck::attached(Task& task, Process& process) {
  process.life = life_;
  process.lastRetired = Nanos(0);  // what came before stands in no page of this manager
  process.pastOpen = false;
  task.deathBy = kNever;
  task.settled = false;  // said when it was not here
}

void GuestCheck::submitted(Task& task, const Process& process, Nanos now) {
  if (!serves_ || !task.honest || !task.ordered || task.closed || !task.open) return;
  if (process.life != life_ || task.toldBusy || task.noticeBy != kNever) return;
  task.noticeBy = now + kNotice;
  awaitUntil(task.noticeBy);
}

// Told by the page's robust futex, which the port sees at its next look of an open gate.
void GuestCheck::died(Task& task, Process& process, Nanos now) {
  process.lives = process.pastOpen = false;
  process.inFlight = 0;
  task.noticeBy = kNever;  // its work died with it
  const bool others = std::any_of(task.processes.begin(), task.processes.end(),
                                  [&](std::uint32_t id) { return processes_.at(id).lives; });
  if (others || task.admitted > 1) return;
  const bool seen = serves_ && task.ordered && task.open && !task.notify && !task.closed;
  if (!seen || process.life != life_ || !task.honest) return;
  task.deathBy = now + kDeath;
  awaitUntil(task.deathBy);
}

std::uint32_t GuestCheck::inFlight(const Task& task, bool running) const {
  std::uint32_t sum = 0;
  for (const std::uint32_t id : task.processes) {
    const Process& process = processes_.at(id);
    const bool stands = process.frozen || process.undoneBy != kNever;
    if (!process.lives || process.life != life_ || (running && stands)) continue;
    sum += process.inFlight;
  }
  return sum;
}

// --- what the port says ---

void GuestCheck::onSent(const Carried& message, Nanos now) {
  if (message.from != attach_ || !serves_) return;
  cardLoopRuns(now);
  told(message, now);
}

void GuestCheck::told(const Carried& message, Nanos now) {
  const schema::Envelope::Reader& m = message.message;
  switch (m.which()) {
    case schema::Envelope::BUSY:
      return toldBusy(m.getBusy(), now);
    case schema::Envelope::QUIET:
      return toldQuiet(m.getQuiet(), now);
    case schema::Envelope::SETTLED:
      return toldSettled(m.getSettled(), now);
    case schema::Envelope::PROCESS_ATTACHED: {
      Task& task = taskOf(m.getProcessAttached().getTask());
      ++task.admitted;
      task.deathBy = kNever;  // it lives on in this one, before anybody missed the last
      return;
    }
    case schema::Envelope::PROCESS_GONE: {
      std::uint32_t& admitted = taskOf(m.getProcessGone().getTask()).admitted;
      admitted -= admitted != 0 ? 1 : 0;
      return;
    }
    case schema::Envelope::OWNER_DIED: {
      Task& task = taskOf(m.getOwnerDied().getTask());
      task.toldBusy = false;
      task.noticeBy = task.deathBy = kNever;
      return checkStamp(m.getOwnerDied().getAtNs(), now);
    }
    default:
      return;
  }
}

void GuestCheck::checkStamp(std::uint64_t stamp, Nanos now) {
  if (stamp <= static_cast<std::uint64_t>(now.value)) return;
  verdict_.violated("C7", "a stamp of the future is believed: " + std::to_string(stamp));
}

void GuestCheck::toldBusy(schema::Busy::Reader busy, Nanos now) {
  Task& task = taskOf(busy.getTask());
  task.toldBusy = true;
  task.noticeBy = kNever;
  checkStamp(busy.getSinceNs(), now);
}

void GuestCheck::toldQuiet(schema::Quiet::Reader quiet, Nanos now) {
  Task& task = taskOf(quiet.getTask());
  task.toldBusy = false;
  checkStamp(quiet.getSinceNs(), now);
  if (!task.honest) return;
  if (inFlight(task, false) != 0) violated("A3", task, "is told quiet with work in flight");
  const Nanos since(static_cast<std::int64_t>(quiet.getSinceNs()));
  for (const std::uint32_t id : task.processes) {
    const Process& process = processes_.at(id);
    if (!process.lives || process.life != life_ || process.lastRetired < bootAt_) continue;
    if (since + kCoarse >= process.lastRetired) continue;
    violated("A3", task,
             "retired work " + std::to_string((process.lastRetired - since).value) +
                 " ns after it is told quiet");
  }
}

void GuestCheck::toldSettled(schema::Settled::Reader settled, Nanos now) {
  Task& task = taskOf(settled.getTask());
  checkStamp(settled.getAtNs(), now);
  task.settled = settled.getHow() != schema::Settled::How::PARKED;
  if (!task.honest || !task.settled) return;
  const bool frozen = settled.getHow() == schema::Settled::How::FROZEN;
  if (inFlight(task, frozen) == 0) return;
  violated("A1", task, "is told settled while a kernel of it runs");
}

void GuestCheck::cardLoopRuns(Nanos now) {
  if (now - active_ > kStall) resumed_ = now;
  active_ = now;
}

// The loop has run for as long as it may take, and until after the deadline.
bool GuestCheck::isLate(Nanos by, Nanos now) const {
  return by < now && active_ > by && now > resumed_ + kDeath + kStall;
}

void GuestCheck::overdue(Nanos now) {
  due_ = kNever;
  if (!serves_) return;
  for (Task& task : tasks_) {
    const Nanos first = std::min(task.deathBy, task.noticeBy);
    if (first == kNever) continue;
    if (!isLate(first, now)) {
      awaitUntil(std::max(first, now + micros(500)));
      continue;
    }
    if (task.deathBy < now) violated("A11", task, "is dead for 5 ms, and its card was not told");
    if (task.noticeBy < now) violated("A2", task, "works for 5 ms, and its card was not told");
    task.deathBy = task.noticeBy = kNever;
  }
}

}  // namespace qgpu::sim
