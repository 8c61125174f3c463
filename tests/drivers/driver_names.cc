// NVIDIA's libraries open the driver's files by fixed names, and want them to be its character
// devices. Preloaded, this leads those names below QGPU_DRIVER_ROOT, where the files that the
// kernel's stand-in answers for are, and has them pass for such devices. As root, they would make
// devices in /dev where there are none: here they may not.

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "services/nvidia_abi/rm_abi.h"

namespace {

struct Place {
  char path[512];
  bool isDrivers;
};

Place placeOf(const char* path) {
  constexpr char kBegin[] = "/dev/nvidia";
  Place place{{}, std::strncmp(path, kBegin, sizeof kBegin - 1) == 0};
  const char* root = place.isDrivers ? std::getenv("QGPU_DRIVER_ROOT") : "";
  std::snprintf(place.path, sizeof place.path, "%s%s", root ? root : "", path);
  return place;
}

template <typename F>
F next(const char* name) {
  return reinterpret_cast<F>(dlsym(RTLD_NEXT, name));
}

template <typename Stat>
int statusOf(const char* function, int version, const char* path, Stat* out) {
  const Place place = placeOf(path);
  const auto system = next<int (*)(int, const char*, Stat*)>(function);
  const int rc = system(version, place.isDrivers ? place.path : path, out);
  if (rc != 0 || !place.isDrivers) return rc;
  const bool control = std::strcmp(path, "/dev/nvidiactl") == 0;
  constexpr unsigned kAnyMajor = 510;  // unified memory's is given by the kernel as it comes
  const bool unified = std::strncmp(path, "/dev/nvidia-uvm", 15) == 0;
  out->st_mode = S_IFCHR | 0666;
  out->st_rdev =
      makedev(unified ? kAnyMajor : qgpu::rm::kDeviceMajor, control ? qgpu::rm::kControlMinor : 0);
  return 0;
}

int opened(const char* function, const char* path, int flags, mode_t mode) {
  const Place place = placeOf(path);
  const auto system = next<int (*)(const char*, int, ...)>(function);
  return system(place.isDrivers ? place.path : path, flags, mode);
}

}  // namespace

// The names of before glibc 2.33, which these libraries were linked with.
#define QGPU_IN_FRONT_OF(name) __asm__(#name) __attribute__((visibility("default")))

extern "C" {
int namedMakeNode(int version, const char* path, mode_t mode, dev_t* device)
    QGPU_IN_FRONT_OF(__xmknod);
int namedOpen(const char* path, int flags, ...) QGPU_IN_FRONT_OF(open);
int namedOpen64(const char* path, int flags, ...) QGPU_IN_FRONT_OF(open64);
int namedStat(int version, const char* path, struct stat* out) QGPU_IN_FRONT_OF(__xstat);
int namedStat64(int version, const char* path, struct stat* out) QGPU_IN_FRONT_OF(__xstat64);

int namedOpen(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const auto mode = va_arg(more, mode_t);
  va_end(more);
  return opened("open", path, flags, mode);
}
int namedOpen64(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const auto mode = va_arg(more, mode_t);
  va_end(more);
  return opened("open64", path, flags, mode);
}
int namedMakeNode(int version, const char* path, mode_t mode, dev_t* device) {
  if (placeOf(path).isDrivers) return errno = EPERM, -1;
  return next<int (*)(int, const char*, mode_t, dev_t*)>("__xmknod")(version, path, mode, device);
}
int namedStat(int version, const char* path, struct stat* out) {
  return statusOf("__xstat", version, path, out);
}
int namedStat64(int version, const char* path, struct stat* out) {
  return statusOf("__xstat64", version, path, out);
}
}
