// Claim: with the gate open, libqgpu.so adds at most 20 ns to a cuLaunchKernel, and at most 30
// where a thread takes turns between two streams. A million empty launches on the stand-in
// driver, with the library preloaded and without, in turns of the same run; processor time of
// the launching thread, medians over the turns, so that a busy machine counts less. The
// stand-in's own launch is part of both. Not a figure of a card: there a launch takes about two
// microseconds, and the library's part of it is what is measured here.
//
// And: what it adds to an ioctl() that is not NVIDIA's, and to an fcntl() that copies nothing, by
// which other libraries and every terminal and socket pay, is a few nanoseconds: the same turns, in
// front of calls that do nothing.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fcntl.h>
#include <string>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <vector>

#include "tests/cuda_stand_in/stand_in.h"
#include "tests/testing/child_process.h"
#include "tests/unit/services/guest/fake_manager.h"

namespace qgpu {
namespace {

constexpr int kLaunches = 1'000'000;
constexpr int kTurns = 5;
constexpr int kRounds = 10;  // of a turn, each a tenth of the launches
constexpr double kMostNs = 20;
constexpr double kMostAlternatingNs = 30;
constexpr double kMostIoctlNs = 5;

double threadNs() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e9 + static_cast<double>(t.tv_nsec);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

using namespace nvidia::cuda;  // the names of the interface

// Nanoseconds of one of a million calls; negative: one of them failed.
template <typename Call>
double perCall(Call call) {
  std::vector<double> rounds;
  for (int round = 0; round < kRounds; ++round) {
    const int each = kLaunches / kRounds;
    const double start = threadNs();
    for (int i = 0; i < each; ++i) {
      if (!call()) return -1;
    }
    rounds.push_back((threadNs() - start) / each);
  }
  return median(rounds);
}

int told(double ns) {
  std::printf("%.3f\n", ns);
  return ns < 0 ? 1 : 0;
}
int askAll() {
  return told(perCall([] { return ioctl(-1, TIOCOUTQ, nullptr) == 0; }));
}
int controlAll() {
  return told(perCall([] { return fcntl(-1, F_GETFL) == 0; }));
}

// --- the program that launches ---

// In turns to so many streams.
template <std::size_t count>
int launchAll() {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) return std::fprintf(stderr, "bench_cuda_hook: %s\n", dlerror()), 1;
  const auto find = [&](const char* name) { return dlsym(library, name); };
  Ctx context = nullptr;
  Mod module = nullptr;
  Fn nothing = nullptr;
  Str streams[count] = {};
  reinterpret_cast<Result (*)(U)>(find("cuInit"))(0);
  reinterpret_cast<Result (*)(Ctx*, U, Dev)>(find("cuCtxCreate_v2"))(&context, 0, 0);
  reinterpret_cast<Result (*)(Mod*, const void*)>(find("cuModuleLoadData"))(&module, "");
  reinterpret_cast<Result (*)(Fn*, Mod, const char*)>(find("cuModuleGetFunction"))(&nothing, module,
                                                                                   "nothing");
  for (Str& each : streams) reinterpret_cast<Result (*)(Str*, U)>(find("cuStreamCreate"))(&each, 0);
  const auto launch = reinterpret_cast<decltype(Calls::cuLaunchKernel)>(find("cuLaunchKernel"));
  std::size_t next = 0;
  return told(perCall([&] {
    const Str stream = streams[next++ % count];
    return launch(nothing, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr) == kSuccess;
  }));
}

// --- the turns ---

// Nanoseconds of a call; negative: the program failed.
double turn(const char* self, const char* what, const testing::Environment& environment) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return -1;
  const pid_t child = testing::startProgram({self, what}, environment, {.out = ends[1]});
  close(ends[1]);
  FILE* answer = fdopen(ends[0], "r");
  double ns = -1;
  if (std::fscanf(answer, "%lf", &ns) != 1) ns = -1;
  std::fclose(answer);
  int status = 0;
  waitpid(child, &status, 0);
  return status == 0 ? ns : -1;
}

struct Figures {
  std::vector<double> without, with, added;

  // False: a program failed.
  bool take(double bare, double hooked) {
    without.push_back(bare);
    with.push_back(hooked);
    added.push_back(hooked - bare);
    return bare >= 0 && hooked >= 0;
  }
};

int run(const char* self) {
  testing::FakeManager::Options options;
  options.platform = "NVIDIA CUDA";
  testing::FakeManager manager(options);
  const testing::Environment bare = {{"LD_LIBRARY_PATH", QGPU_STAND_IN_DIR}};
  const auto tenant = [&](const std::string& preload) {
    testing::Environment environment = bare;
    environment["QGPU_SOCKET"] = manager.socketPath();
    environment["QGPU_TOKEN"] = testing::FakeManager::token();
    environment["LD_PRELOAD"] = preload;
    return environment;
  };
  const std::string library = QGPU_GUEST_LIBRARY, nothing = QGPU_NOTHING_IOCTL;
  Figures launches, alternating, ioctls, controls;
  for (int i = 0; i < kTurns; ++i) {
    const bool ran =
        launches.take(turn(self, "launch", bare), turn(self, "launch", tenant(library))) &&
        alternating.take(turn(self, "launch2", bare), turn(self, "launch2", tenant(library))) &&
        ioctls.take(turn(self, "ioctl", tenant(nothing)),
                    turn(self, "ioctl", tenant(library + " " + nothing))) &&
        controls.take(turn(self, "fcntl", tenant(nothing)),
                      turn(self, "fcntl", tenant(library + " " + nothing)));
    if (!ran) return std::fprintf(stderr, "bench_cuda_hook: a measured program failed\n"), 1;
  }
  std::uint64_t admitted = 0;
  constexpr std::uint32_t kTenants = 2 * kTurns;  // that launch
  for (std::uint32_t i = 0; i < kTenants; ++i) admitted += manager.slot(i).admitted;
  const bool all = admitted == std::uint64_t{kTenants} * kLaunches;
  const bool quick = median(launches.added) <= kMostNs &&
                     median(alternating.added) <= kMostAlternatingNs &&
                     median(ioctls.added) <= kMostIoctlNs && median(controls.added) <= kMostIoctlNs;
  std::printf(
      "{\"bench\":\"cuda_hook\",\"launches\":%d,\"bare_ns\":%.1f,\"preloaded_ns\":%.1f,"
      "\"added_ns\":%.1f,\"two_streams_bare_ns\":%.1f,\"two_streams_preloaded_ns\":%.1f,"
      "\"two_streams_added_ns\":%.1f,\"all_counted\":%s,\"ioctl_bare_ns\":%.1f,"
      "\"ioctl_preloaded_ns\":%.1f,\"ioctl_added_ns\":%.1f,\"fcntl_bare_ns\":%.1f,\"fcntl_"
      "preloaded_ns\":%.1f,"
      "\"fcntl_added_ns\":%.1f,\"ok\":%s}\n",
      kLaunches, median(launches.without), median(launches.with), median(launches.added),
      median(alternating.without), median(alternating.with), median(alternating.added),
      all ? "true" : "false", median(ioctls.without), median(ioctls.with), median(ioctls.added),
      median(controls.without), median(controls.with), median(controls.added),
      all && quick ? "true" : "false");
  return all ? 0 : 1;
}

}  // namespace
}  // namespace qgpu

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "launch") == 0) return qgpu::launchAll<1>();
  if (argc > 1 && std::strcmp(argv[1], "launch2") == 0) return qgpu::launchAll<2>();
  if (argc > 1 && std::strcmp(argv[1], "ioctl") == 0) return qgpu::askAll();
  if (argc > 1 && std::strcmp(argv[1], "fcntl") == 0) return qgpu::controlAll();
  return qgpu::run(argv[0]);
}
