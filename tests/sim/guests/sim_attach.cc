#include "tests/sim/guests/sim_attach.h"

#include <algorithm>
#include <utility>

namespace qgpu::sim {
namespace {

std::vector<Card> cardsOf(const SimAttachOptions& options) {
  std::vector<Card> cards(options.cards.size());
  for (Card& card : cards) card.suspend = options.suspend;
  return cards;
}

}  // namespace

SimAttach::SimAttach(Host& host, Watch& watch, ActorId self, RunDir& runDir,
                     qgpu::sim::Machine& machine, SimAttachOptions options, Dice dice)
    : host_(host),
      watch_(watch),
      runDir_(runDir),
      machine_(machine),
      options_(std::move(options)),
      cards_(cardsOf(options_)),
      dice_(dice),
      outlet_(host, self),
      messages_(outlet_, options_.node),
      drivers_(options_.cards.size()),
      port_(*this, outlet_, tasks_, options_.gate),
      roster_(*this, options_.incarnation) {
  port_.onRing([this] { roster_.reported(); });
  std::erase_if(runDir_.attached,
                [this](const AttachedEntry& entry) { return !machine_.lives(entry.pid); });
  listed_ = runDir_.attached;
  for (const AttachedEntry& entry : listed_) roster_.expect(entry);
  host_.attach(self, *this);
}

SimAttach::~SimAttach() {
  port_.onRing({});
  while (!tasks_.empty()) erase(tasks_.begin()->first);
}

void SimAttach::handle(schema::Envelope::Reader message, Turn& turn) {
  switch (message.which()) {
    case schema::Envelope::GATE_ORDER:
      return port_.order(message.getGateOrder(), turn.sender());
    case schema::Envelope::TASK_KNOWN:
      return known(message.getTaskKnown());
    case schema::Envelope::TASK_CLOSED:
      return closed(message.getTaskClosed());
    case schema::Envelope::INCARNATION_CHOSEN:
      if (!std::exchange(nodeStarted_, true)) {
        at(host_.now() + options_.recovery, [this] { endRecovery(); });
      }
      return roster_.incarnationChosen(message.getIncarnationChosen().getValue());
    case schema::Envelope::REPORT_ASKED:
      for (auto& [id, task] : tasks_) {
        if (task->actor == turn.sender()) port_.tellUse(*task);
      }
      return;
    default:
      return;
  }
}

// --- what gate port and pages need ---

Nanos SimAttach::stored(std::uint64_t task, const qgpu_gate_page& page) {
  constexpr std::uint32_t kFlags = (1u << QGPU_GATE_SEQ_SHIFT) - 1;
  watch_.onGate({task, page.epoch, page.gate & kFlags, page.closed != 0}, host_.now());
  return host_.now();
}

void SimAttach::wake(std::uint64_t task, qgpu_gate_page&, int waiters) {
  machine_.wake(task, options_.life, waiters);
}

SimAttach::TimerKey SimAttach::at(Nanos when, std::function<void()> work) {
  return host_.at(Scope::Manager, when, std::move(work));
}

void SimAttach::cancel(TimerKey key) {
  host_.cancel(Scope::Manager, key);
}

SimAttach::TimerKey SimAttach::soon(std::function<void()> work) {
  return at(host_.now() + dice_.between(kHeardAfterMin, kHeardAfterMax), std::move(work));
}

// A descriptor that is readable already is an edge for who begins to watch it.
void SimAttach::watchBell(GuestTask& task, std::function<void()> rang) {
  Bell& bell = bells_[task.id];
  bell.rang = std::move(rang);
  if (bell.rung) ringSoon(task.id, bell);
}

void SimAttach::unwatchBell(GuestTask& task) {
  Bell& bell = bells_[task.id];
  bell.rang = {};
  cancel(std::exchange(bell.timer, 0));
}

bool SimAttach::lives(const qgpu::GuestProcess& process) {
  return machine_.lives(process.entry.pid);
}

bool SimAttach::stopThread(const qgpu::GuestProcess& process, std::uint32_t tid) {
  machine_.stopThread(process.entry.pid, tid);
  return true;
}

// --- doorbells ---

void SimAttach::ring(std::uint64_t task) {
  const auto bell = bells_.find(task);
  if (bell == bells_.end()) return;
  bell->second.rung = true;
  if (bell->second.rang) ringSoon(task, bell->second);
}

// Rings that come before the loop has looked are one edge.
void SimAttach::ringSoon(std::uint64_t task, Bell& bell) {
  if (bell.timer == 0) bell.timer = soon([this, task] { onRing(task); });
}

void SimAttach::onRing(std::uint64_t task) {
  Bell& bell = bells_.at(task);
  bell.timer = 0;
  const std::function<void()> rang = bell.rang;  // it may end this very watch
  rang();
}

// --- the node's words ---

void SimAttach::known(schema::TaskKnown::Reader known) {
  const std::uint64_t id = known.getTask();
  if (roster_.knows(id)) return roster_.knownAgain(id);
  auto made = makeGuestTask(known, roster_.incarnation(), cards_, options_.cards, options_, *this);
  if (!made) return messages_.gateFailed(id, made.error().message);
  GuestTask& task = *tasks_.emplace(id, std::move(*made)).first->second;
  if (known.hasStored()) runDir_.record(known.getStored());
  port_.added(task);
  book_.add(id, task.token);
  if (const std::uint32_t owner = known.getOwnerPid(); owner != 0) {
    owners_[id] = owner;
    if (!machine_.lives(owner)) tellOwnerGone(id);
  }
  roster_.known({id, task.taskClass == QGPU_ONLINE, task.cards}, task.pages);
  for (const std::uint64_t serial : atTheListener()) {
    if (hellos_.at(serial).said.token == task.token) goIn(serial, id);
  }
}

void SimAttach::closed(schema::TaskClosed::Reader closed) {
  const std::uint64_t id = closed.getTask();
  if (const auto found = tasks_.find(id); found != tasks_.end()) port_.close(*found->second);
  roster_.closed(id, closed.getKill());
}

void SimAttach::tellOwnerGone(std::uint64_t task) {
  owners_.erase(task);
  messages_.ownerGone(task);
}

void SimAttach::endRecovery() {
  book_.complete();
  roster_.recoveryOver();
  for (const std::uint64_t serial : atTheListener()) refuse(serial, "no task has this token");
}

// --- who says hello ---

void SimAttach::hello(SimHello said) {
  const std::uint64_t serial = said.serial;
  Hello& hello = hellos_[serial];
  hello.said = std::move(said);
  hello.timer = at(host_.now() + options_.helloWithin, [this, serial] {
    roster_.giveUp(serial);
    drop(serial);
  });
  soon([this, serial] { enter(serial); });
}

void SimAttach::enter(std::uint64_t serial) {
  const auto hello = hellos_.find(serial);
  if (hello == hellos_.end()) return;
  const TokenBook::Found found = book_.find(hello->second.said.token.data());
  if (found.task != 0) return goIn(serial, found.task);
  if (!found.mayCome) return refuse(serial, "no task has this token");
  hello->second.waits = true;
}

void SimAttach::goIn(std::uint64_t serial, std::uint64_t task) {
  Hello& hello = hellos_.at(serial);
  hello.task = task;
  hello.waits = false;
  const SimHello& said = hello.said;
  roster_.hello(serial, {task, said.pid, said.reattach, said.slot, said.incarnationSeen});
}

std::vector<std::uint64_t> SimAttach::atTheListener() const {
  std::vector<std::uint64_t> serials;
  for (const auto& [serial, hello] : hellos_) {
    if (hello.waits) serials.push_back(serial);
  }
  return serials;
}

Result<RosterPlatform::Peer> SimAttach::identify(std::uint64_t serial) {
  const SimHello& said = hellos_.at(serial).said;
  if (!machine_.lives(said.pid)) return fail(ErrorCode::Denied, "the process is dead");
  return Peer{said.pid, said.start};
}

Status SimAttach::adoptPage(std::uint64_t serial) {
  Hello& hello = hellos_.at(serial);
  return tasks_.at(hello.task)->pages.adoptReport(std::move(hello.said.page));
}

bool SimAttach::welcome(std::uint64_t serial, std::uint32_t slot) {
  const Hello& hello = hellos_.at(serial);
  const GuestTask& task = *tasks_.at(hello.task);
  SimWelcome welcome;
  welcome.serial = serial;
  welcome.pid = hello.said.pid;
  welcome.task = task.id;
  welcome.slot = slot;
  welcome.incarnation = roster_.incarnation();
  welcome.life = options_.life;
  welcome.card = task.cards.front();
  welcome.pages = &task.pages;
  return machine_.answer(welcome);
}

void SimAttach::attached(std::uint64_t serial, const AttachedEntry& who, std::uint32_t slot,
                         bool isNew) {
  GuestTask& task = *tasks_.at(who.task);
  std::unique_ptr<qgpu::GuestProcess>& process = task.processes[slot];
  if (isNew) {
    process = std::make_unique<qgpu::GuestProcess>();
    process->entry = who;
    process->slot = slot;
    runDir_.remove(who);
    runDir_.add(who);
  }
  process->freezeSignal = hellos_.at(serial).said.freezeSignal;
  process->threads = ThreadIds(who.pid, who.pid);
  process->channels = false;
  drop(serial);
  if (isNew) messages_.processAttached(task, who.pid, slot);
  port_.processAttached(task);
}

void SimAttach::refuse(std::uint64_t serial, const std::string&) {
  SimWelcome welcome;
  welcome.serial = serial;
  welcome.pid = hellos_.at(serial).said.pid;
  welcome.refused = true;
  machine_.answer(welcome);
  drop(serial);
}

void SimAttach::drop(std::uint64_t serial) {
  const auto found = hellos_.find(serial);
  if (found == hellos_.end()) return;
  cancel(found->second.timer);
  hellos_.erase(found);
}

RosterPlatform::FoundPage SimAttach::findPage(std::uint64_t task,
                                              const std::vector<AttachedEntry>& among) {
  FoundPage found;
  for (const AttachedEntry& process : among) {
    Fd page = machine_.reportOf(process.pid);
    found.adopted = page && tasks_.at(task)->pages.adoptReport(std::move(page));
    if (found.adopted) break;
  }
  return found;
}

// --- deaths, and the end of a task ---

void SimAttach::died(std::uint32_t pid) {
  soon([this, pid] { onDeath(pid); });
}

void SimAttach::onDeath(std::uint32_t pid) {
  const auto owned = owners_;
  for (const auto& [task, owner] : owned) {
    if (owner == pid) tellOwnerGone(task);
  }
  for (const AttachedEntry& listed : listed_) {
    if (listed.pid != pid) continue;
    const AttachedEntry process = listed;
    runDir_.remove(process);
    std::erase(listed_, process);
    return roster_.expectedDied(process);
  }
  for (auto& [id, task] : tasks_) {
    const qgpu::GuestProcess* process = processOf(*task, pid);
    if (process != nullptr) return roster_.died(id, process->slot);
  }
}

qgpu::GuestProcess* SimAttach::processOf(GuestTask& task, std::uint32_t pid) const {
  for (auto& [slot, process] : task.processes) {
    if (process->entry.pid == pid) return process.get();
  }
  return nullptr;
}

void SimAttach::gone(std::uint64_t id, std::uint32_t slot, Leaves how, bool last) {
  GuestTask& task = *tasks_.at(id);
  const AttachedEntry entry = task.processes.at(slot)->entry;
  runDir_.remove(entry);
  if (task.heldBy == QGPU_SUSPEND_RM) {
    driverOf(task).holds.gone(id, entry.pid);
    wakeDriver(driverOf(task));
  }
  task.processes.erase(slot);
  messages_.processGone(task, entry.pid, slot, last);
  if (how == Leaves::Died) port_.processGone(task);
}

void SimAttach::kill(std::uint64_t id, Kill how) {
  const bool hard = how == Kill::Force;
  if (const auto found = tasks_.find(id); found != tasks_.end()) {
    for (auto& [slot, process] : found->second->processes) {
      machine_.kill(process->entry.pid, hard);
    }
  }
  for (const AttachedEntry& process : listed_) {
    if (process.task == id) machine_.kill(process.pid, hard);
  }
  if (hard) return;
  killing_[id] = at(host_.now() + options_.killGrace, [this, id] {
    killing_.erase(id);
    roster_.killDue(id);
  });
}

void SimAttach::ended(std::uint64_t id) {
  runDir_.records.erase(id);
  if (const auto killed = killing_.find(id); killed != killing_.end()) {
    cancel(killed->second);
    killing_.erase(killed);
  }
  if (tasks_.contains(id)) erase(id);
}

// What is in memory of it: a manager that stops leaves the rest to the next one.
void SimAttach::erase(std::uint64_t id) {
  GuestTask& task = *tasks_.at(id);
  book_.remove(id);
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

}  // namespace qgpu::sim
