#include "services/attach/attach_server.h"

#include <cstring>
#include <mutex>
#include <signal.h>

#include "services/attach/connection.h"
#include "services/attach/timeslices.h"

namespace qgpu {
namespace {

qgpu_class classOf(schema::TaskClass taskClass) {
  switch (taskClass) {
    case schema::TaskClass::ONLINE: return QGPU_ONLINE;
    case schema::TaskClass::OFFLINE: return QGPU_OFFLINE;
    default: return QGPU_ORDINARY;
  }
}

qgpu_suspend suspendOf(schema::Suspend suspend) {
  switch (suspend) {
    case schema::Suspend::FREEZE: return QGPU_SUSPEND_FREEZE;
    case schema::Suspend::RM: return QGPU_SUSPEND_RM;
    default: return QGPU_SUSPEND_GATE;
  }
}

}  // namespace

AttachServer::AttachServer(Loop& loop, Outlet& outlet, TaskTable& tasks, GatePort& port,
                           Suspenders& suspenders, ActorId node, const std::vector<Card>& cards,
                           std::vector<ActorId> cardActors, AttachServerOptions options,
                           TokenBook& book, Booked booked)
    : loop_(loop),
      outlet_(outlet),
      tasks_(tasks),
      port_(port),
      suspenders_(suspenders),
      node_(node),
      cards_(cards),
      cardActors_(std::move(cardActors)),
      options_(std::move(options)),
      book_(book),
      booked_(std::move(booked)),
      incarnation_(options_.incarnation) {
  QGPU_CHECK(cards_.size() == cardActors_.size(), "every card has an actor");
  // A process that has come back rings when it reads its new page.
  port_.onRing([this] {
    if (recovering_) recoveryMoved();
  });
}

AttachServer::~AttachServer() {
  while (!hellos_.empty()) dropHello(hellos_.begin()->first);
  for (Arrival& arrival : arrivals_) letGo(std::move(arrival.connection));
  loop_.cancel(recoveryTimer_);
  port_.onRing({});
  for (const auto& [task, timer] : killing_) loop_.cancel(timer);
  while (!tasks_.empty()) erase(tasks_.begin()->first);
}

// --- arrivals ---

Status AttachServer::begin() {
  Status opened = list_.open(options_.runDir);
  if (opened) opened = records_.open(options_.runDir);
  if (opened) opened = readAttachedList();
  if (!opened) return opened;
  recoveryTimer_ = loop_.after(options_.recovery, [this] { endRecovery(); });
  return ok();
}

void AttachServer::arrive(Arrival arrival) {
  {
    const std::lock_guard lock(arrivalsMutex_);
    // Over that, tenants that come faster than they are looked at come again.
    if (arrivals_.size() < kWaitingMax) arrivals_.push_back(std::move(arrival));
  }
  if (arrival.connection) return letGo(std::move(arrival.connection));
  loop_.post([this, here = std::weak_ptr(here_)] {
    if (!here.expired()) takeArrivals();
  });
}

void AttachServer::takeArrivals() {
  for (std::size_t i = 0; i < kArrivalsPerTurn; i++) {
    Arrival next;
    {
      const std::lock_guard lock(arrivalsMutex_);
      if (arrivals_.empty()) return;
      next = std::move(arrivals_.front());
      arrivals_.pop_front();
    }
    startHello(std::move(next));
  }
  loop_.post([this, here = std::weak_ptr(here_)] {
    if (!here.expired()) takeArrivals();
  });
}

void AttachServer::startHello(Arrival arrival) {
  const std::uint64_t id = ++lastId_;
  Hello& hello = hellos_[id];
  static_cast<Arrival&>(hello) = std::move(arrival);
  hello.id = id;
  hello.timer = loop_.after(options_.helloWithin, [this, id] { dropHello(id); });
  decide(id);
}

void AttachServer::dropHello(std::uint64_t id) {
  const auto found = hellos_.find(id);
  if (found == hellos_.end()) return;
  loop_.cancel(found->second.timer);
  letGo(std::move(found->second.connection));
  hellos_.erase(found);
}

// --- attached processes ---

// Whoever says what it can't mean, or ends, loses its connection, and the process stays attached as
// long as it lives (HAZARDS 7).
void AttachServer::onTalk(std::uint64_t id, std::uint32_t slot) {
  GuestTask& task = *tasks_.at(id);
  GuestProcess& process = *task.processes.at(slot);
  if (readNotes(task, process)) return;
  process.channels = false;
  process.talk.reset();
  letGo(std::move(process.connection));
}

// False: the connection is over, or what came is no note that its card needs.
bool AttachServer::readNotes(GuestTask& task, GuestProcess& process) {
  const Nanos now = loop_.now();
  for (int i = 0; i < kNotesPerTurn; i++) {
    char bytes[sizeof(qgpu_note) + 1];
    const NextRecord next = peekRecord(process.connection, bytes, sizeof bytes);
    if (next.what == NextRecord::What::None) return true;
    qgpu_note note;
    if (next.bytes != sizeof note || next.descriptors || !process.notes.takes(now, kNotesMax) ||
        !task.notes.takes(now, kTaskNotesMax)) {
      return false;
    }
    passRecord(process.connection);
    std::memcpy(&note, bytes, sizeof note);
    if (!suspenders_.noted(task, process, note)) return false;
    process.channels = process.channels || note.what == QGPU_NOTE_MADE ||
                       note.what == QGPU_NOTE_THERE;
  }
  return true;
}

void AttachServer::forgetProcess(GuestTask& task, std::uint32_t slot) {
  list_.remove(task.processes.at(slot)->entry);
  suspenders_.gone(task, *task.processes.at(slot));
  task.pages.freeSlot(slot);
  const std::uint32_t pid = task.processes.at(slot)->entry.pid;
  task.processes.at(slot)->talk.reset();
  letGo(std::move(task.processes.at(slot)->connection));
  task.processes.erase(slot);
  outlet_.sendUrgent(task.actor, [&](schema::Envelope::Builder message) {
    auto gone = message.initProcessGone();
    gone.setTask(task.id);
    gone.setPid(pid);
    gone.setSlot(slot);
    gone.setLast(task.processes.empty());
  });
}

void AttachServer::onDeath(std::uint64_t id, std::uint32_t slot) {
  GuestTask& task = *tasks_.at(id);
  forgetProcess(task, slot);
  port_.processGone(task);
  eraseIfKilled(id);
  if (recovering_) recoveryMoved();
}

// --- the node's words ---

void AttachServer::known(schema::TaskKnown::Reader known) {
  const std::uint64_t id = known.getTask();
  const auto tellFailure = [&](const std::string& why) {
    outlet_.sendUrgent(node_, [&](schema::Envelope::Builder message) {
      auto opened = message.initGateOpened();
      opened.setTask(id);
      opened.setFailed(why);
    });
  };
  if (const auto found = tasks_.find(id); found != tasks_.end()) {
    found->second->announced = false;   // said again, answered again
    return announceIfReady(*found->second, awaitedCards());
  }
  if (known.getToken().size() != QGPU_TOKEN_LEN) return tellFailure("its token has a wrong length");
  if (tasks_.size() >= kTasksMax) return tellFailure("too many tasks on this node");
  std::vector<std::uint32_t> cards;
  for (const std::uint32_t card : known.getCards()) {
    if (card >= cards_.size()) return tellFailure("no card " + std::to_string(card));
    cards.push_back(card);
  }
  if (cards.empty()) return tellFailure("it has no card");
  Result<Fd> owner = Fd();
  if (known.getOwnerPid() != 0) owner = openProcess(known.getOwnerPid(), known.getOwnerStart());
  if (!owner) return tellFailure(owner.error().message);
  // A task with several cards is not divided: its channels are on all of them.
  schema::Suspend suspend = cards_[cards.front()].suspend;
  if (suspend == schema::Suspend::RM && cards.size() > 1) suspend = schema::Suspend::GATE;
  TaskPagesSpec spec;
  spec.task = id;
  spec.taskClass = classOf(known.getClass());
  spec.suspend = suspendOf(suspend);
  spec.incarnation = incarnation_;
  spec.quota = Bytes(static_cast<std::int64_t>(known.getQuotaBytes()));
  spec.window = suspend == schema::Suspend::GATE && cards.size() == 1 ? options_.window : Nanos(0);
  spec.orphanGrace = options_.orphanGrace;
  const bool slices = options_.timeslices && cards_[cards.front()].backend == "nvidia";
  if (slices && cards.size() == 1) spec.timesliceUs = timesliceUsOf(spec.taskClass);
  Result<TaskPages> pages = TaskPages::create(spec, port_.surroundings());
  if (!pages) return tellFailure(pages.error().message);

  auto task = std::make_unique<GuestTask>(std::move(*pages));
  task->id = id;
  task->token.assign(known.getToken().begin(), known.getToken().size());
  task->taskClass = spec.taskClass;
  if (spec.taskClass != QGPU_ONLINE) task->heldBy = spec.suspend;
  task->window = options_.window;
  task->actor = static_cast<ActorId>(known.getActor());
  for (const std::uint32_t card : cards) task->cardActors.push_back(cardActors_[card]);
  task->cards = std::move(cards);
  GuestTask& kept = *tasks_.emplace(id, std::move(task)).first->second;
  if (known.hasStored()) records_.write(known.getStored());
  findReport(kept);
  port_.added(kept);
  book_.add(id, kept.token);
  booked_(kept.token);
  if (known.getOwnerPid() != 0) watchOwner(kept, std::move(*owner));
  recoveryMoved();
}

// A task without pages here: it never had any, or an earlier manager had ended it and its processes
// may live on, listed.
void AttachServer::closed(schema::TaskClosed::Reader closed) {
  const std::uint64_t id = closed.getTask();
  if (const auto found = tasks_.find(id); found != tasks_.end()) port_.close(*found->second);
  if (closed.getKill() && deserted(id)) return end(id);
  records_.markEvicting(id);
  if (closed.getKill()) kill(id);
}

// Nobody lives of it, those included that have not come back yet.
bool AttachServer::deserted(std::uint64_t id) const {
  const auto found = tasks_.find(id);
  return (found == tasks_.end() || found->second->processes.empty()) && !expects(id);
}

void AttachServer::signalAll(std::uint64_t id, int signal) {
  if (const auto found = tasks_.find(id); found != tasks_.end()) {
    for (auto& [slot, process] : found->second->processes) signalProcess(process->pidfd, signal);
  }
  for (auto& [key, expected] : expected_) {
    if (expected.entry.task == id) signalProcess(expected.pidfd, signal);
  }
}

void AttachServer::kill(std::uint64_t id) {
  if (killing_.contains(id)) return;
  signalAll(id, SIGTERM);
  killing_[id] = loop_.after(options_.killGrace, [this, id] {
    killing_.at(id) = 0;
    signalAll(id, SIGKILL);
  });
}

void AttachServer::eraseIfKilled(std::uint64_t id) {
  if (killing_.contains(id) && deserted(id)) end(id);
}

void AttachServer::end(std::uint64_t id) {
  records_.remove(id);
  if (const auto killed = killing_.find(id); killed != killing_.end()) {
    loop_.cancel(killed->second);
    killing_.erase(killed);
  }
  if (tasks_.contains(id)) erase(id);
}

// What is in memory of it: a manager that stops leaves the rest to the next one.
void AttachServer::erase(std::uint64_t id) {
  book_.remove(id);
  port_.removed(*tasks_.at(id));
  suspenders_.removed(*tasks_.at(id));
  for (auto& [slot, process] : tasks_.at(id)->processes) {
    process->talk.reset();
    letGo(std::move(process->connection));
  }
  tasks_.erase(id);
}

void AttachServer::watchOwner(GuestTask& task, Fd owner) {
  task.owner = std::move(owner);
  if (!task.owner) return ownerGone(task);
  task.ownerWatch = loop_.fds().watchLevel(task.owner.get(), EPOLLIN, [this, &task](std::uint32_t) {
    task.ownerWatch.reset();
    ownerGone(task);
  });
}

void AttachServer::ownerGone(GuestTask& task) {
  task.owner.reset();
  outlet_.sendUrgent(node_, [&](schema::Envelope::Builder message) {
    auto gone = message.initOwnerGone();
    gone.setTask(task.id);
    gone.setReason("the process that the task was bound for is dead");
  });
}

}  // namespace qgpu
