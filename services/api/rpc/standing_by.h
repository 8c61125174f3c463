#pragma once
// What a scheduler says that stands by while another one acts, and how clients and managers read
// from it whom to ask. An RPC refusal has a text alone, so the address stands in it.

#include <optional>
#include <string>
#include <string_view>

#include "runtime/result.h"

namespace qgpu {

inline constexpr std::string_view kActsThere = " acts: ask that one";

// `acting`: HOST:PORT; empty where none acts now.
inline Error standsBy(const std::string& acting) {
  if (acting.empty()) {
    return fail(ErrorCode::StandsBy, "no scheduler acts now, one will within seconds: ask again");
  }
  return fail(ErrorCode::StandsBy, "this scheduler stands by, " + acting + std::string(kActsThere));
}

// The address in such a refusal, however it is wrapped; nothing where there is none.
inline std::optional<std::string> actingOf(std::string_view message) {
  const std::size_t end = message.find(kActsThere);
  if (end == std::string_view::npos) return {};
  const std::string_view before = message.substr(0, end);
  const std::size_t begin = before.rfind(' ');
  if (begin == std::string_view::npos || begin + 1 == end) return {};
  return std::string(before.substr(begin + 1));
}

}  // namespace qgpu
