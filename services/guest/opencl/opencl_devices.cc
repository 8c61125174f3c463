// Platforms, devices and what they tell: only the task's own cards are visible (HAZARDS 14), sizes
// show the quota, and extensions that launch or allocate past the wrappers are left out (13).

#include <cstdlib>
#include <cstring>

#include "services/guest/gate/freeze.h"
#include "services/guest/gate/quota.h"
#include "services/guest/opencl/callbacks.h"
#include "services/guest/opencl/opencl_extensions.h"
#include "services/guest/opencl/opencl_layer.h"
#include "services/guest/opencl/retirement.h"

namespace qgpu::guest {
namespace {

constexpr cl_uint kMostPlatforms = 64;
constexpr cl_uint kMostDevices = 64;
constexpr cl_uint kMostCards = 16;
constexpr std::size_t kMostName = 1024;
constexpr int kMostPartitions = 16;  // a sub-device of a sub-device, and so on

Mutex devicesMutex;
cl_platform_id ownPlatform = nullptr;
cl_device_id ownDevices[kMostCards];
cl_uint ownDeviceCount = 0;
bool devicesKnown = false;

template <typename T>
T deviceInfo(cl_device_id device, cl_device_info name) {
  T value{};
  driver->clGetDeviceInfo(device, name, sizeof value, &value, nullptr);
  return value;
}

cl_platform_id findPlatform() {
  cl_platform_id all[kMostPlatforms];
  cl_uint count = 0;
  if (driver->clGetPlatformIDs(kMostPlatforms, all, &count) != CL_SUCCESS) return nullptr;
  if (count > kMostPlatforms) count = kMostPlatforms;
  for (cl_uint i = 0; i < count; ++i) {
    char name[QGPU_NAME_LEN] = {};
    driver->clGetPlatformInfo(all[i], CL_PLATFORM_NAME, sizeof name, name, nullptr);
    if (strcmp(name, session.welcome.platform) == 0) return all[i];
  }
  return nullptr;
}

struct DeviceName {
  explicit DeviceName(cl_device_id device) {
    driver->clGetDeviceInfo(device, CL_DEVICE_NAME, sizeof text - 1, text, nullptr);
  }
  char text[kMostName] = {};
};

// PoCL's "pthread" devices run kernels on threads of one pool, as many as one device announces.
std::uint32_t expectedDriverThreads(const cl_device_id* devices, cl_uint count) {
  std::uint32_t expected = 0;
  for (cl_uint i = 0; i < count; ++i) {
    if (strncmp(DeviceName(devices[i]).text, "pthread", 7) != 0) return 0;
    auto units = deviceInfo<cl_uint>(devices[i], CL_DEVICE_MAX_COMPUTE_UNITS);
    if (i > 0 && units != expected) return 0;
    expected = units;
  }
  return expected;
}

bool runsOnCallers(const cl_device_id* devices, cl_uint count) {
  for (cl_uint i = 0; i < count; ++i) {
    const DeviceName name(devices[i]);
    if (strncmp(name.text, "basic", 5) == 0 || strncmp(name.text, "cpu-minimal", 11) == 0) {
      return true;
    }
  }
  return false;
}

// The first device call of the process: the driver starts its threads in here.
cl_uint initialiseDevices(cl_device_id* all) {
  auto* lists = static_cast<ThreadList*>(malloc(2 * sizeof(ThreadList)));
  bool freeze = lists && session.gate->suspend == QGPU_SUSPEND_FREEZE && !session.online;
  const std::uint64_t mask = freeze ? admitFreezeSignal() : 0;
  if (freeze) listThreads(lists[0]);
  cl_uint count = 0;
  cl_int rc = driver->clGetDeviceIDs(ownPlatform, CL_DEVICE_TYPE_ALL, kMostDevices, all, &count);
  if (rc != CL_SUCCESS) count = 0;
  if (count > kMostDevices) count = kMostDevices;
  session.callerRuns = runsOnCallers(all, count);
  if (freeze) {
    listThreads(lists[1]);
    restoreMask(mask);
    publishDriverThreads(lists[0], lists[1], expectedDriverThreads(all, count));
  }
  free(lists);
  return count;
}

// AMD's names go on with what the card is set to: "gfx90a:sramecc+:xnack-".
bool isNamed(const char* name, const char* model) {
  if (strncmp(name, model, QGPU_MODEL_LEN - 1) == 0) return true;
  const std::size_t length = strlen(model);
  return strncmp(name, model, length) == 0 && name[length] == ':';
}

// A machine whose devices are in another order than the manager's must not lend a wrong card.
bool isTheModel(cl_device_id device) {
  const qgpu_welcome& welcome = session.welcome;
  if (!welcome.model[0]) return true;
  const DeviceName name(device);
  if (isNamed(name.text, welcome.model)) return true;
  say("device %u of platform '%s' is '%s' here and '%s' for the manager; no device (is POCL_* as "
      "the manager has it?)",
      welcome.device[0], welcome.platform, name.text, welcome.model);
  return false;
}

// False: the driver tells no UUIDs.
bool uuidOf(cl_device_id device, unsigned char (&out)[QGPU_UUID_LEN]) {
  return driver->clGetDeviceInfo(device, CL_DEVICE_UUID_KHR, sizeof out, out, nullptr) ==
         CL_SUCCESS;
}

cl_device_id byPlace(cl_uint place, const cl_device_id* all, cl_uint count) {
  if (place < count) return all[place];
  say("platform '%s' has %u devices, not the card of this task; no device (is POCL_* as the "
      "manager has it?)",
      session.welcome.platform, count);
  return nullptr;
}

// The task's card of that number among the platform's devices; null, and says why: it is not there.
cl_device_id cardAt(cl_uint number, const cl_device_id* all, cl_uint count) {
  const unsigned char(&wanted)[QGPU_UUID_LEN] = session.welcome.uuid[number];
  const unsigned char none[QGPU_UUID_LEN] = {};
  unsigned char uuid[QGPU_UUID_LEN] = {};
  const bool byUuid = memcmp(wanted, none, sizeof none) != 0 && count && uuidOf(all[0], uuid);
  // ROCm's runtime shows a program the cards of this variable alone, in its order.
  const bool rocm = strcmp(session.welcome.platform, kRocmPlatform) == 0;
  if (!byUuid && rocm && getenv("ROCR_VISIBLE_DEVICES")) return byPlace(number, all, count);
  if (!byUuid) return byPlace(session.welcome.device[number], all, count);
  for (cl_uint i = 0; i < count; ++i) {
    if (uuidOf(all[i], uuid) && memcmp(uuid, wanted, sizeof uuid) == 0) return all[i];
  }
  const char* visible = getenv("CUDA_VISIBLE_DEVICES");
  say("none of the %u devices of platform '%s' is the card of this task, by its UUID; no device "
      "(is "
      "it left out of CUDA_VISIBLE_DEVICES=%s?)",
      count, session.welcome.platform, visible ? visible : "");
  return nullptr;
}

void findDevices() {
  ownPlatform = findPlatform();
  if (!ownPlatform) {
    say("this machine's OpenCL has no platform '%s'; no device", session.welcome.platform);
    return;
  }
  cl_device_id all[kMostDevices], mine[kMostCards];
  const cl_uint count = initialiseDevices(all);
  const cl_uint cards = session.welcome.cards < kMostCards ? session.welcome.cards : kMostCards;
  for (cl_uint i = 0; i < cards; ++i) {
    mine[i] = cardAt(i, all, count);
    if (!mine[i]) return;
  }
  if (cards == 0 || !isTheModel(mine[0])) return;
  memcpy(ownDevices, mine, cards * sizeof *mine);
  ownDeviceCount = cards;
}

void forgetDevicesInChild() {
  devicesMutex.renewInChild();
  devicesKnown = false;
  ownPlatform = nullptr;
  ownDeviceCount = 0;
}

// Attaches and knows the own cards. False: this process has no device.
bool ready() {
  if (!ensureAttached()) return false;
  Lock lock(devicesMutex);
  if (!devicesKnown) {
    onForkInChild(forgetDevicesInChild);
    findDevices();
    devicesKnown = true;
  }
  return ownDeviceCount > 0;
}

bool matches(cl_device_id device, cl_device_type wanted) {
  auto type = deviceInfo<cl_device_type>(device, CL_DEVICE_TYPE);
  if (wanted == CL_DEVICE_TYPE_ALL) return type != CL_DEVICE_TYPE_CUSTOM;
  return (type & wanted) != 0;
}

// The own devices of a type. DEFAULT is the first own device, whatever the driver's default is.
cl_uint selectDevices(cl_device_type wanted, cl_device_id* out) {
  cl_uint count = 0;
  for (cl_uint i = 0; i < ownDeviceCount; ++i) {
    if (matches(ownDevices[i], wanted)) out[count++] = ownDevices[i];
  }
  if (count == 0 && wanted != CL_DEVICE_TYPE_ALL && (wanted & CL_DEVICE_TYPE_DEFAULT)) {
    out[count++] = ownDevices[0];
  }
  return count;
}

cl_int CL_API_CALL getPlatformIds(cl_uint room, cl_platform_id* out, cl_uint* count) {
  if ((room == 0 && out) || (!out && !count)) return CL_INVALID_VALUE;
  if (!ready()) {
    if (count) *count = 0;
    return -1001;  // CL_PLATFORM_NOT_FOUND_KHR, as the loader says without any driver
  }
  if (out) out[0] = ownPlatform;
  if (count) *count = 1;
  return CL_SUCCESS;
}

cl_int CL_API_CALL getDeviceIds(cl_platform_id platform, cl_device_type type, cl_uint room,
                                cl_device_id* out, cl_uint* count) {
  if ((room == 0 && out) || (!out && !count)) return CL_INVALID_VALUE;
  if (type == 0) return CL_INVALID_DEVICE_TYPE;
  cl_device_id mine[kMostCards];
  cl_uint n = 0;
  if (ready() && (!platform || platform == ownPlatform)) n = selectDevices(type, mine);
  if (count) *count = n;
  if (n == 0) return CL_DEVICE_NOT_FOUND;
  for (cl_uint i = 0; out && i < n && i < room; ++i) out[i] = mine[i];
  return CL_SUCCESS;
}

// Whether a device is one of the own, or a part of one.
bool isOwn(cl_device_id device) {
  for (int i = 0; device && i < kMostPartitions; ++i) {
    for (cl_uint own = 0; own < ownDeviceCount; ++own) {
      if (ownDevices[own] == device) return true;
    }
    device = deviceInfo<cl_device_id>(device, CL_DEVICE_PARENT_DEVICE);
  }
  return false;
}

cl_context CL_API_CALL createContext(const cl_context_properties* properties, cl_uint n,
                                     const cl_device_id* devices, ContextNotify notify, void* data,
                                     cl_int* rc) {
  if (!ready()) {
    if (rc) *rc = CL_DEVICE_NOT_AVAILABLE;
    return nullptr;
  }
  for (cl_uint i = 0; devices && i < n; ++i) {
    if (isOwn(devices[i])) continue;
    if (rc) *rc = CL_INVALID_DEVICE;
    return nullptr;
  }
  return createContextOver(properties, n, devices, notify, data, rc);
}

cl_context CL_API_CALL createContextFromType(const cl_context_properties* properties,
                                             cl_device_type type, ContextNotify notify, void* data,
                                             cl_int* rc) {
  cl_device_id mine[kMostCards];
  cl_uint n = ready() ? selectDevices(type, mine) : 0;
  if (n == 0) {
    if (rc) *rc = CL_DEVICE_NOT_FOUND;
    return nullptr;
  }
  return createContextOver(properties, n, mine, notify, data, rc);
}

cl_int copyOut(const void* value, size_t bytes, size_t room, void* out, size_t* needed) {
  if (out && room < bytes) return CL_INVALID_VALUE;
  if (out) memcpy(out, value, bytes);
  if (needed) *needed = bytes;
  return CL_SUCCESS;
}

// Reads a variable-length property through `get`, lets `filter` shorten it, and copies it out.
template <typename Get, typename Filter>
cl_int filtered(Get get, Filter filter, size_t room, void* out, size_t* needed) {
  size_t bytes = 0;
  cl_int rc = get(0, nullptr, &bytes);
  if (rc != CL_SUCCESS) return rc;
  void* text = malloc(bytes + 1);
  if (!text) return CL_OUT_OF_HOST_MEMORY;
  rc = get(bytes, text, nullptr);
  if (rc == CL_SUCCESS) {
    bytes = filter(text, bytes);
    rc = copyOut(text, bytes, room, out, needed);
  }
  free(text);
  return rc;
}

size_t filterNames(void* text, size_t bytes) {
  static_cast<char*>(text)[bytes] = 0;
  return keepAllowedExtensions(static_cast<char*>(text)) + 1;
}

size_t filterVersions(void* list, size_t bytes) {
  auto* versions = static_cast<cl_name_version*>(list);
  size_t kept = 0;
  for (size_t i = 0; i < bytes / sizeof(cl_name_version); ++i) {
    if (extensionAllowed(versions[i].name, strlen(versions[i].name))) {
      versions[kept++] = versions[i];
    }
  }
  return kept * sizeof(cl_name_version);
}

cl_int CL_API_CALL getDeviceInfo(cl_device_id device, cl_device_info name, size_t room, void* out,
                                 size_t* needed) {
  auto get = [&](size_t n, void* v, size_t* r) {
    return driver->clGetDeviceInfo(device, name, n, v, r);
  };
  if (name == CL_DEVICE_EXTENSIONS) return filtered(get, filterNames, room, out, needed);
  if (name == CL_DEVICE_EXTENSIONS_WITH_VERSION) {
    return filtered(get, filterVersions, room, out, needed);
  }
  cl_int rc = get(room, out, needed);
  bool size = name == CL_DEVICE_GLOBAL_MEM_SIZE || name == CL_DEVICE_MAX_MEM_ALLOC_SIZE;
  if (rc == CL_SUCCESS && size && out) {
    cl_ulong bytes;
    memcpy(&bytes, out, sizeof bytes);
    bytes = limitToQuota(bytes);
    memcpy(out, &bytes, sizeof bytes);
  }
  return rc;
}

cl_int CL_API_CALL getPlatformInfo(cl_platform_id platform, cl_platform_info name, size_t room,
                                   void* out, size_t* needed) {
  auto get = [&](size_t n, void* v, size_t* r) {
    return driver->clGetPlatformInfo(platform, name, n, v, r);
  };
  if (name == CL_PLATFORM_EXTENSIONS) return filtered(get, filterNames, room, out, needed);
  if (name == CL_PLATFORM_EXTENSIONS_WITH_VERSION) {
    return filtered(get, filterVersions, room, out, needed);
  }
  return get(room, out, needed);
}

void* CL_API_CALL extensionAddress(const char* name) {
  return functionAllowed(name) ? driver->clGetExtensionFunctionAddress(name) : nullptr;
}

void* CL_API_CALL extensionAddressForPlatform(cl_platform_id platform, const char* name) {
  if (!functionAllowed(name)) return nullptr;
  return driver->clGetExtensionFunctionAddressForPlatform(platform, name);
}

}  // namespace

void wrapDevices(cl_icd_dispatch& table) {
  table.clGetPlatformIDs = getPlatformIds;
  table.clGetDeviceIDs = getDeviceIds;
  table.clCreateContext = createContext;
  table.clCreateContextFromType = createContextFromType;
  table.clGetDeviceInfo = getDeviceInfo;
  table.clGetPlatformInfo = getPlatformInfo;
  table.clGetExtensionFunctionAddress = extensionAddress;
  table.clGetExtensionFunctionAddressForPlatform = extensionAddressForPlatform;
}

}  // namespace qgpu::guest
