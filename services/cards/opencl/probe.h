#pragma once
// Asks the OpenCL drivers of this machine which devices there are, in a child process that is gone
// when the answer is: drivers map compilers of 100 MB and start threads.

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/result.h"
#include "runtime/units.h"

namespace qgpu {

struct OpenclDevice {
  std::string platform;
  std::uint32_t index = 0;  // in the platform's CL_DEVICE_TYPE_ALL list
  std::string name;
  Bytes mem{0};        // as the driver tells it; of a CPU cpuCardBytes()
  std::string driver;  // CL_DRIVER_VERSION
};

// The memory of a card that is a CPU, on a machine with so much. A CPU's driver tells a size that
// follows what is free at that moment (6 to 14 GiB were seen on one machine), so a manager that
// restarts would find its card smaller than what is bound on it. It is half of the machine instead,
// whose size is rounded up to whole GiB first, since the kernel keeps a part: the same at each
// start.
Bytes cpuCardBytes(Bytes machine);

// "opencl-<platform in lower case, other characters as '-'>-<index>".
std::string openclCardId(const std::string& platform, std::uint32_t device);

// Empty where no driver is installed. Unavailable: the child failed, crashed, or took longer than
// `timeout`. Forks: to be called while the process has one thread.
Result<std::vector<OpenclDevice>> probeOpencl(Nanos timeout);

}  // namespace qgpu
