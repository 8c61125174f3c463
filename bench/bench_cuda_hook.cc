// Claim: with the gate open, libqgpu.so adds at most 20 ns to a cuLaunchKernel. A million empty
// launches on the stand-in driver, with the library preloaded and without, in turns of the same
// run; processor time of the launching thread, medians over the turns, so that a busy machine
// counts less. The stand-in's own launch is part of both. Not a figure of a card: there a launch
// takes about two microseconds, and the library's part of it is what is measured here.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <string>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <vector>

#include "tests/cuda_stand_in/stand_in.h"
#include "tests/unit/fake_manager.h"

extern char** environ;

namespace qgpu {
namespace {

constexpr int kLaunches = 1'000'000;
constexpr int kTurns = 5;
constexpr int kRounds = 10;  // of a turn, each a tenth of the launches
constexpr double kMostNs = 20;

double threadNs() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e9 + static_cast<double>(t.tv_nsec);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

using namespace cuda;  // the names of the interface

// --- the program that launches ---

int launchAll() {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) return std::fprintf(stderr, "bench_cuda_hook: %s\n", dlerror()), 1;
  const auto find = [&](const char* name) { return dlsym(library, name); };
  Ctx context = nullptr;
  Mod module = nullptr;
  Fn nothing = nullptr;
  Str stream = nullptr;
  reinterpret_cast<Result (*)(U)>(find("cuInit"))(0);
  reinterpret_cast<Result (*)(Ctx*, U, Dev)>(find("cuCtxCreate_v2"))(&context, 0, 0);
  reinterpret_cast<Result (*)(Mod*, const void*)>(find("cuModuleLoadData"))(&module, "");
  reinterpret_cast<Result (*)(Fn*, Mod, const char*)>(find("cuModuleGetFunction"))(&nothing, module,
                                                                                   "nothing");
  reinterpret_cast<Result (*)(Str*, U)>(find("cuStreamCreate"))(&stream, 0);
  const auto launch = reinterpret_cast<decltype(Calls::cuLaunchKernel)>(find("cuLaunchKernel"));
  std::vector<double> perLaunch;
  for (int round = 0; round < kRounds; ++round) {
    const int each = kLaunches / kRounds;
    const double start = threadNs();
    for (int i = 0; i < each; ++i) {
      if (launch(nothing, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr) != kSuccess) return 1;
    }
    perLaunch.push_back((threadNs() - start) / each);
  }
  std::printf("%.3f\n", median(perLaunch));
  return 0;
}

// --- the turns ---

// Nanoseconds of a launch; negative: the program failed.
double turn(const char* self, const std::vector<std::string>& environment) {
  int ends[2];
  if (pipe(ends) != 0) return -1;
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDOUT_FILENO);
    for (const std::string& each : environment) putenv(const_cast<char*>(each.c_str()));
    execl(self, self, "launch", nullptr);
    _exit(127);
  }
  close(ends[1]);
  FILE* answer = fdopen(ends[0], "r");
  double ns = -1;
  if (std::fscanf(answer, "%lf", &ns) != 1) ns = -1;
  std::fclose(answer);
  int status = 0;
  waitpid(child, &status, 0);
  return status == 0 ? ns : -1;
}

int run(const char* self) {
  testing::FakeManager::Options options;
  options.platform = "NVIDIA CUDA";
  testing::FakeManager manager(options);
  const std::string folder = "LD_LIBRARY_PATH=" QGPU_STAND_IN_DIR;
  const std::vector<std::string> bare = {folder};
  const std::vector<std::string> hooked = {folder, "LD_PRELOAD=" QGPU_GUEST_LIBRARY,
                                           "QGPU_SOCKET=" + manager.socketPath(),
                                           "QGPU_TOKEN=" + testing::FakeManager::token()};
  std::vector<double> without, with, added;
  for (int i = 0; i < kTurns; ++i) {
    without.push_back(turn(self, bare));
    with.push_back(turn(self, hooked));
    if (without.back() < 0 || with.back() < 0) {
      return std::fprintf(stderr, "bench_cuda_hook: a launching program failed\n"), 1;
    }
    added.push_back(with.back() - without.back());
  }
  std::uint64_t admitted = 0;
  for (std::uint32_t i = 0; i < kTurns; ++i) admitted += manager.slot(i).admitted;
  const bool all = admitted == std::uint64_t{kTurns} * kLaunches;
  std::printf(
      "{\"bench\":\"cuda_hook\",\"launches\":%d,\"bare_ns\":%.1f,\"preloaded_ns\":%.1f,"
      "\"added_ns\":%.1f,\"all_counted\":%s,\"ok\":%s}\n",
      kLaunches, median(without), median(with), median(added), all ? "true" : "false",
      all && median(added) <= kMostNs ? "true" : "false");
  return all ? 0 : 1;
}

}  // namespace
}  // namespace qgpu

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "launch") == 0) return qgpu::launchAll();
  return qgpu::run(argv[0]);
}
