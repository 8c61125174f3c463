// qgpu-gpu-work: a plain CUDA program, the tenant of tests/gpu. It knows nothing of qgpu. It dies
// with whoever started it: a card that is being measured has no room for what a test left behind.

#include <cstdio>
#include <cstring>
#include <signal.h>
#include <sys/prctl.h>

#include "tests/gpu/work_driver.h"

int main(int argc, char** argv) {
  using namespace qgpu::gpu;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  struct Mode {
    const char* name;
    int (*run)(const Options&);
  };
  constexpr Mode kModes[] = {
      {"memory", memoryWork}, {"shared", sharedWork},       {"burn", burnWork},
      {"probe", probeWork},   {"verify", verifyWork},       {"disturb", disturbWork},
      {"launch", launchWork}, {"calibrate", calibrateWork}, {"lend", lendWork}};
  for (const Mode& mode : kModes) {
    if (argc > 1 && std::strcmp(argv[1], mode.name) == 0) {
      return mode.run(Options(argc - 2, argv + 2));
    }
  }
  std::fprintf(
      stderr,
      "usage: qgpu-gpu-work memory|shared|burn|probe|verify|disturb|launch|calibrate|lend ...\n");
  return 2;
}
