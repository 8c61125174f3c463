#pragma once
// Processes that begin when they are told to: a test labels each of them before it does anything,
// as the manager labels the owner of a task before that hears of it. All are ended with their
// objects.

#include <cerrno>
#include <fcntl.h>
#include <functional>
#include <string>
#include <unistd.h>

#include "runtime/fd.h"
#include "services/base/process.h"
#include "tests/testing/forked_process.h"
#include "tests/unit/services/guard/tenants.h"

namespace qgpu::testing {

struct Pipe {
  Pipe() {
    int ends[2] = {-1, -1};
    if (::pipe2(ends, O_CLOEXEC) != 0) ::abort();
    out.reset(ends[0]);
    in.reset(ends[1]);
  }
  void say() const {
    if (::write(in.get(), "", 1) != 1) ::abort();
  }
  // False: who could say something is gone.
  bool hear() const {
    char byte = 0;
    return ::read(out.get(), &byte, 1) == 1;
  }
  Fd out, in;
};

// A child that stands before its body.
class Held {
 public:
  explicit Held(const std::function<int()>& body)
      : child_([&] {
          go_.in.reset();
          return go_.hear() ? body() : 253;
        }) {
    auto opened = openProcess(static_cast<std::uint32_t>(child_.pid()), 0);
    if (opened) pidfd_ = std::move(*opened);
  }
  const Fd& pidfd() const { return pidfd_; }
  pid_t pid() const { return child_.pid(); }
  void letGo() const { go_.say(); }
  int wait() { return child_.wait(); }

 private:
  Pipe go_;
  ForkedProcess child_;
  Fd pidfd_;
};

struct GuardTest::Holder {
  explicit Holder(const std::string& node)
      : held([this, node] {
          Fd file(::open(node.c_str(), O_RDONLY));
          if (!file || ::dup2(file.get(), fd) != fd) return errno;
          open.say();
          return static_cast<int>(end.hear());
        }) {}
  ~Holder() { end.say(); }
  void awaitOpen() const { EXPECT_TRUE(open.hear()); }
  // Its descriptor, as others see it.
  std::string procPath() const {
    return "/proc/" + std::to_string(held.pid()) + "/fd/" + std::to_string(fd);
  }

  static constexpr int fd = 77;
  Pipe open, end;
  Held held;
};

}  // namespace qgpu::testing
