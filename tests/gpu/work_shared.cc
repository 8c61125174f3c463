// Memory that two processes of one task hold by CUDA's IPC: one allocates it and is killed, the
// other holds on to it and then takes all that there is beside.

#include <cstdio>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "tests/gpu/work_driver.h"

namespace qgpu::gpu {
namespace {

// The one that allocates. It tells the memory's handle and waits for its end.
int lend(Size bytes) {
  Work work;
  Ptr at = 0;
  IpcMemory handle{};
  QGPU_MUST(work.driver.cuMemAlloc_v2(&at, bytes));
  QGPU_MUST(work.driver.cuIpcGetMemHandle(&handle, at));
  if (::write(1, &handle, sizeof handle) != sizeof handle) return 1;
  for (;;) ::pause();
}

// A process of its own for it, so that neither has the other's driver.
class Lender {
 public:
  explicit Lender(const std::string& mebibytes) {
    int ends[2];
    if (::pipe(ends) != 0) return;
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    ::posix_spawn_file_actions_addclose(&actions, ends[0]);
    std::string words[] = {"qgpu-gpu-work", "shared", "--role", "lender", "--shared", mebibytes};
    char* all[] = {words[0].data(), words[1].data(), words[2].data(), words[3].data(),
                   words[4].data(), words[5].data(), nullptr};
    if (::posix_spawn(&pid_, "/proc/self/exe", &actions, nullptr, all, environ) != 0) pid_ = -1;
    ::posix_spawn_file_actions_destroy(&actions);
    ::close(ends[1]);
    from_ = ends[0];
  }
  Lender(const Lender&) = delete;
  Lender& operator=(const Lender&) = delete;
  ~Lender() { kill(); }

  bool told(IpcMemory& handle) const {
    return pid_ > 0 && ::read(from_, &handle, sizeof handle) == sizeof handle;
  }
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    ::close(from_);
    pid_ = -1;
  }

 private:
  pid_t pid_ = -1;
  int from_ = -1;
};

Size freeBytes(const Work& work) {
  Size free = 0, total = 0;
  QGPU_MUST(work.driver.cuMemGetInfo_v2(&free, &total));
  return free;
}

// What the other had for itself comes back, which takes a moment.
void awaitMore(const Work& work, Size than) {
  constexpr int kTries = 400;
  for (int i = 0; i < kTries && freeBytes(work) <= than; ++i) ::poll(nullptr, 0, 5);
}

Result takeAll(const Work& work, Size piece, Size most, std::vector<Ptr>& taken) {
  Result rc = kSuccess;
  while (taken.size() * piece < most) {
    Ptr at = 0;
    rc = work.driver.cuMemAlloc_v2(&at, piece);
    if (rc != kSuccess) break;
    taken.push_back(at);
  }
  return rc;
}

}  // namespace

// --shared MIB --piece MIB --most MIB [--until FILE]: with FILE says "held" and keeps it till then.
int sharedWork(const Options& options) {
  const Size shared = options.number("shared", 256) * kMiB;
  if (options.text("role", "") == "lender") return lend(shared);
  const Size piece = options.number("piece", 64) * kMiB;
  const Size most = options.number("most", 1 << 20) * kMiB;
  Lender lender(std::to_string(shared / kMiB));
  IpcMemory handle{};
  if (!lender.told(handle)) {
    std::fprintf(stderr, "the process that shares its memory told no handle of it\n");
    return 1;
  }
  constexpr U kLazyPeers = 1;
  Work work;
  Ptr at = 0;
  QGPU_MUST(work.driver.cuIpcOpenMemHandle_v2(&at, handle, kLazyPeers));
  const Size before = freeBytes(work);
  lender.kill();
  awaitMore(work, before);
  std::vector<Ptr> taken;
  const Result refusal = takeAll(work, piece, most, taken);
  const Size got = taken.size() * piece;
  if (!options.text("until", "").empty()) {
    std::puts("held");
    std::fflush(stdout);
    while (!endAsked(options)) ::poll(nullptr, 0, 5);
  }
  QGPU_MUST(work.driver.cuIpcCloseMemHandle(at));
  const Result again = takeAll(work, piece, got + shared, taken);
  std::printf("{\"shared_bytes\":%zu,\"got_bytes\":%zu,\"error\":%d,\"again_error\":%d}\n", shared,
              got, refusal, again);
  return 0;
}

}  // namespace qgpu::gpu
