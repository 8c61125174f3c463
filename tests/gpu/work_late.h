#pragma once
// Work that a program begins beside what it does already: contexts with streams of their own, and
// so channels that come while its others may be off the card. What they compute is told by sums.

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "tests/gpu/work_driver.h"

namespace qgpu::gpu {

class LateWork {
 public:
  struct Asked {
    std::uint64_t count, rounds;
    std::string from, heard;  // files
  };

  // `count` contexts, in a thread of its own, once the file `from` exists. First "process PID" is
  // told, and all of them are made, each told as "late N". Then, once the file `heard` says that
  // the manager knows of them, each has its card call a function of the host, which waits at no
  // gate and tells "ran N"; then each runs a kernel of so many rounds.
  LateWork(const Driver& driver, Asked asked);
  LateWork(const LateWork&) = delete;
  LateWork& operator=(const LateWork&) = delete;

  // Waits for all of it. JSON fields: how many, how many of the host's functions ran, the sum of
  // the first, and whether all have it.
  std::string finish();

 private:
  struct One {
    Ctx context = nullptr;
    Str stream = nullptr;
    std::uint64_t sum = 0;
  };
  static void ran(void* self);
  void await(const std::string& file) const;
  void work();
  void run(One& one);

  const Driver& driver_;
  const Asked asked_;
  std::atomic<bool> ending_{false};
  std::atomic<unsigned> ran_{0};
  std::vector<One> all_;
  std::thread thread_;
};

}  // namespace qgpu::gpu
