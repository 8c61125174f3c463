#pragma once
// qgpu-scheduler put together: one loop with the scheduler actor, the links to the nodes and the
// clients, beside the store's thread. Nothing is decided here about tasks or nodes.
//
// Everything that can be wrong is opened before anything serves, so that a bad flag or a second
// daemon is one line and exit code 2. Kept here: C8 (no turn after stop, every handle is closed).

#include <memory>

#include "runtime/log.h"
#include "runtime/result.h"
#include "services/daemons/scheduler_options.h"

namespace qgpu {

class Scheduler {
 public:
  // Errors: what a person can mend (second daemon, database, address, certificate). Nothing serves
  // then. Blocks SIGTERM and SIGINT in this thread and those it starts; run() takes them.
  static Result<std::unique_ptr<Scheduler>> open(const SchedulerDaemonOptions& options, Log& log);
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // Serves until SIGTERM or SIGINT.
  void run();

 private:
  struct Parts;
  explicit Scheduler(std::unique_ptr<Parts> parts);

  std::unique_ptr<Parts> parts_;  // keeps KJ, SQLite and the loop out of this header
};

}  // namespace qgpu
