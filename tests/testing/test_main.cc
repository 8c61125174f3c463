#include <gtest/gtest.h>

#include "tests/testing/run_tests.h"

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return qgpu::testing::runTests();
}
