#pragma once
// One OpenCL device as the workload sees it: a buffer cut into windows, an in-order profiling queue
// and one kernel that mixes one window. Plain OpenCL 1.2; nothing here knows that a card may be
// shared. Each submitted kernel is followed by a read of its window, and await() compares every
// item with what the host says it must be (work_recurrence.h).

#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <time.h>
#include <vector>

#include "runtime/result.h"
#include "services/demo/workload/clock.h"
#include "services/demo/workload/work_recurrence.h"
#include "services/demo/workload/work_report.h"

namespace qgpu::demo {

template <typename Handle, cl_int(CL_API_CALL* release)(Handle)>
struct ClRelease {
  using pointer = Handle;
  void operator()(Handle handle) const { release(handle); }
};
using ClContext = std::unique_ptr<void, ClRelease<cl_context, clReleaseContext>>;
using ClQueue = std::unique_ptr<void, ClRelease<cl_command_queue, clReleaseCommandQueue>>;
using ClProgram = std::unique_ptr<void, ClRelease<cl_program, clReleaseProgram>>;
using ClKernel = std::unique_ptr<void, ClRelease<cl_kernel, clReleaseKernel>>;
using ClBuffer = std::unique_ptr<void, ClRelease<cl_mem, clReleaseMemObject>>;
using ClEvent = std::unique_ptr<void, ClRelease<cl_event, clReleaseEvent>>;

// A kernel on its way. Times are ns of CLOCK_MONOTONIC; start and end are known after await().
struct InFlight {
  std::uint32_t window = 0;
  std::uint32_t loops = 0;
  Affine expected;            // what the window's first values have become after this kernel
  std::int64_t submitNs = 0;  // read just before clEnqueueNDRangeKernel
  std::int64_t startNs = 0;
  std::int64_t endNs = 0;
  std::size_t wrong = 0;  // items that differ from what they must be
  ClEvent kernelDone;
  ClEvent readDone;
  std::vector<std::uint32_t> items;
};

// Where a failure comes from decides the exit code: a quota is not a broken machine.
enum class DeviceTrouble { None, NoDevice, OutOfMemory, Failed };

class WorkDevice {
 public:
  static constexpr std::uint32_t kItems = 16384;  // of one window and one kernel
  static constexpr std::uint32_t kGroup = 32;     // a window is 512 groups: all cores have work

  // Takes the first device of the first platform, compiles the kernel and fills the buffer of
  // `memoryMib`. `trouble` tells what kind of failure an error is.
  static Result<std::unique_ptr<WorkDevice>> open(std::uint32_t memoryMib, std::uint32_t seed,
                                                  DeviceTrouble& trouble);
  ~WorkDevice();

  Status submit(std::uint32_t loops, InFlight& work);
  Status await(InFlight& work);  // blocks until the kernel's window has been read, then checks it

  // Takes memory in ever smaller pieces until a byte is refused, `most` bytes at most with its own;
  // gives it back, and does so once more.
  MemoryTaken takeMemory(std::uint64_t most);

  // Reads the whole buffer and counts the items that are wrong.
  Result<std::size_t> verifyAll();

  // Its name and its driver's version, without a kernel compiled.
  static Result<DeviceNames> describe();
  const std::string& name() const { return name_; }
  // The clock that the device's profiling uses, found by bracketing, or "derived" where it is none
  // of the machine's: then end is when the host saw it and start is end less the duration.
  const char* clockName() const;
  // Grows with each group of items that has finished, while a kernel runs, where device and host
  // share memory. Read by a watching thread.
  const volatile std::uint32_t* progress() const { return progressWord_; }

 private:
  WorkDevice() = default;
  Status findDevice(DeviceTrouble& trouble);
  Status build();
  Status allocate(std::uint32_t memoryMib, std::uint32_t seed, DeviceTrouble& trouble);
  Status findClock();
  std::int64_t toMonotonic(std::int64_t deviceNs) const;

  cl_device_id device_ = nullptr;
  std::string name_;
  ClContext context_;
  ClProgram program_;
  ClKernel mix_;
  ClKernel fill_;
  ClBuffer buffer_;
  ClBuffer progressBuffer_;
  std::uint32_t* progressWord_ = nullptr;  // a page of its own
  ClQueue queue_;
  std::uint32_t seed_ = 0;
  std::uint32_t nextWindow_ = 0;
  std::vector<Affine> done_;        // of each window, over all kernels submitted so far
  std::optional<clockid_t> clock_;  // of profiling stamps
};

}  // namespace qgpu::demo
