#pragma once
// The command line of qgpu-demo.

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/result.h"

namespace qgpu::demo {

struct DemoOptions {
  std::vector<std::string> acts = {"be", "fs", "bs", "hybrid", "clpeak", "alone"};
  double seconds = 10;
  bool strict = false;           // a figure that is missed by more than the room is a failure
  std::int64_t roomPercent = 0;  // for noise
  bool help = false;
};

Result<DemoOptions> parseDemoOptions(const std::vector<std::string>& arguments);
const char* demoUsage();

}  // namespace qgpu::demo
