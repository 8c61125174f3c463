#pragma once
// What guests really do, beside what is said of them: gates (A1 by gate words, also over a restart,
// HAZARDS 8), settling (A1: nothing of an honest tenant runs once it was told settled), notice of
// work and of its end (A2, A3), deaths (A11), and stamps (C7).
//
// A task is judged by what its processes do as long as all of them are honest; gate words and
// messages are judged of all tasks. A loop that stalls makes nobody late: a bound counts from when
// the cards' loop was seen to run again.

#include <algorithm>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "tests/sim/watch.h"

namespace qgpu::sim {

class GuestCheck final : public Watch {
 public:
  explicit GuestCheck(Verdict& verdict) : verdict_(verdict) {}

  void onBoot(const Boot& boot, Nanos now) override;
  void onEnd(Ending ending, Nanos now) override;
  void onSent(const Carried& message, Nanos now) override;
  void onTurn(const Carried& message, Nanos now) override;
  void onGate(const GateStore& store, Nanos now) override;
  void onGuest(const GuestNews& news, Nanos now) override;

 private:
  struct Process {
    std::uint64_t task = 0;
    bool lives = true;
    bool pastOpen = false;   // obeys a page of an earlier life, whose gate is open
    std::uint32_t life = 0;  // of the manager that it is attached to
    std::uint32_t inFlight = 0;
    bool frozen = false;      // what is in flight stands still
    Nanos undoneBy = kNever;  // the driver put it back by itself: until when it may run
    Nanos lastRetired{0};
  };
  struct Task {
    std::uint64_t id = 0;
    std::uint32_t joinedIn = 0;  // the life in which it last joined a card
    Class taskClass = Class::Ordinary;
    bool exclusive = false;
    std::uint32_t cards = 0;  // mask
    bool honest = true;
    std::vector<std::uint32_t> processes;
    // Of this life.
    bool ordered = false;  // its gate word was stored
    bool open = false, notify = false, closed = false;
    std::uint32_t epoch = 0;
    std::uint32_t admitted = 0;  // processes that the manager has, also before they know it
    bool settled = false;        // told so, of its last hold
    bool toldBusy = false;
    Nanos noticeBy = kNever;  // its work must have been told by then
    Nanos deathBy = kNever;   // its death

    bool online() const { return taskClass == Class::Online; }
  };

  Task& taskOf(std::uint64_t id);
  void joined(const Carried& message);
  void shut(Task& task);
  void opened(Task& task, Nanos now);
  void openedOn(Task& task, std::uint32_t card, Nanos now);
  void attached(Task& task, Process& process);
  void submitted(Task& task, const Process& process, Nanos now);
  void died(Task& task, Process& process, Nanos now);
  void told(const Carried& message, Nanos now);
  void toldBusy(schema::Busy::Reader busy, Nanos now);
  void toldQuiet(schema::Quiet::Reader quiet, Nanos now);
  void toldSettled(schema::Settled::Reader settled, Nanos now);
  void checkStamp(std::uint64_t stamp, Nanos now);
  std::uint32_t inFlight(const Task& task, bool running) const;
  void awaitUntil(Nanos at) { due_ = std::min(due_, at); }
  void cardLoopRuns(Nanos now);
  bool isLate(Nanos by, Nanos now) const;
  void overdue(Nanos now);
  void violated(const char* invariant, const Task& task, const std::string& what);

  Verdict& verdict_;
  std::unordered_map<std::uint64_t, std::uint32_t> taskIndex_;  // never iterated
  std::vector<Task> tasks_;
  std::unordered_map<std::uint32_t, Process> processes_;  // never iterated
  std::vector<std::vector<std::uint64_t>> openOn_;        // by card: tasks, not online
  std::vector<ActorId> cards_;
  ActorId attach_{};
  std::uint32_t life_ = 0;
  bool serves_ = false;
  Nanos bootAt_{0};
  Nanos startedAt_ = kNever;  // when the attach server heard that the node has
  Nanos due_ = kNever;
  Nanos active_{0};   // when the cards' loop was last seen to do something ...
  Nanos resumed_{0};  // ... and when, after having done nothing for long
};

}  // namespace qgpu::sim
