#pragma once
// Which NVIDIA cards this machine has, by NVML in a child process. A card's name is its UUID, never
// its index. A card that is split into MIG instances is seen and left alone.

#include <string>
#include <vector>

#include "runtime/result.h"
#include "runtime/units.h"

namespace qgpu {

struct NvidiaDevice {
  std::string uuid;
  std::uint32_t index = 0;
  std::string name;
  Bytes mem{0};
  bool mig = false;
  std::string driver;  // its version; empty: it does not say
  int minor = -1;      // of its file in /dev; -1: it does not say
  std::string bus;     // where it is plugged in: "0000:3b:00.0"; empty: it does not say
  std::string
      noLimits;  // why the driver limits no cgroup's memory (memory_limits.h); empty: it does
  std::vector<std::string> linked;  // where its NVLinks lead, in the same words
};

// By device, the group of those that NVLink joins, from 1 on, also over switches and other cards;
// 0: it has no link.
std::vector<std::uint32_t> linkGroups(const std::vector<NvidiaDevice>& devices);

struct NvidiaFound {
  std::vector<NvidiaDevice> devices;
  std::vector<std::string> silent;  // cards that are there and do not answer, in words
};

// Empty where there is no driver, or none is loaded and `pciDevices`, where the kernel lists
// devices, has no card of NVIDIA's. Unavailable: the driver refused, crashed, did not answer in
// time, or is not loaded for a card that is there; says what to do. Forks: to be called while the
// process has one thread.
Result<NvidiaFound> probeNvidia(Nanos timeout, const std::string& pciDevices);

}  // namespace qgpu
