#include "services/cards/suspend/check_program.h"

#include <cstdio>
#include <cstdlib>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "services/cards/suspend/card_check.h"

namespace qgpu::suspend {
namespace {

constexpr std::uint32_t kToggles = 3;

}  // namespace

int checkCard(int argc, char** argv) {
  if (argc != 7) return 2;
  const std::size_t method = std::strtoul(argv[5], nullptr, 10);
  if (method >= std::size(kSuspendMethods)) return 2;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != std::atoi(argv[6])) return 2;
  SelfTestOptions what;
  what.uuid = argv[2];
  what.driverVersion = argv[3];
  what.minor = std::atoi(argv[4]);
  what.probe = "/proc/self/exe";
  what.only = kSuspendMethods[method];
  what.toggles = kToggles;
  const SelfTest found = testSuspend(what);
  const Verdict::Says says = found.method ? Verdict::Says::kWorks
                             : found.sure ? Verdict::Says::kFails
                                          : Verdict::Says::kUnclear;
  std::printf("%s %.400s\n", kVerdictWords[static_cast<int>(says)], found.why.c_str());
  return 0;
}

}  // namespace qgpu::suspend
