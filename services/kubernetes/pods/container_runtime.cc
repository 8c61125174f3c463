#include "services/kubernetes/pods/container_runtime.h"

#include <utility>

namespace qgpu {
namespace {

using Version = std::pair<unsigned, unsigned>;

// The number that `text` begins with, which is taken off it; 0 where there is none.
unsigned cutNumber(std::string_view& text) {
  constexpr unsigned kMost = 10'000;
  unsigned number = 0;
  while (!text.empty() && text.front() >= '0' && text.front() <= '9') {
    number = std::min(kMost, number * 10 + static_cast<unsigned>(text.front() - '0'));
    text.remove_prefix(1);
  }
  return number;
}

// It is no containerd, or one of this version or later.
bool isSince(std::string_view runtime, Version first) {
  constexpr std::string_view kContainerd = "containerd://";
  if (!runtime.starts_with(kContainerd)) return true;
  runtime.remove_prefix(kContainerd.size());
  if (runtime.starts_with('v')) runtime.remove_prefix(1);
  Version version;
  version.first = cutNumber(runtime);
  if (version.first == 0 || !runtime.starts_with('.')) return true;
  runtime.remove_prefix(1);
  version.second = cutNumber(runtime);
  return version >= first;
}

}  // namespace

bool takesDeviceFolders(std::string_view runtime) {
  return isSince(runtime, {1, 5});
}

bool takesCdiDevices(std::string_view runtime) {
  return isSince(runtime, {1, 7});
}

}  // namespace qgpu
