#include "services/guest/opencl/opencl_images.h"

namespace qgpu::guest {
namespace {

std::uint64_t channels(cl_channel_order order) {
  switch (order) {
    case CL_R:
    case CL_A:
    case CL_Rx:
    case CL_INTENSITY:
    case CL_LUMINANCE:
    case CL_DEPTH:
    case CL_DEPTH_STENCIL:
      return 1;
    case CL_RG:
    case CL_RA:
    case CL_RGx:
      return 2;
    case CL_RGB:
    case CL_RGBx:
    case CL_sRGB:
      return 3;
    default:
      return 4;
  }
}

// Bytes of one channel; 0: the whole pixel is packed into `packedBytes`.
std::uint64_t channelBytes(cl_channel_type type) {
  switch (type) {
    case CL_SNORM_INT8:
    case CL_UNORM_INT8:
    case CL_SIGNED_INT8:
    case CL_UNSIGNED_INT8:
      return 1;
    case CL_SNORM_INT16:
    case CL_UNORM_INT16:
    case CL_SIGNED_INT16:
    case CL_UNSIGNED_INT16:
    case CL_HALF_FLOAT:
      return 2;
    case CL_UNORM_SHORT_565:
    case CL_UNORM_SHORT_555:
    case CL_UNORM_INT_101010:
    case CL_UNORM_INT_101010_2:
      return 0;
    default:
      return 4;
  }
}

std::uint64_t packedBytes(cl_channel_type type) {
  return type == CL_UNORM_SHORT_565 || type == CL_UNORM_SHORT_555 ? 2 : 4;
}

std::uint64_t times(std::uint64_t a, std::uint64_t b) {
  std::uint64_t product;
  return __builtin_mul_overflow(a, b, &product) ? ~0ull : product;
}

std::uint64_t atLeastOne(std::uint64_t n) {
  return n ? n : 1;
}

}  // namespace

std::uint64_t imageBytes(const cl_image_format* format, const cl_image_desc* desc) {
  if (!format || !desc || desc->mem_object) return 0;
  std::uint64_t each = channelBytes(format->image_channel_data_type);
  std::uint64_t pixel = each ? each * channels(format->image_channel_order)
                             : packedBytes(format->image_channel_data_type);
  const cl_mem_object_type type = desc->image_type;
  bool rows = type != CL_MEM_OBJECT_IMAGE1D && type != CL_MEM_OBJECT_IMAGE1D_ARRAY &&
              type != CL_MEM_OBJECT_IMAGE1D_BUFFER;
  bool array = type == CL_MEM_OBJECT_IMAGE1D_ARRAY || type == CL_MEM_OBJECT_IMAGE2D_ARRAY;
  std::uint64_t width = desc->image_width;
  std::uint64_t height = rows ? desc->image_height : 1;
  std::uint64_t depth = type == CL_MEM_OBJECT_IMAGE3D ? desc->image_depth : 1;
  std::uint64_t layers = array ? desc->image_array_size : 1;
  std::uint64_t sum = 0;
  for (cl_uint level = 0; level < atLeastOne(desc->num_mip_levels) && level < 32; ++level) {
    std::uint64_t plane = times(times(atLeastOne(width >> level), atLeastOne(height >> level)),
                                times(atLeastOne(depth >> level), layers));
    if (__builtin_add_overflow(sum, times(plane, pixel), &sum)) return ~0ull;
  }
  return sum;
}

}  // namespace qgpu::guest
