#pragma once
// KJ's texts as the standard library sees them and the way back, without a copy; numbers that are
// texts; and texts within XML.

#include <charconv>
#include <cstdint>
#include <kj/string.h>
#include <optional>
#include <string>
#include <string_view>

namespace qgpu {

inline std::string_view view(kj::StringPtr text) {
  return {text.begin(), text.size()};
}
inline kj::StringPtr ptr(const std::string& text) {
  return {text.c_str(), text.size()};
}

// A whole unsigned decimal number and nothing else.
inline std::optional<std::uint64_t> parseUint(std::string_view text) {
  std::uint64_t n = 0;
  const char* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, n);
  if (error != std::errc() || stopped != end || text.empty()) return std::nullopt;
  return n;
}

// As it may stand in an element or an attribute of XML.
inline std::string escapeXml(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '"') {
      out += "&quot;";
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace qgpu
