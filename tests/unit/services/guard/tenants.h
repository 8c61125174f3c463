#pragma once
// What the guard's tests have in common: device nodes of their own on a file system that nobody
// else sees, a guard beside whatever else this kernel has, and processes that are labelled as the
// manager does it. The nodes are those of the kernel's own devices that harm nobody: the guard
// judges labelled processes alone.

#include <functional>
#include <gtest/gtest.h>
#include <linux/io_uring.h>
#include <memory>
#include <string>
#include <vector>

#include "services/demo/workload/ways_out.h"
#include "services/guard/guard.h"
#include "tests/testing/temp_folder.h"

namespace qgpu::testing {

inline constexpr std::uint64_t kGuardedTask = 7;
using demo::afterFork;
using demo::askByRing;
using demo::kGotIn;
using demo::tryOpen;

// Needs root, and a kernel with what the guard needs; else its tests are skipped, and say why.
class GuardTest : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  enum class Is { Judged, Attached };
  // The exit status of a process with this body, which begins once it is labelled.
  int tenant(Is is, const std::function<int()>& body);
  // The same of a program in its place.
  int execute(const std::vector<std::string>& argv);
  // A process that is attached, has card 0 open and waits. `fd` is its descriptor's number.
  struct Holder;
  std::unique_ptr<Holder> holder();

  std::string path(const std::string& name) const { return place / name; }
  std::string makeNode(const std::string& name, unsigned minor) const;

  TempFolder place{"guard"};
  std::string folder;  // of the guard
  std::unique_ptr<Guard> guard;
  std::string card0, card1, shared;  // /dev/zero, which can be mapped; /dev/full; /dev/random
};

// What a body calls: the error, or kGotIn.
int tryIoctl(int fd);  // kGotIn: the driver was asked
int tryMap(int fd);
bool hasRings();                                // whether this kernel has io_uring for this process
int commandByRing(int fd, std::uint8_t flags);  // kGotIn: the driver did it
[[noreturn]] void becomeProgram(const std::vector<std::string>& argv, bool keepPreload = true);

}  // namespace qgpu::testing
