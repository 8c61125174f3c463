#pragma once
// What the workload does with its device, and the report of it. Every kernel's result is checked
// on the host as it comes back, and the whole buffer once more at the end.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/result.h"
#include "services/demo/work_control.h"
#include "services/demo/work_device.h"
#include "services/demo/work_options.h"
#include "services/demo/work_progress.h"

namespace qgpu::demo {

// One stretch of steady work between two pauses.
struct Phase {
  std::int64_t startNs = 0;  // CLOCK_MONOTONIC, before the first submit
  std::int64_t endNs = 0;    // the last kernel's end
  std::uint64_t kernels = 0;
  std::uint64_t loops = 0;
};

struct Burst {
  std::int64_t submitNs = 0;  // before the first clEnqueueNDRangeKernel
  std::int64_t startNs = 0;   // the first kernel runs
  std::int64_t endNs = 0;     // the last kernel has ended
  std::uint32_t kernels = 0;
};

struct WorkReport {
  std::string device;
  double loopsPerMs = 0;
  std::uint64_t kernels = 0;
  std::uint64_t loops = 0;
  std::uint64_t itemsChecked = 0;
  std::uint64_t wrong = 0;
  std::int64_t kernelNs = 0;  // sum of end - start
  std::int64_t wallNs = 0;
  std::string clock;  // whose stamps start and end are
  std::vector<Phase> phases;
  std::vector<Burst> bursts;
  std::optional<bool> progressSeen;
  std::vector<Standstill> standstills;

  std::string json() const;
  std::string text() const;
};

// Kernel steps that take one millisecond alone on this device: the fastest of several kernels of
// about 20 ms, because whatever else runs only makes a kernel slower.
Result<double> calibrate(WorkDevice& device);

Result<WorkReport> runWork(WorkDevice& device, const WorkOptions& options, double loopsPerMs,
                           WorkControl& control);

// Draws evenly from a range; the same seed gives the same sequence on every machine.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : state_(seed) {}
  double from(Range range);

 private:
  std::uint64_t state_;
};

}  // namespace qgpu::demo
