#pragma once
// What a bench is told on its command line: whole numbers, --NAME=N.

#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace qgpu::bench {

// Whether `argument` begins with `name` ("--nodes=") and says at least `least`.
inline bool readOption(const char* argument, const char* name, std::int64_t& value,
                       std::int64_t least = 1) {
  const std::size_t n = std::strlen(name);
  if (std::strncmp(argument, name, n) != 0) return false;
  value = std::strtoll(argument + n, nullptr, 10);
  return value >= least;
}

}  // namespace qgpu::bench
