// Claim: what the guard adds to an open, and to an ioctl, of a card's node is at most 300 ns each,
// for who is of no task as for who has attached; to the open of an ordinary file at most as much.
// Medians of rounds in processor time, before the guard is there, beside it, and as one that has
// attached. The node is /dev/zero under another name, in a file system that nobody else sees. Where
// the guard can't be, the line says why and claims nothing. Where the driver is loaded that stands
// in for NVIDIA's (tests/guard/driver, QGPU_STANDIN_DRIVER), the same of what the cap of memory
// adds to a call that moves none, and without a claim of making and freeing some.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fcntl.h>
#include <optional>
#include <sched.h>
#include <string>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#include <vector>

#include "services/guard/guard.h"
#include "tests/guard/standin_card.h"
#include "tests/testing/temp_folder.h"

namespace qgpu {
namespace {

constexpr int kRounds = 15;
constexpr int kEach = 20'000;
constexpr std::int64_t kMostNs = 300;

std::int64_t processorNs() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec * 1'000'000'000 + now.tv_nsec;
}

template <typename F>
std::int64_t medianNs(F once) {
  std::vector<std::int64_t> ns;
  for (int round = 0; round < kRounds; ++round) {
    const std::int64_t start = processorNs();
    for (int i = 0; i < kEach; ++i) once();
    ns.push_back((processorNs() - start) / kEach);
  }
  std::sort(ns.begin(), ns.end());
  return ns[ns.size() / 2];
}

struct Costs {
  std::int64_t open = 0, ioctl = 0, file = 0;

  static Costs measure(const std::string& node, const std::string& file) {
    const auto openOf = [](const std::string& path) {
      return medianNs([&path] { Fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC)); });
    };
    const Fd held(::open(node.c_str(), O_RDONLY | O_CLOEXEC));
    return {openOf(node), medianNs([&held] { ::ioctl(held.get(), 1, nullptr); }), openOf(file)};
  }
  std::int64_t mostOver(const Costs& other) const {
    return std::max({open - other.open, ioctl - other.ioctl, file - other.file});
  }
};

void print(const char* when, const Costs& costs) {
  std::printf(",\"%s_open_ns\":%ld,\"%s_ioctl_ns\":%ld,\"%s_file_ns\":%ld", when, costs.open, when,
              costs.ioctl, when, costs.file);
}

// Of a process that has attached, with a quota and without.
struct CapCosts {
  std::int64_t call = 0, memory = 0;

  static CapCosts measure(testing::StandinFile& file) {
    const std::int64_t call = medianNs([&file] {
      rm::VersionCall version{};
      file.call(rm::kEscCheckVersion, &version, sizeof version);
    });
    const std::int64_t memory = medianNs([&file] {
      rm::Handle made = 0;
      file.alloc(testing::StandinFile::kDeviceName, made, testing::kMiB);
      file.free(made);
    });
    return {call, memory};
  }
};

void print(const char* when, const CapCosts& costs) {
  std::printf(",\"%s_call_ns\":%ld,\"%s_memory_ns\":%ld", when, costs.call, when, costs.memory);
}

bool hasDriver() {
  const char* driver = std::getenv("QGPU_STANDIN_DRIVER");
  return driver != nullptr && testing::loadStandin(driver);
}

// False: what was claimed does not hold. `bare`: without a guard.
bool measureCap(Guard& guard, const CapCosts& bare) {
  struct stat facts {};
  if (!guard.caps() || ::stat(testing::kStandinNode, &facts) != 0) return false;
  if (!guard.setNodes({{makedev(1, 5), 0}, {facts.st_rdev, kGuardShared}})) return false;
  testing::StandinFile file;
  const CapCosts without = CapCosts::measure(file);
  if (!guard.setQuota(1, 0, Bytes(static_cast<std::int64_t>(64 * testing::kMiB)))) return false;
  testing::StandinFile counted;
  const CapCosts with = CapCosts::measure(counted);
  print("bare", bare);
  print("uncapped", without);
  print("capped", with);
  return with.call - bare.call <= kMostNs;
}

int skip(const std::string& why) {
  std::printf("{\"bench\":\"guard\",\"skipped\":\"%s\"}\n",
              why.substr(0, why.find_first_of("\n\"")).c_str());
  return 0;
}

// Over a folder, which is empty again without it.
struct Mounted {
  ~Mounted() { ::umount2(path.c_str(), MNT_DETACH); }
  const std::string path;
};

int run() {
  const testing::TempFolder place("bench");
  const Mounted nodes{place.path()};
  if (::unshare(CLONE_NEWNS) != 0 || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) ||
      ::mount("nodes", place.path().c_str(), "tmpfs", 0, nullptr) != 0) {
    return skip("it needs root");
  }
  const std::string node = place / "card", bpf = place / "bpf", folder = bpf + "/qgpu/bench";
  const std::string file = place.write("file", "");
  ::mkdir(bpf.c_str(), 0755);
  if (::mknod(node.c_str(), S_IFCHR | 0600, makedev(1, 5)) != 0 ||
      ::mount("bpf", bpf.c_str(), "bpf", 0, nullptr) != 0) {
    return skip("no device node or no bpffs can be made here");
  }
  const Costs without = Costs::measure(node, file);
  std::optional<CapCosts> bare;
  if (hasDriver()) {
    testing::StandinFile card;
    bare = CapCosts::measure(card);
  }
  auto guard = Guard::open(folder);
  if (!guard) return skip(guard.error().message);
  if (!(*guard)->setNodes({{makedev(1, 5), 0}})) return 1;
  const Costs stranger = Costs::measure(node, file);
  const Fd self(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
  if (!(*guard)->letIn(self, 1, {0})) return 1;
  const Costs attached = Costs::measure(node, file);
  bool holds = std::max(stranger.mostOver(without), attached.mostOver(without)) <= kMostNs;
  std::printf("{\"bench\":\"guard\"");
  print("without", without);
  print("stranger", stranger);
  print("attached", attached);
  if (bare) holds &= measureCap(**guard, *bare);
  if (!Guard::remove(folder)) return 1;
  std::printf(",\"ok\":%s}\n", holds ? "true" : "false");
  return 0;
}

}  // namespace
}  // namespace qgpu

int main() {
  return qgpu::run();
}
