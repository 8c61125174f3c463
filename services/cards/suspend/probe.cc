// qgpu-suspend-probe VERSION ITERATIONS FD: the program whose work the self-test of suspend=rm
// takes off a card and puts back. It keeps the card busy with a kernel that counts, copies the
// count to the shared page behind FD all the time, and tells on stdout which channels it has: what
// it says to the kernel driver passes its own ioctl(). On a line from stdin it ends, and says
// whether every launch counted exactly what it should, however often it was stopped.
//
// As qgpu-suspend-probe check ... it is the one who stops another such program: card_check.h. As
// qgpu-suspend-probe layout ... it tries a layout of the driver: layout_program.h.

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <linux/ioctl.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include "services/cards/suspend/check_program.h"
#include "services/cards/suspend/layout_program.h"
#include "services/cards/suspend/library.h"
#include "services/cards/suspend/probe_page.h"
#include "services/cards/suspend/spin_kernel.h"
#include "services/nvidia_abi/cuda_calls.h"
#include "services/nvidia_abi/rm_decode.h"

namespace {

using namespace qgpu;
using namespace qgpu::cuda;  // the names of the interface

rm::Layout layout = rm::Layout::kUnknown;
suspend::CallWatch* watch = nullptr;  // where a layout is tried

void tell(int fd, const rm::Call& call) {
  const bool followed = rm::isChannel(call.objectClass) || call.objectClass == rm::kChannelGroup;
  if (call.verb != rm::Verb::kAlloc || !followed || rm::statusOf(call) != rm::kOk) return;
  std::printf("%s %u %u %u %u %d\n", rm::isChannel(call.objectClass) ? "channel" : "group",
              call.client, rm::madeBy(call), call.parent, call.detail, fd);
}

int fail(const char* what, int code) {
  std::printf("failed %s %d\n", what, code);
  return 1;
}

struct Spin {
  suspend::Library cuda{"libcuda.so.1"};
  Fn kernel = nullptr;
  volatile std::uint64_t* progress = nullptr;
  std::uint64_t iterations = 0, launches = 0;

  const char* begin();
  bool launch();
};

const char* Spin::begin() {
  Ctx context = nullptr;
  Mod module = nullptr;
  void* word = nullptr;
  constexpr U kPortableAndMapped = 3;
  if (!cuda) return "libcuda.so.1";
  if (cuda.find<Result (*)(U)>("cuInit")(0)) return "cuInit";
  if (cuda.find<Result (*)(Ctx*, Dev)>("cuDevicePrimaryCtxRetain")(&context, 0)) return "context";
  if (cuda.find<Result (*)(Ctx)>("cuCtxSetCurrent")(context)) return "cuCtxSetCurrent";
  const auto load = cuda.find<Result (*)(Mod*, const void*)>("cuModuleLoadData");
  if (load(&module, suspend::kSpinPtx)) return "cuModuleLoadData";
  const auto function = cuda.find<Result (*)(Fn*, Mod, const char*)>("cuModuleGetFunction");
  if (function(&kernel, module, "spin")) return "cuModuleGetFunction";
  const auto host = cuda.find<Result (*)(void**, Size, U)>("cuMemHostAlloc");
  if (host(&word, sizeof(std::uint64_t), kPortableAndMapped)) return "cuMemHostAlloc";
  progress = static_cast<volatile std::uint64_t*>(word);
  *progress = 0;
  return nullptr;
}

bool Spin::launch() {
  void* arguments[] = {&iterations, &progress};
  launches++;
  return cuda.find<decltype(Calls::cuLaunchKernel)>("cuLaunchKernel")(
             kernel, 8, 1, 1, 256, 1, 1, 0, nullptr, arguments, nullptr) == kSuccess;
}

int spin(Spin& work, suspend::ProbePage* seen) {
  const auto query = work.cuda.find<Result (*)(Str)>("cuStreamQuery");
  const auto synchronize = work.cuda.find<Result (*)()>("cuCtxSynchronize");
  // What the driver makes at the first launch alone is told as well.
  if (!work.launch()) return fail("cuLaunchKernel", 0);
  if (const Result rc = synchronize()) return fail("cuCtxSynchronize", rc);
  std::printf("spins\n");
  std::fflush(stdout);
  pollfd end{STDIN_FILENO, POLLIN, 0};
  std::uint64_t asked = 0;
  while (::poll(&end, 1, 0) == 0) {
    // Two kernels are always there; when the first ends, its count says so.
    while (work.launches < 2 + asked) {
      if (!work.launch()) return fail("cuLaunchKernel", 0);
    }
    const std::uint64_t now = *work.progress;
    seen->count.store(now);
    seen->rounds.fetch_add(1);
    asked = now / suspend::countedBy(work.iterations);
    const Result state = query(nullptr);
    if (state != kSuccess && state != kNotReady) return fail("cuStreamQuery", state);
    ::usleep(50);
  }
  if (const Result rc = synchronize()) return fail("cuCtxSynchronize", rc);
  const bool exact = *work.progress == work.launches * suspend::countedBy(work.iterations);
  std::printf(exact ? "exact\n" : "failed count\n");
  return exact ? 0 : 1;
}

// The driver's own end is not waited for.
[[noreturn]] void tryLayout(const char* version, const char* major, const char* uuid) {
  suspend::CallWatch calls(rm::layoutOfMajor(std::strtoul(major, nullptr, 10)));
  watch = &calls;
  suspend::tryLayout(calls, version, uuid);
  std::fflush(stdout);
  ::_exit(0);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int ioctl(int fd, unsigned long request, ...) {
  va_list list;
  va_start(list, request);
  void* argument = va_arg(list, void*);
  va_end(list);
  static const auto real = reinterpret_cast<suspend::CallWatch::Ioctl>(::dlsym(RTLD_NEXT, "ioctl"));
  if (watch) return watch->pass(real, fd, request, argument);
  const int rc = real(fd, request, argument);
  if (rc == 0 && _IOC_TYPE(request) == rm::kIoctlType && argument) {
    const rm::Call call = rm::decode(layout, _IOC_NR(request), _IOC_SIZE(request), argument);
    tell(fd, call);
  }
  return rc;
}

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "check") == 0) return suspend::checkCard(argc, argv);
  if (argc == 5 && std::strcmp(argv[1], "layout") == 0) tryLayout(argv[2], argv[3], argv[4]);
  if (argc != 4) return 2;
  layout = rm::layoutOf(argv[1], std::strlen(argv[1]) + 1);
  Spin work;
  work.iterations = std::strtoull(argv[2], nullptr, 10);
  void* page = ::mmap(nullptr, sizeof(suspend::ProbePage), PROT_READ | PROT_WRITE, MAP_SHARED,
                      std::atoi(argv[3]), 0);
  if (page == MAP_FAILED || work.iterations == 0) return 2;
  if (const char* what = work.begin()) return fail(what, 0);
  return spin(work, static_cast<suspend::ProbePage*>(page));
}
