#include "services/cards/opencl/probe.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <sstream>
#include <unistd.h>

#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>

#include "services/base/child_probe.h"

namespace qgpu {
namespace {

constexpr cl_uint kPlatformsMax = 16;
constexpr cl_uint kDevicesMax = 64;  // of one platform

// --- in the child ---

struct OpenclCalls {
  decltype(&clGetPlatformIDs) platforms = nullptr;
  decltype(&clGetPlatformInfo) platformInfo = nullptr;
  decltype(&clGetDeviceIDs) devices = nullptr;
  decltype(&clGetDeviceInfo) deviceInfo = nullptr;
};

template <typename F>
bool resolve(void* library, const char* name, F& out) {
  out = reinterpret_cast<F>(::dlsym(library, name));
  return out != nullptr;
}

bool loadCalls(OpenclCalls& calls) {
  void* library = ::dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
  return library != nullptr && resolve(library, "clGetPlatformIDs", calls.platforms) &&
         resolve(library, "clGetPlatformInfo", calls.platformInfo) &&
         resolve(library, "clGetDeviceIDs", calls.devices) &&
         resolve(library, "clGetDeviceInfo", calls.deviceInfo);
}

void printDevice(const OpenclCalls& calls, const char* platform, cl_uint index, cl_device_id id,
                 int out) {
  cl_device_type type = 0;
  cl_ulong mem = 0;
  cl_bool available = CL_FALSE;
  char name[256] = "";
  char driver[64] = "";
  calls.deviceInfo(id, CL_DEVICE_TYPE, sizeof type, &type, nullptr);
  calls.deviceInfo(id, CL_DEVICE_GLOBAL_MEM_SIZE, sizeof mem, &mem, nullptr);
  calls.deviceInfo(id, CL_DEVICE_AVAILABLE, sizeof available, &available, nullptr);
  calls.deviceInfo(id, CL_DEVICE_NAME, sizeof name - 1, name, nullptr);
  calls.deviceInfo(id, CL_DRIVER_VERSION, sizeof driver - 1, driver, nullptr);
  if (available == CL_FALSE || (type & CL_DEVICE_TYPE_CUSTOM) != 0) return;
  cleanField(name);
  cleanField(driver);
  const bool cpu = (type & CL_DEVICE_TYPE_CPU) != 0;
  ::dprintf(out, "%s\t%u\t%s\t%llu\t%s\t%s\n", platform, index, cpu ? "cpu" : "other",
            static_cast<unsigned long long>(mem), driver, name);
}

void listDevices(int out) {
  OpenclCalls calls;
  if (!loadCalls(calls)) return;
  cl_platform_id platforms[kPlatformsMax];
  cl_uint count = 0;
  if (calls.platforms(kPlatformsMax, platforms, &count) != CL_SUCCESS) return;
  for (cl_uint p = 0; p < std::min(count, kPlatformsMax); p++) {
    char platform[64] = "";  // as long as the attach handshake can carry
    if (calls.platformInfo(platforms[p], CL_PLATFORM_NAME, sizeof platform - 1, platform,
                           nullptr) != CL_SUCCESS) {
      continue;
    }
    cleanField(platform);
    cl_device_id devices[kDevicesMax];
    cl_uint n = 0;
    if (calls.devices(platforms[p], CL_DEVICE_TYPE_ALL, kDevicesMax, devices, &n) != CL_SUCCESS) {
      continue;
    }
    for (cl_uint d = 0; d < std::min(n, kDevicesMax); d++) {
      printDevice(calls, platform, d, devices[d], out);
    }
  }
}

// --- in the daemon ---

Bytes machineMemory() {
  return Bytes(static_cast<std::int64_t>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGE_SIZE));
}

std::vector<OpenclDevice> parseAnswer(const std::string& text) {
  const Bytes machine = machineMemory();
  std::vector<OpenclDevice> devices;
  std::istringstream lines(text);
  std::string line;
  while (std::getline(lines, line)) {
    OpenclDevice device;
    std::istringstream fields(line);
    std::string index, type, mem;
    if (!std::getline(fields, device.platform, '\t') || !std::getline(fields, index, '\t') ||
        !std::getline(fields, type, '\t') || !std::getline(fields, mem, '\t') ||
        !std::getline(fields, device.driver, '\t') || !std::getline(fields, device.name)) {
      continue;
    }
    device.index = static_cast<std::uint32_t>(std::strtoul(index.c_str(), nullptr, 10));
    device.mem =
        type == "cpu" ? cpuCardBytes(machine) : Bytes(std::strtoll(mem.c_str(), nullptr, 10));
    devices.push_back(std::move(device));
  }
  return devices;
}

}  // namespace

Bytes cpuCardBytes(Bytes machine) {
  const std::int64_t nominal = (machine.value + gibibytes(1).value - 1) / gibibytes(1).value;
  return nominal < 2 ? machine / 2 : gibibytes(nominal / 2);
}

Result<std::vector<OpenclDevice>> probeOpencl(Nanos timeout) {
  const auto answer = askInChild("the OpenCL drivers", "clinfo -l", timeout, listDevices);
  if (!answer) return answer.error();
  return parseAnswer(*answer);
}

std::string openclCardId(const std::string& platform, std::uint32_t device) {
  std::string slug;
  for (const char c : platform) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0 && byte < 0x80) {
      slug += static_cast<char>(std::tolower(byte));
    } else if (!slug.empty() && slug.back() != '-') {
      slug += '-';
    }
  }
  while (!slug.empty() && slug.back() == '-') slug.pop_back();
  return "opencl-" + (slug.empty() ? std::string("unnamed") : slug) + "-" + std::to_string(device);
}

}  // namespace qgpu
