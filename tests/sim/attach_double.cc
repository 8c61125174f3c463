#include "tests/sim/attach_double.h"

#include <algorithm>
#include <utility>

namespace qgpu::sim {
namespace {

constexpr Nanos kHeardAfterMin = micros(2);   // what happens on a descriptor, until the loop runs
constexpr Nanos kHeardAfterMax = micros(60);
constexpr Nanos kTellsAfterMax = millis(8);   // of its channel, once it is back
constexpr Nanos kCallMin = micros(30);   // of the driver
constexpr Nanos kCallMax = micros(600);
constexpr Nanos kCallLongest = millis(6);
constexpr Nanos kCheckMin = millis(50);
constexpr Nanos kCheckMax = seconds(3);
constexpr Nanos kUndoneAfterMin = micros(100);
constexpr Nanos kUndoneAfterMax = seconds(1);

qgpu_class classOf(schema::TaskClass taskClass) {
  switch (taskClass) {
    case schema::TaskClass::ONLINE: return QGPU_ONLINE;
    case schema::TaskClass::OFFLINE: return QGPU_OFFLINE;
    default: return QGPU_ORDINARY;
  }
}

}  // namespace

AttachDouble::AttachDouble(Host& host, Watch& watch, ActorId self, RunDir& runDir,
                           Machine& machine, AttachDoubleOptions options, Dice dice)
    : host_(host),
      watch_(watch),
      runDir_(runDir),
      machine_(machine),
      options_(std::move(options)),
      dice_(dice),
      outlet_(host, self),
      drivers_(options_.cards.size()),
      port_(*this, outlet_, tasks_, options_.gate),
      incarnation_(options_.incarnation) {
  port_.onRing([this] {
    if (recovering_) recoveryMoved();
  });
  std::erase_if(runDir_.attached,
                [this](const AttachedEntry& entry) { return !machine_.lives(entry.pid); });
  for (const AttachedEntry& entry : runDir_.attached) expected_.push_back({entry, QGPU_SLOTS});
  at(host_.now() + options_.recovery, [this] {
    recovering_ = false;
    recoveryMoved();
  });
  host_.attach(self, *this);
}

AttachDouble::~AttachDouble() {
  port_.onRing({});
  while (!tasks_.empty()) erase(tasks_.begin()->first);
}

void AttachDouble::handle(schema::Envelope::Reader message, Turn& turn) {
  switch (message.which()) {
    case schema::Envelope::GATE_ORDER:
      return port_.order(message.getGateOrder(), turn.sender());
    case schema::Envelope::TASK_KNOWN: return known(message.getTaskKnown());
    case schema::Envelope::TASK_CLOSED: return closed(message.getTaskClosed());
    case schema::Envelope::INCARNATION_CHOSEN:
      return chosen(message.getIncarnationChosen().getValue());
    case schema::Envelope::REPORT_ASKED:
      for (auto& [id, task] : tasks_) {
        if (task->actor == turn.sender()) port_.tellUse(*task);
      }
      return;
    default: return;
  }
}

std::size_t AttachDouble::attached() const {
  std::size_t count = 0;
  for (const auto& [id, task] : tasks_) count += task->processes.size();
  return count;
}

const GuestTask* AttachDouble::find(std::uint64_t task) const {
  const auto found = tasks_.find(task);
  return found == tasks_.end() ? nullptr : found->second.get();
}

// --- what gate port and pages need ---

Nanos AttachDouble::stored(std::uint64_t task, const qgpu_gate_page& page) {
  constexpr std::uint32_t kFlags = (1u << QGPU_GATE_SEQ_SHIFT) - 1;
  watch_.onGate({task, page.epoch, page.gate & kFlags, page.closed != 0}, host_.now());
  return host_.now();
}

void AttachDouble::wake(std::uint64_t task, qgpu_gate_page&, int waiters) {
  machine_.wake(task, options_.life, waiters);
}

AttachDouble::TimerKey AttachDouble::at(Nanos when, std::function<void()> work) {
  return host_.at(Scope::Manager, when, std::move(work));
}

void AttachDouble::cancel(TimerKey key) { host_.cancel(Scope::Manager, key); }

AttachDouble::TimerKey AttachDouble::soon(std::function<void()> work) {
  return at(host_.now() + dice_.between(kHeardAfterMin, kHeardAfterMax), std::move(work));
}

// A descriptor that is readable already is an edge for who begins to watch it.
void AttachDouble::watchBell(GuestTask& task, std::function<void()> rang) {
  Bell& bell = bells_[task.id];
  bell.rang = std::move(rang);
  if (bell.rung) ringSoon(task.id, bell);
}

void AttachDouble::unwatchBell(GuestTask& task) {
  Bell& bell = bells_[task.id];
  bell.rang = {};
  cancel(std::exchange(bell.timer, 0));
}

bool AttachDouble::lives(const qgpu::GuestProcess& process) {
  return machine_.lives(process.entry.pid);
}

bool AttachDouble::stopThread(const qgpu::GuestProcess& process, std::uint32_t tid) {
  machine_.stopThread(process.entry.pid, tid);
  return true;
}

// --- channels ---

void AttachDouble::takeOff(const GuestTask& task) {
  driverOf(task).holds.hold(task.id, task.gate.epoch, host_.now());
  wakeDriver(driverOf(task));
}

void AttachDouble::takeOffAgain(const GuestTask& task) {
  driverOf(task).holds.again(task.id);
  wakeDriver(driverOf(task));
}

void AttachDouble::putBack(const GuestTask& task) {
  driverOf(task).holds.release(task.id, host_.now());
  wakeDriver(driverOf(task));
}

void AttachDouble::wakeDriver(DriverThread& driver) {
  soon([this, &driver] { drive(driver); });
}

// What its thread does, with calls that take effect at some moment of their time.
void AttachDouble::drive(DriverThread& driver) {
  for (const suspend::News& news : driver.holds.news(host_.now())) {
    if (news.what == suspend::News::What::kCardDoubted) {
      check(driver);
    } else {
      soon([this, news] { heard(news); });
    }
  }
  if (driver.calls) return;
  const auto order = driver.holds.next(host_.now());
  cancel(std::exchange(driver.retry, 0));
  if (!order) {
    const Nanos retry = driver.holds.retryAt();
    if (retry != kNever) driver.retry = at(retry, [this, &driver] { drive(driver); });
    return;
  }
  driver.calls = true;
  const Nanos takes = dice_.percent(97) ? dice_.magnitude(kCallMin, kCallMax)
                                        : dice_.magnitude(kCallMax, kCallLongest);
  at(host_.now() + dice_.between(Nanos(0), takes), [this, &driver, order = *order, takes] {
    const suspend::Outcome outcome = carryOut(order);
    at(host_.now() + dice_.between(Nanos(0), takes), [this, &driver, outcome] {
      driver.calls = false;
      driver.holds.answered(outcome, host_.now());
      drive(driver);
    });
  });
}

// A card in doubt is tested, beside all else.
void AttachDouble::check(DriverThread& driver) {
  const auto says = static_cast<suspend::Verdict::Says>(dice_.below(3));
  at(host_.now() + dice_.magnitude(kCheckMin, kCheckMax), [this, &driver, says] {
    driver.holds.checked({says, "it is simulated"}, host_.now());
    drive(driver);
  });
}

bool AttachDouble::happens(std::uint32_t permille) {
  return permille != 0 && dice_.below(1'000) < permille;
}

// A call that is not done may be half done, and ends at the first channel that is gone.
suspend::Outcome AttachDouble::carryOut(const suspend::Order& order) {
  using suspend::Answer;
  using suspend::Step;
  const bool off = order.step == Step::kDisable;
  const bool refused = off && happens(options_.refusals);
  const bool busy = !refused && happens(options_.busy);
  std::size_t left = order.channels.size();
  if (refused || busy) left = dice_.below(left + 1);
  suspend::Outcome outcome{refused ? Answer::kFailed : busy ? Answer::kLater : Answer::kDone, {},
                           "it is simulated"};
  for (const suspend::Channel& channel : order.channels) {
    const bool proves = order.step == Step::kProve;
    if (!(proves ? machine_.lives(channel.process) : machine_.hasChannel(channel))) {
      outcome.gone.push_back(channel);
    }
    if (proves || left == 0 || !outcome.gone.empty()) continue;
    left--;
    machine_.setChannel(channel, off);
    if (!off || !happens(options_.undoes)) continue;
    at(host_.now() + dice_.magnitude(kUndoneAfterMin, kUndoneAfterMax),
       [this, channel] { machine_.undo(channel); });
  }
  if (!outcome.gone.empty()) outcome.answer = Answer::kGone;
  return outcome;
}

void AttachDouble::heard(const suspend::News& news) {
  const auto found = tasks_.find(news.task);
  if (found == tasks_.end()) return;
  if (news.what == suspend::News::What::kStopped) {
    return port_.stopped(*found->second, news.hold, news.at);
  }
  // A driver that refuses nothing has nobody in doubt.
  QGPU_CHECK(options_.refusals != 0, news.why.c_str());
  port_.doubted(*found->second, news.why);
}

// In the order in which it said them.
void AttachDouble::note(std::uint32_t pid, Nanos most,
                        std::function<void(GuestTask&, suspend::Holds&)> work) {
  if (options_.suspend != QGPU_SUSPEND_RM) return;
  Nanos& when = heardAt_[pid];
  when = std::max(when, host_.now() + dice_.magnitude(kHeardAfterMin, most));
  at(when, [this, pid, work = std::move(work)] {
    for (auto& [id, task] : tasks_) {
      if (task->heldBy != QGPU_SUSPEND_RM || processOf(*task, pid) == nullptr) continue;
      work(*task, driverOf(*task).holds);
      wakeDriver(driverOf(*task));
    }
  });
}

// Who comes back, with work in flight it may be, is heard of it a little later.
void AttachDouble::channelsThere(std::uint32_t pid, bool again) {
  note(pid, again ? kTellsAfterMax : kHeardAfterMax,
       [this, pid, again, all = machine_.channelsOf(pid)](GuestTask& task, suspend::Holds& holds) {
         processOf(task, pid)->channels = true;
         for (const suspend::Channel& channel : all) holds.made(task.id, channel, again);
       });
}

void AttachDouble::channelsOn(std::uint32_t pid) {
  note(pid, kHeardAfterMax, [pid](GuestTask& task, suspend::Holds& holds) {
    holds.enabled(task.id, clientOf(pid), clientOf(pid));
  });
}

void AttachDouble::channelMade(const suspend::Channel& channel) {
  note(channel.process, kHeardAfterMax, [channel](GuestTask& task, suspend::Holds& holds) {
    holds.made(task.id, channel, false);
  });
}

void AttachDouble::channelEnded(std::uint32_t pid, std::uint32_t name) {
  note(pid, kHeardAfterMax, [pid, name](GuestTask& task, suspend::Holds& holds) {
    holds.ended(task.id, clientOf(pid), name);
  });
}

void AttachDouble::ring(std::uint64_t task) {
  const auto bell = bells_.find(task);
  if (bell == bells_.end()) return;
  bell->second.rung = true;
  if (bell->second.rang) ringSoon(task, bell->second);
}

// Rings that come before the loop has looked are one edge.
void AttachDouble::ringSoon(std::uint64_t task, Bell& bell) {
  if (bell.timer == 0) bell.timer = soon([this, task] { onRing(task); });
}

void AttachDouble::onRing(std::uint64_t task) {
  Bell& bell = bells_.at(task);
  bell.timer = 0;
  const std::function<void()> rang = bell.rang;   // it may end this very watch
  rang();
}

// --- the node's words ---

void AttachDouble::known(schema::TaskKnown::Reader known) {
  const std::uint64_t id = known.getTask();
  if (const auto found = tasks_.find(id); found != tasks_.end()) {
    found->second->announced = false;   // said again, answered again
    return announceIfReady(*found->second);
  }
  const Status made = makePages(known);
  if (!made) {
    return outlet_.sendUrgent(options_.node, [&](schema::Envelope::Builder message) {
      auto opened = message.initGateOpened();
      opened.setTask(id);
      opened.setFailed(made.error().message);
    });
  }
  GuestTask& task = *tasks_.at(id);
  for (auto& [serial, hello] : hellos_) {
    if (hello.waits && hello.task == 0 && hello.said.token == task.token) hello.task = id;
  }
  if (known.hasStored()) runDir_.record(known.getStored());
  findReport(task);
  port_.added(task);
  if (const std::uint32_t owner = known.getOwnerPid(); owner != 0) {
    owners_[id] = owner;
    if (!machine_.lives(owner)) tellOwnerGone(id);
  }
  recoveryMoved();
}

Status AttachDouble::makePages(schema::TaskKnown::Reader known) {
  const auto cards = known.getCards();
  if (known.getToken().size() != QGPU_TOKEN_LEN || cards.size() == 0) {
    return fail(ErrorCode::InvalidArgument, "a task needs a token and a card");
  }
  for (const std::uint32_t card : cards) {
    if (card >= options_.cards.size()) return fail(ErrorCode::NotFound, "no such card");
  }
  TaskPagesSpec spec;
  spec.task = known.getTask();
  spec.taskClass = classOf(known.getClass());
  const bool divided = options_.suspend != QGPU_SUSPEND_RM || cards.size() == 1;
  spec.suspend = divided ? options_.suspend : QGPU_SUSPEND_GATE;
  spec.incarnation = incarnation_;
  spec.quota = Bytes(static_cast<std::int64_t>(known.getQuotaBytes()));
  const bool windowed = spec.suspend == QGPU_SUSPEND_GATE && cards.size() == 1;
  spec.window = windowed ? options_.window : Nanos(0);
  spec.orphanGrace = options_.orphanGrace;
  Result<TaskPages> pages = TaskPages::create(spec, *this);
  if (!pages) return pages.error();
  auto task = std::make_unique<GuestTask>(std::move(*pages));
  task->id = spec.task;
  task->token.assign(known.getToken().begin(), known.getToken().size());
  task->taskClass = spec.taskClass;
  if (spec.taskClass != QGPU_ONLINE) task->heldBy = spec.suspend;
  task->window = options_.window;
  task->actor = static_cast<ActorId>(known.getActor());
  for (const std::uint32_t card : cards) {
    task->cards.push_back(card);
    task->cardActors.push_back(options_.cards[card]);
  }
  tasks_.emplace(spec.task, std::move(task));
  return ok();
}

// A task without pages here: it never had any, or an earlier manager had ended it and its processes
// may live on, listed.
void AttachDouble::closed(schema::TaskClosed::Reader closed) {
  const std::uint64_t id = closed.getTask();
  if (const auto found = tasks_.find(id); found != tasks_.end()) port_.close(*found->second);
  if (closed.getKill() && deserted(id)) return end(id);
  runDir_.recordEvicting(id);
  if (closed.getKill()) kill(id);
}

bool AttachDouble::deserted(std::uint64_t id) const {
  const auto found = tasks_.find(id);
  return (found == tasks_.end() || found->second->processes.empty()) && !expects(id);
}

void AttachDouble::chosen(std::uint32_t incarnation) {
  if (incarnation <= incarnation_) return;
  incarnation_ = incarnation;
  for (auto& [id, task] : tasks_) task->pages.setIncarnation(incarnation_);
  recoveryMoved();
}

// Online tasks never wait (A2). The others wait until who may be using their card is known.
void AttachDouble::announceIfReady(GuestTask& task) {
  if (task.announced) return;
  const bool waits = std::any_of(task.cards.begin(), task.cards.end(),
                                 [this](std::uint32_t card) { return awaited(card); });
  if (task.taskClass != QGPU_ONLINE && waits) return;
  task.announced = true;
  outlet_.sendUrgent(options_.node, [&](schema::Envelope::Builder message) {
    message.initGateOpened().setTask(task.id);
  });
}

void AttachDouble::tellOwnerGone(std::uint64_t task) {
  owners_.erase(task);
  outlet_.sendUrgent(options_.node, [&](schema::Envelope::Builder message) {
    message.initOwnerGone().setTask(task);
  });
}

void AttachDouble::signalAll(std::uint64_t id, bool hard) {
  if (const auto found = tasks_.find(id); found != tasks_.end()) {
    for (auto& [slot, process] : found->second->processes) {
      machine_.kill(process->entry.pid, hard);
    }
  }
  for (const Expected& expected : expected_) {
    if (expected.entry.task == id) machine_.kill(expected.entry.pid, hard);
  }
}

void AttachDouble::kill(std::uint64_t id) {
  if (killing_.contains(id)) return;
  signalAll(id, false);
  killing_[id] = at(host_.now() + options_.killGrace, [this, id] {
    killing_.at(id) = 0;
    signalAll(id, true);
  });
}

void AttachDouble::eraseIfKilled(std::uint64_t id) {
  if (killing_.contains(id) && deserted(id)) end(id);
}

void AttachDouble::end(std::uint64_t id) {
  runDir_.records.erase(id);
  if (const auto killed = killing_.find(id); killed != killing_.end()) {
    cancel(killed->second);
    killing_.erase(killed);
  }
  if (tasks_.contains(id)) erase(id);
}

// What is in memory of it: a manager that stops leaves the rest to the next one.
void AttachDouble::erase(std::uint64_t id) {
  GuestTask& task = *tasks_.at(id);
  port_.removed(task);
  if (task.heldBy == QGPU_SUSPEND_RM) {
    driverOf(task).holds.removed(id, host_.now());
    wakeDriver(driverOf(task));
  }
  cancel(bells_[id].timer);
  bells_.erase(id);
  owners_.erase(id);
  tasks_.erase(id);
}

// --- deaths ---

void AttachDouble::died(std::uint32_t pid) {
  soon([this, pid] {
    const auto owned = owners_;
    for (const auto& [task, owner] : owned) {
      if (owner == pid) tellOwnerGone(task);
    }
    for (const Expected& expected : expected_) {
      if (expected.entry.pid != pid) continue;
      const std::uint64_t task = expected.entry.task;
      if (const auto found = tasks_.find(task);
          found != tasks_.end() && expected.slot != QGPU_SLOTS) {
        found->second->pages.freeSlot(expected.slot);
      }
      runDir_.remove(expected.entry);
      std::erase_if(expected_, [pid](const Expected& e) { return e.entry.pid == pid; });
      eraseIfKilled(task);
      return recoveryMoved();
    }
    for (auto& [id, task] : tasks_) {
      const qgpu::GuestProcess* process = processOf(*task, pid);
      if (process == nullptr) continue;
      forgetProcess(*task, process->slot);
      port_.processGone(*task);
      eraseIfKilled(id);
      if (recovering_) recoveryMoved();
      return;
    }
  });
}

void AttachDouble::forgetProcess(GuestTask& task, std::uint32_t slot) {
  const AttachedEntry entry = task.processes.at(slot)->entry;
  runDir_.remove(entry);
  if (task.heldBy == QGPU_SUSPEND_RM) {
    driverOf(task).holds.gone(task.id, entry.pid);
    wakeDriver(driverOf(task));
  }
  task.pages.freeSlot(slot);
  task.processes.erase(slot);
  outlet_.sendUrgent(task.actor, [&](schema::Envelope::Builder message) {
    auto gone = message.initProcessGone();
    gone.setTask(task.id);
    gone.setPid(entry.pid);
    gone.setSlot(slot);
    gone.setLast(task.processes.empty());
  });
}

}  // namespace qgpu::sim
