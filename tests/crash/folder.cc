#include "tests/crash/folder.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "tests/crash/violation.h"

namespace qgpu::crash {
namespace {

constexpr char kPrefix[] = "qgpu-crash-";

void sweep(const std::filesystem::path& parent) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(parent, ignored)) {
    const std::string name = entry.path().filename();
    if (name.rfind(kPrefix, 0) != 0) continue;
    const long owner = std::strtol(name.c_str() + sizeof kPrefix - 1, nullptr, 10);
    const bool dead = owner > 0 && ::kill(static_cast<pid_t>(owner), 0) != 0 && errno == ESRCH;
    if (dead) std::filesystem::remove_all(entry.path(), ignored);
  }
}

}  // namespace

Folder::Folder() {
  const std::string parent = std::filesystem::temp_directory_path();
  sweep(parent);
  path_ = parent + "/" + kPrefix + std::to_string(::getpid()) + "-XXXXXX";
  if (::mkdtemp(path_.data()) == nullptr) {
    throw Violation("no folder " + path_ + ": " + std::strerror(errno));
  }
}

Folder::~Folder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace qgpu::crash
