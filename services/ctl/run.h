#pragma once
// `qgpuctl run`: bind a task, start CMD in it, be a good parent, end the task. qgpuctl's own death
// ends the task too (it is the task's owner); the manager's death or restart disturbs nothing.

#include <signal.h>
#include <string>
#include <sys/types.h>
#include <utility>
#include <vector>

#include "runtime/result.h"
#include "services/ctl/answers/client.h"
#include "services/ctl/options.h"

namespace qgpu::ctl {

using Environment = std::vector<std::pair<std::string, std::string>>;

// What the daemon gave to a task.
struct BoundTask {
  std::uint64_t id = 0;
  Environment environment;
};

Result<BoundTask> parseBound(const Answer& answer);

// Where programs attach to tasks that were bound over the admin socket `socket`.
std::string attachSocketOf(const std::string& socket);

// The environment of CMD: what `bound` may say (taskMayCarry()), with libqgpu of `library` before
// whatever was to be preloaded anyway, and `attachSocket`: no path comes from a daemon. NotFound
// where `library` is empty, InvalidArgument where its path can't stand in LD_PRELOAD.
Result<Environment> tenantEnvironment(const BoundTask& bound, const std::string& library,
                                      const std::string& attachSocket,
                                      const std::string& preloadNow, const std::string& layersNow);

// The same as programs here have it whose manager has the admin socket `socket`.
Result<Environment> environmentOf(const BoundTask& bound, const std::string& library,
                                  const std::string& socket);

// What would help with a refusal, by its reason; empty where its message says so itself.
std::string helpFor(const Error& error);

// The POCL_* names of an environment (`now`, as environ) that the manager did not give. Each of
// them would make PoCL choose other devices or other kernels than the manager counts on, so CMD
// must not see them.
std::vector<std::string> strangers(const Environment& given, const char* const* now);

// What a task got in `elapsed`, from what its manager lists of it, for the person who started it.
std::string gotLine(Value task, Nanos elapsed);

// libqgpu.so: QGPU_LIB, else ../lib beside this program; empty where there is none.
std::string findLibrary();

// The same; NotFound where it can't be read.
Result<std::string> libraryOfPrograms();

// Starts CMD, waits for it, and says on a terminal what `task` of `manager` got; CMD's status, as a
// shell has it.
int runProgram(const Options& options, const Environment& environment, Client& manager,
               std::uint64_t task);

// Says why CMD was not started, and what helps; the exit status of that.
int refuseRun(const std::string& message, const std::string& help);

// Does it all; the exit status of qgpuctl.
int run(const Options& options);

// `run --cluster`: a task that the scheduler places. CMD starts where its place is on this
// machine's node. Where it is elsewhere the task is ended again and that is said: qgpuctl starts
// nothing on other machines. However it ends, the task does.
int runInCluster(const Options& options);

// Waits for a child, forwarding signals and following its job control; its status as a shell
// reports it (128 + signal).
class ChildWaiter {
 public:
  ChildWaiter();   // blocks what it forwards
  ~ChildWaiter();  // and restores
  ChildWaiter(const ChildWaiter&) = delete;
  ChildWaiter& operator=(const ChildWaiter&) = delete;

  // In the child, before exec: the signals as they were.
  void release() const;
  int wait(pid_t child);

 private:
  bool reap(pid_t child, int& status) const;
  void forward(pid_t child, int signal, int code) const;

  sigset_t caught_;
  sigset_t before_;
};

}  // namespace qgpu::ctl
