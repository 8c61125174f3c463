#pragma once
// Makes system calls of a running process fail, by strace: from construction until end() or the
// destructor, in every thread. Skipped where strace is not installed or may not look at processes.

#include <memory>
#include <string>
#include <sys/types.h>

#include "tests/testing/child_process.h"

namespace qgpu::crash {

class Strace {
 public:
  // inject: one or more of strace's "-e inject=" values, separated by blanks.
  Strace(pid_t process, const std::string& inject);
  ~Strace() { end(); }
  void end();

 private:
  std::unique_ptr<testing::Child> strace_;
};

}  // namespace qgpu::crash
