#pragma once
// CRC-32C (Castagnoli), the checksum of a stored row. It exists because SQLite checks the frames of
// its log but not the pages of its main file, so a flipped bit in a row would otherwise be served
// as truth (D5).

#include <cstddef>
#include <cstdint>

namespace qgpu {

// Continues `crc` (0 at the start) over `size` bytes at `data`.
std::uint32_t crc32c(std::uint32_t crc, const void* data, std::size_t size);

}  // namespace qgpu
