#include "tests/testing/forked_process.h"

#include <sys/wait.h>
#include <unistd.h>

namespace qgpu::testing {

ForkedProcess::ForkedProcess(const std::function<int()>& body) : pid_(::fork()) {
  if (pid_ == 0) ::_exit(body());
}

ForkedProcess::~ForkedProcess() {
  kill();
  wait();
}

// Never kill(-1, signal): that is everybody.
void ForkedProcess::kill(int signal) const {
  if (pid_ > 0) ::kill(pid_, signal);
}

int ForkedProcess::wait() {
  int status = 0;
  if (pid_ <= 0 || ::waitpid(pid_, &status, 0) != pid_) return -1;
  pid_ = -1;
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace qgpu::testing
