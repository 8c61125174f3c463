#pragma once
// A process that goes on from here as this one is, e.g. as a tenant of a server in the test itself.
// For another program see child_process.h.

#include <csignal>
#include <functional>
#include <sys/types.h>

namespace qgpu::testing {

class ForkedProcess {
 public:
  // Runs `body` and ends with what it returns, without destructors or buffers of this process.
  explicit ForkedProcess(const std::function<int()>& body);
  ForkedProcess(const ForkedProcess&) = delete;
  ForkedProcess& operator=(const ForkedProcess&) = delete;
  ~ForkedProcess();  // kills and reaps it

  pid_t pid() const { return pid_; }
  void kill(int signal = SIGKILL) const;
  // Waits for its end: the exit status or -signal; -1 where somebody has reaped it.
  int wait();

 private:
  pid_t pid_ = -1;
};

}  // namespace qgpu::testing
