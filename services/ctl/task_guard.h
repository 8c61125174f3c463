#pragma once
// Ends a task of a cluster when the process that asked for it is gone, however that went: by its
// own end, ctrl-c or SIGKILL. A scheduler has no way to tell, as a manager has of its own tasks.
//
// It is a process beside that one, at the other end of a socket. No terminal and no signal but
// SIGKILL ends it, and it has no other file of that process open: who reads what CMD writes sees
// the end of it.

#include <cstdint>
#include <sys/types.h>

#include "runtime/fd.h"
#include "runtime/result.h"
#include "services/ctl/options.h"

namespace qgpu::ctl {

class TaskGuard {
 public:
  // Before `ask`, which has a request id: what was asked for and not answered is known by that.
  // Call it where there is one thread, and no connection is open yet.
  static Result<TaskGuard> start(const Options& options, const Ask& ask);
  ~TaskGuard() { end(); }
  TaskGuard(TaskGuard&& other) noexcept;
  TaskGuard& operator=(TaskGuard&&) = delete;

  // The number of the task; 0: there is none.
  void learn(std::uint64_t task);
  // Ends the task. Returns once that is done; where no scheduler answers, after a while.
  void end();

 private:
  TaskGuard(pid_t process, Fd socket);

  pid_t process_;
  Fd socket_;
};

}  // namespace qgpu::ctl
