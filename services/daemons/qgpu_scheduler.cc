// qgpu-scheduler: the daemon of a cluster.

#include <cstdio>
#include <variant>

#include "runtime/log.h"
#include "services/daemons/scheduler.h"
#include "services/daemons/scheduler_options.h"

namespace qgpu {
namespace {

int main(int argc, const char* const* argv) {
  const auto parsed = parseSchedulerOptions(argc, argv, Platform::ofThisProcess());
  if (const auto* now = std::get_if<ExitNow>(&parsed)) {
    std::fputs(now->text.c_str(), now->code == 0 ? stdout : stderr);
    return now->code;
  }
  const auto& options = std::get<SchedulerDaemonOptions>(parsed);
  Log log(options.logLevel);
  auto scheduler = Scheduler::open(options, log);
  if (!scheduler) {
    std::fprintf(stderr, "qgpu-scheduler: %s\n", scheduler.error().message.c_str());
    return static_cast<int>(ExitCode::Usage);
  }
  (*scheduler)->run();
  return static_cast<int>(ExitCode::Ok);
}

}  // namespace
}  // namespace qgpu

int main(int argc, char** argv) {
  return qgpu::main(argc, argv);
}
