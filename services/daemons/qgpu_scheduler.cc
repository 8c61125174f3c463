// qgpu-scheduler: the daemon of a cluster.

#include <cstdio>
#include <string>
#include <variant>

#include "runtime/log.h"
#include "services/daemons/log_format.h"
#include "services/daemons/restore.h"
#include "services/daemons/restore_etcd.h"
#include "services/daemons/scheduler.h"
#include "services/daemons/scheduler_options.h"

namespace qgpu {
namespace {

int refuse(const Error& error) {
  std::fprintf(stderr, "qgpu-scheduler: %s\n", error.message.c_str());
  return static_cast<int>(ExitCode::Usage);
}

int restore(const SchedulerDaemonOptions& options) {
  auto copy = copyFor(options.restore, "scheduler", "");
  if (!copy) return refuse(copy.error());
  const Status done = options.etcd ? restoreEtcd(*copy, *options.etcd, options.hostname)
                                   : restoreFile(*copy, options.dbfile);
  if (!done) return refuse(done.error());
  const std::string where =
      options.etcd ? "etcd below " + options.etcd->prefix : options.dbfile;
  std::fputs(restored(*copy, where).c_str(), stdout);
  return static_cast<int>(ExitCode::Ok);
}

int main(int argc, const char* const* argv) {
  const auto parsed = parseSchedulerOptions(argc, argv, Platform::ofThisProcess());
  if (const auto* now = std::get_if<ExitNow>(&parsed)) {
    std::fputs(now->text.c_str(), now->code == 0 ? stdout : stderr);
    return now->code;
  }
  const auto& options = std::get<SchedulerDaemonOptions>(parsed);
  if (!options.restore.empty()) return restore(options);
  Log log(options.logLevel, logShape(options.logFormat));
  auto scheduler = Scheduler::open(options, log);
  if (!scheduler) return refuse(scheduler.error());
  (*scheduler)->run();
  return static_cast<int>(ExitCode::Ok);
}

}  // namespace
}  // namespace qgpu

int main(int argc, char** argv) {
  return qgpu::main(argc, argv);
}
