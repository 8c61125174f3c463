#include "store/crc32c.h"

#include <array>

namespace qgpu {
namespace {

constexpr std::uint32_t kPolynomial = 0x82f63b78;  // Castagnoli, bits reversed
constexpr std::size_t kSlices = 8;                 // bytes taken in one step

using Tables = std::array<std::array<std::uint32_t, 256>, kSlices>;

constexpr Tables makeTables() {
  Tables tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
    tables[0][byte] = crc;
  }
  for (std::size_t slice = 1; slice < kSlices; ++slice) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t before = tables[slice - 1][byte];
      tables[slice][byte] = (before >> 8) ^ tables[0][before & 0xff];
    }
  }
  return tables;
}

constexpr Tables kCrcTables = makeTables();

}  // namespace

std::uint32_t crc32c(std::uint32_t crc, const void* data, std::size_t size) {
  const auto* p = static_cast<const unsigned char*>(data);
  crc = ~crc;
  for (; size >= kSlices; size -= kSlices, p += kSlices) {
    // The running sum folds into the first four bytes; each byte has the table of its distance.
    std::uint32_t next = 0;
    for (std::size_t i = 0; i < kSlices; ++i) {
      const std::uint32_t folded = i < 4 ? (crc >> (8 * i)) & 0xff : 0;
      next ^= kCrcTables[kSlices - 1 - i][p[i] ^ folded];
    }
    crc = next;
  }
  for (; size > 0; --size, ++p) crc = (crc >> 8) ^ kCrcTables[0][(crc ^ *p) & 0xff];
  return ~crc;
}

}  // namespace qgpu
