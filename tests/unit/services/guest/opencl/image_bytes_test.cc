// What an image costs of the quota: its pixels in the format that was asked, for every shape.

#include <gtest/gtest.h>

#include "services/guest/opencl/opencl_images.h"

namespace qgpu::guest::image_bytes_test {
namespace {

cl_image_desc shape(cl_mem_object_type type, std::size_t width, std::size_t height = 0,
                    std::size_t depth = 0, std::size_t layers = 0) {
  cl_image_desc desc{};
  desc.image_type = type;
  desc.image_width = width;
  desc.image_height = height;
  desc.image_depth = depth;
  desc.image_array_size = layers;
  return desc;
}

std::uint64_t pixelBytes(int order, int type) {
  const cl_image_format format{static_cast<cl_channel_order>(order),
                               static_cast<cl_channel_type>(type)};
  const cl_image_desc one = shape(CL_MEM_OBJECT_IMAGE2D, 1, 1);
  return imageBytes(&format, &one);
}

TEST(ImageBytes, APixelHasAsManyBytesAsItsChannelsAndTheirType) {
  for (const int order : {CL_R, CL_A, CL_Rx, CL_INTENSITY, CL_LUMINANCE, CL_DEPTH}) {
    EXPECT_EQ(pixelBytes(order, CL_UNORM_INT8), 1u) << order;
    EXPECT_EQ(pixelBytes(order, CL_HALF_FLOAT), 2u) << order;
    EXPECT_EQ(pixelBytes(order, CL_FLOAT), 4u) << order;
  }
  for (const int order : {CL_RG, CL_RA, CL_RGx}) {
    EXPECT_EQ(pixelBytes(order, CL_SIGNED_INT8), 2u) << order;
    EXPECT_EQ(pixelBytes(order, CL_UNSIGNED_INT16), 4u) << order;
  }
  for (const int order : {CL_RGB, CL_RGBx, CL_sRGB}) {
    EXPECT_EQ(pixelBytes(order, CL_UNSIGNED_INT8), 3u) << order;
  }
  for (const int order : {CL_RGBA, CL_BGRA, CL_ARGB, CL_sRGBA}) {
    EXPECT_EQ(pixelBytes(order, CL_SNORM_INT8), 4u) << order;
    EXPECT_EQ(pixelBytes(order, CL_UNORM_INT16), 8u) << order;
    EXPECT_EQ(pixelBytes(order, CL_SIGNED_INT32), 16u) << order;
  }
}

TEST(ImageBytes, APackedPixelCountsOnceWhateverItsChannels) {
  EXPECT_EQ(pixelBytes(CL_RGB, CL_UNORM_SHORT_565), 2u);
  EXPECT_EQ(pixelBytes(CL_RGBx, CL_UNORM_SHORT_555), 2u);
  EXPECT_EQ(pixelBytes(CL_RGB, CL_UNORM_INT_101010), 4u);
  EXPECT_EQ(pixelBytes(CL_RGBA, CL_UNORM_INT_101010_2), 4u);
}

TEST(ImageBytes, AFormatFromTheFutureIsTakenForTheLargest) {
  EXPECT_EQ(pixelBytes(0xffff, CL_FLOAT), 16u);
  EXPECT_EQ(pixelBytes(CL_RGBA, 0xffff), 16u);
}

TEST(ImageBytes, OnlyTheSidesThatAShapeHasCount) {
  const cl_image_format format{CL_R, CL_UNSIGNED_INT8};
  struct Case {
    cl_mem_object_type type;
    std::uint64_t bytes;
  };
  for (const Case& c :
       {Case{CL_MEM_OBJECT_IMAGE1D, 10u}, Case{CL_MEM_OBJECT_IMAGE1D_BUFFER, 10u},
        Case{CL_MEM_OBJECT_IMAGE1D_ARRAY, 70u}, Case{CL_MEM_OBJECT_IMAGE2D, 30u},
        Case{CL_MEM_OBJECT_IMAGE2D_ARRAY, 210u}, Case{CL_MEM_OBJECT_IMAGE3D, 150u}}) {
    const cl_image_desc desc = shape(c.type, 10, 3, 5, 7);
    EXPECT_EQ(imageBytes(&format, &desc), c.bytes) << c.type;
  }
}

TEST(ImageBytes, EachMipLevelHasHalfTheSides) {
  const cl_image_format format{CL_RGBA, CL_UNORM_INT8};
  cl_image_desc desc = shape(CL_MEM_OBJECT_IMAGE2D, 8, 4);
  desc.num_mip_levels = 4;
  EXPECT_EQ(imageBytes(&format, &desc), 4u * (32 + 8 + 2 + 1));
}

TEST(ImageBytes, WhatIsMadeOverAnotherObjectOrOfNothingCostsNothing) {
  const cl_image_format format{CL_RGBA, CL_FLOAT};
  cl_image_desc desc = shape(CL_MEM_OBJECT_IMAGE2D, 8, 4);
  EXPECT_EQ(imageBytes(nullptr, &desc), 0u);
  EXPECT_EQ(imageBytes(&format, nullptr), 0u);
  desc.mem_object = reinterpret_cast<cl_mem>(&desc);
  EXPECT_EQ(imageBytes(&format, &desc), 0u);
}

TEST(ImageBytes, A14_SidesThatOverflowAreMoreThanAnyQuota) {
  const cl_image_format format{CL_RGBA, CL_FLOAT};
  const cl_image_desc huge = shape(CL_MEM_OBJECT_IMAGE3D, SIZE_MAX / 2, SIZE_MAX / 2, SIZE_MAX / 2);
  EXPECT_EQ(imageBytes(&format, &huge), UINT64_MAX);
  cl_image_desc levels = shape(CL_MEM_OBJECT_IMAGE2D, std::size_t{3} << 58, 1);
  levels.num_mip_levels = 8;
  EXPECT_EQ(imageBytes(&format, &levels), UINT64_MAX);
}

}  // namespace
}  // namespace qgpu::guest::image_bytes_test
