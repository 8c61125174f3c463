#pragma once
// What one run of the workload says about itself: written by qgpu-work as JSON, read by qgpu-demo.
// Stamps are ns of CLOCK_MONOTONIC.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/result.h"

namespace qgpu::demo {

struct DeviceNames {
  std::string device;
  std::string driver;
};

// What a program could have of memory, its own buffers among it.
struct MemoryTaken {
  std::uint64_t bytes = 0;
  std::uint64_t refusedBytes = 0;  // the least in all that was refused; 0: nothing was
  std::int64_t error = 0;          // of OpenCL, at that
  std::uint64_t againBytes = 0;    // once everything was given back

  std::string json() const;
};

// Nothing finished between `lastNs` and `resumedNs` (CLOCK_MONOTONIC) although work was queued.
struct Standstill {
  std::int64_t lastNs = 0;
  std::int64_t resumedNs = 0;
};

// One stretch of steady work between two pauses.
struct Phase {
  std::int64_t startNs = 0;  // CLOCK_MONOTONIC, before the first submit
  std::int64_t endNs = 0;    // the last kernel's end
  std::uint64_t kernels = 0;
  std::uint64_t loops = 0;
};

// How much was done when its workload was told "mark".
struct Mark {
  std::int64_t atNs = 0;  // CLOCK_MONOTONIC
  std::uint64_t loops = 0;
};

// Loops for each second between two marks of a workload; 0 where one is missing.
double rateBetween(const std::vector<Mark>& marks, std::size_t first, std::size_t last);

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
  std::vector<Mark> marks;
  std::vector<Burst> bursts;
  std::optional<bool> progressSeen;
  std::vector<Standstill> standstills;

  // Every item of every kernel was right, and there were some.
  bool checksumOk() const { return wrong == 0 && kernels > 0; }

  std::string json() const;
  std::string text() const;
};

// The other way round: what the workload printed.
Result<DeviceNames> parseDeviceNames(const std::string& json);
Result<MemoryTaken> parseMemoryTaken(const std::string& json);
Result<WorkReport> parseWorkReport(const std::string& json);

}  // namespace qgpu::demo
