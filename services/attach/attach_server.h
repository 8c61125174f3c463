#pragma once
// What becomes of tenants' processes that came through the door (attach_door.h) with the token of a
// task: each gets the task's pages, its doorbell and a slot.
//
// A process is what SO_PEERCRED and its start time say, and it is attached until its pidfd says
// dead; then its bytes return, once (HAZARDS 7, A14). Whatever else comes through the socket costs
// a bounded amount and closes the connection (C7). After a restart no gate of a non-online task is
// driven before each process that the run dir lists reads its new gate page, is dead, or the
// recovery time has passed (HAZARDS 8). A guest gets its page under an incarnation above all that
// it has met: where the store was an older copy, it waits until the node has committed such a one
// (A10, HAZARDS 23). Each task has a record in the run dir from the moment that its pages exist
// until it has ended and its processes are dead, for a manager that finds no database (D5). The
// processes of a task that an earlier manager had ended, but not killed, are ended as well (P9).

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
#include "services/attach/attach_door.h"
#include "services/attach/attached_list.h"
#include "services/attach/gate_port.h"
#include "services/attach/guest_task.h"
#include "services/attach/suspenders.h"
#include "services/attach/task_records.h"
#include "services/cards/cards.h"

namespace qgpu {

inline constexpr std::size_t kArrivalsPerTurn = 16;
inline constexpr int kNotesPerTurn = 16;
// More in a second is no program that makes channels, and ends the connection.
inline constexpr std::uint32_t kNotesMax = 1'024;        // of one process
inline constexpr std::uint32_t kTaskNotesMax = 8'192;
// Of one node: what it binds at once, and as much again several times for the closed ones whose
// processes are not dead yet.
inline constexpr std::size_t kTasksMax = 8 * Arbiter::kTasksMax;
// How far guests may raise the incarnation while one manager lives, and how much of its range is
// left to restarts whatever guests say: a lie is too small to use the numbers up.
inline constexpr std::uint32_t kIncarnationRaise = 1'000'000;
inline constexpr std::uint32_t kIncarnationSeenMax = UINT32_MAX - 1'000'000;

struct AttachServerOptions {
  std::string runDir;
  std::uint32_t incarnation = 1;        // of this manager, committed before it is used
  Nanos orphanGrace = seconds(5);
  Nanos window = millis(2);             // of work in flight, on cards that suspend by gate
  Nanos helloWithin = seconds(2);       // how long one waits for its answer
  Nanos recovery = millis(500);
  Nanos killGrace = seconds(2);         // between SIGTERM and SIGKILL
  bool timeslices = true;               // on NVIDIA cards (services/attach/timeslices.h)
};

struct AttachCounters {
  std::uint64_t attached = 0;
  std::uint64_t reattached = 0;
  std::uint64_t refused = 0;
};

class AttachServer {
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

  // Reads who was attached; the time of recovery runs from here. Unavailable: the folder can't be
  // made or read.
  Status begin();

  // From the door's thread.
  void arrive(Arrival arrival);

  void known(schema::TaskKnown::Reader known);
  void closed(schema::TaskClosed::Reader closed);
  void incarnationChosen(schema::Incarnation::Reader chosen);

  bool recovering() const { return recovering_; }
  std::uint32_t incarnation() const { return incarnation_; }
  std::size_t waitingHellos() const { return hellos_.size(); }
  const AttachCounters& counters() const { return counters_; }

 private:
  // One that is not attached yet.
  struct Hello : Arrival {
    std::uint64_t id = 0;
    Loop::TimerKey timer = 0;
    bool waits = false;      // for the end of recovery, or for an incarnation above all it has met
    bool raises = false;     // the latter
  };
  // A process that an earlier manager had attached and that has not come back yet.
  struct Expected {
    AttachedEntry entry;
    std::uint64_t task = 0;       // whose slot is kept for it, where `slot` says one
    std::uint32_t slot = QGPU_SLOTS;
    Fd pidfd;
    FdWatch death;
    bool hidden = false;          // its bytes may be counted in a page that we can't find
  };
  // A peer that has proven who it is.
  struct Peer {
    AttachedEntry entry;
    Fd pidfd;
  };

  Status readAttachedList();
  void takeArrivals();
  void startHello(Arrival arrival);
  void decide(std::uint64_t id);
  Result<Peer> identify(const Hello& hello, const GuestTask& task) const;
  bool mustWait(const Hello& hello) const;
  void wait(Hello& hello, bool raises);
  std::vector<std::uint64_t> endedWaits() const;
  Status askIncarnationAbove(std::uint32_t seen);
  Result<std::uint32_t> giveSlot(Hello& hello, GuestTask& task, const Peer& peer);
  Result<std::uint32_t> giveSlotAgain(Hello& hello, GuestTask& task, const Peer& peer);
  Status allCounted(const GuestTask& task, const AttachedEntry& comes) const;
  void findReport(GuestTask& task);
  void keepSlotsOfExpected(GuestTask& task);
  void attach(Hello& hello, GuestTask& task, Peer peer, std::uint32_t slot);
  bool welcome(const Hello& hello, const GuestTask& task, std::uint32_t slot) const;
  void refuse(std::uint64_t id, const std::string& reason);
  void dropHello(std::uint64_t id);
  GuestProcess* processOf(GuestTask& task, const AttachedEntry& entry) const;

  void onTalk(std::uint64_t task, std::uint32_t slot);
  bool readNotes(GuestTask& task, GuestProcess& process);
  void onDeath(std::uint64_t task, std::uint32_t slot);
  void forgetProcess(GuestTask& task, std::uint32_t slot);
  void onExpectedDeath(std::uint64_t key);
  void dropExpected(const AttachedEntry& entry);
  bool expects(std::uint64_t task) const;
  bool awaits(const GuestTask& task, const GuestProcess& process) const;
  std::vector<bool> awaitedCards() const;
  void recoveryMoved();
  void endRecovery();
  void announceIfReady(GuestTask& task, const std::vector<bool>& awaited);
  void watchOwner(GuestTask& task, Fd owner);
  void ownerGone(GuestTask& task);
  bool deserted(std::uint64_t task) const;
  void signalAll(std::uint64_t task, int signal);
  void kill(std::uint64_t task);
  void eraseIfKilled(std::uint64_t task);
  void end(std::uint64_t task);
  void erase(std::uint64_t task);

  Loop& loop_;
  Outlet& outlet_;
  TaskTable& tasks_;
  GatePort& port_;
  Suspenders& suspenders_;
  const ActorId node_;
  const std::vector<Card>& cards_;
  const std::vector<ActorId> cardActors_;
  const AttachServerOptions options_;
  TokenBook& book_;
  const Booked booked_;

  PiMutex arrivalsMutex_;
  std::deque<Arrival> arrivals_;  // let in, and not looked at yet
  // What the door's thread posts may outlive this on the loop.
  std::shared_ptr<bool> here_ = std::make_shared<bool>(true);
  AttachedList list_;
  TaskRecords records_;
  std::map<std::uint64_t, Hello> hellos_;
  std::uint64_t lastId_ = 0;
  std::map<std::uint64_t, Expected> expected_;
  // Tasks whose processes were told to go, with pages or without, and the timer of the SIGKILL.
  std::map<std::uint64_t, Loop::TimerKey> killing_;
  bool recovering_ = true;
  bool moved_ = false;                // recovery moved since it was last looked at who may go on
  bool moving_ = false;               // which is done now
  Loop::TimerKey recoveryTimer_ = 0;
  std::uint32_t incarnation_;            // in force: what pages are handed out under
  std::uint32_t incarnationAsked_ = 0;   // the highest that the node was told of
  AttachCounters counters_;
};

}  // namespace qgpu
