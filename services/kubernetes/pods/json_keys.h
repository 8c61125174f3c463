#pragma once
// Members of JSON objects as Go's decoder finds them: by name in any case, and of several the last;
// null is absent.

#include <optional>
#include <simdjson.h>
#include <string_view>

namespace qgpu {

inline bool sameKey(std::string_view one, std::string_view other) {
  if (one.size() != other.size()) return false;
  for (std::size_t i = 0; i < one.size(); ++i) {
    const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? c | 0x20 : c; };
    if (lower(one[i]) != lower(other[i])) return false;
  }
  return true;
}

inline std::optional<simdjson::dom::element> member(const simdjson::dom::element& of,
                                                    std::string_view key) {
  simdjson::dom::object object;
  if (of.get(object) != simdjson::SUCCESS) return std::nullopt;
  std::optional<simdjson::dom::element> found;
  for (const auto field : object) {
    if (sameKey(field.key, key)) found = field.value;
  }
  if (found && found->is_null()) return std::nullopt;
  return found;
}

// Empty where it is absent or no text.
inline std::string_view textAt(const simdjson::dom::element& of, std::string_view key) {
  const auto found = member(of, key);
  std::string_view text;
  if (!found || found->get(text) != simdjson::SUCCESS) return "";
  return text;
}

}  // namespace qgpu
