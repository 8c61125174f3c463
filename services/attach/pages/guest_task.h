#pragma once
// One bound task as the attach room sees it: its pages, what is needed to reach its attached
// processes, and the state of its gate. These are plain records. AttachServer makes a task when the
// node tells of it, fills in processes as the roster says (roster.h) and erases it at its end;
// GatePort drives the gate. Both run on the card loop and share the table without locks.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/actor.h"
#include "runtime/fd.h"
#include "runtime/loop.h"
#include "runtime/units.h"
#include "services/attach/pages/task_pages.h"
#include "services/attach/run_dir/attached_list.h"
#include "services/base/process.h"
#include "services/cards/cards.h"

namespace qgpu {

// How many notes a process or a task has said in this second; beyond its part its connection ends.
struct NoteMeter {
  std::uint32_t count = 0;
  Nanos from{0};
  // Counts one at loop time `now`. False: this one is more than `most` of the second.
  bool takes(Nanos now, std::uint32_t most) {
    if (now - from >= seconds(1)) *this = {0, now};
    return ++count <= most;
  }
};

// One attached process. It stays until its pidfd says dead, whatever its connection does
// (HAZARDS 7).
struct GuestProcess {
  AttachedEntry entry;             // pid and start time as this pid namespace has them
  std::uint32_t slot = 0;          // of the task's report page
  std::uint32_t freezeSignal = 0;  // 0: this guest can't freeze
  ThreadIds threads;
  Fd pidfd;                  // says when it is dead
  Fd connection;             // empty once the guest closed it
  bool channels = false;     // it has told of one, on this connection
  std::uint32_t number = 0;  // by which cards that watch its task know it; 0: not told of yet
  NoteMeter notes;
  FdWatch death;  // watches end before their descriptors close
  FdWatch talk;
};

// Of a task: whether a process of it lives.
enum class Life : std::uint8_t {
  Never,  // no process was attached yet
  Alive,
  Dead,  // every process that was attached is dead
};

// What the gate port knows of one gate; it alone writes it. In four parts: the order in force, how
// its hold comes to rest, what the card was told, and when the page is looked at again. Times are
// loop time.
struct GateState {
  ActorId card = ActorId::kNobody;  // who gave the last order, and hears of its effect
  bool ordered = false;             // an order came: from now on busy and quiet are told
  bool open = false;                // the order in force: launches pass, else it is a hold
  bool notify = false;              // the guest rings at its next launch
  bool contended = false;           // others want the card
  std::uint32_t epoch = 0;          // of that order; what is told of an earlier one is stale
  Nanos storedAt{0};                // when the word of this epoch was stored

  bool settling = false;     // held, and not yet told that nothing runs any more
  Nanos stopAt = kNever;     // until then work in flight may end by itself; kNever: it is stopped
  bool frozen = false;       // held by more than the gate: driver threads wait as well, or channels
                             // are off the card or about to be
  Nanos offAt = kNever;      // since when all channels are off, in the hold of this epoch
  bool offInPart = false;    // told so, while a process at work had told of none of its own
  std::uint32_t ask = 0;     // number of the last takeOff(): what came of others is not believed
  Nanos againAt{0};          // when its work was last seen to go on all the same ...
  std::uint32_t agains = 0;  // ... and how often, in the hold of this epoch
  bool parked = false;       // told settled although work is in flight that can't run
  std::uint32_t stuck = 0;   // turns that it got since nothing retired, in a row
  Nanos settleDelay{0};
  bool cameBack = false;  // a process attached, and has not rung since then

  bool toldBusy = false;       // the last of busy and quiet that the card was told
  Nanos toldStamp{0};          // newest submit or retirement that the card knows of
  std::uint64_t admitted = 0;  // as of the last sample
  std::uint64_t retired = 0;
  Nanos sampledAt{0};
  Life life = Life::Never;  // as the card knows it
  Nanos ranAt{0};           // it was idle, its work moved, or a process of it was seen to run
  bool stopped = false;     // not so for stoppedAfter, with work under way

  Loop::TimerKey timer = 0;  // of the next look at the page
  Nanos timerAt = kNever;    // when that is

  bool worked = false;      // work showed in the page since the last order
  bool rung = false;        // and the doorbell rang for it, which it does only once
  bool disarmed = false;    // it rang too often: looked at by timer until an order came ...
  bool rearm = false;       // ... which it has, and the window of `ringsFrom` is over
  std::uint32_t rings = 0;  // since `ringsFrom`
  Nanos ringsFrom{0};
  FdWatch bell;  // in a daemon; after the pages it watches, so it ends first

  bool useTold = false;           // the task's actor was told of its counters at least once ...
  UseSample use;                  // ... and these, last ...
  Nanos useToldAt{0};             // ... then
  std::uint32_t faultsTold = 0;   // kinds of nonsense in its page that were told
  Nanos addedAt{0};               // when its task came
  bool unattachedTold = false;    // nobody has attached since
  std::uint64_t refusedTold = 0;  // allocations, to the node
  Nanos refusedToldAt{0};
};

// What the card that watches a task's memory was told of it last (paging_news.h, which alone writes
// it).
struct PagingState {
  struct Told {
    PagingSums sums;
    std::uint64_t limitOrder = 0;
    std::vector<std::pair<std::uint32_t, SlotPaging>> processes;  // by their numbers
    bool operator==(const Told&) const = default;
  };
  ActorId card = ActorId::kNobody;  // who watches
  std::uint64_t limitOrder = 0;     // of the limit that stands in the page
  std::uint32_t numbered = 0;       // processes that had a number
  std::optional<Told> told;
};

// A task from taskKnown until it was closed and its processes are dead.
struct GuestTask {
  explicit GuestTask(TaskPages made) : pages(std::move(made)) {}

  std::uint64_t id = 0;  // the node's number of the binding
  std::string token;     // by which its processes attach; QGPU_TOKEN_LEN characters
  qgpu_class taskClass = QGPU_ORDINARY;
  // How a hold is made real: FREEZE stops its driver threads, RM takes its channels off the card.
  qgpu_suspend heldBy = QGPU_SUSPEND_GATE;
  Nanos window{0};                   // of its gate, once its channels can't be taken off
  bool doubted = false;              // which is so
  NoteMeter notes;                   // of all its processes
  ActorId actor = ActorId::kNobody;  // the task's, which is told of processes and counters
  std::vector<std::uint32_t> cards;  // by index
  std::vector<ActorId> cardActors;   // of these, in the same order
  TaskPages pages;
  GateState gate;
  PagingState paging;
  std::map<std::uint32_t, std::unique_ptr<GuestProcess>> processes;  // by slot

  Fd owner;  // pidfd of the process whose death ends the task
  FdWatch ownerWatch;
};

// All tasks of a manager, by number: AttachPort owns it.
using TaskTable = std::map<std::uint64_t, std::unique_ptr<GuestTask>>;

// What tasks of one manager have in common; flags of the manager choose them.
struct GuestTaskOptions {
  Nanos orphanGrace = seconds(5);  // of the heartbeat: an older one means that the manager is lost
  Nanos window = millis(2);        // of work in flight, on cards that suspend by gate
  Nanos needWait = seconds(2);     // as Residency answers within (docs/internals/paging.md)
  bool timeslices = true;          // on NVIDIA cards (services/attach/pages/timeslices.h)
};

// The task that the node tells of, with pages under `incarnation`, on those of `cards` and their
// actors (by index) that it names. An error says in words for the node why there is none:
// InvalidArgument and NotFound, what it told makes no sense; Unavailable, see TaskPages::create().
Result<std::unique_ptr<GuestTask>> makeGuestTask(
    schema::TaskKnown::Reader known, std::uint32_t incarnation, const std::vector<Card>& cards,
    const std::vector<ActorId>& cardActors, const GuestTaskOptions& options, PagePlatform& around);

}  // namespace qgpu
