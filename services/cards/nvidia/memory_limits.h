#pragma once
// How much of a card's memory NVIDIA's driver itself lets a cgroup have, for drivers from 615 on.
// Beyond that every allocation fails as out of memory, whatever the program does, and all memory on
// the card counts but managed memory: contexts too.
//
// It is set by NVML, which takes root, and a sick driver does not answer. So the process that takes
// orders never touches the driver, as in health.h, and for each order a child of it asks. A child
// that takes too long is given up, and what is ordered in the `quiet` after that is refused at
// once, so that no order waits longer than for one such child, and few of them hang in the kernel.

#include <string>

#include "runtime/result.h"
#include "runtime/units.h"
#include "services/cards/memory_limiter.h"

namespace qgpu {

struct LimiterTimes {
  Nanos patience = seconds(3);  // of one order
  Nanos quiet = seconds(30);    // after an order that the driver did not answer
};

// As MemoryLimiter::start(); its cards are called by their UUIDs.
Result<MemoryLimiter> limitNvidiaMemory(const LimiterTimes& times = {});

// In a hierarchy whose kernel has the controller of device memory (`dmem`, from 6.14 on) the driver
// limits only cgroups that have it. Switches it on in each folder above this one, up to the root.
// What can't be switched on stays as it is: then the driver says what is missing.
void giveDeviceMemoryController(const std::string& cgroup);

}  // namespace qgpu
