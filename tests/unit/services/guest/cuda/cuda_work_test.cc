// What a call's arguments say of its work, by each form that they have.

#include "services/guest/cuda/cuda_work.h"

#include <gtest/gtest.h>

namespace qgpu::cuda::cuda_work_test {
namespace {

constexpr Ptr kAt = 0x1000;
constexpr Size kPitch = 512;
const Str kStream = nullptr;

TEST(CudaWork, APlainCopyIsItsLastSize) {
  EXPECT_EQ(launchOf(kAt, kAt, Size{300}, kStream).bytes, 300u);
  EXPECT_EQ(launchOf(static_cast<Arr>(nullptr), Size{8}, kAt, Size{300}).bytes, 300u) << "offset";
}

TEST(CudaWork, AFillIsItsElements) {
  using Byte = unsigned char;
  using Half = unsigned short;
  EXPECT_EQ(launchOf(kAt, Byte{1}, Size{100}).bytes, 100u);
  EXPECT_EQ(launchOf(kAt, Half{1}, Size{100}, kStream).bytes, 200u);
  EXPECT_EQ(launchOf(kAt, U{1}, Size{100}).bytes, 400u);
  EXPECT_EQ(launchOf(kAt, kPitch, Byte{1}, Size{100}, Size{10}, kStream).bytes, 1000u);
  EXPECT_EQ(launchOf(kAt, kPitch, Half{1}, Size{100}, Size{10}).bytes, 2000u);
  EXPECT_EQ(launchOf(kAt, kPitch, U{1}, Size{100}, Size{10}, kStream).bytes, 4000u);
}

TEST(CudaWork, ABatchIsTheSumOfItsCopies) {
  Ptr places[3] = {};
  Size sizes[3] = {100, 20, 3}, indices[1] = {};
  void* attributes = nullptr;
  EXPECT_EQ(launchOf(places, places, sizes, Size{3}, attributes, indices, Size{1}, kStream).bytes,
            123u);
  Location where[1] = {};
  EXPECT_EQ(launchOf(places, sizes, Size{2}, where, indices, Size{1}, 0ull, kStream).bytes, 120u);
  Size* none = nullptr;
  EXPECT_EQ(launchOf(places, places, none, Size{3}, attributes, indices, Size{1}, kStream).bytes,
            0u);
}

TEST(CudaWork, CopiesOfSpaceAreTheirVolumes) {
  Copy2D flat{};
  flat.width = 6, flat.height = 7;
  EXPECT_EQ(launchOf(static_cast<const Copy2D*>(&flat), kStream).bytes, 42u);
  CopyOperation many[2] = {};
  many[0].width = many[0].height = many[0].depth = 10;
  many[1].width = many[1].height = many[1].depth = 2;
  Size failed = 0;
  EXPECT_EQ(launchOf(Size{2}, many, &failed, 0ull, kStream).bytes, 1008u);
  EXPECT_EQ(launchOf(Size{1}, many, 0ull, kStream).bytes, 1000u);
  EXPECT_EQ(launchOf(&many[1], 0ull, kStream).bytes, 8u);
}

TEST(CudaWork, AKernelIsItsGridAndAGraphItself) {
  const auto kernel = reinterpret_cast<Fn>(0x40);
  const auto graph = reinterpret_cast<Exec>(0x80);
  const Launch launch = launchOf(kernel, U{2}, U{3}, U{4}, U{1}, U{1}, U{1}, U{0}, kStream);
  EXPECT_EQ(launch.kernel, kernel);
  EXPECT_EQ(launch.grid[2], 4u);
  EXPECT_EQ(launch.bytes, 0u);
  EXPECT_EQ(launchOf(graph, kStream).kernel, graph);
}

}  // namespace
}  // namespace qgpu::cuda::cuda_work_test
