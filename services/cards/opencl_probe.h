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
  std::uint32_t index = 0;     // in the platform's CL_DEVICE_TYPE_ALL list
  std::string name;
  Bytes mem{0};
};

// Empty where no driver is installed. Unavailable: the child failed, crashed, or took longer than
// `timeout`. Forks: to be called while the process has one thread.
Result<std::vector<OpenclDevice>> probeOpencl(Nanos timeout);

}  // namespace qgpu
