#include "services/base/toml.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <kj/encoding.h>
#include <optional>
#include <toml++/toml.h>
#include <utility>

namespace qgpu {
namespace {

using Kind = TomlEntry::Kind;

// Joined by commas; nothing where one is no text.
std::optional<std::string> joined(const toml::array& array) {
  std::string all;
  for (const toml::node& node : array) {
    const auto* text = node.as_string();
    if (text == nullptr) return std::nullopt;
    all += (all.empty() ? "" : ",") + text->get();
  }
  return all;
}

void readValue(const toml::node& node, TomlEntry& entry) {
  if (const auto* text = node.as_string()) {
    entry.kind = Kind::Text;
    entry.value = text->get();
  } else if (const auto* number = node.as_integer()) {
    entry.kind = Kind::Number;
    entry.value = std::to_string(number->get());
  } else if (const auto* part = node.as_floating_point(); part && std::isfinite(part->get())) {
    std::array<char, 32> digits{};
    const auto end = std::to_chars(digits.begin(), digits.end(), part->get()).ptr;
    entry.kind = Kind::Number;
    entry.value.assign(digits.begin(), end);
  } else if (const auto* flag = node.as_boolean()) {
    entry.kind = Kind::Flag;
    entry.value = flag->get() ? "true" : "false";
  } else if (const auto* array = node.as_array()) {
    std::optional<std::string> texts = joined(*array);
    if (!texts) return;
    entry.kind = Kind::Texts;
    entry.value = std::move(*texts);
  }
}

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return "";
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

// What to do about a line whose value is a bare word; empty where it is none.
std::string unquoted(std::string_view text, std::size_t line) {
  for (; line > 1 && !text.empty(); --line) {
    text.remove_prefix(std::min(text.size(), text.find('\n') + 1));
  }
  text = text.substr(0, text.find('\n'));
  text = text.substr(0, text.find('#'));
  const std::size_t equals = text.find('=');
  if (equals == std::string_view::npos) return "";
  const std::string value(trimmed(text.substr(equals + 1)));
  if (value.empty() || value.find_first_of("\"'[{") != std::string::npos) return "";
  if (value == "yes" || value == "True") return "write true for " + value;
  if (value == "no" || value == "False") return "write false for " + value;
  return "put the value in quotes: " + std::string(trimmed(text.substr(0, equals))) + " = \"" +
         value + "\"";
}

// Where a string that begins at `at` ends: behind its last quote; npos: its line ends before, or
// the text.
std::size_t endOfString(std::string_view text, std::size_t at) {
  const char quote = text[at];
  const std::string three(3, quote);
  const bool lines = text.substr(at, 3) == three;
  const std::string_view close = lines ? std::string_view(three) : text.substr(at, 1);
  for (at += close.size(); at < text.size(); ++at) {
    if (!lines && text[at] == '\n') break;
    if (quote == '"' && text[at] == '\\') {
      ++at;
    } else if (text.substr(at, close.size()) == close) {
      return at + close.size();
    }
  }
  return std::string_view::npos;
}

bool isAscii(char c) {
  return static_cast<unsigned char>(c) < 0x80;
}

// A string, its quotes included, as one of the same value and lines that is ASCII alone. Nothing:
// it is no UTF-8, or escapes what no string may.
std::optional<std::string> asAscii(std::string_view string) {
  if (std::ranges::all_of(string, isAscii)) return std::string(string);
  const bool literal = string.front() == '\'';
  const std::size_t quotes = string.substr(0, 3) == std::string(3, string.front()) ? 3 : 1;
  const std::string_view inner = string.substr(quotes, string.size() - 2 * quotes);
  const auto points = kj::encodeUtf32(kj::arrayPtr(inner.data(), inner.size()));
  if (points.hadErrors) return std::nullopt;
  std::string ascii(quotes, '"');
  bool escaped = false;  // by a backslash before
  for (const char32_t point : points) {
    if (point < 0x80) {
      if (literal && (point == U'\\' || point == U'"')) ascii += '\\';
      ascii += static_cast<char>(point);
      escaped = point == U'\\' && !escaped && !literal;
      continue;
    }
    if (escaped) return std::nullopt;
    std::array<char, 11> code{};
    std::snprintf(code.data(), code.size(), "\\U%08X", static_cast<unsigned>(point));
    ascii += code.data();
  }
  return ascii + std::string(quotes, '"');
}

// The same without comments, in ASCII: toml++ 3.3 is undefined where it meets another character
// outside of what it takes for a string, and where a table's name begins as none can.
// InvalidArgument: what has no place in such a file, after "line N: ".
Result<std::string> plainOf(std::string_view text) {
  constexpr std::string_view kMark = "\xEF\xBB\xBF";  // of UTF-8, which may begin a file
  if (text.starts_with(kMark)) text.remove_prefix(kMark.size());
  std::string plain;
  std::size_t line = 1;
  bool begun = false;  // the line, by more than blanks
  const auto refuse = [&line](const char* what) {
    return fail(ErrorCode::InvalidArgument, "line " + std::to_string(line) + ": " + what);
  };
  for (std::size_t at = 0; at < text.size();) {
    std::size_t next = at + 1;
    if (text[at] == '"' || text[at] == '\'') {
      next = endOfString(text, at);
      if (next == std::string_view::npos) {
        return refuse("a text in quotes has no end: close them");
      }
      const auto ascii = asAscii(text.substr(at, next - at));
      if (!ascii) return refuse("a text in quotes is no UTF-8, or escapes what needs none");
      plain += *ascii;
    } else if (text[at] == '#') {
      next = std::min(text.find('\n', at), text.size());
    } else if (!isAscii(text[at])) {
      return refuse(
          "a character that is no ASCII stands outside of quotes: put the text in quotes, or take "
          "the character out");
    } else if (text[at] == '[' && !begun) {
      return refuse("it begins with '[': there are no tables here, and no lists of lists");
    } else {
      plain += text[at];
    }
    begun = text[at] != '\n' && (begun || static_cast<unsigned char>(text[at]) > ' ');
    line += static_cast<std::size_t>(std::ranges::count(text.substr(at, next - at), '\n'));
    at = next;
  }
  return plain;
}

}  // namespace

Result<std::vector<TomlEntry>> parseToml(std::string_view text) {
  const Result<std::string> plain = plainOf(text);
  if (!plain) return plain.error();
  std::vector<TomlEntry> entries;
  try {
    const toml::table table = toml::parse(*plain);
    for (const auto& [key, node] : table) {
      TomlEntry& entry = entries.emplace_back();
      entry.key = std::string(key.str());
      entry.line = key.source().begin.line;
      readValue(node, entry);
    }
  } catch (const toml::parse_error& error) {
    const std::size_t line = error.source().begin.line;
    const std::string bare = unquoted(text, line);
    return fail(ErrorCode::InvalidArgument,
                "line " + std::to_string(line) + ": " +
                    (bare.empty() ? std::string(error.description()) : bare));
  }
  std::stable_sort(entries.begin(), entries.end(),
                   [](const auto& a, const auto& b) { return a.line < b.line; });
  return entries;
}

}  // namespace qgpu
