#include "services/attach/loop_platform.h"

#include <climits>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utility>

#include "services/attach/pages/guest_task.h"

namespace qgpu {

Nanos LoopPlatform::stored(std::uint64_t, const qgpu_gate_page&) {
  return loop_.now();
}

void LoopPlatform::wake(std::uint64_t, qgpu_gate_page& page, int waiters) {
  ::syscall(SYS_futex, &page.gate, FUTEX_WAKE, waiters, nullptr, nullptr, 0);
}

void LoopPlatform::wakePaging(qgpu_gate_page& page) {
  auto* epoch = reinterpret_cast<std::uint32_t*>(&page.paging) + 1;  // little-endian, both sides
  ::syscall(SYS_futex, epoch, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

GatePlatform::TimerKey LoopPlatform::at(Nanos when, std::function<void()> work) {
  return loop_.at(when, std::move(work));
}

void LoopPlatform::watchBell(GuestTask& task, std::function<void()> rang) {
  task.gate.bell = loop_.fds().watchEdge(task.pages.doorbellFd(), EPOLLIN,
                                         [rang = std::move(rang)](std::uint32_t) { rang(); });
}

void LoopPlatform::unwatchBell(GuestTask& task) {
  task.gate.bell.reset();
}

bool LoopPlatform::lives(const GuestProcess& process) {
  return signalProcess(process.pidfd, 0);
}

bool LoopPlatform::isStopped(const GuestProcess& process) {
  return processStopped(process.entry.pid);
}

bool LoopPlatform::stopThread(const GuestProcess& process, std::uint32_t tid) {
  return ::syscall(SYS_tgkill, static_cast<pid_t>(process.entry.pid), static_cast<pid_t>(tid),
                   static_cast<int>(process.freezeSignal)) == 0;
}

}  // namespace qgpu
