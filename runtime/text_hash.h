#pragma once
// A hash of text that is the same in every build and on every machine: FNV-1a with 64 bits. For
// names that must be short and stable; it keeps nobody from choosing two texts of one hash.

#include <cstdint>
#include <string>
#include <string_view>

namespace qgpu {

inline constexpr std::size_t kTextHashDigits = 16;

constexpr std::uint64_t textHash(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return hash;
}

// In hexadecimal digits, all of them.
inline std::string textHashHex(std::string_view text) {
  std::uint64_t hash = textHash(text);
  std::string digits(kTextHashDigits, '0');
  for (std::size_t i = digits.size(); i-- > 0; hash >>= 4) {
    digits[i] = "0123456789abcdef"[hash & 15];
  }
  return digits;
}

}  // namespace qgpu
