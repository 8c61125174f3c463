#pragma once
// The folder of a daemon's sockets, and the lock that makes it the only one of its kind there. A
// manager and a scheduler may share one.

#include <string>

#include "runtime/result.h"

namespace qgpu {

class RunDir {
 public:
  // Makes the folder (mode 0755) and takes the lock of `daemon` ("manager" or "scheduler").
  // NotFound: a folder above it is missing, which may be a slip of the finger; Conflict: another
  // daemon has it; Denied: the folder is somebody else's, or others may write to it; Unavailable:
  // it can't be made.
  static Result<RunDir> claim(const std::string& path, const std::string& daemon);

  RunDir(RunDir&& other) noexcept;
  RunDir& operator=(RunDir&&) = delete;
  ~RunDir();

  std::string file(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  RunDir(std::string path, int lock) : path_(std::move(path)), lock_(lock) {}

  std::string path_;
  int lock_ = -1;
};

}  // namespace qgpu
