#pragma once
// What becomes of tenants' processes that came in (attach_listener.h) with the
// token of a task: each gets the task's pages, its doorbell and a slot.
//
// Who is attached, who waits and what a restart means is decided by the roster (roster.h). This is
// its driver in a daemon: it hands it what sockets, pidfds, timers and the node say, and carries
// out what it orders. A process is what SO_PEERCRED and its start time say, and it is attached
// until its pidfd says dead; then its bytes return, once (HAZARDS 7, A14). Whatever else comes
// through the socket costs a bounded amount and closes the connection (C7). Each task has a record
// in the run dir from the moment that its pages exist until it has ended and its processes are
// dead, for a manager that finds no database (D5).

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "actors/arbiter/arbiter.h"
#include "runtime/dispatcher.h"
#include "runtime/loop.h"
#include "runtime/result.h"
#include "services/attach/attach_messages.h"
#include "services/attach/gate_port.h"
#include "services/attach/pages/guest_task.h"
#include "services/attach/roster/roster.h"
#include "services/attach/run_dir/attached_list.h"
#include "services/attach/run_dir/task_records.h"
#include "services/attach/sockets/attach_listener.h"
#include "services/attach/suspenders.h"
#include "services/cards/cards.h"
#include "services/guard/guard.h"

namespace qgpu {

inline constexpr std::size_t kArrivalsPerTurn = 16;  // connections looked at in a turn of the loop
inline constexpr int kNotesPerTurn = 16;             // notes read of one process in a turn
// More in a second is no program that makes channels, and ends the connection.
inline constexpr std::uint32_t kNotesMax = 1'024;  // of one process
inline constexpr std::uint32_t kTaskNotesMax = 8'192;
// Of one node: what it binds at once, and as much again several times for the closed ones whose
// processes are not dead yet.
inline constexpr std::size_t kTasksMax = 8 * Arbiter::kTasksMax;

// The manager's flags choose some, tests the others.
struct AttachServerOptions : GuestTaskOptions {
  std::string runDir;
  std::uint32_t incarnation = 1;   // of this manager, committed before it is used
  Nanos helloWithin = seconds(2);  // how long one waits for its answer
  Nanos recovery = millis(500);    // from the start of the node
  Nanos killGrace = seconds(2);    // between SIGTERM and SIGKILL
  Guard* guard = nullptr;          // told who owns a task, and who attached; null: there is none
};

// AttachPort has one. All runs on the card loop, but arrive(), which the listener's thread calls.
class AttachServer final : private RosterPlatform {
 public:
  // `cards` by index; `cardActors` are their actors in the same order. `book` is told whose token
  // is whose, and `booked` runs after that: with a token that is new, or empty once all are there.
  using Booked = std::function<void(const std::string& token)>;
  AttachServer(Loop& loop, Outlet& outlet, TaskTable& tasks, GatePort& port, Suspenders& suspenders,
               ActorId node, const std::vector<Card>& cards, std::vector<ActorId> cardActors,
               AttachServerOptions options, TokenBook& book, Booked booked);
  AttachServer(const AttachServer&) = delete;
  AttachServer& operator=(const AttachServer&) = delete;
  ~AttachServer();

  // Reads who was attached. Unavailable: the folder can't be made or read.
  Status begin();

  // From the listener's thread.
  void arrive(Arrival arrival);

  // Messages of the node: a task is bound, and gets its pages; its binding is over; the number of
  // this manager that is in force from now on (HAZARDS 23). The first number says that the
  // node has started, and the time of recovery runs from there: until then nobody knows its tasks.
  void known(schema::TaskKnown::Reader known);
  void closed(schema::TaskClosed::Reader closed);
  void incarnationChosen(schema::Incarnation::Reader chosen);
  // To each process of a task that is known here.
  void signalAll(std::uint64_t task, int signal);

  // The number that guests are told, 1 or higher.
  std::uint32_t incarnation() const { return roster_.incarnation(); }
  // Processes with a token that have no answer yet: the node or a recovery is waited for.
  std::size_t waitingHellos() const { return roster_.waiting(); }
  const AttachCounters& counters() const { return roster_.counters(); }

 private:
  // One that has no answer yet.
  struct Hello : Arrival {
    Loop::TimerKey timer = 0;
    Fd pidfd;  // once it has proven who it is
  };
  // A process that an earlier manager had attached and that has not come back yet.
  struct Listed {
    Fd pidfd;
    FdWatch death;
  };

  // RosterPlatform
  Result<Peer> identify(std::uint64_t hello) override;
  Status adoptPage(std::uint64_t hello) override;
  bool welcome(std::uint64_t hello, std::uint32_t slot) override;
  void attached(std::uint64_t hello, const AttachedEntry& who, std::uint32_t slot,
                bool isNew) override;
  void drop(std::uint64_t hello) override;
  void refuse(std::uint64_t hello, const std::string& reason) override;
  bool connected(std::uint64_t task, std::uint32_t slot) override;
  void gone(std::uint64_t task, std::uint32_t slot, Leaves how, bool last) override;
  std::uint32_t ownPid(const AttachedEntry& process) override;
  FoundPage findPage(std::uint64_t task, const std::vector<AttachedEntry>& among) override;
  void cameBack(const AttachedEntry& process) override { listed_.erase(process); }
  void announce(std::uint64_t task) override { messages_.gateOpened(task); }
  void ending(std::uint64_t task) override { records_.markEvicting(task); }
  void kill(std::uint64_t task, Kill how) override;
  void ended(std::uint64_t task) override;
  void askIncarnationAbove(std::uint32_t seen) override { messages_.incarnationSeen(seen); }

  Status readAttachedList();
  void onListedDeath(const AttachedEntry& process);
  void endRecovery();
  void takeArrivals();
  void startHello(Arrival arrival);
  void onTalk(std::uint64_t task, std::uint32_t slot);
  bool readNotes(GuestTask& task, GuestProcess& process);
  void watchOwner(GuestTask& task, Fd owner);
  void ownerGone(GuestTask& task);
  void erase(std::uint64_t task);
  Status judge(const GuestTask& task, const Fd& owner);
  Status cap(const GuestTask& task);
  void shutOut(const GuestProcess& process);

  Loop& loop_;
  TaskTable& tasks_;
  GatePort& port_;
  Suspenders& suspenders_;
  const std::vector<Card>& cards_;
  const std::vector<ActorId> cardActors_;
  const AttachServerOptions options_;
  TokenBook& book_;
  const Booked booked_;
  AttachMessages messages_;

  PiMutex arrivalsMutex_;
  std::deque<Arrival> arrivals_;  // let in, and not looked at yet
  // What the listener's thread posts may outlive this on the loop.
  std::shared_ptr<bool> here_ = std::make_shared<bool>(true);
  AttachedList list_;
  TaskRecords records_;
  Roster roster_;
  std::map<std::uint64_t, Hello> hellos_;
  std::uint64_t lastHello_ = 0;
  std::map<AttachedEntry, Listed> listed_;
  std::map<std::uint64_t, Loop::TimerKey> killing_;  // of the SIGKILL, by task
  bool nodeStarted_ = false;
  Loop::TimerKey recoveryTimer_ = 0;
};

}  // namespace qgpu
