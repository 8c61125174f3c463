#include "services/guest/gate/freeze.h"

#include <csignal>
#include <cstring>
#include <dirent.h>

#include "services/guest/gate/attach.h"

namespace qgpu::guest {
namespace {

constexpr std::uint64_t kFrozenWaitNs = 100 * kNsPerMs;  // between two looks at the heartbeat
constexpr int kBelowMax = 3;                             // SIGRTMAX - 3

std::atomic<bool> handlerInstalled{false};

bool mustStop(std::uint32_t gate) {
  return (gate & QGPU_GATE_FROZEN) && !(gate & QGPU_GATE_OPEN) &&
         !session.orphan.load(std::memory_order_relaxed) && !managerLost();
}

// Async-signal-safe: shared words, raw system calls and the vDSO's clock only.
void onFreeze(int) {
  if (session.state.load() != State::kAttached) return;
  const int saved = errno;
  std::uint32_t gate = loadShared(session.gate->gate);
  if (mustStop(gate)) {
    qgpu_slot& slot = *session.slot;
    std::uint32_t stopped = shared(slot.frozen).fetch_add(1) + 1;
    storeRelaxed(slot.frozen_ns, nowNs());
    if (stopped == loadRelaxed(slot.driver_threads)) ringDoorbell();
    do {
      futexWait(&session.gate->gate, gate, kFrozenWaitNs);
      gate = loadShared(session.gate->gate);
    } while (mustStop(gate));
    shared(slot.frozen).fetch_sub(1);
    // The manager woke one of the frozen; each that goes on wakes the next (HAZARDS 15).
    futexWake(&session.gate->gate, 1);
  }
  errno = saved;
}

// Whether the signal still leads to the handler here: the application may have taken it since.
bool handlerIsOurs() {
  struct sigaction present;
  return sigaction(SIGRTMAX - kBelowMax, nullptr, &present) == 0 && present.sa_handler == onFreeze;
}

bool installHandler() {
  if (handlerInstalled.load()) return handlerIsOurs();
  const int number = static_cast<int>(freezeSignal());
  if (number == 0) return false;
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = onFreeze;
  action.sa_flags = SA_RESTART;
  sigfillset(&action.sa_mask);  // the application's handlers don't run on a frozen thread
  handlerInstalled.store(sigaction(number, &action, nullptr) == 0);
  return handlerInstalled.load();
}

constexpr std::size_t kCpuWords = 128;
constexpr std::size_t kCpuBits = 64;

// The CPUs on which a thread may run.
struct CpuSet {
  std::uint64_t word[kCpuWords] = {};

  bool read(std::uint32_t tid) {
    return syscall(SYS_sched_getaffinity, tid, sizeof word, word) > 0;
  }
  void apply(std::uint32_t tid) const {
    syscall(SYS_sched_setaffinity, tid, sizeof word, word);  // refused: it stays where it may be
  }
  bool has(std::size_t cpu) const { return word[cpu / kCpuBits] >> cpu % kCpuBits & 1; }
  void add(std::size_t cpu) { word[cpu / kCpuBits] |= 1ull << cpu % kCpuBits; }
  std::size_t next(std::size_t cpu) const {  // after `cpu`, in turn; there is one
    do {
      cpu = (cpu + 1) % (kCpuWords * kCpuBits);
    } while (!has(cpu));
    return cpu;
  }
  bool operator==(const CpuSet& other) const { return !memcmp(word, other.word, sizeof word); }
};

// Who may run wherever its process may was placed by nobody.
void spread(const std::uint32_t* tids, std::uint32_t count) {
  CpuSet process;
  if (!process.read(0)) return;
  for (std::uint32_t i = 0; i < count; ++i) {
    CpuSet of;
    if (!of.read(tids[i]) || !(of == process)) return;
  }
  std::size_t cpu = kCpuWords * kCpuBits - 1;
  for (std::uint32_t i = 0; i < count; ++i) {
    CpuSet own;
    own.add(cpu = process.next(cpu));
    own.apply(tids[i]);
  }
}

bool contains(const ThreadList& list, std::uint32_t tid) {
  for (int i = 0; i < list.count; ++i) {
    if (list.tid[i] == tid) return true;
  }
  return false;
}

}  // namespace

std::uint32_t freezeSignal() {
  const int number = SIGRTMAX - kBelowMax;
  if (handlerInstalled.load()) return handlerIsOurs() ? static_cast<std::uint32_t>(number) : 0;
  struct sigaction present;
  if (sigaction(number, nullptr, &present) != 0) return 0;
  return present.sa_handler == SIG_DFL ? static_cast<std::uint32_t>(number) : 0;
}

void listThreads(ThreadList& list) {
  list.count = 0;
  DIR* folder = opendir("/proc/self/task");
  if (!folder) {
    list.count = ThreadList::kMost + 1;
    return;
  }
  while (const dirent* entry = readdir(folder)) {
    std::uint32_t tid = 0;
    for (const char* p = entry->d_name; *p >= '0' && *p <= '9'; ++p) {
      tid = tid * 10 + static_cast<std::uint32_t>(*p - '0');
    }
    if (tid == 0) continue;
    if (list.count < ThreadList::kMost) list.tid[list.count] = tid;
    ++list.count;
  }
  closedir(folder);
}

std::uint64_t admitFreezeSignal() {
  std::uint64_t before = 0;
  const std::uint64_t only = freezeSignal() ? 1ull << (freezeSignal() - 1) : 0;
  syscall(SYS_rt_sigprocmask, 1 /* SIG_UNBLOCK */, &only, &before, sizeof before);
  return before;
}

void restoreMask(std::uint64_t mask) {
  syscall(SYS_rt_sigprocmask, 2 /* SIG_SETMASK */, &mask, nullptr, sizeof mask);
}

bool publishDriverThreads(const ThreadList& before, const ThreadList& after,
                          std::uint32_t expected) {
  if (before.count > ThreadList::kMost || after.count > ThreadList::kMost) return false;
  std::uint32_t fresh[QGPU_DRIVER_THREADS];
  std::uint32_t count = 0;
  for (int i = 0; i < after.count; ++i) {
    if (contains(before, after.tid[i])) continue;
    if (count == QGPU_DRIVER_THREADS) return false;
    fresh[count++] = after.tid[i];
  }
  if (count == 0 || count != expected || !installHandler()) return false;
  qgpu_slot& slot = *session.slot;
  for (std::uint32_t i = 0; i < count; ++i) storeRelaxed(slot.tids[i], fresh[i]);
  shared(slot.driver_threads).store(count);
  spread(fresh, count);
  return true;
}

void withdrawIfSignalWasTaken() {
  qgpu_slot& slot = *session.slot;
  if (loadRelaxed(slot.driver_threads) == 0 || handlerIsOurs()) return;
  shared(slot.driver_threads).store(0);
  say("the application took signal %d: its kernels are no longer stopped in the middle",
      SIGRTMAX - kBelowMax);
}

}  // namespace qgpu::guest
