#pragma once
// Who belongs to the tasks of a node: which processes are attached, in which slots, who waits for
// an answer, and, after a restart of the manager, who is still expected back. This is the restart
// protocol, apart from sockets, pages, clocks and threads, so that the daemon and the simulator
// run the same one.
//
// A driver owns the roster: AttachServer with sockets and pidfds, SimAttach in tests/sim with a
// seed. It tells events by the public methods, in the order in which they happen, and carries out
// what the roster orders through RosterPlatform, at once and in that order; it may not tell an
// event from within an order. Timers are the driver's: it is said where one begins.
//
// Kept here:
//   HAZARDS 7   a process stays attached until died(), whatever its connection does.
//   HAZARDS 8   after a restart no task but an online one is announced while somebody may be using
//               one of its cards whom no hold would reach: who was listed and has not come back, or
//               has come back and reads its old gate page still. recoveryOver() ends that.
//   HAZARDS 23, A10   who met this manager's incarnation, or a later one, waits for one above it.
//   A14         the bytes of a process stay in its slot until it is dead: a slot is kept for who is
//               expected, and nobody new is counted in another page while some can't be seen.
//   P9          a task that is closed ends when the last of its processes is dead, those included
//               that an earlier manager had attached.

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "runtime/result.h"

namespace qgpu {

inline constexpr std::size_t kWaitingMax = 4'096;  // processes that wait for their answer
inline std::string tooManyWait() {
  return std::to_string(kWaitingMax) +
         " processes wait for the manager; try again once it has recovered";
}

// How far guests may raise the incarnation while one manager lives, and how much of its range is
// left to restarts whatever guests say: a lie is too small to use the numbers up.
inline constexpr std::uint32_t kIncarnationRaise = 1'000'000;
inline constexpr std::uint32_t kIncarnationSeenMax = UINT32_MAX - 1'000'000;

// A process and the task that it is attached to. Pid and start time are what the manager's pid
// namespace has; a process that executed another program may be in two tasks.
struct AttachedEntry {
  std::uint32_t pid = 0;
  std::uint64_t start = 0;
  std::uint64_t task = 0;
  std::vector<std::uint32_t> cards;  // of the task
  auto operator<=>(const AttachedEntry&) const = default;
};

// What the roster asks of the pages of one task. They belong to the driver and stay where they are
// from known() to RosterPlatform::ended().
class RosterPages {
 public:
  // A free slot, cleared and marked with the process (as it sees itself); NoRoom: there is none.
  virtual Result<std::uint32_t> takeSlot(std::uint32_t pid, std::uint64_t startTime) = 0;
  // The slot that a process had before the restart; refused where the page does not say so.
  virtual Status claimSlot(std::uint32_t slot, std::uint32_t pid, std::uint64_t startTime) = 0;
  virtual void freeSlot(std::uint32_t slot) = 0;     // its bytes return
  virtual void reserveSlot(std::uint32_t slot) = 0;  // for one that lives and has not come back
  virtual std::uint64_t usedSlots() const = 0;       // a mask: taken, claimed or reserved
  // The slot's process can't run any more, or has not come back.
  virtual bool slotDead(std::uint32_t slot) const = 0;

  // The report page is one that an earlier manager made. Slots of it that carry a pid, a mask; that
  // pid, as the process sees itself, and the start time in one of them.
  virtual bool adopted() const = 0;
  virtual std::uint64_t markedSlots() const = 0;
  virtual std::uint32_t slotPid(std::uint32_t slot) const = 0;
  virtual std::uint64_t slotStart(std::uint32_t slot) const = 0;

  // Incarnation of the gate page that the slot's process reads now, as it says.
  virtual std::uint32_t obeys(std::uint32_t slot) const = 0;
  // The number under which the gate page is handed out from now on.
  virtual void setIncarnation(std::uint32_t incarnation) = 0;

 protected:
  ~RosterPages() = default;
};

// What the roster orders, and the few things that it asks when it must know them. Hellos are named
// by the driver's numbers.
class RosterPlatform {
 public:
  struct Peer {
    std::uint32_t pid = 0;  // in the manager's pid namespace
    std::uint64_t start = 0;
  };
  struct FoundPage {
    bool adopted = false;
    std::vector<AttachedEntry> hidden;  // whose page may exist and can't be looked for
  };
  enum class Leaves : std::uint8_t { Died, ExecutedAnother };
  enum class Kill : std::uint8_t { Ask, Force };

  // --- a process that said hello ---
  // Who the kernel says it is; refused where that one is dead or not the one that it says.
  virtual Result<Peer> identify(std::uint64_t hello) = 0;
  // The report page that came with the hello becomes its task's; refused where it can't be.
  virtual Status adoptPage(std::uint64_t hello) = 0;
  // Gives it the task's pages and its slot, under incarnation(). False: it is there no more.
  virtual bool welcome(std::uint64_t hello, std::uint32_t slot) = 0;
  // The hello is over: its process is attached, has no answer, or one that says why not.
  // `isNew`: the roster had nobody in that slot before.
  virtual void attached(std::uint64_t hello, const AttachedEntry& process, std::uint32_t slot,
                        bool isNew) = 0;
  virtual void drop(std::uint64_t hello) = 0;
  virtual void refuse(std::uint64_t hello, const std::string& reason) = 0;

  // --- an attached process ---
  // Its connection is open.
  virtual bool connected(std::uint64_t task, std::uint32_t slot) = 0;
  // It is attached no more; its slot is free already. `last`: nobody is in its task now.
  virtual void gone(std::uint64_t task, std::uint32_t slot, Leaves how, bool last) = 0;

  // --- one that an earlier manager had attached ---
  // The pid that it has in its own namespace; 0: it is dead.
  virtual std::uint32_t ownPid(const AttachedEntry& process) = 0;
  // Looks for the page of the task among the descriptors of these, and adopts it.
  virtual FoundPage findPage(std::uint64_t task, const std::vector<AttachedEntry>& among) = 0;
  // It is attached again, and expected no more.
  virtual void cameBack(const AttachedEntry& process) = 0;

  // --- a task ---
  // To the node, gateOpened: its pages exist and its gate can be driven.
  virtual void announce(std::uint64_t task) = 0;
  // What is kept of it for a manager without a database says from now on that it ends.
  virtual void ending(std::uint64_t task) = 0;
  // Ends all of its processes, also those that have not come back: SIGTERM, after which the driver
  // says killDue() when the grace is over, or SIGKILL.
  virtual void kill(std::uint64_t task, Kill how) = 0;
  // Nobody lives of it and nothing is to be kept. It may be a task that was never known here.
  virtual void ended(std::uint64_t task) = 0;

  // To the node, incarnationSeen: it answers with one above `seen`, see incarnationChosen().
  virtual void askIncarnationAbove(std::uint32_t seen) = 0;

 protected:
  ~RosterPlatform() = default;
};

struct AttachCounters {
  std::uint64_t attached = 0;
  std::uint64_t reattached = 0;
  std::uint64_t refused = 0;
};

class Roster {
 public:
  // What a process says in its hello.
  struct Said {
    std::uint64_t task = 0;             // whose token it has
    std::uint32_t pid = 0;              // as it sees itself
    bool again = false;                 // it was attached, brings its page and ...
    std::uint32_t slot = 0;             // ... has this slot in it
    std::uint32_t incarnationSeen = 0;  // the highest that it met
  };
  // What the node says of a task.
  struct Task {
    std::uint64_t id = 0;
    bool online = false;
    std::vector<std::uint32_t> cards;  // by index
  };

  // `incarnation` is this manager's, committed before it is used. `platform` outlives the roster.
  Roster(RosterPlatform& platform, std::uint32_t incarnation);
  Roster(const Roster&) = delete;
  Roster& operator=(const Roster&) = delete;

  // --- the restart: first expect() for each listed process that lives; a timer for the time of
  // recovery begins once the node has started, by the first incarnationChosen() ---
  void expect(AttachedEntry process);
  void expectedDied(const AttachedEntry& process);
  void recoveryOver();

  // --- messages of the node ---
  bool knows(std::uint64_t task) const { return tasks_.contains(task); }
  // The task has pages; `pages` see above. One that was known is said again to be announced again.
  void known(Task task, RosterPages& pages);
  void knownAgain(std::uint64_t task);
  // Nobody is attached to it any more; with `kill` its processes end. Also of a task that is not
  // known: an earlier manager may have ended it, and its processes may live on.
  void closed(std::uint64_t task, bool kill);
  void killDue(std::uint64_t task);
  void incarnationChosen(std::uint32_t incarnation);

  // --- processes ---
  // Each is answered once by welcome() and attached(), drop() or refuse(), now or later. The driver
  // bounds the time until then, and calls giveUp() when it is over: then nothing more is ordered.
  void hello(std::uint64_t id, const Said& said);
  void giveUp(std::uint64_t id);
  void died(std::uint64_t task, std::uint32_t slot);
  // Something was said in a report page: who came back may obey its new gate page by now.
  void reported();

  bool recovering() const { return recovering_; }
  std::uint32_t incarnation() const { return incarnation_; }
  std::size_t waiting() const { return hellos_.size(); }
  const AttachCounters& counters() const { return counters_; }

 private:
  enum class Waits : std::uint8_t { No, ForRecovery, ForIncarnation };
  struct Hello {
    Said said;
    Waits waits = Waits::No;
  };
  struct Expected {
    AttachedEntry entry;
    std::optional<std::uint32_t> slot;  // kept for it
    bool hidden = false;                // its bytes may be counted in a page that we can't find
  };
  struct Process {
    std::uint32_t pid = 0;
    std::uint64_t start = 0;
    std::uint32_t incarnation = 0;  // under which it was given its gate page
    bool returned = false;          // it had an earlier gate page before
  };
  struct Known {
    Task task;
    RosterPages& pages;
    bool closed = false;
    bool announced = false;
    std::map<std::uint32_t, Process> processes;  // by slot
  };
  using Peer = RosterPlatform::Peer;

  void decide(std::uint64_t id);
  bool mustWait(const Said& said) const;
  void wait(std::uint64_t id, Waits forWhat);
  void refuse(std::uint64_t id, const std::string& reason);
  Status raiseIncarnation(std::uint32_t seen);
  std::optional<std::uint32_t> slotOf(const Known& task, const Peer& peer) const;
  Result<std::uint32_t> giveSlot(std::uint64_t id, const Said& said, Known& task, const Peer& peer);
  Result<std::uint32_t> giveSlotAgain(std::uint64_t id, const Said& said, Known& task,
                                      const Peer& peer);
  Status allCounted(const Known& task, const Peer& comes) const;
  void attach(std::uint64_t id, const Said& said, Known& task, const Peer& peer,
              std::uint32_t slot);
  void remove(Known& task, std::uint32_t slot, RosterPlatform::Leaves how);

  bool expects(std::uint64_t task) const { return expected_.contains(task); }
  void findPage(Known& task);
  void keepSlotsOfExpected(Known& task);
  void noLongerExpect(Known& task, const Peer& peer);
  std::set<std::uint32_t> awaitedCards() const;
  void announceIfReady(Known& task, const std::set<std::uint32_t>& awaited);
  std::vector<std::uint64_t> endedWaits() const;
  void moved();

  bool deserted(std::uint64_t task) const;
  void endIfKilled(std::uint64_t task);
  void end(std::uint64_t task);

  RosterPlatform& platform_;
  const std::uint32_t firstIncarnation_;
  std::map<std::uint64_t, Known> tasks_;
  std::map<std::uint64_t, std::vector<Expected>> expected_;  // by task; no empty ones
  std::map<std::uint64_t, Hello> hellos_;                    // not answered yet
  std::set<std::uint64_t> killing_;  // tasks whose processes were told to go
  bool recovering_ = true;
  bool moved_ = false;         // something changed since it was last looked at who may go on ...
  bool moving_ = false;        // ... which is done now
  std::uint32_t incarnation_;  // in force: what pages are handed out under
  std::uint32_t incarnationAsked_ = 0;  // the highest that the node was told of
  AttachCounters counters_;
};

}  // namespace qgpu
