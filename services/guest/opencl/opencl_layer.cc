#include "services/guest/opencl/opencl_layer.h"

#include <CL/cl_layer.h>
#include <cstring>
#include <dlfcn.h>

#include "services/guest/gate/attach.h"
#include "services/guest/gate/real_loader.h"

// Not zero once a layer runs in this process. The preload front of any copy of this library reads
// its own; a layer finds the preloaded copy's by name and sets both (HAZARDS 21).
extern "C" {
__attribute__((visibility("default"))) std::uint32_t qgpu_layer_active = 0;
}

namespace qgpu::guest {

const cl_icd_dispatch* driver = nullptr;

const cl_icd_dispatch* layerTable() {
  static cl_icd_dispatch table;
  wrapDevices(table);
  wrapMemory(table);
  wrapLaunches(table);
  wrapTransfers(table);
  wrapSync(table);
  wrapCallbacks(table);
  return &table;
}

namespace {

constexpr char kLayerName[] = "qgpu";
const cl_icd_dispatch passThrough{};  // null entries fall through to the driver

cl_int answer(const void* value, std::size_t bytes, std::size_t room, void* out,
              std::size_t* needed) {
  if (out && room < bytes) return CL_INVALID_VALUE;
  if (out) memcpy(out, value, bytes);
  if (needed) *needed = bytes;
  return CL_SUCCESS;
}

}  // namespace
}  // namespace qgpu::guest

extern "C" {

CL_API_ENTRY __attribute__((visibility("default"))) cl_int CL_API_CALL
clGetLayerInfo(cl_layer_info name, size_t room, void* out, size_t* needed) {
  const cl_layer_api_version version = CL_LAYER_API_VERSION_100;
  if (name == CL_LAYER_API_VERSION) {
    return qgpu::guest::answer(&version, sizeof version, room, out, needed);
  }
  if (name == CL_LAYER_NAME) {
    return qgpu::guest::answer(qgpu::guest::kLayerName, sizeof qgpu::guest::kLayerName, room, out,
                               needed);
  }
  return CL_INVALID_VALUE;
}

CL_API_ENTRY __attribute__((visibility("default"))) cl_int CL_API_CALL
clInitLayer(cl_uint entries, const cl_icd_dispatch* target, cl_uint* entriesOut,
            const cl_icd_dispatch** out) {
  constexpr cl_uint kEntries = sizeof(cl_icd_dispatch) / sizeof(void*);
  if (!target || !entriesOut || !out || entries < kEntries) return CL_INVALID_VALUE;
  *entriesOut = kEntries;
  *out = &qgpu::guest::passThrough;
  if (!qgpu::guest::tokenGiven()) return CL_SUCCESS;
  qgpu::guest::driver = target;
  *out = qgpu::guest::layerTable();
  __atomic_store_n(&qgpu_layer_active, 1u, __ATOMIC_SEQ_CST);
  void* preloaded = qgpu::guest::realLoader().dlsym(RTLD_DEFAULT, "qgpu_layer_active");
  if (preloaded) __atomic_store_n(static_cast<std::uint32_t*>(preloaded), 1u, __ATOMIC_SEQ_CST);
  return CL_SUCCESS;
}
}
