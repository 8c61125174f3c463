// Claim: with the gate open, admit + retire alone take at most 50 ns (stretch 20), and the whole
// layer over a driver that does nothing at most 1 us per launch, its retirement included. Medians
// of rounds in processor time of the launching thread, so that a busy machine counts less; the core
// is the library's own code on private pages, the layer is libqgpu.so itself.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <vector>

#include "services/guest/gate/gate.h"
#include "services/guest/opencl/opencl_layer.h"
#include "tests/unit/services/guest/fake_manager.h"

namespace qgpu {
namespace {

constexpr int kRounds = 15;
constexpr char kPlatform[] = "null";

template <typename F>
double medianNs(int each, F round) {
  std::vector<double> ns;
  for (int i = 0; i < kRounds; ++i) {
    std::uint64_t start = guest::clockNs(CLOCK_THREAD_CPUTIME_ID);
    round();
    std::uint64_t end = guest::clockNs(CLOCK_THREAD_CPUTIME_ID);
    ns.push_back(static_cast<double>(end - start) / each);
  }
  std::sort(ns.begin(), ns.end());
  return ns[ns.size() / 2];
}

struct Core {
  double admitRetireNs = 0;  // the time of a retirement handed in, as the layer does per batch
  double withClockNs = 0;    // the clock read at every retirement
};

Core measureCore() {
  static qgpu_gate_page gate{};
  static qgpu_report_page report{};
  gate.gate = QGPU_GATE_OPEN;
  guest::session.gate = &gate;
  guest::session.report = &report;
  guest::session.slot = &report.slot[0];
  constexpr int kEach = 2'000'000;
  Core core;
  core.admitRetireNs = medianNs(kEach, [] {
    std::uint64_t now = guest::nowNs();
    for (int i = 0; i < kEach; ++i) {
      guest::Pass pass = guest::admit(1'000, guest::MayBlock::kYes);
      guest::retire(1, pass.windowNs, now);
    }
  });
  core.withClockNs = medianNs(kEach, [] {
    for (int i = 0; i < kEach; ++i) {
      guest::Pass pass = guest::admit(1'000, guest::MayBlock::kYes);
      guest::retire(1, pass.windowNs, guest::nowNs());
    }
  });
  return core;
}

// A driver whose work is finished before it begins.
template <typename T>
T handle(std::uintptr_t n) {
  return reinterpret_cast<T>(n);
}
cl_int put(const void* value, size_t bytes, size_t room, void* out, size_t* needed) {
  if (out && room >= bytes) memcpy(out, value, bytes);
  if (needed) *needed = bytes;
  return CL_SUCCESS;
}
cl_int CL_API_CALL nullPlatforms(cl_uint, cl_platform_id* out, cl_uint* n) {
  if (out) *out = handle<cl_platform_id>(64);
  if (n) *n = 1;
  return CL_SUCCESS;
}
cl_int CL_API_CALL nullPlatformInfo(cl_platform_id, cl_platform_info, size_t room, void* out,
                                    size_t* needed) {
  return put(kPlatform, sizeof kPlatform, room, out, needed);
}
cl_int CL_API_CALL nullDevices(cl_platform_id, cl_device_type, cl_uint, cl_device_id* out,
                               cl_uint* n) {
  if (out) *out = handle<cl_device_id>(128);
  if (n) *n = 1;
  return CL_SUCCESS;
}
cl_int CL_API_CALL nullDeviceInfo(cl_device_id, cl_device_info, size_t room, void* out,
                                  size_t* needed) {
  const cl_device_type type = CL_DEVICE_TYPE_GPU;
  return put(&type, sizeof type, room, out, needed);
}
cl_command_queue CL_API_CALL nullQueue(cl_context, cl_device_id, const cl_queue_properties*,
                                       cl_int*) {
  return handle<cl_command_queue>(256);
}
cl_int CL_API_CALL nullQueueInfo(cl_command_queue, cl_command_queue_info, size_t room, void* out,
                                 size_t* needed) {
  const cl_command_queue_properties none = 0;
  return put(&none, sizeof none, room, out, needed);
}
cl_int CL_API_CALL nullQueueCall(cl_command_queue) {
  return CL_SUCCESS;
}
cl_int CL_API_CALL nullLaunch(cl_command_queue, cl_kernel, cl_uint, const size_t*, const size_t*,
                              const size_t*, cl_uint, const cl_event*, cl_event* event) {
  if (event) *event = handle<cl_event>(512);
  return CL_SUCCESS;
}
cl_int CL_API_CALL nullEventInfo(cl_event, cl_event_info, size_t room, void* out, size_t* needed) {
  const cl_int complete = CL_COMPLETE;
  return put(&complete, sizeof complete, room, out, needed);
}
cl_int CL_API_CALL nullEventCall(cl_event) {
  return CL_SUCCESS;
}

cl_icd_dispatch nullDriver() {
  cl_icd_dispatch table{};
  table.clGetPlatformIDs = nullPlatforms;
  table.clGetPlatformInfo = nullPlatformInfo;
  table.clGetDeviceIDs = nullDevices;
  table.clGetDeviceInfo = nullDeviceInfo;
  table.clCreateCommandQueueWithProperties = nullQueue;
  table.clGetCommandQueueInfo = nullQueueInfo;
  table.clRetainCommandQueue = nullQueueCall;
  table.clReleaseCommandQueue = nullQueueCall;
  table.clFlush = nullQueueCall;
  table.clFinish = nullQueueCall;
  table.clEnqueueNDRangeKernel = nullLaunch;
  table.clGetEventInfo = nullEventInfo;
  table.clRetainEvent = nullEventCall;
  table.clReleaseEvent = nullEventCall;
  return table;
}

// Launches in batches with a clFinish after each; `batch` 1 is a program that waits each time.
double measureLaunches(const cl_icd_dispatch& table, cl_command_queue queue, int batch) {
  constexpr int kEach = 100'000;
  const size_t global = 64;
  return medianNs(kEach, [&] {
    for (int i = 0; i < kEach; ++i) {
      table.clEnqueueNDRangeKernel(queue, handle<cl_kernel>(1024), 1, nullptr, &global, nullptr, 0,
                                   nullptr, nullptr);
      if (i % batch == batch - 1) table.clFinish(queue);
    }
  });
}

using InitLayer = cl_int(CL_API_CALL*)(cl_uint, const cl_icd_dispatch*, cl_uint*,
                                       const cl_icd_dispatch**);

// The layer as a loader would start it, attached to a manager with an open gate.
int measureLayer(double& batched, double& single) {
  testing::FakeManager::Options options;
  options.platform = kPlatform;
  testing::FakeManager manager(options);
  setenv("QGPU_SOCKET", manager.socketPath().c_str(), 1);
  setenv("QGPU_TOKEN", testing::FakeManager::token().c_str(), 1);
  void* library = dlopen(QGPU_GUEST_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  if (!library) return std::fprintf(stderr, "bench_gate: %s\n", dlerror()), 1;
  auto init = reinterpret_cast<InitLayer>(dlsym(library, "clInitLayer"));
  static const cl_icd_dispatch driver = nullDriver();
  const cl_icd_dispatch* layer = nullptr;
  cl_uint entries = sizeof driver / sizeof(void*);
  cl_uint count = 0;
  cl_platform_id platform = nullptr;
  if (init(entries, &driver, &entries, &layer) != CL_SUCCESS || !layer->clEnqueueNDRangeKernel ||
      layer->clGetPlatformIDs(1, &platform, &count) != CL_SUCCESS) {
    return std::fprintf(stderr, "bench_gate: the layer did not start\n"), 1;
  }
  cl_command_queue queue = layer->clCreateCommandQueueWithProperties(
      nullptr, handle<cl_device_id>(128), nullptr, nullptr);
  batched = measureLaunches(*layer, queue, 100);
  single = measureLaunches(*layer, queue, 1);
  return manager.inFlight() == 0 ? 0 : 1;
}

int run() {
  Core core = measureCore();
  double batched = 0, single = 0;
  if (int failed = measureLayer(batched, single)) return failed;
  std::printf(
      "{\"bench\":\"gate\",\"admit_retire_ns\":%.1f,\"admit_retire_clock_ns\":%.1f,"
      "\"layer_launch_ns\":%.1f,\"layer_launch_and_finish_ns\":%.1f,\"ok\":%s}\n",
      core.admitRetireNs, core.withClockNs, batched, single,
      core.admitRetireNs <= 50 && batched <= 1000 ? "true" : "false");
  return 0;
}

}  // namespace
}  // namespace qgpu

int main() {
  return qgpu::run();
}
