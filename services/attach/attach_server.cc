#include "services/attach/attach_server.h"

#include <cstring>
#include <mutex>
#include <signal.h>

#include "services/attach/pages/page_search.h"
#include "services/attach/sockets/connection.h"

namespace qgpu {
AttachServer::AttachServer(Loop& loop, Outlet& outlet, TaskTable& tasks, GatePort& port,
                           Suspenders& suspenders, ActorId node, const std::vector<Card>& cards,
                           std::vector<ActorId> cardActors, AttachServerOptions options,
                           TokenBook& book, Booked booked)
    : loop_(loop),
      tasks_(tasks),
      port_(port),
      suspenders_(suspenders),
      cards_(cards),
      cardActors_(std::move(cardActors)),
      options_(std::move(options)),
      book_(book),
      booked_(std::move(booked)),
      messages_(outlet, node),
      roster_(*this, options_.incarnation) {
  QGPU_CHECK(cards_.size() == cardActors_.size(), "every card has an actor");
  port_.onRing([this] { roster_.reported(); });
}

AttachServer::~AttachServer() {
  while (!hellos_.empty()) drop(hellos_.begin()->first);
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
  return opened;
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
  const std::uint64_t id = ++lastHello_;
  Hello& hello = hellos_[id];
  static_cast<Arrival&>(hello) = std::move(arrival);
  hello.timer = loop_.after(options_.helloWithin, [this, id] {
    roster_.giveUp(id);
    drop(id);
  });
  Roster::Said said;
  said.task = hello.task;
  said.pid = hello.said.pid;
  said.again = hello.said.reattach != 0;
  said.slot = hello.said.slot;
  said.incarnationSeen = hello.said.incarnation_seen;
  roster_.hello(id, said);
}

// --- who was attached under an earlier manager ---

Status AttachServer::readAttachedList() {
  for (const AttachedEntry& entry : list_.read()) {
    Result<Fd> opened = openProcess(entry.pid, entry.start);
    if (!opened) return opened.error();
    if (!*opened) {
      list_.remove(entry);
      continue;
    }
    Listed& listed = listed_[entry];
    listed.pidfd = std::move(*opened);
    listed.death = loop_.fds().watchLevel(
        listed.pidfd.get(), EPOLLIN,
        [this, entry](std::uint32_t) { onListedDeath(AttachedEntry(entry)); });
    roster_.expect(entry);
  }
  return ok();
}

void AttachServer::onListedDeath(const AttachedEntry& process) {
  list_.remove(process);
  listed_.erase(process);
  roster_.expectedDied(process);
}

std::uint32_t AttachServer::ownPid(const AttachedEntry& process) {
  return qgpu::ownPid(process.pid);
}

RosterPlatform::FoundPage AttachServer::findPage(std::uint64_t task,
                                                 const std::vector<AttachedEntry>& among) {
  FoundPage found;
  SearchBound bound;
  for (const AttachedEntry& process : among) {
    const PageSearch search =
        adoptReportOf(process.pid, listed_.at(process).pidfd, tasks_.at(task)->pages, bound);
    found.adopted = search == PageSearch::Adopted;
    if (found.adopted) break;
    if (search == PageSearch::Hidden) found.hidden.push_back(process);
  }
  return found;
}

void AttachServer::endRecovery() {
  recoveryTimer_ = 0;
  book_.complete();
  booked_({});
  roster_.recoveryOver();
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
    if (note.what == QGPU_NOTE_MADE || note.what == QGPU_NOTE_THERE) {
      port_.channelsTold(task, process);
    }
  }
  return true;
}

void AttachServer::gone(std::uint64_t id, std::uint32_t slot, Leaves how, bool last) {
  GuestTask& task = *tasks_.at(id);
  GuestProcess& process = *task.processes.at(slot);
  list_.remove(process.entry);
  suspenders_.gone(task, process);
  shutOut(process);
  const std::uint32_t pid = process.entry.pid;
  process.talk.reset();
  letGo(std::move(process.connection));
  task.processes.erase(slot);
  messages_.processGone(task, pid, slot, last);
  if (how == Leaves::Died) port_.processGone(task);
}

// Before the owner hears that it has a task: what it starts for it is judged from the beginning.
// Who was attached when there was no guard yet goes on with its cards, also where its pod is judged
// from now on.
Status AttachServer::judge(const GuestTask& task, const Fd& owner) {
  if (options_.guard == nullptr) return ok();
  for (const auto& [process, listed] : listed_) {
    if (process.task != task.id) continue;
    Status judged = options_.guard->judge(listed.pidfd, task.id, task.cards);
    if (!judged) return judged;
  }
  // Of several cards each is its task's alone.
  if (task.cards.size() == 1) {
    if (Status capped = cap(task); !capped) return capped;
  }
  return owner ? options_.guard->judge(owner, task.id) : ok();
}

// Tasks that ended while no manager ran have left theirs: they go when the room is needed.
Status AttachServer::cap(const GuestTask& task) {
  const auto set = [&] {
    return options_.guard->setQuota(task.id, task.cards.front(), task.pages.quota());
  };
  if (set()) return ok();
  std::set<std::uint64_t> known;
  for (const auto& [id, other] : tasks_) known.insert(id);
  options_.guard->keepQuotas(known);
  return set();
}

void AttachServer::shutOut(const GuestProcess& process) {
  if (options_.guard != nullptr) options_.guard->shutOut(process.pidfd, process.entry.task);
}

// --- messages of the node ---

void AttachServer::known(schema::TaskKnown::Reader known) {
  const std::uint64_t id = known.getTask();
  if (roster_.knows(id)) return roster_.knownAgain(id);
  if (tasks_.size() >= kTasksMax) return messages_.gateFailed(id, "too many tasks on this node");
  Result<Fd> owner = Fd();
  if (known.getOwnerPid() != 0) owner = openProcess(known.getOwnerPid(), known.getOwnerStart());
  if (!owner) return messages_.gateFailed(id, owner.error().message);
  auto made =
      makeGuestTask(known, roster_.incarnation(), cards_, cardActors_, options_, port_.platform());
  if (!made) return messages_.gateFailed(id, made.error().message);
  if (Status judged = judge(**made, *owner); !judged) {
    return messages_.gateFailed(id, judged.error().message);
  }

  GuestTask& task = *tasks_.emplace(id, std::move(*made)).first->second;
  if (known.hasStored()) records_.write(known.getStored());
  port_.added(task);
  book_.add(id, task.token);
  booked_(task.token);
  if (known.getOwnerPid() != 0) watchOwner(task, std::move(*owner));
  roster_.known({id, task.taskClass == QGPU_ONLINE, task.cards}, task.pages);
}

void AttachServer::closed(schema::TaskClosed::Reader closed) {
  const std::uint64_t id = closed.getTask();
  if (const auto found = tasks_.find(id); found != tasks_.end()) {
    port_.close(*found->second);
    for (const auto& [slot, process] : found->second->processes) shutOut(*process);
  }
  roster_.closed(id, closed.getKill());
}

void AttachServer::incarnationChosen(schema::Incarnation::Reader chosen) {
  if (!std::exchange(nodeStarted_, true)) {
    recoveryTimer_ = loop_.after(options_.recovery, [this] { endRecovery(); });
  }
  roster_.incarnationChosen(chosen.getValue());
}

void AttachServer::signalAll(std::uint64_t id, int signal) {
  if (const auto found = tasks_.find(id); found != tasks_.end()) {
    for (auto& [slot, process] : found->second->processes) signalProcess(process->pidfd, signal);
  }
  for (auto& [process, listed] : listed_) {
    if (process.task == id) signalProcess(listed.pidfd, signal);
  }
}

void AttachServer::kill(std::uint64_t id, Kill how) {
  signalAll(id, how == Kill::Ask ? SIGTERM : SIGKILL);
  if (how == Kill::Force) return;
  killing_[id] = loop_.after(options_.killGrace, [this, id] {
    killing_.erase(id);
    roster_.killDue(id);
  });
}

void AttachServer::ended(std::uint64_t id) {
  if (options_.guard != nullptr) options_.guard->dropQuota(id);
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
  messages_.ownerGone(task.id);
}

}  // namespace qgpu
