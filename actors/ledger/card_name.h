#pragma once
// What a card is called: its id, which stays over restarts and is long ("GPU-<uuid>"); its index,
// its place on its node; and a short name made of both, which fits a column. People type any of
// them. Pure.

#include <cstdint>
#include <string>
#include <string_view>

namespace qgpu {

// "gpu-0", "ocl-0", "sim-3"; an id of another kind is its own short name.
inline std::string shortCardName(std::string_view id, std::uint32_t index) {
  const bool gpu = id.starts_with("GPU-") || id.starts_with("MIG-");
  if (!gpu && !id.starts_with("opencl-")) return std::string(id);
  return (gpu ? "gpu-" : "ocl-") + std::to_string(index);
}

inline bool isCardCalled(std::string_view text, std::string_view id, std::uint32_t index) {
  return text == id || text == std::to_string(index) || text == shortCardName(id, index);
}

}  // namespace qgpu
