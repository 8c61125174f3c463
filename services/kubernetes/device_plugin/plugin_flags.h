#pragma once
// Values of flags that the manager and its device plugin both take.

#include <string>

#include "runtime/result.h"
#include "services/kubernetes/device_plugin/device_ids.h"

namespace qgpu {

inline constexpr const char* kKubeletDir = "/var/lib/kubelet";

// "GiB" or "MiB".
Result<MemoryUnit> parseMemoryUnit(const std::string& text);
const char* memoryUnitName(MemoryUnit unit);
// A DNS name of at most 253 bytes.
Result<std::string> parseResourcePrefix(const std::string& text);
// A folder of CDI specs: of "off" none, of "on" the usual one, else a path from the root.
Result<std::string> parseCdi(const std::string& text);

}  // namespace qgpu
