#pragma once
// The bytes that an image will take, from its format and description, before the driver allocates:
// rows without padding, all layers and mip levels. Views (over a buffer or image) take 0.

#include <cstdint>

#include "services/guest/opencl/opencl_layer.h"

namespace qgpu::guest {

// Saturates instead of wrapping; a null argument is the driver's to refuse and counts 0.
std::uint64_t imageBytes(const cl_image_format* format, const cl_image_desc* desc);

}  // namespace qgpu::guest
