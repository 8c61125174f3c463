#pragma once
// Wall clock time as the API server writes it. For what people read; nothing is decided by it.

#include <cstdint>
#include <string>

namespace qgpu {

std::int64_t unixMsNow();
std::string rfc3339(std::int64_t unixMs);       // "2026-01-31T12:00:00Z"
std::string rfc3339Micro(std::int64_t unixMs);  // "2026-01-31T12:00:00.000000Z"

}  // namespace qgpu
