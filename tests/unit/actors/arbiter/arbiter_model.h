#pragma once
// A card and its tenants in miniature, closed into a loop with the arbiter: each tenant runs a
// kernel while its gate is open, thinks for a gap, and wants again; a hold settles after a given
// time. All of it in virtual time and in one thread, so that ten seconds of a card take
// milliseconds and the same seed gives the same run. Every answer of the arbiter is judged by the
// checker on the way; failure() is its first complaint.

#include <cstdint>
#include <string>
#include <vector>

#include "actors/arbiter/arbiter.h"
#include "tests/unit/actors/arbiter/arbiter_checker.h"

namespace qgpu {

struct ModelTask {
  ArbiterTask spec;
  Nanos kernel = millis(1);  // card time of one piece of work
  Nanos gap{0};              // from its end to the next submit; 0: always busy
  Nanos settle{0};           // from hold to settled
  Nanos startAt{0};          // first submit
  Nanos pauseAt = kNever;    // wants nothing in [pauseAt, resumeAt)
  Nanos resumeAt = kNever;
};

class ArbiterModel {
 public:
  // jitterNs: every kernel, gap and settling varies by up to this much, drawn from the seed.
  ArbiterModel(ArbiterConfig config, std::vector<ModelTask> tasks, std::uint64_t seed = 0,
               Nanos jitter = Nanos(0));

  void runUntil(Nanos end);
  Nanos now() const { return now_; }
  Arbiter& arbiter() { return arbiter_; }
  Nanos worked(std::size_t index) const { return states_[index].worked; }
  // Card time charged to a task so far, debts included.
  Nanos charged(std::size_t index) const;
  std::uint64_t orders() const { return orders_; }

  const std::string& failure() const { return failure_; }

 private:
  struct State {
    bool open = false;     // the gate word
    bool wants = false;    // as told to the arbiter
    bool working = false;  // a kernel is unfinished (it stands still while held)
    Nanos left{0};         // of the kernel
    Nanos submitAt{0};     // next submit, if not working
    Nanos runsUntil{0};    // behind a shut gate: the patience of its hold
    Nanos settleAt = kNever;
    std::uint32_t settleEpoch = 0;
    Nanos worked{0};
  };

  Nanos vary(Nanos base);
  Nanos nextEvent() const;
  void advance(Nanos to);
  void step();
  bool runs(const State& state) const { return state.open || now_ < state.runsUntil; }
  void tell(ArbiterEvent::Kind kind, std::size_t index, Nanos since, std::uint32_t epoch = 0);
  void obey();
  bool pausedAt(std::size_t index, Nanos at) const;

  ArbiterConfig config_;
  std::vector<ModelTask> tasks_;
  std::vector<State> states_;
  Nanos now_{0};
  std::uint64_t random_;
  Nanos jitter_;
  Arbiter arbiter_;
  ArbiterChecker checker_;
  std::string failure_;
  Decisions out_;
  std::uint64_t orders_ = 0;
};

}  // namespace qgpu
