#include "services/demo/workload/work_device.h"

#include <array>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace qgpu::demo {
namespace {

constexpr const char* kSource = R"(
__kernel void fillItems(__global uint* items, uint seed, uint stride) {
  uint i = (uint)get_global_id(0);
  items[i] = seed + i * stride;
}
__kernel void mixItems(__global uint* items, uint first, uint loops, uint multiply, uint add,
                  __global volatile uint* progress) {
  uint i = first + (uint)get_global_id(0);
  uint v = items[i];
  for (uint n = 0; n < loops; n++) v = v * multiply + add;
  items[i] = v;
  if (get_local_id(0) == 0) atomic_inc(progress);
}
)";

constexpr std::size_t kPage = 4096;

Error clError(const char* call, cl_int code) {
  return fail(ErrorCode::Unavailable,
              std::string(call) + " failed with OpenCL error " + std::to_string(code));
}

bool isMemoryError(cl_int code) {
  return code == CL_MEM_OBJECT_ALLOCATION_FAILURE || code == CL_OUT_OF_RESOURCES ||
         code == CL_OUT_OF_HOST_MEMORY || code == CL_INVALID_BUFFER_SIZE;
}

template <typename Value>
cl_int setArg(const ClKernel& kernel, cl_uint index, const Value& value) {
  return clSetKernelArg(kernel.get(), index, sizeof value, &value);
}

std::int64_t profiled(const ClEvent& event, cl_profiling_info what) {
  cl_ulong ns = 0;
  clGetEventProfilingInfo(event.get(), what, sizeof ns, &ns, nullptr);
  return static_cast<std::int64_t>(ns);
}

struct Clock {
  clockid_t id;
  const char* name;
};
constexpr std::array<Clock, 4> kClocks = {{{CLOCK_MONOTONIC, "monotonic"},
                                           {CLOCK_MONOTONIC_RAW, "monotonic-raw"},
                                           {CLOCK_BOOTTIME, "boottime"},
                                           {CLOCK_REALTIME, "realtime"}}};

}  // namespace

Result<std::unique_ptr<WorkDevice>> WorkDevice::open(std::uint32_t memoryMib, std::uint32_t seed,
                                                     DeviceTrouble& trouble) {
  trouble = DeviceTrouble::Failed;
  std::unique_ptr<WorkDevice> device(new WorkDevice());
  Status status = device->findDevice(trouble);
  if (status) status = device->build();
  if (status) status = device->allocate(memoryMib, seed, trouble);
  if (status) status = device->findClock();
  if (!status) return status.error();
  trouble = DeviceTrouble::None;
  return Result<std::unique_ptr<WorkDevice>>(std::move(device));
}

WorkDevice::~WorkDevice() {
  if (queue_) clFinish(queue_.get());
  progressBuffer_.reset();  // before the memory that it stands on
  std::free(progressWord_);
}

Status WorkDevice::findDevice(DeviceTrouble& trouble) {
  trouble = DeviceTrouble::NoDevice;
  cl_platform_id platform = nullptr;
  cl_uint found = 0;
  cl_int code = clGetPlatformIDs(1, &platform, &found);
  if (code != CL_SUCCESS || found == 0) return clError("clGetPlatformIDs", code);
  code = clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device_, &found);
  if (code != CL_SUCCESS || found == 0) return clError("clGetDeviceIDs", code);
  char name[256] = {};
  clGetDeviceInfo(device_, CL_DEVICE_NAME, sizeof name - 1, name, nullptr);
  name_ = name;
  context_.reset(clCreateContext(nullptr, 1, &device_, nullptr, nullptr, &code));
  if (!context_) return clError("clCreateContext", code);
  queue_.reset(clCreateCommandQueue(context_.get(), device_, CL_QUEUE_PROFILING_ENABLE, &code));
  if (!queue_) return clError("clCreateCommandQueue", code);
  trouble = DeviceTrouble::Failed;
  return ok();
}

Result<DeviceNames> WorkDevice::describe() {
  WorkDevice device;
  DeviceTrouble trouble = DeviceTrouble::None;
  if (Status status = device.findDevice(trouble); !status) return status.error();
  char version[256] = {};
  clGetDeviceInfo(device.device_, CL_DRIVER_VERSION, sizeof version - 1, version, nullptr);
  return DeviceNames{device.name_, version};
}

Status WorkDevice::build() {
  cl_int code = CL_SUCCESS;
  const char* source = kSource;
  program_.reset(clCreateProgramWithSource(context_.get(), 1, &source, nullptr, &code));
  if (!program_) return clError("clCreateProgramWithSource", code);
  code = clBuildProgram(program_.get(), 1, &device_, "", nullptr, nullptr);
  if (code != CL_SUCCESS) return clError("clBuildProgram", code);
  mix_.reset(clCreateKernel(program_.get(), "mixItems", &code));
  if (!mix_) return clError("clCreateKernel", code);
  fill_.reset(clCreateKernel(program_.get(), "fillItems", &code));
  if (!fill_) return clError("clCreateKernel", code);
  return ok();
}

Status WorkDevice::allocate(std::uint32_t memoryMib, std::uint32_t seed, DeviceTrouble& trouble) {
  const std::size_t bytes = static_cast<std::size_t>(memoryMib) << 20;
  const std::size_t items = bytes / sizeof(std::uint32_t);
  cl_int code = CL_SUCCESS;
  seed_ = seed;
  done_.assign(items / kItems, Affine{});
  buffer_.reset(clCreateBuffer(context_.get(), CL_MEM_READ_WRITE, bytes, nullptr, &code));
  if (buffer_) {
    code = setArg(fill_, 0, buffer_.get()) | setArg(fill_, 1, seed) | setArg(fill_, 2, kItemStride);
    if (code != CL_SUCCESS) return clError("clSetKernelArg", code);
    code = clEnqueueNDRangeKernel(queue_.get(), fill_.get(), 1, nullptr, &items, nullptr, 0,
                                  nullptr, nullptr);
    if (code == CL_SUCCESS) code = clFinish(queue_.get());
  }
  if (code != CL_SUCCESS) {
    if (isMemoryError(code)) trouble = DeviceTrouble::OutOfMemory;
    return fail(ErrorCode::NoRoom, "a buffer of " + std::to_string(memoryMib) +
                                       " MiB could not be had (OpenCL error " +
                                       std::to_string(code) + "); ask for less with --memory-mib");
  }
  progressWord_ = static_cast<std::uint32_t*>(std::aligned_alloc(kPage, kPage));
  std::memset(progressWord_, 0, kPage);
  progressBuffer_.reset(clCreateBuffer(context_.get(), CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR,
                                       kPage, progressWord_, &code));
  if (!progressBuffer_) {
    if (isMemoryError(code)) trouble = DeviceTrouble::OutOfMemory;
    return clError("clCreateBuffer of a page", code);
  }
  return ok();
}

MemoryTaken WorkDevice::takeMemory(std::uint64_t most) {
  constexpr std::uint64_t kPiece = 16U << 20U;
  const std::uint64_t own = done_.size() * kItems * sizeof(std::uint32_t) + kPage;
  MemoryTaken taken;
  for (std::uint64_t* total : {&taken.bytes, &taken.againBytes}) {
    std::vector<ClBuffer> pieces;
    *total = own;
    for (std::uint64_t piece = kPiece; piece > 0 && *total + piece <= most;) {
      cl_int code = CL_SUCCESS;
      ClBuffer buffer(clCreateBuffer(context_.get(), CL_MEM_READ_WRITE, piece, nullptr, &code));
      if (buffer) {
        *total += piece;
        pieces.push_back(std::move(buffer));
      } else {
        taken.refusedBytes = *total + piece;
        taken.error = code;
        piece /= 2;
      }
    }
  }
  return taken;
}

// A clock is the one of the profiling stamps if they all lie between two reads of it.
Status WorkDevice::findClock() {
  constexpr int kProbes = 5;
  std::array<int, kClocks.size()> fits{};
  for (int i = 0; i < kProbes; i++) {
    InFlight probe;
    std::array<std::int64_t, kClocks.size()> before{};
    for (std::size_t c = 0; c < kClocks.size(); c++) before[c] = readClock(kClocks[c].id);
    if (Status status = submit(1, probe); !status) return status;
    if (Status status = await(probe); !status) return status;
    const std::int64_t start = profiled(probe.kernelDone, CL_PROFILING_COMMAND_START);
    const std::int64_t end = profiled(probe.kernelDone, CL_PROFILING_COMMAND_END);
    for (std::size_t c = 0; c < kClocks.size(); c++) {
      fits[c] += before[c] <= start && start <= end && end <= readClock(kClocks[c].id) ? 1 : 0;
    }
  }
  for (std::size_t c = 0; c < kClocks.size() && !clock_; c++) {
    if (fits[c] == kProbes) clock_ = kClocks[c].id;
  }
  return ok();
}

const char* WorkDevice::clockName() const {
  for (const Clock& clock : kClocks) {
    if (clock_ == clock.id) return clock.name;
  }
  return "derived";
}

// Both clocks are read now, soon after the stamp, so a slow drift between them does no harm.
std::int64_t WorkDevice::toMonotonic(std::int64_t deviceNs) const {
  if (clock_ == CLOCK_MONOTONIC) return deviceNs;
  const std::int64_t before = monotonicNs();
  const std::int64_t device = readClock(*clock_);
  const std::int64_t after = monotonicNs();
  return deviceNs - device + before + (after - before) / 2;
}

Status WorkDevice::submit(std::uint32_t loops, InFlight& work) {
  work.window = nextWindow_;
  work.loops = loops;
  nextWindow_ = (nextWindow_ + 1) % static_cast<std::uint32_t>(done_.size());
  work.items.resize(kItems);
  const std::uint32_t first = work.window * kItems;
  cl_int code = setArg(mix_, 0, buffer_.get()) | setArg(mix_, 1, first) | setArg(mix_, 2, loops) |
                setArg(mix_, 3, kMultiplier) | setArg(mix_, 4, kIncrement) |
                setArg(mix_, 5, progressBuffer_.get());
  if (code != CL_SUCCESS) return clError("clSetKernelArg", code);
  const std::size_t global = kItems;
  const std::size_t local = kGroup;
  cl_event event = nullptr;
  work.submitNs = monotonicNs();
  code = clEnqueueNDRangeKernel(queue_.get(), mix_.get(), 1, nullptr, &global, &local, 0, nullptr,
                                &event);
  if (code != CL_SUCCESS) return clError("clEnqueueNDRangeKernel", code);
  work.kernelDone.reset(event);
  done_[work.window] = compose(done_[work.window], steps(loops));
  work.expected = done_[work.window];
  code = clEnqueueReadBuffer(queue_.get(), buffer_.get(), CL_FALSE, first * sizeof(std::uint32_t),
                             kItems * sizeof(std::uint32_t), work.items.data(), 0, nullptr, &event);
  if (code != CL_SUCCESS) return clError("clEnqueueReadBuffer", code);
  work.readDone.reset(event);
  code = clFlush(queue_.get());
  return code == CL_SUCCESS ? ok() : Status(clError("clFlush", code));
}

Status WorkDevice::await(InFlight& work) {
  cl_event event = work.readDone.get();
  const cl_int code = clWaitForEvents(1, &event);
  const std::int64_t seen = monotonicNs();
  if (code != CL_SUCCESS) return clError("clWaitForEvents", code);
  work.startNs = profiled(work.kernelDone, CL_PROFILING_COMMAND_START);
  work.endNs = profiled(work.kernelDone, CL_PROFILING_COMMAND_END);
  const std::int64_t duration = work.endNs - work.startNs;
  work.startNs = clock_ ? toMonotonic(work.startNs) : seen - duration;
  work.endNs = work.startNs + duration;
  work.wrong = wrongItems(work.items, work.window * kItems, seed_, work.expected);
  return ok();
}

Result<std::size_t> WorkDevice::verifyAll() {
  std::size_t wrong = 0;
  std::vector<std::uint32_t> items(kItems);
  for (std::uint32_t window = 0; window < done_.size(); window++) {
    const std::uint32_t first = window * kItems;
    const cl_int code =
        clEnqueueReadBuffer(queue_.get(), buffer_.get(), CL_TRUE, first * sizeof(std::uint32_t),
                            kItems * sizeof(std::uint32_t), items.data(), 0, nullptr, nullptr);
    if (code != CL_SUCCESS) return clError("clEnqueueReadBuffer", code);
    wrong += wrongItems(items, first, seed_, done_[window]);
  }
  return wrong;
}

}  // namespace qgpu::demo
