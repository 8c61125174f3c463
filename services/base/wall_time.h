#pragma once
// Wall clock time as the API server writes it. For what people read, and the age of what they keep
// for days; nothing else is decided by it.

#include <cstdint>
#include <optional>
#include <string>

namespace qgpu {

inline constexpr std::int64_t kDayMs = 86'400'000;

std::int64_t unixMsNow();
std::string rfc3339(std::int64_t unixMs);       // "2026-01-31T12:00:00Z"
std::string rfc3339Micro(std::int64_t unixMs);  // "2026-01-31T12:00:00.000000Z"
// As these write it, with or without parts of a second; nothing where it is no such time.
std::optional<std::int64_t> parseRfc3339(const std::string& text);

}  // namespace qgpu
