#pragma once
// What the workload does with its device. Every kernel's result is checked
// on the host as it comes back, and the whole buffer once more at the end.

#include <cstdint>

#include "runtime/result.h"
#include "services/demo/workload/work_control.h"
#include "services/demo/workload/work_device.h"
#include "services/demo/workload/work_options.h"
#include "services/demo/workload/work_report.h"

namespace qgpu::demo {

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
