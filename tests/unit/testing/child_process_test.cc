// Programs that tests start: what several processes of one say at the same time is all kept.

#include "tests/testing/child_process.h"

#include <algorithm>
#include <gtest/gtest.h>

namespace qgpu::testing {
namespace {

TEST(Child, KeepsEveryLineOfProcessesThatWriteAtTheSameTime) {
  constexpr int kWriters = 8, kLines = 2000;
  const Finished all =
      run({"sh", "-c",
           "for writer in 1 2 3 4 5 6 7 8; do "
           "(i=0; while [ $i -lt " +
               std::to_string(kLines) + " ]; do echo line; i=$((i+1)); done) & done; wait"});
  EXPECT_EQ(all.status, 0);
  EXPECT_EQ(std::count(all.output.begin(), all.output.end(), '\n'), kWriters * kLines);
  EXPECT_EQ(all.output.size(), std::size_t{kWriters * kLines * 5});
}

}  // namespace
}  // namespace qgpu::testing
