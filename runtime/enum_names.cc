#include "runtime/enum_names.h"

namespace qgpu {

std::string kebab(std::string_view camelCase) {
  std::string name;
  for (const char c : camelCase) {
    const bool upper = c >= 'A' && c <= 'Z';
    if (upper) name += '-';
    name += upper ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return name;
}

}  // namespace qgpu
