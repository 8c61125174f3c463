#pragma once
// One owned file descriptor: it is closed with its owner. Every descriptor of a daemon is opened
// close-on-exec, so that no child process inherits one by accident.

#include <unistd.h>
#include <utility>

namespace qgpu {

// Owns one descriptor or none. Moves, and is never copied.
class Fd {
 public:
  Fd() = default;  // none
  // Takes over what a system call gave; -1 of a call that failed is none, and errno says why.
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) reset(std::exchange(other.fd_, -1));
    return *this;
  }
  ~Fd() { reset(); }

  // For system calls; still owned here. -1: none.
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  // Gives it away: the caller closes it.
  int release() { return std::exchange(fd_, -1); }
  // Closes what it owned, and owns `fd` from now on.
  void reset(int fd = -1) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = fd;
  }

 private:
  int fd_ = -1;
};

}  // namespace qgpu
