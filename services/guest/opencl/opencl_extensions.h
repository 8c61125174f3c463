#pragma once
// Which OpenCL extensions a tenant may see (HAZARDS 13): an allow-list, because an extension that
// launches or allocates and is not wrapped would run past gate and quota unseen.

#include <cstddef>

namespace qgpu::guest {

bool extensionAllowed(const char* name, std::size_t length);

// Whether a function may be handed out by clGetExtensionFunctionAddress*.
bool functionAllowed(const char* name);

// Keeps the allowed names of a space-separated, NUL-terminated list, in place. Returns its length.
std::size_t keepAllowedExtensions(char* list);

}  // namespace qgpu::guest
