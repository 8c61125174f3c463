#pragma once
// A14: what a task's processes were given never exceeds its quota, over all of them and at any
// instant, and what a dead process had returns once. Judged of tasks whose processes all let their
// pages alone: a page that is scribbled on harms its owner alone.

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "tests/sim/watch.h"

namespace qgpu::sim {

class MemoryCheck final : public Watch {
 public:
  explicit MemoryCheck(Verdict& verdict) : verdict_(verdict) {}

  void onBoot(const Boot& boot, Nanos now) override;
  void onEnd(Ending ending, Nanos now) override;
  void onSent(const Carried& message, Nanos now) override;
  void onGuest(const GuestNews& news, Nanos now) override;

 private:
  struct Process {
    std::int64_t bytes = 0;
    std::uint32_t life = 0;  // of the manager that it is attached to
    bool lives = true;
    bool returned = false;
  };
  struct Task {
    std::int64_t quota = 0;  // 0: not told
    std::int64_t bytes = 0;  // that did not return
    bool honest = true;
    bool silent = false;  // one of them stands still, perhaps in the middle of a reservation
    std::vector<std::uint32_t> processes;
    Nanos aboveSince = kNever;  // the manager counts more than there is
    std::uint32_t losses = 0;   // of the run dir, which names the processes whose slots are
                                // kept, or of the database, before its first process
    std::uint32_t above = 0;    // in that many reports
  };
  void told(Task& task, schema::Used::Reader used, Nanos now);

  Verdict& verdict_;
  std::unordered_map<std::uint64_t, Task> tasks_;         // never iterated
  std::unordered_map<std::uint32_t, Process> processes_;  // never iterated
  ActorId attach_{};
  std::uint32_t life_ = 0;
  std::uint32_t losses_ = 0;
};

}  // namespace qgpu::sim
