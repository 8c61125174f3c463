#pragma once
// Asking a driver in a child process that is gone when the answer is: drivers map compilers of
// 100 MB, start threads, hang and crash, and none of that may happen to the daemon.

#include <functional>
#include <string>
#include <sys/types.h>

#include "runtime/result.h"
#include "runtime/units.h"

namespace qgpu {

// Runs `body` in a child; what it writes to its descriptor is the answer. `whom` is asked, `check`
// the command that a person would try: both for the error. Unavailable: the child failed, crashed,
// or took longer than `timeout`; one that is stuck in the kernel, where no signal ends it, is left
// behind a second later. It holds nothing that is open here, no lock either. Forks: to be called
// while the process has one thread.
Result<std::string> askInChild(const std::string& whom, const std::string& check, Nanos timeout,
                               const std::function<void(int out)>& body);

// What a child of the daemon does first: it dies with it, no tenant's library is in it, and what
// drivers print goes nowhere.
void becomeProbe();

// Such a child that stays for as long as this does, with one end of a pipe or socket each. Ours
// reads its end once the child is gone.
class SideProcess {
 public:
  // Both ends are taken over: ours, and the child's. `run` is its whole life. Forks, as
  // askInChild(). Unavailable: no process.
  static Result<SideProcess> start(const int (&ends)[2], const std::function<void(int end)>& run);

  SideProcess(SideProcess&& other) noexcept;
  SideProcess& operator=(SideProcess&& other) noexcept;
  ~SideProcess();  // ends the child

  int fd() const { return fd_; }  // ours

 private:
  SideProcess(int fd, pid_t child) : fd_(fd), child_(child) {}
  int fd_ = -1;
  pid_t child_ = -1;
};

// Fields of an answer travel in tab-separated lines.
void cleanField(char* text);

}  // namespace qgpu
