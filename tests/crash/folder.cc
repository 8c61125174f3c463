#include "tests/crash/folder.h"

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <signal.h>
#include <string>
#include <unistd.h>

namespace qgpu::crash {
namespace {

const std::string kName = "crash-";

void sweep(const std::filesystem::path& parent) {
  const std::string prefix = "qgpu-" + kName;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(parent, ignored)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with(prefix)) continue;
    const long owner = std::strtol(name.c_str() + prefix.size(), nullptr, 10);
    const bool dead = owner > 0 && ::kill(static_cast<pid_t>(owner), 0) != 0 && errno == ESRCH;
    if (dead) std::filesystem::remove_all(entry.path(), ignored);
  }
}

}  // namespace

testing::TempFolder makeFolder() {
  const std::string parent = std::filesystem::temp_directory_path();
  sweep(parent);
  return testing::TempFolder(kName + std::to_string(::getpid()), {.parent = parent});
}

}  // namespace qgpu::crash
