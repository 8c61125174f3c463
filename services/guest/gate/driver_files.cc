#include "services/guest/gate/driver_files.h"

#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>

#include "services/guest/gate/sys.h"
#include "services/guest/gate/test_hooks.h"
#include "services/nvidia_abi/rm_abi.h"

namespace qgpu::guest {
namespace {

bool status(int fd, const char* path, struct stat& out) {
  const int saved = errno;
  const long rc = syscall(SYS_newfstatat, fd, path, &out, *path ? 0 : AT_EMPTY_PATH);
  errno = saved;
  return rc == 0;
}

// A file below `root`, which is "" but in tests.
bool statusOf(const char* root, const char* name, struct stat& out) {
  char path[512];
  const int n = snprintf(path, sizeof path, "%s/dev/%s", root, name);
  return n > 0 && static_cast<std::size_t>(n) < sizeof path && status(AT_FDCWD, path, out);
}

// Tests have a folder of their own in the place of /, whose files in dev/ stand for the driver's.
const char* testRoot() {
  const char* root = testSetting("QGPU_DRIVER_ROOT");
  return root && *root ? root : nullptr;
}

bool isTestFile(const struct stat& file, const char* root, const char* name) {
  struct stat wanted;
  return statusOf(root, name, wanted) && wanted.st_dev == file.st_dev &&
         wanted.st_ino == file.st_ino;
}

// --- /proc/self/maps: "begin-end rwxp offset major:minor inode path" ---

unsigned long number(const char*& at, unsigned base) {
  unsigned long value = 0;
  for (;; ++at) {
    const unsigned digit = *at >= '0' && *at <= '9'   ? static_cast<unsigned>(*at - '0')
                           : *at >= 'a' && *at <= 'f' ? static_cast<unsigned>(*at - 'a' + 10)
                                                      : base;
    if (digit >= base) return value;
    value = value * base + digit;
  }
}

struct Map {
  unsigned long begin, end, device, inode;
};

bool read(const char* line, Map& map) {
  map.begin = number(line, 16);
  if (*line++ != '-') return false;
  map.end = number(line, 16);
  if (strlen(line) < 7) return false;
  line += 6;  // " rwxp "
  number(line, 16);
  if (*line++ != ' ') return false;
  const unsigned long high = number(line, 16);
  if (*line++ != ':') return false;
  map.device = makedev(static_cast<unsigned>(high), static_cast<unsigned>(number(line, 16)));
  if (*line++ != ' ') return false;
  map.inode = number(line, 10);
  return map.end > map.begin;
}

// What becomes of maps: a late look at a card's reads zeros.
constexpr int kZeros = PROT_READ | PROT_WRITE, kUntouchable = PROT_NONE;

// Empty memory in the place of a map.
void emptyOut(const Map& map, int rights) {
  syscall(SYS_mmap, map.begin, map.end - map.begin, rights,
          MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
}

}  // namespace

FileClass classOf(int fd) {
  struct stat file;
  if (!status(fd, "", file)) return FileClass::kForeign;
  if (const char* root = testRoot()) {
    if (isTestFile(file, root, "nvidiactl")) return FileClass::kControl;
    return isTestFile(file, root, "nvidia0") ? FileClass::kCard : FileClass::kForeign;
  }
  if (!S_ISCHR(file.st_mode) || major(file.st_rdev) != rm::kDeviceMajor) return FileClass::kForeign;
  return minor(file.st_rdev) == rm::kControlMinor ? FileClass::kControl : FileClass::kCard;
}

// Its number is given by the kernel as it comes, so the file in /dev tells it.
bool isUnifiedMemory(int fd) {
  struct stat file, wanted;
  if (!status(fd, "", file)) return false;
  if (const char* root = testRoot()) return isTestFile(file, root, "nvidia-uvm");
  return S_ISCHR(file.st_mode) && statusOf("", "nvidia-uvm", wanted) && S_ISCHR(wanted.st_mode) &&
         wanted.st_rdev == file.st_rdev;
}

bool isDmaBuf(int fd) {
  constexpr long kDmaBufFiles = 0x444d4142;  // what a kernel from 5.3 on says that it is of
  struct stat file;
  struct statfs of;
  if (const char* root = testRoot())
    return status(fd, "", file) && isTestFile(file, root, "dmabuf");
  return syscall(SYS_fstatfs, fd, &of) == 0 && of.f_type == kDmaBufFiles;
}

void Inherited::remember(int fd, int rights) {
  struct stat file;
  if (count_ == kFilesMost || !status(fd, "", file)) return;
  if (!find(file.st_dev, file.st_ino)) files_[count_++] = {file.st_dev, file.st_ino, rights};
}

const Inherited::File* Inherited::find(unsigned long device, unsigned long inode) const {
  for (int i = 0; i < count_; ++i) {
    if (files_[i].device == device && files_[i].inode == inode) return &files_[i];
  }
  return nullptr;
}

void Inherited::drop(int fd) {
  const FileClass is = classOf(fd);
  const bool unified = is == FileClass::kForeign && isUnifiedMemory(fd);
  if (is == FileClass::kForeign && !unified && !isDmaBuf(fd)) return;
  if (is != FileClass::kControl) remember(fd, unified ? kUntouchable : kZeros);
  const long flags = syscall(SYS_fcntl, fd, F_GETFD);
  const int closesAtExec = flags > 0 && (flags & FD_CLOEXEC) ? O_CLOEXEC : 0;
  if (nothing_ < 0) {
    nothing_ = static_cast<int>(syscall(SYS_openat, AT_FDCWD, "/dev/null", O_RDWR | O_CLOEXEC));
  }
  // Without another descriptor to have, an empty place is better than the memory of a card.
  if (nothing_ < 0 || syscall(SYS_dup3, nothing_, fd, closesAtExec) < 0) syscall(SYS_close, fd);
}

void Inherited::dropMaps() const {
  if (count_ == 0) return;
  const int fd =
      static_cast<int>(syscall(SYS_openat, AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC));
  if (fd < 0) return;
  char text[8192];  // a line has a path at its end, which is shorter
  std::size_t used = 0;
  for (;;) {
    const long n = syscall(SYS_read, fd, text + used, sizeof text - 1 - used);
    if (n <= 0) break;
    used += static_cast<std::size_t>(n);
    text[used] = 0;
    char* line = text;
    while (char* end = strchr(line, '\n')) {
      *end = 0;
      Map map{};
      const File* of = read(line, map) ? find(map.device, map.inode) : nullptr;
      if (of) emptyOut(map, of->rights);
      line = end + 1;
    }
    used -= static_cast<std::size_t>(line - text);
    memmove(text, line, used);
  }
  syscall(SYS_close, fd);
}

bool readModuleVersion(char* text, std::size_t size) {
  const int saved = errno;
  char path[512];
  const char* root = testRoot();
  const int n = snprintf(path, sizeof path, "%s/sys/module/nvidia/version", root ? root : "");
  long got = -1;
  if (n > 0 && static_cast<std::size_t>(n) < sizeof path) {
    const long fd = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) got = syscall(SYS_read, fd, text, size - 1);
    if (fd >= 0) syscall(SYS_close, fd);
  }
  text[got > 0 ? got : 0] = 0;
  errno = saved;
  return got > 0;
}

Inherited::~Inherited() {
  if (nothing_ >= 0) syscall(SYS_close, nothing_);
}

}  // namespace qgpu::guest
