// An OpenCL layer below libqgpu.so that plays a driver which notifies of something at each flush:
// it calls the notification of the context that was made last, as drivers do on threads of theirs.
// With QGPU_TEST_UUIDS its devices have UUIDs: 16 times the number of the device, from 1.

#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl_icd.h>
#include <CL/cl_layer.h>
#include <cstdlib>
#include <cstring>

namespace {

using Notify = void(CL_CALLBACK*)(const char*, const void*, size_t, void*);

const cl_icd_dispatch* below = nullptr;
cl_icd_dispatch table{};
Notify lastNotify = nullptr;
void* lastData = nullptr;

cl_context CL_API_CALL createContext(const cl_context_properties* properties, cl_uint n,
                                     const cl_device_id* devices, Notify notify, void* data,
                                     cl_int* rc) {
  lastNotify = notify;
  lastData = data;
  return below->clCreateContext(properties, n, devices, notify, data, rc);
}

int numberOf(cl_device_id device) {
  cl_platform_id platform = nullptr;
  cl_device_id all[64];
  cl_uint count = 0;
  below->clGetDeviceInfo(device, CL_DEVICE_PLATFORM, sizeof platform, &platform, nullptr);
  below->clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 64, all, &count);
  for (cl_uint i = 0; i < count; ++i) {
    if (all[i] == device) return static_cast<int>(i) + 1;
  }
  return 0;
}

cl_int CL_API_CALL deviceInfo(cl_device_id device, cl_device_info name, size_t room, void* out,
                              size_t* needed) {
  if (name != CL_DEVICE_UUID_KHR || !std::getenv("QGPU_TEST_UUIDS")) {
    return below->clGetDeviceInfo(device, name, room, out, needed);
  }
  if (room < CL_UUID_SIZE_KHR) return CL_INVALID_VALUE;
  std::memset(out, numberOf(device), CL_UUID_SIZE_KHR);
  return CL_SUCCESS;
}

cl_int CL_API_CALL flush(cl_command_queue queue) {
  if (lastNotify) lastNotify("a notice", nullptr, 0, lastData);
  return below->clFlush(queue);
}

}  // namespace

extern "C" {

CL_API_ENTRY cl_int CL_API_CALL clGetLayerInfo(cl_layer_info name, size_t room, void* out,
                                               size_t* needed) {
  if (name != CL_LAYER_API_VERSION || (out && room < sizeof(cl_layer_api_version))) {
    return CL_INVALID_VALUE;
  }
  if (out) *static_cast<cl_layer_api_version*>(out) = CL_LAYER_API_VERSION_100;
  if (needed) *needed = sizeof(cl_layer_api_version);
  return CL_SUCCESS;
}

CL_API_ENTRY cl_int CL_API_CALL clInitLayer(cl_uint, const cl_icd_dispatch* target,
                                            cl_uint* entries, const cl_icd_dispatch** out) {
  below = target;
  table.clCreateContext = createContext;
  table.clFlush = flush;
  table.clGetDeviceInfo = deviceInfo;
  *entries = sizeof table / sizeof(void*);
  *out = &table;
  return CL_SUCCESS;
}
}
