#include "tests/crash/tmpfs.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "tests/crash/violation.h"

namespace qgpu::crash {
namespace {

void writeTo(const char* file, const std::string& text) {
  std::ofstream(file) << text;
}

// A mount namespace of our own: as root, or as the root of a user namespace.
void leaveTheMountsOfOthers() {
  const uid_t uid = ::geteuid();
  const gid_t gid = ::getegid();
  if (::unshare(CLONE_NEWNS) != 0) {
    if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) {
      throw Skipped(std::string("no mount namespace: ") + std::strerror(errno));
    }
    writeTo("/proc/self/setgroups", "deny");
    writeTo("/proc/self/uid_map", "0 " + std::to_string(uid) + " 1");
    writeTo("/proc/self/gid_map", "0 " + std::to_string(gid) + " 1");
  }
  if (::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
    throw Skipped(std::string("mounts can't be made private: ") + std::strerror(errno));
  }
}

}  // namespace

Tmpfs::Tmpfs(std::string at, std::uint64_t kib) : at_(std::move(at)) {
  leaveTheMountsOfOthers();
  const std::string size = "mode=755,size=" + std::to_string(kib) + "k";
  ::mkdir(at_.c_str(), 0755);
  if (::mount("qgpu-crash", at_.c_str(), "tmpfs", 0, size.c_str()) != 0) {
    throw Skipped("no tmpfs at " + at_ + ": " + std::strerror(errno));
  }
}

Tmpfs::~Tmpfs() {
  ::umount2(at_.c_str(), MNT_DETACH);
}

std::uint64_t Tmpfs::leftBytes() const {
  struct statvfs now {};
  return ::statvfs(at_.c_str(), &now) == 0 ? now.f_bavail * now.f_frsize : 0;
}

// Others write meanwhile, so what is left is asked again where it was less than it had been.
void Tmpfs::fill(std::uint64_t leftBytes) {
  free();
  const int fd = ::open(file("filler").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  bool taken = false;
  for (int tries = 0; !taken && tries < 100; ++tries) {
    const std::uint64_t all = this->leftBytes();
    taken = all <= leftBytes || ::posix_fallocate(fd, 0, static_cast<off_t>(all - leftBytes)) == 0;
  }
  ::close(fd);
  if (!taken) throw Violation("the small disk can't be filled");
}

void Tmpfs::free() {
  ::unlink(file("filler").c_str());
}

}  // namespace qgpu::crash
