#include "tests/unit/services/guard/tenants.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "services/base/process.h"
#include "tests/unit/services/guard/holder.h"

namespace qgpu::testing {
namespace {

constexpr unsigned kMemoryMajor = 1;  // of zero, full and random
constexpr unsigned kZero = 5, kFull = 7, kRandom = 8;

}  // namespace

std::string GuardTest::makeNode(const std::string& name, unsigned minor) const {
  EXPECT_EQ(::mknod(path(name).c_str(), S_IFCHR | 0666, makedev(kMemoryMajor, minor)), 0);
  EXPECT_EQ(::chmod(path(name).c_str(), 0666), 0);
  return path(name);
}

void GuardTest::SetUp() {
  if (::geteuid() != 0) GTEST_SKIP() << "the guard needs root";
  // A container's root may not all of this.
  if (::unshare(CLONE_NEWNS) != 0 ||
      ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      ::mount("nodes", place.path().c_str(), "tmpfs", 0, "mode=0755") != 0 ||
      ::mkdir(path("bpf").c_str(), 0755) != 0 ||
      ::mount("bpf", path("bpf").c_str(), "bpf", 0, nullptr) != 0 ||
      ::mknod(path("tried").c_str(), S_IFCHR | 0600, makedev(kMemoryMajor, kZero)) != 0) {
    GTEST_SKIP() << "mounts and device nodes of its own: " << std::strerror(errno);
  }
  folder = path("bpf") + "/qgpu/test";
  card0 = makeNode("card0", kZero);
  card1 = makeNode("card1", kFull);
  shared = makeNode("shared", kRandom);
  auto opened = Guard::open(folder);
  if (!opened && opened.error().code != ErrorCode::Unavailable) {
    GTEST_SKIP() << opened.error().message;
  }
  ASSERT_TRUE(opened) << opened.error().message;
  guard = std::move(*opened);
  ASSERT_TRUE(guard->setNodes({{makedev(kMemoryMajor, kZero), 0},
                               {makedev(kMemoryMajor, kFull), 1},
                               {makedev(kMemoryMajor, kRandom), kGuardShared}}));
}

void GuardTest::TearDown() {
  if (::geteuid() != 0) return;
  if (guard) {
    guard.reset();
    EXPECT_TRUE(Guard::remove(folder));
    EXPECT_NE(::access((path("bpf") + "/qgpu").c_str(), F_OK), 0) << "something is left over";
  }
  ::umount2(path("bpf").c_str(), MNT_DETACH);
  ::umount2(place.path().c_str(), MNT_DETACH);
}

int GuardTest::tenant(Is is, const std::function<int()>& body) {
  Held held(body);
  EXPECT_TRUE(guard->judge(held.pidfd(), kGuardedTask));
  if (is == Is::Attached) {
    EXPECT_TRUE(guard->letIn(held.pidfd(), kGuardedTask, {0}));
  }
  held.letGo();
  return held.wait();
}

int GuardTest::execute(const std::vector<std::string>& argv) {
  return tenant(Is::Judged, [&]() -> int { becomeProgram(argv); });
}

std::unique_ptr<GuardTest::Holder> GuardTest::holder() {
  auto made = std::make_unique<Holder>(card0);
  EXPECT_TRUE(guard->letIn(made->held.pidfd(), kGuardedTask, {0}));
  made->held.letGo();
  made->awaitOpen();
  return made;
}

// The devices know no such request.
int tryIoctl(int fd) {
  return ::ioctl(fd, 1, nullptr) == 0 || errno == ENOTTY ? kGotIn : errno;
}

int tryMap(int fd) {
  return ::mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE, fd, 0) != MAP_FAILED ? kGotIn : errno;
}

bool hasRings() {
  io_uring_params params{};
  return static_cast<bool>(Fd(static_cast<int>(::syscall(SYS_io_uring_setup, 2, &params))));
}

int commandByRing(int fd, std::uint8_t flags) {
  return askByRing([&](io_uring_sqe& request) {
    request.opcode = IORING_OP_URING_CMD;
    request.flags = flags;
    request.fd = fd;
  });
}

void becomeProgram(const std::vector<std::string>& argv, bool keepPreload) {
  std::vector<char*> words;
  for (const std::string& word : argv) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  char* const nothing[] = {nullptr};
  ::execve(words[0], words.data(), keepPreload ? ::environ : nothing);
  ::_exit(254);
}

}  // namespace qgpu::testing
