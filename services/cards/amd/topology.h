#pragma once
// AMD's cards as the kernel's compute driver (KFD) lists them, without a library: a folder for each
// node of its topology, CPUs among them, with names and values a line. Source: the kernel's
// amdkfd/kfd_topology.c; heap types as in ROCm's hsakmttypes.h.

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/units.h"

namespace qgpu {

inline constexpr const char* kKfdNodes = "/sys/class/kfd/kfd/topology/nodes";

struct AmdDevice {
  std::string uuid;          // as ROCm's runtime names it, "GPU-" and 16 digits; empty: it has none
  std::string name;          // "gfx90a": what it is built for
  Bytes mem{0};              // of its own
  std::string bus;           // "0000:83:00.0"
  std::uint32_t index = 0;   // among the cards, in the order of nodes, as ROCm's runtime counts
  unsigned renderMinor = 0;  // N of /dev/dri/renderDN; 0: it has none
};

// Of the folder of nodes, in their order; empty where there are none, or no such driver.
std::vector<AmdDevice> amdDevices(const std::string& nodes);

// "gfx90a" of 90010: major x 10,000 + minor x 100 + stepping, each a hexadecimal digit or two.
std::string gfxName(std::uint64_t version);

}  // namespace qgpu
