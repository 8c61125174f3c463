#pragma once
// The folder of what programs print, and of a manager's sockets where it is their own: below /tmp,
// since a socket's path has 107 characters. It goes with all that is in it.

#include <filesystem>
#include <stdlib.h>
#include <string>

#include "runtime/result.h"

namespace qgpu::demo {

class OutputFolder {
 public:
  // `name` is what its own begins with.
  explicit OutputFolder(const std::string& name) : path_("/tmp/qgpu-" + name + "-XXXXXX") {
    if (::mkdtemp(path_.data()) == nullptr) path_.clear();
  }
  ~OutputFolder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;

  // Unavailable: it could not be made, and has no path.
  Status made() const {
    if (!path_.empty()) return ok();
    return fail(ErrorCode::Unavailable,
                "no folder could be made in /tmp: make room or rights there");
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace qgpu::demo
