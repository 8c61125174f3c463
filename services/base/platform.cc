#include "services/base/platform.h"

#include <array>
#include <cstdlib>
#include <malloc.h>
#include <unistd.h>

namespace qgpu {
namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

}  // namespace

Platform Platform::ofThisProcess() {
  std::array<char, 256> name = {};
  static_cast<void>(::gethostname(name.data(), name.size() - 1));
  return {::geteuid(),
          name.data(),
          environment("HOME"),
          environment("XDG_RUNTIME_DIR"),
          environment("XDG_STATE_HOME"),
          environment("PORT")};
}

void keepFreedMemory() {
  ::mallopt(M_MMAP_THRESHOLD, 32 << 20);
  ::mallopt(M_TRIM_THRESHOLD, 64 << 20);
  ::mallopt(M_TOP_PAD, 2 << 20);
}

std::string defaultRunDir(const Platform& around) {
  if (around.uid == 0) return kMachineRunDir;
  if (!around.runtimeDir.empty()) return around.runtimeDir + "/qgpu";
  return "/tmp/qgpu-" + std::to_string(around.uid);
}

std::string defaultDbfile(const Platform& around, const std::string& name) {
  if (around.uid == 0) return "/var/lib/qgpu/" + name;
  if (!around.stateHome.empty()) return around.stateHome + "/qgpu/" + name;
  if (!around.home.empty()) return around.home + "/.local/state/qgpu/" + name;
  return defaultRunDir(around) + "/" + name;
}

}  // namespace qgpu
