#pragma once
// The command line of qgpu-work. Lengths are in milliseconds because that is how people think of
// kernels; everything behind this header is in ns and loops.

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/result.h"

namespace qgpu::demo {

struct Range {
  double low = 0;
  double high = 0;
};

struct WorkOptions {
  enum class Mode { Steady, Bursts };
  Mode mode = Mode::Steady;
  double seconds = 5;  // 0: until told to end (signal, or "end" on stdin with --control)
  Range kernelMs{2, 2};
  double gapMs = 0;        // 0: the queue never runs dry
  Range idleMs{110, 200};  // bursts: quiet time before each
  Range burstKernels{1, 3};
  std::uint32_t memoryMib = 16;
  double loopsPerMs = 0;  // 0: measured first, which is right on an idle machine only
  std::uint32_t seed = 1;
  std::uint32_t fillMib = 0;  // 0: it computes; else it takes memory, so much at most
  std::string waysOut;        // empty: it computes; else the device node that it tries (ways_out.h)
  bool calibrate = false;
  bool describe = false;
  bool control = false;
  bool watchProgress = false;
  bool json = false;
  bool verify = true;  // always: the switch is there to say so
  bool help = false;
};

Result<WorkOptions> parseWorkOptions(const std::vector<std::string>& arguments);
const char* workUsage();

// "3" or "2..100". Both ends must be >= 0 and in order.
Result<Range> parseRange(const std::string& text);

}  // namespace qgpu::demo
