#pragma once
// Wall clock time as the API server writes it. For what people read; nothing is decided by it.

#include <cstdint>
#include <optional>
#include <string>

namespace qgpu {

std::int64_t unixMsNow();
std::string rfc3339(std::int64_t unixMs);       // "2026-01-31T12:00:00Z"
std::string rfc3339Micro(std::int64_t unixMs);  // "2026-01-31T12:00:00.000000Z"
// As these write it, with or without parts of a second; nothing where it is no such time.
std::optional<std::int64_t> parseRfc3339(const std::string& text);

}  // namespace qgpu
