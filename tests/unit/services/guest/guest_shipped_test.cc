// The library that goes into other people's programs listens to no test: it has not even the names.

#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <string>

namespace qgpu {
namespace {

std::string bytesOf(const char* path) {
  std::ifstream in(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

TEST(ShippedLibrary, HasNoHookOfATest) {
  const std::string shipped = bytesOf(QGPU_SHIPPED_LIBRARY),
                    testing = bytesOf(QGPU_TESTING_LIBRARY);
  ASSERT_NE(shipped.find("QGPU_TOKEN"), std::string::npos) << "it was not read";
  for (const char* name : {"QGPU_DRIVER_ROOT", "QGPU_ATTACH_TIMEOUT_MS"}) {
    EXPECT_EQ(shipped.find(name), std::string::npos) << name;
    EXPECT_NE(testing.find(name), std::string::npos) << name << " is the tests' no more";
  }
  for (const char* word : {"QGPU_TEST", "QGPU_STAND_IN"}) {
    EXPECT_EQ(shipped.find(word), std::string::npos) << word;
  }
}

}  // namespace
}  // namespace qgpu
