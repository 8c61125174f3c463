#pragma once
// What the kernel says of another process: whether it is the one that was meant (start time), when
// it is dead (pidfd), and which of its threads is which across pid namespaces. A pid alone is
// never trusted, because the kernel gives it out again.

#include <cstdint>
#include <map>
#include <optional>

#include "runtime/fd.h"
#include "runtime/result.h"
#include "runtime/units.h"

namespace qgpu {

// Field 22 of /proc/PID/stat, in clock ticks since boot; nothing when there is no such process.
std::optional<std::uint64_t> processStart(std::uint32_t pid);

// The pid that a process has in its own namespace; 0 when there is no such process.
std::uint32_t ownPid(std::uint32_t pid);

// A pidfd of exactly the process that had `pid` and started at `start` (0: whoever has the pid).
// Empty when that one is dead. Unavailable when there is no descriptor left to find that out.
Result<Fd> openProcess(std::uint32_t pid, std::uint64_t start);

bool processDead(const Fd& pidfd);

// True: no thread of it goes on until somebody lets it: it was stopped by a signal, by a debugger
// or with its cgroup (of version 2; the older freezer does not show). Not known: false.
bool processStopped(std::uint32_t pid);

// False when the process is gone.
bool signalProcess(const Fd& pidfd, int signal);

// Thread ids of one process as it sees them itself, translated to the ones that the manager's pid
// namespace knows. Same namespace: the same numbers, and /proc is not read.
class ThreadIds {
 public:
  ThreadIds() = default;
  ThreadIds(std::uint32_t hostPid, std::uint32_t ownPid) : hostPid_(hostPid), ownPid_(ownPid) {}
  // 0 when the process has no such thread. Reads /proc/PID/task at most once in `kRereadEvery`.
  std::uint32_t host(std::uint32_t own, Nanos now);

 private:
  static constexpr Nanos kRereadEvery = millis(100);
  void reread();
  std::uint32_t hostPid_ = 0;
  std::uint32_t ownPid_ = 0;
  Nanos readAt_ = -kRereadEvery;
  std::map<std::uint32_t, std::uint32_t> known_;
};

}  // namespace qgpu
