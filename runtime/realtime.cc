#include "runtime/realtime.h"

#include <cstdint>
#include <fcntl.h>
#include <linux/capability.h>
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

// Whether the kernel lets real-time threads have all the time that there is.
bool unlimited(const char* limit) {
  char text[16] = {};
  const int fd = open(limit, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const ssize_t n = read(fd, text, sizeof text - 1);
  close(fd);
  return n > 0 && text[0] == '-';
}

bool askFifo() {
  sched_param param{};
  param.sched_priority = kFifoPriority;
  return sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &param) == 0;
}

bool maySetPriorities() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {};
  return syscall(SYS_capget, &header, data) == 0 &&
         (data[CAP_TO_INDEX(CAP_SYS_NICE)].effective & CAP_TO_MASK(CAP_SYS_NICE)) != 0;
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

Realtime askRealtime(const char* limit) {
  Realtime realtime;
  if (unlimited(limit)) {
    realtime.why = "kernel.sched_rt_runtime_us is -1, so SCHED_FIFO is declined; set it to 950000";
  } else if (askFifo()) {
    return {"fifo", ""};
  } else if (maySetPriorities()) {
    // CONFIG_RT_GROUP_SCHED gives each cgroup of v1 real-time of its own, which is none at first.
    realtime.why =
        "SCHED_FIFO is refused in spite of CAP_SYS_NICE: a cgroup of v1 needs cpu.rt_runtime_us, a "
        "service RestrictRealtime=no";
  } else {
    realtime.why = "SCHED_FIFO is not permitted; root or CAP_SYS_NICE gives it";
  }
  realtime.got = askSlice() ? "slice" : askNice() ? "nice" : "none";
  return realtime;
}

}  // namespace qgpu
