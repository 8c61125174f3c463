#include "runtime/realtime.h"

#include <cstdint>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace qgpu {

namespace {

constexpr int kFifoPriority = 10;            // above ordinary threads, below the kernel's own (50)
constexpr std::uint64_t kSliceNs = 100'000;  // the least that the kernel takes
constexpr int kNice = -10;

// struct sched_attr of sched_setattr(2), first version; glibc 2.36 has no header for it that may
// stand beside <sched.h>.
struct SchedAttr {
  std::uint32_t size;
  std::uint32_t policy;
  std::uint64_t flags;
  std::int32_t nice;
  std::uint32_t priority;
  std::uint64_t runtimeNs;
  std::uint64_t deadlineNs;
  std::uint64_t periodNs;
};

bool askFifo() {
  sched_param param{};
  param.sched_priority = kFifoPriority;
  return sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &param) == 0;
}

// Kernels before 6.12 ignore the slice of a default thread, so it is read back.
bool askSlice() {
  SchedAttr attr{};
  attr.size = sizeof attr;
  attr.policy = SCHED_OTHER;
  attr.runtimeNs = kSliceNs;
  if (syscall(SYS_sched_setattr, 0, &attr, 0) != 0) return false;
  SchedAttr got{};
  return syscall(SYS_sched_getattr, 0, &got, sizeof got, 0) == 0 && got.runtimeNs == kSliceNs;
}

bool askNice() {
  return setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), kNice) == 0;
}

}  // namespace

const char* askRealtime() {
  if (askFifo()) return "fifo";
  if (askSlice()) return "slice";
  return askNice() ? "nice" : "none";
}

}  // namespace qgpu
