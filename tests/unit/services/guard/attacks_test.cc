// The ways out that a task's program may try, past the library or with it: each leads to a refusal.
// Every test has one way, and what it tries works for a process of no task, or it proves nothing.

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <linux/io_uring.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "services/demo/workload/ways_out.h"
#include "tests/unit/services/guard/holder.h"
#include "tests/unit/services/guard/tenants.h"

namespace qgpu::testing {
namespace {

const std::string kOutsider = QGPU_GUARD_OUTSIDER;  // outsider.c
constexpr int kInherited = 78;                      // of a descriptor that an exec leaves open

class GuardAttack : public GuardTest {
 protected:
  // As a process of no task, then as one that is judged.
  void expectRefused(const std::function<int()>& way) {
    Held free(way);
    free.letGo();
    EXPECT_EQ(free.wait(), kGotIn) << "the way leads nowhere by itself";
    EXPECT_EQ(tenant(Is::Judged, way), EPERM);
  }
  // Of one that has attached and does something that ends that.
  void expectAttachedRefused(const std::function<int()>& way) {
    Held free(way);
    free.letGo();
    EXPECT_EQ(free.wait(), kGotIn) << "the way leads nowhere by itself";
    EXPECT_EQ(tenant(Is::Attached, way), EPERM);
  }
  // Opens card 0 under kInherited, for who comes after an exec.
  int openInherited() const {
    const Fd file(::open(card0.c_str(), O_RDONLY));
    return file && ::dup2(file.get(), kInherited) == kInherited ? 0 : errno;
  }
};

// --- another name ---

// What `qgpuctl prove` tries as well.
TEST_F(GuardAttack, TakesEachWayOutThatAProgramMayTryByItself) {
  for (const demo::WayOut& way : demo::waysOut()) {
    SCOPED_TRACE(way.name);
    if (demo::tryWay(way, card0) == demo::kNoWay) {
      EXPECT_TRUE(way.name.starts_with("ring") && !hasRings()) << "root in this kernel may";
      continue;
    }
    expectRefused([&] { return way.go(card0); });
  }
}

TEST_F(GuardAttack, OpensAHardLink) {
  ASSERT_EQ(::link(card0.c_str(), path("hard").c_str()), 0);
  expectRefused([&] { return tryOpen(path("hard")); });
}

TEST_F(GuardAttack, OpensItThroughAnOverlay) {
  for (const char* part : {"upper", "work", "lower", "merged"}) {
    ASSERT_EQ(::mkdir(path(part).c_str(), 0755), 0);
  }
  ASSERT_EQ(::mknod(path("lower/card").c_str(), S_IFCHR | 0666, makedev(1, 5)), 0);
  const std::string layers =
      "lowerdir=" + path("lower") + ",upperdir=" + path("upper") + ",workdir=" + path("work");
  if (::mount("overlay", path("merged").c_str(), "overlay", 0, layers.c_str()) != 0) {
    GTEST_SKIP() << "no overlay here";
  }
  expectRefused([&] { return tryOpen(path("merged/card")); });
  ::umount2(path("merged").c_str(), MNT_DETACH);
}

// --- another call ---

// /dev/null is a device whose driver takes any command by a ring, from Linux 6.0 on.
TEST_F(GuardAttack, HasTheDriverTakeACommandByARing) {
  const Fd file(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!file || afterFork([&] { return commandByRing(file.get(), 0); }) != kGotIn) {
    GTEST_SKIP() << "rings take no commands here";
  }
  ASSERT_TRUE(guard->setNodes({{makedev(1, 3), 0}}));
  expectRefused([&] { return commandByRing(file.get(), 0); });
  expectRefused([&] { return commandByRing(file.get(), IOSQE_ASYNC); });
  EXPECT_EQ(tenant(Is::Attached, [&] { return commandByRing(file.get(), IOSQE_ASYNC); }), kGotIn);
}

// --- another process ---

TEST_F(GuardAttack, AChildOfAnAttachedProcessOpensIt) {
  expectAttachedRefused([&] { return afterFork([&] { return tryOpen(card0); }); });
}

TEST_F(GuardAttack, AChildUsesTheDescriptorOfItsAttachedParent) {
  expectAttachedRefused([&] {
    if (openInherited() != 0) return 200;
    return afterFork([] { return tryIoctl(kInherited); });
  });
}

TEST_F(GuardAttack, AChildThatSharesMemoryAndDescriptorsOpensIt) {
  const auto ways = demo::waysOut();
  const auto way = std::ranges::find(ways, "shared-memory", &demo::WayOut::name);
  ASSERT_NE(way, ways.end());
  expectAttachedRefused([&] { return way->go(card0); });
}

// --- another program ---

TEST_F(GuardAttack, AnAttachedProcessExecutesAStaticProgram) {
  expectAttachedRefused([&]() -> int { becomeProgram({kOutsider, "open", card0}); });
}

TEST_F(GuardAttack, AnAttachedProcessExecutesAProgramWithoutPreload) {
  expectAttachedRefused([&]() -> int {
    becomeProgram({"/bin/sh", "-c", "exec 3<" + card0 + " || exit 1"}, false);
  });
}

TEST_F(GuardAttack, AnAttachedProcessExecutesASetuidProgram) {
  const std::string copy = path("setuid");
  std::ofstream(copy, std::ios::binary) << std::ifstream(kOutsider, std::ios::binary).rdbuf();
  ASSERT_EQ(::chmod(copy.c_str(), 04755), 0);
  ASSERT_EQ(::chmod(place.path().c_str(), 0755), 0);
  expectAttachedRefused([&]() -> int {
    if (::setgid(65534) != 0 || ::setuid(65534) != 0) return 200;
    becomeProgram({copy, "open", card0});
  });
}

TEST_F(GuardAttack, AnAttachedProcessExecutesAFileInMemory) {
  expectAttachedRefused([&]() -> int {
    const int memory = ::memfd_create("program", 0);
    std::ofstream(("/proc/self/fd/" + std::to_string(memory)).c_str(), std::ios::binary)
        << std::ifstream(kOutsider, std::ios::binary).rdbuf();
    becomeProgram({"/proc/self/fd/" + std::to_string(memory), "open", card0});
  });
}

TEST_F(GuardAttack, AnAttachedProcessExecutesItselfFromAnotherThread) {
  expectAttachedRefused([&]() -> int { becomeProgram({kOutsider, "in-thread", card0}); });
}

TEST_F(GuardAttack, AnExecutedProgramUsesADescriptorThatWasLeftOpen) {
  expectAttachedRefused([&]() -> int {
    if (openInherited() != 0) return 200;
    const int code = afterFork([]() -> int {
      becomeProgram({kOutsider, "ioctl", std::to_string(kInherited)});
    });
    return code == ENOTTY ? kGotIn : code;  // the driver was asked
  });
}

TEST_F(GuardAttack, AnExecutedProgramMapsADescriptorThatWasLeftOpen) {
  expectAttachedRefused([&]() -> int {
    if (openInherited() != 0) return 200;
    becomeProgram({kOutsider, "map", std::to_string(kInherited)});
  });
}

#if defined(__x86_64__)
TEST_F(GuardAttack, AnInheritedDescriptorIsUsedByACallOf32Bits) {
  expectAttachedRefused([&] {
    if (openInherited() != 0) return 200;
    return afterFork([] {
      int got = 54;  // ioctl
      asm volatile("int $0x80"
                   : "+a"(got)
                   : "b"(kInherited), "c"(1), "d"(0)
                   : "memory", "r8", "r9", "r10", "r11");
      return got == -ENOTTY || got == 0 ? kGotIn : -got;
    });
  });
}
#endif

// --- a descriptor of another ---

int receive(int socket) {
  char byte = 0;
  iovec part{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  if (::recvmsg(socket, &message, 0) != 1) return 200;
  if ((message.msg_flags & MSG_CTRUNC) != 0) return EPERM;  // the kernel kept it
  return CMSG_FIRSTHDR(&message) != nullptr ? kGotIn : 201;
}

void send(int socket, int fd) {
  char byte = 0;
  iovec part{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  ASSERT_EQ(::sendmsg(socket, &message, 0), 1);
}

TEST_F(GuardAttack, IsSentADescriptor) {
  const Fd file(::open(card0.c_str(), O_RDONLY | O_CLOEXEC));
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const Fd here(ends[0]), there(ends[1]);
  expectRefused([&] {
    send(here.get(), file.get());
    return receive(there.get());
  });
}

TEST_F(GuardAttack, TakesADescriptorOfAnAttachedProcess) {
  const auto attached = holder();
  const pid_t pid = attached->held.pid();
  expectRefused([&] {
    const Fd process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
    const Fd file(
        static_cast<int>(::syscall(SYS_pidfd_getfd, process.get(), GuardTest::Holder::fd, 0)));
    return file ? kGotIn : errno;
  });
}

TEST_F(GuardAttack, OpensADescriptorOfAnAttachedProcess) {
  const auto attached = holder();
  expectRefused([&] { return tryOpen(attached->procPath()); });
}

// Both are refused alike: ioctl and map of one that was there before the process was judged.
TEST_F(GuardAttack, UsesADescriptorFromBeforeItWasJudged) {
  const Fd file(::open(card0.c_str(), O_RDONLY | O_CLOEXEC));
  expectRefused([&] { return tryIoctl(file.get()); });
}

TEST_F(GuardAttack, MapsADescriptorFromBeforeItWasJudged) {
  const Fd file(::open(card0.c_str(), O_RDONLY | O_CLOEXEC));
  expectRefused([&] { return tryMap(file.get()); });
}

// --- another card ---

TEST_F(GuardAttack, AnAttachedProcessOpensTheCardOfAnotherTask) {
  expectAttachedRefused([&] { return tryOpen(card1); });
}

TEST_F(GuardAttack, AnAttachedProcessIsSentTheCardOfAnotherTask) {
  const Fd file(::open(card1.c_str(), O_RDONLY | O_CLOEXEC));
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const Fd here(ends[0]), there(ends[1]);
  expectAttachedRefused([&] {
    send(here.get(), file.get());
    return receive(there.get());
  });
}

TEST_F(GuardAttack, OpensTheNodeThatCardsShare) {
  expectRefused([&] { return tryOpen(shared); });
}

// --- cgroups ---

// Mounted for the test alone; `type` and its options as mount() takes them.
class GuardedGroup : public GuardAttack {
 protected:
  void judgeGroup(const char* type, const char* options) {
    if (IsSkipped()) return;
    ASSERT_EQ(::mkdir(path("groups").c_str(), 0755), 0);
    if (::mount("groups", path("groups").c_str(), type, 0, options) != 0) {
      GTEST_SKIP() << type << " can't be mounted here: " << std::strerror(errno);
    }
    pod = path("groups") + "/qgpu-guard-" + std::to_string(::getpid());
    ASSERT_EQ(::mkdir(pod.c_str(), 0755), 0);
    container = pod + "/container";
    ASSERT_EQ(::mkdir(container.c_str(), 0755), 0);
    ASSERT_TRUE(guard->judgeGroup(pod, kGuardedTask));
  }
  void TearDown() override {
    if (!pod.empty()) {
      EXPECT_EQ(::rmdir(container.c_str()), 0);
      EXPECT_EQ(::rmdir(pod.c_str()), 0);
      ::umount2(path("groups").c_str(), MNT_DETACH);
    }
    GuardAttack::TearDown();
  }
  bool enter(const std::string& group) const {
    std::ofstream procs(group + "/cgroup.procs");
    procs << ::getpid() << std::flush;
    return procs.good();
  }
  // What a program ends with that is started in the container's cgroup, as by its runtime.
  int inContainer(const std::vector<std::string>& argv) const {
    Held held([&]() -> int {
      if (!enter(container)) return 200;
      becomeProgram(argv);
    });
    held.letGo();
    return held.wait();
  }
  // The same of one that goes back to the root first.
  int escaping() const {
    return inContainer(
        {"/bin/sh", "-c",
         "echo $$ >" + path("groups") + "/cgroup.procs && exec " + kOutsider + " open " + card0});
  }
  void expectAllRefused() {
    EXPECT_EQ(inContainer({kOutsider, "open", card0}), EPERM);
    EXPECT_EQ(escaping(), EPERM) << "who began there is judged wherever it goes";
    EXPECT_EQ(inContainer({"/bin/true"}), 0);
    auto next = Guard::open(folder);
    ASSERT_TRUE(next) << next.error().message;
    guard = std::move(*next);
    guard->keepGroups({pod});
    EXPECT_EQ(inContainer({kOutsider, "open", card0}), EPERM) << "another manager keeps it";
    guard->keepGroups({container});
    EXPECT_EQ(inContainer({kOutsider, "open", card0}), kGotIn) << "the cgroup was why";
  }

  std::string pod, container;
};

TEST_F(GuardedGroup, AContainersProgramOpensItAndOneThatLeavesItsCgroupOfVersion2) {
  ASSERT_NO_FATAL_FAILURE(judgeGroup("cgroup2", ""));
  if (!pod.empty()) expectAllRefused();
}

TEST_F(GuardedGroup, AContainersProgramOpensItAndOneThatLeavesItsCgroupOfVersion1) {
  ASSERT_NO_FATAL_FAILURE(judgeGroup("cgroup", "devices"));
  if (!pod.empty()) expectAllRefused();
}

}  // namespace
}  // namespace qgpu::testing
