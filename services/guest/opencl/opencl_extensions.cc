#include "services/guest/opencl/opencl_extensions.h"

#include <cstring>

namespace qgpu::guest {
namespace {

// None of these brings a function that enqueues work or allocates device memory. A name that ends
// in '*' stands for all that begin so.
const char* const kAllowed[] = {
    "cl_khr_byte_addressable_store",
    "cl_khr_global_int32_*",
    "cl_khr_local_int32_*",
    "cl_khr_int64_*",
    "cl_khr_fp16",
    "cl_khr_fp64",
    "cl_khr_select_fprounding_mode",
    "cl_khr_3d_image_writes",
    "cl_khr_depth_images",
    "cl_khr_image2d_from_buffer",
    "cl_khr_mipmap_image",
    "cl_khr_mipmap_image_writes",
    "cl_khr_icd",
    "cl_khr_il_program",
    "cl_khr_spir",
    "cl_khr_spirv_*",
    "cl_khr_subgroup*",
    "cl_khr_work_group_*",
    "cl_khr_expect_assume",
    "cl_khr_extended_bit_ops",
    "cl_khr_extended_versioning",
    "cl_khr_integer_dot_product",
    "cl_khr_initialize_memory",
    "cl_khr_priority_hints",
    "cl_khr_throttle_hints",
    "cl_khr_suggested_local_work_size",
    "cl_khr_device_uuid",
    "cl_khr_pci_bus_info",
    "cl_khr_kernel_clock",
    "cl_ext_float_atomics",
    "cl_ext_cxx_for_opencl",
    "cl_amd_media_ops*",
    "cl_intel_subgroups*",
    "cl_intel_required_subgroup_size",
    "cl_nv_compiler_options",
    "cl_nv_copy_opts",
    "cl_nv_device_attribute_query",
    "cl_nv_pragma_unroll",
    "cl_pocl_content_size",
};

const char* const kFunctions[] = {
    "clGetKernelSubGroupInfoKHR",
    "clGetKernelSuggestedLocalWorkSizeKHR",
    "clCreateProgramWithILKHR",
    "clSetContentSizeBufferPoCL",
};

bool matches(const char* pattern, const char* name, std::size_t length) {
  std::size_t n = strlen(pattern);
  if (pattern[n - 1] == '*') return length >= n - 1 && strncmp(pattern, name, n - 1) == 0;
  return length == n && strncmp(pattern, name, n) == 0;
}

}  // namespace

bool extensionAllowed(const char* name, std::size_t length) {
  for (const char* pattern : kAllowed) {
    if (matches(pattern, name, length)) return true;
  }
  return false;
}

bool functionAllowed(const char* name) {
  if (!name) return false;
  for (const char* allowed : kFunctions) {
    if (strcmp(allowed, name) == 0) return true;
  }
  return false;
}

std::size_t keepAllowedExtensions(char* list) {
  char* out = list;
  for (const char* in = list; *in;) {
    in += strspn(in, " ");
    std::size_t length = strcspn(in, " ");
    if (length && extensionAllowed(in, length)) {
      if (out != list) *out++ = ' ';
      memmove(out, in, length);
      out += length;
    }
    in += length;
  }
  *out = 0;
  return static_cast<std::size_t>(out - list);
}

}  // namespace qgpu::guest
