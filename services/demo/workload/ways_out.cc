#include "services/demo/workload/ways_out.h"

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <linux/openat2.h>
#include <sched.h>
#include <sstream>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/fd.h"

namespace qgpu::demo {
namespace {

int gotOr(const Fd& file) {
  return file ? kGotIn : errno;
}

// A folder that goes with its object, where a way makes a name of its own for the node.
class OwnFolder {
 public:
  OwnFolder() {
    const char* given = std::getenv("TMPDIR");
    path_ = std::string(given != nullptr && *given != 0 ? given : "/tmp") + "/qgpu-way-XXXXXX";
    made_ = ::mkdtemp(path_.data()) != nullptr;
  }
  ~OwnFolder() {
    ::unlink(name().c_str());
    ::rmdir(path_.c_str());
  }
  OwnFolder(const OwnFolder&) = delete;
  OwnFolder& operator=(const OwnFolder&) = delete;

  bool made() const { return made_; }
  std::string name() const { return path_ + "/node"; }  // in it

 private:
  std::string path_;
  bool made_ = false;
};

// --- another name ---

int bySymbolicLink(const std::string& node) {
  const OwnFolder own;
  if (!own.made() || ::symlink(node.c_str(), own.name().c_str()) != 0) return kNoWay;
  return tryOpen(own.name());
}

int byOwnNode(const std::string& node) {
  struct stat facts {};
  const OwnFolder own;
  if (!own.made() || ::stat(node.c_str(), &facts) != 0) return kNoWay;
  if (::mknod(own.name().c_str(), S_IFCHR | 0600, facts.st_rdev) != 0) return kNoWay;
  const int got = tryOpen(own.name());
  return got == EACCES ? kNoWay : got;  // a file system that is mounted without devices
}

int byBindMount(const std::string& node) {
  const OwnFolder own;
  if (!own.made() || !Fd(::open(own.name().c_str(), O_CREAT | O_RDONLY | O_CLOEXEC, 0600))) {
    return kNoWay;
  }
  if (::unshare(CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWCGROUP) != 0 ||
      ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      ::mount(node.c_str(), own.name().c_str(), nullptr, MS_BIND, nullptr) != 0) {
    return kNoWay;
  }
  const int got = tryOpen(own.name());
  ::umount2(own.name().c_str(), MNT_DETACH);
  return got;
}

int withinChroot(const std::string& node) {
  const std::size_t slash = node.rfind('/');
  const std::string folder = slash == 0 ? "/" : node.substr(0, slash);
  if (::chroot(folder.c_str()) != 0 || ::chdir("/") != 0) return kNoWay;
  return tryOpen(node.substr(slash));
}

// --- another call ---

int byOpenat2(const std::string& node) {
  open_how how{};
  how.flags = O_RDONLY | O_CLOEXEC;
  const Fd file(static_cast<int>(::syscall(SYS_openat2, AT_FDCWD, node.c_str(), &how, sizeof how)));
  return gotOr(file) == ENOSYS ? kNoWay : gotOr(file);
}

// A descriptor that names the node without opening it, and that again.
int byPathAlone(const std::string& node) {
  const Fd named(::open(node.c_str(), O_PATH | O_CLOEXEC));
  return named ? tryOpen("/proc/self/fd/" + std::to_string(named.get())) : kNoWay;
}

int byFileHandle(const std::string& node) {
  alignas(file_handle) char room[sizeof(file_handle) + MAX_HANDLE_SZ] = {};
  auto* handle = reinterpret_cast<file_handle*>(room);
  handle->handle_bytes = MAX_HANDLE_SZ;
  int mount = 0;
  if (::name_to_handle_at(AT_FDCWD, node.c_str(), handle, &mount, 0) != 0) return kNoWay;
  const std::string folder = node.substr(0, node.rfind('/') + 1);
  const Fd at(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const Fd file(::open_by_handle_at(at.get(), handle, O_RDONLY | O_CLOEXEC));
  return gotOr(file);
}

int byRing(const std::string& node, std::uint8_t flags) {
  return askByRing([&](io_uring_sqe& request) {
    request.opcode = IORING_OP_OPENAT;
    request.flags = flags;
    request.fd = AT_FDCWD;
    request.addr = reinterpret_cast<std::uint64_t>(node.c_str());
  });
}

#if defined(__x86_64__)
// The path must lie where a program of 32 bits can name it.
int byCallOf32Bits(const std::string& node) {
  void* low =
      ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
  if (low == MAP_FAILED || node.size() >= 4096) return kNoWay;
  std::memcpy(low, node.c_str(), node.size() + 1);
  int got = 5;  // open
  asm volatile("int $0x80"
               : "+a"(got)
               : "b"(low), "c"(O_RDONLY), "d"(0)
               : "memory", "r8", "r9", "r10", "r11");
  return got >= 0 ? kGotIn : got == -ENOSYS ? kNoWay : -got;
}
#endif

// --- another process ---

int asDaemon(const std::string& node) {
  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_CLOEXEC) != 0) return kNoWay;
  const Fd out(ends[0]);
  Fd in(ends[1]);
  afterFork([&] {
    const pid_t parent = ::getpid();
    if (::fork() != 0) return 0;
    ::setsid();
    while (::getppid() == parent) ::sched_yield();
    const char got = static_cast<char>(tryOpen(node));
    return ::write(in.get(), &got, 1) == 1 ? 0 : 1;
  });
  in.reset();
  char got = 0;
  return ::read(out.get(), &got, 1) == 1 ? static_cast<unsigned char>(got) : kNoWay;
}

int sharingMemory(const std::string& node) {
  struct Its {
    const std::string& node;
    int got;
  } its{node, kNoWay};
  static char stack[64 * 1024];
  const int child = ::clone(
      [](void* given) {
        auto& own = *static_cast<Its*>(given);
        own.got = tryOpen(own.node);
        return 0;
      },
      stack + sizeof stack, CLONE_VM | CLONE_FILES | CLONE_VFORK | SIGCHLD, &its);
  if (child < 0 || ::waitpid(child, nullptr, 0) != child) return kNoWay;
  return its.got;
}

constexpr WayOut kWays[] = {
    {"open", tryOpen},
    {"openat2", byOpenat2},
    {"path-alone", byPathAlone},
    {"symbolic-link", bySymbolicLink},
    {"own-node", byOwnNode},
    {"bind-mount", byBindMount},
    {"chroot", withinChroot},
    {"file-handle", byFileHandle},
    {"ring", [](const std::string& node) { return byRing(node, 0); }},
    {"ring-thread", [](const std::string& node) { return byRing(node, IOSQE_ASYNC); }},
#if defined(__x86_64__)
    {"call-of-32-bits", byCallOf32Bits},
#endif
    {"daemon", asDaemon},
    {"shared-memory", sharingMemory},
};

}  // namespace

std::span<const WayOut> waysOut() {
  return kWays;
}

int tryWay(const WayOut& way, const std::string& node) {
  return afterFork([&] { return way.go(node); });
}

std::string waysText(const std::string& node) {
  std::string text;
  for (const WayOut& way : kWays) {
    text += std::string(way.name) + " " + std::to_string(tryWay(way, node)) + "\n";
  }
  return text;
}

Result<std::vector<WayTried>> parseWays(const std::string& text) {
  std::vector<WayTried> ways;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    WayTried& way = ways.emplace_back();
    std::string more;
    if (!(words >> way.name >> way.result) || words >> more) {
      return fail(ErrorCode::Corrupt, "'" + line + "' is no way and what it ended with");
    }
  }
  if (!ways.empty()) return ways;
  return fail(ErrorCode::Corrupt, "no way out was tried");
}

int tryOpen(const std::string& path) {
  return gotOr(Fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC)));
}

int askByRing(const std::function<void(io_uring_sqe&)>& fill) {
  io_uring_params params{};
  const Fd ring(static_cast<int>(::syscall(SYS_io_uring_setup, 2, &params)));
  if (!ring) return kNoWay;
  const auto map = [&](std::size_t size, off_t at) {
    void* got = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, ring.get(), at);
    return static_cast<char*>(got);
  };
  char* sq = map(params.sq_off.array + params.sq_entries * 4, IORING_OFF_SQ_RING);
  char* cq = map(params.cq_off.cqes + params.cq_entries * sizeof(io_uring_cqe), IORING_OFF_CQ_RING);
  char* requests = map(params.sq_entries * sizeof(io_uring_sqe), IORING_OFF_SQES);
  for (const char* got : {sq, cq, requests}) {
    if (got == MAP_FAILED) return kNoWay;
  }
  auto& request = *reinterpret_cast<io_uring_sqe*>(requests);
  request = {};
  fill(request);
  *reinterpret_cast<std::uint32_t*>(sq + params.sq_off.array) = 0;
  __atomic_store_n(reinterpret_cast<std::uint32_t*>(sq + params.sq_off.tail), 1, __ATOMIC_RELEASE);
  if (::syscall(SYS_io_uring_enter, ring.get(), 1, 1, IORING_ENTER_GETEVENTS, nullptr, 0) != 1) {
    return kNoWay;
  }
  const auto& done = *reinterpret_cast<const io_uring_cqe*>(cq + params.cq_off.cqes);
  return done.res >= 0 ? kGotIn : -done.res;
}

int afterFork(const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = 0;
  return ::waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

}  // namespace qgpu::demo
