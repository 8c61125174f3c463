// qgpu-scheduler: the daemon of a cluster.

#include <cstdio>
#include <string>
#include <variant>

#include "runtime/log.h"
#include "services/base/host.h"
#include "services/daemons/log_format.h"
#include "services/daemons/restore.h"
#include "services/daemons/restore_etcd.h"
#include "services/daemons/scheduler.h"
#include "services/daemons/scheduler_options.h"
#include "services/replay/replay_mode.h"

namespace qgpu {
namespace {

constexpr int kDiffers = 1;  // a replay decides otherwise than its recording says

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
  const std::string where = options.etcd ? "etcd below " + options.etcd->prefix : options.dbfile;
  std::fputs(restored(*copy, where).c_str(), stdout);
  return static_cast<int>(ExitCode::Ok);
}

// What a recording says of itself, and how its replay went.
int replay(const SchedulerDaemonOptions& options) {
  ReplayOrder order{options.replay, options.untilUnixMs, options.explain, QGPU_VERSION, buildId()};
  const auto done = replayAll(order);
  if (!done) return refuse(done.error());
  return *done == SameAgain::Yes ? static_cast<int>(ExitCode::Ok) : kDiffers;
}

int main(int argc, const char* const* argv) {
  keepFreedMemory();
  const auto parsed = parseSchedulerOptions(argc, argv, Platform::ofThisProcess());
  if (const auto* now = std::get_if<ExitNow>(&parsed)) {
    std::fputs(now->text.c_str(), now->code == 0 ? stdout : stderr);
    return now->code;
  }
  const auto& options = std::get<SchedulerDaemonOptions>(parsed);
  if (!options.restore.empty()) return restore(options);
  if (!options.replay.empty()) return replay(options);
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
