// What a namespace is charged, from looks at its tasks.

#include "services/kubernetes/agent/namespace_use.h"

#include <gtest/gtest.h>

namespace qgpu::namespace_use_test {
namespace {

constexpr std::uint64_t kSecond = 1'000'000'000;

bool says(const NamespaceUse& use, const std::string& line) {
  return use.metrics().find("\n" + line + "\n") != std::string::npos;
}

TEST(NamespaceUse, SumsTheTasksOfItsPodsAlsoThoseThatEnded) {
  NamespaceUse use;
  NamespaceUse::Seen first{0, 0, seconds(10)};
  use.count("web", first, {3 * kSecond, kSecond, seconds(14)}, gibibytes(4));
  use.count("web", first, {4 * kSecond, 2 * kSecond, seconds(15)}, gibibytes(4));
  NamespaceUse::Seen other{0, 0, seconds(15)};  // the first has ended
  use.count("web", other, {kSecond / 2, 0, seconds(17)}, mebibytes(512));
  use.count("ml", other, {kSecond, 0, seconds(17)}, gibibytes(1));
  EXPECT_TRUE(says(use, "qgpu_namespace_used_seconds_total{namespace=\"web\"} 4.500000000"))
      << use.metrics();
  EXPECT_TRUE(says(use, "qgpu_namespace_gpu_seconds_total{namespace=\"web\"} 2.000000000"));
  EXPECT_TRUE(says(use, "qgpu_namespace_memory_gib_seconds_total{namespace=\"web\"} 21.000000000"));
  EXPECT_TRUE(says(use, "qgpu_namespace_used_seconds_total{namespace=\"ml\"} 0.500000000"));
  EXPECT_TRUE(says(use, "qgpu_namespace_memory_gib_seconds_total{namespace=\"ml\"} 0.000000000"));
}

TEST(NamespaceUse, PartsOfAMillisecondAreNotLost) {
  NamespaceUse use;
  NamespaceUse::Seen task{0, 0, Nanos(0)};
  for (int look = 1; look <= 3000; ++look) {
    use.count("web", task, {0, 0, micros(700 * look)}, gibibytes(1));
  }
  EXPECT_TRUE(says(use, "qgpu_namespace_memory_gib_seconds_total{namespace=\"web\"} 2.100000000"))
      << use.metrics();
}

TEST(NamespaceUse, FiguresThatBeginAnewAreNotTakenBack) {
  NamespaceUse use;
  NamespaceUse::Seen task{5 * kSecond, 0, Nanos(0)};
  use.count("web", task, {kSecond, 0, seconds(1)}, Bytes(0));
  use.count("web", task, {2 * kSecond, 0, seconds(2)}, Bytes(0));
  EXPECT_TRUE(says(use, "qgpu_namespace_used_seconds_total{namespace=\"web\"} 1.000000000"))
      << use.metrics();
}

TEST(NamespaceUse, C5_NamespacesBeyondABoundAreCountedTogether) {
  NamespaceUse use;
  for (std::size_t i = 0; i < NamespaceUse::kNamespacesMax + 2; ++i) {
    NamespaceUse::Seen task{0, 0, Nanos(0)};
    use.count("n" + std::to_string(i), task, {kSecond, 0, Nanos(0)}, Bytes(0));
  }
  EXPECT_TRUE(says(use, "qgpu_namespace_used_seconds_total{namespace=\"\"} 2.000000000"));
}

}  // namespace
}  // namespace qgpu::namespace_use_test
