#pragma once
// Whose pageable memory is on one card now. Pure, as the arbiter is: what happens goes in with its
// time, orders come out, and the same inputs always give the same orders.
//
// The words: *pageable* memory can leave the card and come back, always to the same addresses. A
// task that has some is *in* while all of it is on the card, and runs only then; it is *out* when
// some of it is not. A *stay* is the time between. The *limit* of a task is how much pageable
// memory it may have, there or not. docs/internals/paging.md tells the whole of it.
//
// Kept here: M1 (a task is back once each of its processes is in), M3 (limits and what all others
// use fit), M4 (room for a return is taken whole), M6 (who needs memory is answered).

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <vector>

#include "actors/model.h"
#include "runtime/units.h"

namespace qgpu {

struct ResidencyConfig {
  Bytes memory{0};                // of the card, less what its ledger keeps back
  Nanos idleFor = millis(100);    // a draining task proves within it that nothing of it runs
  Nanos stuckFor = seconds(5);    // a task that is leaving and gives nothing in it is out as it is
  Nanos endAfter = millis(1500);  // for a need so old, tasks that gave no room for it are ended
  Nanos waitFor = seconds(2);     // within which each need is answered; above endAfter
  Nanos askEvery = seconds(1);  // at most one drain in it for a return or a higher limit; also how
                                // long a task that was asked in vain is let be, doubled each time
  Nanos stayMin = seconds(1);   // of a stay that nobody with a need cuts short; also the time
                                // until the return of one that was cut, twice as long each time
  Nanos stayMax = seconds(60);  // of the clock, whatever online did meanwhile
  std::int64_t worth = 9;  // a stay is this often what the last way out and in took, online idle
};

// What the processes of a task are told: one word of its gate page.
struct PagingWord {
  enum class Phase : std::uint8_t {
    In,     // have everything on the card, then go on
    Drain,  // begin nothing, and say when nothing runs
    Out,    // have so much of your memory off the card
  };
  std::uint32_t epoch = 0;  // grows with each change
  Phase phase = Phase::In;
  Permille out{0};
  bool operator==(const PagingWord&) const = default;
};

// What a process has to say to a word, by its epoch: Idle to Drain, Left to Out, In to In. NoRoom:
// the card had no memory for what was to come in; what came in left again.
enum class PagingAnswer : std::uint8_t { None, Idle, Left, In, NoRoom };

struct ResidencyOrder {
  enum class Kind : std::uint8_t {
    Tell,      // `word` to the task; from a Drain on it is not granted the card
    Hurry,     // its drain is for a need: it waits for nobody
    Back,      // it may be granted the card again
    Limit,     // `bytes`; where it is lower than before, trimmed() is to be said
    End,       // of the task: it gave no room for a need
    Answered,  // the need `request`: has room, or not
  };
  Kind kind = Kind::Back;
  TaskId task = TaskId::kNone;
  PagingWord word;
  Bytes bytes{0};
  std::uint64_t request = 0;
  bool room = false;
};
using ResidencyOrders = std::vector<ResidencyOrder>;

class Residency {
 public:
  enum class State : std::uint8_t { In, Draining, Leaving, Out, Returning, Ending };

  // Epochs begin above `lastEpoch`, the highest that any process has seen.
  explicit Residency(const ResidencyConfig& config, Nanos now, std::uint32_t lastEpoch = 0)
      : config_(config), last_(now), epoch_(lastEpoch) {}

  // --- who is here: tasks with pageable memory, at most `quota` of it ---
  // A task of before has memory already, on the card or not, and processes; all of before join in
  // one turn, before anything else is told. The limit that is ordered here is to be answered by
  // trimmed(): until then the task may have up to its quota.
  void join(TaskId task, Bytes quota, Bytes in, Bytes out, const std::set<std::uint32_t>& processes,
            Nanos now, ResidencyOrders& orders);
  // It ended and the card shows its memory free.
  void leave(TaskId task, Nanos now, ResidencyOrders& orders);
  // Processes, before their first allocation, and after their death.
  void attached(TaskId task, std::uint32_t process, Nanos now, ResidencyOrders& orders);
  void died(TaskId task, std::uint32_t process, Nanos now, ResidencyOrders& orders);

  // --- what is told of tasks here; of others it changes nothing ---
  void answered(TaskId task, std::uint32_t process, std::uint32_t epoch, PagingAnswer answer,
                Nanos now, ResidencyOrders& orders);
  // What all its processes have on and off the card, and for how much above that they wait; before
  // what they answer.
  void holds(TaskId task, Bytes in, Bytes out, Bytes more, Nanos now, ResidencyOrders& orders);
  // The lower limit stands in its page, and then it had so much on the card.
  void trimmed(TaskId task, Bytes limit, Bytes in, Nanos now, ResidencyOrders& orders);

  // --- all others of the card ---
  void othersHold(Bytes bytes, Nanos now, ResidencyOrders& orders);
  // The card refused somebody who may have the memory, first at `since`, which counts: a program
  // that was answered and found the room taken asks again. Answered once, and then over by given():
  // it has it by then, and others hold it, or does without.
  void need(std::uint64_t request, Bytes bytes, Nanos since, Nanos now, ResidencyOrders& orders);
  void given(std::uint64_t request, Nanos now, ResidencyOrders& orders);
  void online(bool busy, Nanos now);

  // --- time ---
  void expire(Nanos now, ResidencyOrders& orders);  // does what is due; harmless when nothing is
  Nanos nextDeadline() const;                       // kNever when nothing waits for time

  // --- status ---
  State state(TaskId task) const;  // Ending where there is no such task
  Bytes limit(TaskId task) const;
  Bytes room() const;  // that nobody has or was promised; below 0 where strangers took it
  std::uint32_t epoch() const { return epoch_; }

 private:
  struct Task {
    Bytes quota{0};
    State state = State::Returning;
    PagingWord word;
    Bytes in{0}, out{0};  // as told
    Bytes limit{0};
    Bytes ceiling{0};      // the highest limit that it may go by: a lower one has to be said first
    bool mayMake = true;   // a process of it may be about to make memory on the card
    Bytes taken{0};        // of room for a part of its return; only a planted bug does so
    Bytes leaves{0};       // Draining: how much is to leave ...
    bool hurried = false;  // ... and for a need
    Bytes more{0};         // it waits for
    std::set<std::uint32_t> processes;
    std::set<std::uint32_t> awaited;  // of these, without an answer to the word
    Nanos since{0};                   // the state began
    Nanos movedAt{0};                 // Leaving: when it last gave some
    Nanos stayed{0};                  // of this stay, online idle
    Nanos stayFor{0};                 // wanted of it
    Nanos wayOut{0};                  // what its ways out took, since it was in
    std::uint32_t cuts = 0;           // stays in a row that were cut short, or could not begin
    std::uint32_t vain = 0;           // times in a row that it was asked in vain
    Nanos returnAt{0};                // Out: not before
    Nanos askAt{0};                   // not before it is asked again
    bool queued = false;              // in waits_

    // Of the card: what it has there, or may have before it is told otherwise.
    Bytes kept() const { return mayMake ? std::max(ceiling, in) : in + taken; }
  };
  struct Need {
    Bytes bytes{0};
    Nanos asked{0};
    bool answered = false;
  };
  using Tasks = std::map<TaskId, Task>;

  void tick(Nanos now);
  Task* find(TaskId task);
  void tell(TaskId id, Task& task, PagingWord::Phase phase, Permille out, ResidencyOrders& orders);
  void enter(Task& task, State state);
  void settle(TaskId id, Task& task, ResidencyOrders& orders);
  void review(ResidencyOrders& orders);
  bool answerNeeds(ResidencyOrders& orders);
  void queueWaits(ResidencyOrders& orders);
  void grantWaits(ResidencyOrders& orders);
  static Bytes limitOf(const Task& task);
  void takeBack(TaskId id, Task& task, ResidencyOrders& orders);
  void grantLimit(TaskId id, Task& task, Bytes limit, ResidencyOrders& orders);
  Bytes wantedBy(const Task& task) const;
  Bytes forPageable() const;
  void makeRoom(Bytes missing, TaskId claimant, bool need, ResidencyOrders& orders);
  Bytes trim(TaskId claimant, ResidencyOrders& orders);
  Bytes coming() const;
  bool mayAsk(const Task& task, bool need) const;
  void ask(TaskId id, Task& task, Bytes bytes, bool need, ResidencyOrders& orders);
  void hurry(TaskId id, Task& task, ResidencyOrders& orders);
  void giveUp(TaskId id, Task& task, ResidencyOrders& orders);
  void endFor(Bytes missing, ResidencyOrders& orders);
  void end(TaskId id, Task& task, ResidencyOrders& orders);
  bool refusesRoom(const Task& task) const;
  void stayAsYouAre(TaskId id, Task& task, ResidencyOrders& orders);
  void leftInPart(Task& task);
  bool stayIsOver(const Task& task) const;
  Nanos stayEnds(const Task& task) const;

  ResidencyConfig config_;
  Tasks tasks_;
  std::map<std::uint64_t, Need> needs_;
  std::deque<TaskId> waits_;  // for a return or a higher limit, the longest first
  Bytes others_{0};
  bool onlineBusy_ = false;
  Nanos drainAt_{0};  // no drain for a return or a higher limit before
  Nanos last_;
  std::uint32_t epoch_;
};

}  // namespace qgpu
