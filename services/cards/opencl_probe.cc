#include "services/cards/opencl_probe.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>

#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>

namespace qgpu {
namespace {

constexpr cl_uint kPlatformsMax = 16;
constexpr cl_uint kDevicesMax = 64;              // of one platform
constexpr std::size_t kAnswerMax = 256 * 1024;   // bytes from the child

// --- the child ---

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

// Names travel in tab-separated lines.
void cleanName(char* text) {
  for (; *text != 0; text++) {
    if (*text == '\t' || *text == '\n') *text = ' ';
  }
}

void printDevice(const OpenclCalls& calls, const char* platform, cl_uint index, cl_device_id id,
                 int out) {
  cl_device_type type = 0;
  cl_ulong mem = 0;
  cl_bool available = CL_FALSE;
  char name[256] = "";
  calls.deviceInfo(id, CL_DEVICE_TYPE, sizeof type, &type, nullptr);
  calls.deviceInfo(id, CL_DEVICE_GLOBAL_MEM_SIZE, sizeof mem, &mem, nullptr);
  calls.deviceInfo(id, CL_DEVICE_AVAILABLE, sizeof available, &available, nullptr);
  calls.deviceInfo(id, CL_DEVICE_NAME, sizeof name - 1, name, nullptr);
  if (available == CL_FALSE || (type & CL_DEVICE_TYPE_CUSTOM) != 0) return;
  cleanName(name);
  ::dprintf(out, "%s\t%u\t%llu\t%s\n", platform, index, static_cast<unsigned long long>(mem), name);
}

[[noreturn]] void childMain(int out) {
  // A tenant's layer must not gate the daemon, and drivers chatter on stdout.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::unsetenv("OPENCL_LAYERS");
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null >= 0) ::dup2(null, STDOUT_FILENO);
  OpenclCalls calls;
  if (!loadCalls(calls)) ::_exit(0);
  cl_platform_id platforms[kPlatformsMax];
  cl_uint count = 0;
  if (calls.platforms(kPlatformsMax, platforms, &count) != CL_SUCCESS) ::_exit(0);
  for (cl_uint p = 0; p < std::min(count, kPlatformsMax); p++) {
    char platform[64] = "";   // as long as the attach handshake can carry
    if (calls.platformInfo(platforms[p], CL_PLATFORM_NAME, sizeof platform - 1, platform,
                           nullptr) != CL_SUCCESS) {
      continue;
    }
    cleanName(platform);
    cl_device_id devices[kDevicesMax];
    cl_uint n = 0;
    if (calls.devices(platforms[p], CL_DEVICE_TYPE_ALL, kDevicesMax, devices, &n) != CL_SUCCESS) {
      continue;
    }
    for (cl_uint d = 0; d < std::min(n, kDevicesMax); d++) {
      printDevice(calls, platform, d, devices[d], out);
    }
  }
  ::_exit(0);
}

// --- the parent ---

std::int64_t nowNs() {
  timespec t{};
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1'000'000'000LL + t.tv_nsec;
}

// All that the child writes until it closes its end. False: too late or too much.
bool readAll(int fd, std::int64_t deadline, std::string& text) {
  char chunk[4096];
  while (text.size() <= kAnswerMax) {
    const std::int64_t leftMs = (deadline - nowNs()) / 1'000'000;
    pollfd wait{fd, POLLIN, 0};
    if (leftMs <= 0) return false;
    const int ready = ::poll(&wait, 1, static_cast<int>(std::min<std::int64_t>(leftMs, 1'000'000)));
    if (ready < 0 && errno != EINTR) return false;
    if (ready <= 0) continue;
    const ssize_t n = ::read(fd, chunk, sizeof chunk);
    if (n == 0) return true;
    if (n > 0) text.append(chunk, static_cast<std::size_t>(n));
    if (n < 0 && errno != EINTR) return false;
  }
  return false;
}

std::vector<OpenclDevice> parseAnswer(const std::string& text) {
  std::vector<OpenclDevice> devices;
  std::istringstream lines(text);
  std::string line;
  while (std::getline(lines, line)) {
    OpenclDevice device;
    std::istringstream fields(line);
    std::string index, mem;
    if (!std::getline(fields, device.platform, '\t') || !std::getline(fields, index, '\t') ||
        !std::getline(fields, mem, '\t') || !std::getline(fields, device.name)) {
      continue;
    }
    device.index = static_cast<std::uint32_t>(std::strtoul(index.c_str(), nullptr, 10));
    device.mem = Bytes(std::strtoll(mem.c_str(), nullptr, 10));
    devices.push_back(std::move(device));
  }
  return devices;
}

}  // namespace

Result<std::vector<OpenclDevice>> probeOpencl(Nanos timeout) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    return fail(ErrorCode::Unavailable, std::string("pipe: ") + std::strerror(errno));
  }
  const pid_t child = ::fork();
  if (child == 0) childMain(ends[1]);
  ::close(ends[1]);
  if (child < 0) {
    ::close(ends[0]);
    return fail(ErrorCode::Unavailable, std::string("fork: ") + std::strerror(errno));
  }
  std::string text;
  const bool complete = readAll(ends[0], nowNs() + timeout.value, text);
  ::close(ends[0]);
  if (!complete) ::kill(child, SIGKILL);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!complete) {
    return fail(ErrorCode::Unavailable,
                "the OpenCL drivers did not answer in time; does `clinfo -l` work?");
  }
  if (status != 0) {
    return fail(ErrorCode::Unavailable,
                "an OpenCL driver crashed while its devices were listed; does `clinfo -l` work?");
  }
  return parseAnswer(text);
}

}  // namespace qgpu
