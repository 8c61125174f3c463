#pragma once
// The page's files as the build embedded them; embed.cmake writes what implements this.

#include <span>
#include <string_view>

namespace qgpu {

struct PageFile {
  std::string_view path;  // "/page.js"; "/" is the page itself
  const char* type;
  std::string_view text;
};

std::span<const PageFile> pageFiles();

}  // namespace qgpu
