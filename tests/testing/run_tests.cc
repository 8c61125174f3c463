#include "tests/testing/run_tests.h"

#include <gtest/gtest.h>

namespace qgpu::testing {

int runTests() {
  const int status = RUN_ALL_TESTS();
  const ::testing::UnitTest& all = *::testing::UnitTest::GetInstance();
  const int skipped = all.skipped_test_count();
  const bool nothingElse = skipped > 0 && skipped == all.test_to_run_count();
  return status == 0 && nothingElse ? kSkipped : status;
}

}  // namespace qgpu::testing
