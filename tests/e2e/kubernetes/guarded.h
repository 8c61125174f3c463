#pragma once
// A node under the guard in the kernel: what its tests need. The cards are imagined, and their
// nodes are two of the kernel's own that harm nobody. As root, on a kernel that takes the guard;
// else its tests are skipped.

#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "services/guard/guard.h"
#include "tests/e2e/harness.h"

namespace qgpu::e2e {

inline constexpr const char* kZero = "/dev/zero";  // of sim-0
inline constexpr const char* kFull = "/dev/full";  // of sim-1

inline std::vector<std::string> guardFlags() {
  return {"--guard=on", std::string("--guard-nodes=0:") + kZero + ",1:" + kFull};
}

// Why this machine has none; empty: it can.
inline std::string noGuard() {
  const std::string folder = "/sys/fs/bpf/qgpu/e2e";
  const auto tried = Guard::open(folder);
  if (!tried) return tried.error().message;
  EXPECT_TRUE(Guard::remove(folder));
  return "";
}

inline std::string guardFolderOf(const Manager& manager) {
  std::string name = manager.runDir().substr(1);
  for (char& c : name) c = c == '/' || c == '.' ? '_' : c;
  return "/sys/fs/bpf/qgpu/" + name;
}

}  // namespace qgpu::e2e
