#pragma once
// Kubernetes quantities of extended resources, which are whole numbers in any of the spellings that
// the API server takes: "5", "5k", "5e3", "5000m", "1Ki". Exact: no floating point.

#include <cstdint>
#include <string_view>

#include "runtime/result.h"

namespace qgpu {

// InvalidArgument where `text` is no quantity, not whole, below zero or beyond 2^63 - 1; the
// message says which, without naming the resource.
Result<std::int64_t> wholeQuantity(std::string_view text);

}  // namespace qgpu
