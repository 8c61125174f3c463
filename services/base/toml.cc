#include "services/base/toml.h"

#include <algorithm>
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
  return "put the value in quotes: " + std::string(trimmed(text.substr(0, equals))) + " = \"" +
         value + "\"";
}

// Where a string that begins at `at` ends: behind its last quote, or at the end of its line or of
// the text, where it has none.
std::size_t endOfString(std::string_view text, std::size_t at) {
  const char quote = text[at];
  const std::string three(3, quote);
  const bool lines = text.substr(at, 3) == three;
  const std::string_view close = lines ? std::string_view(three) : text.substr(at, 1);
  for (at += close.size(); at < text.size(); ++at) {
    if (!lines && text[at] == '\n') return at;
    if (quote == '"' && text[at] == '\\') {
      ++at;
    } else if (text.substr(at, close.size()) == close) {
      return at + close.size();
    }
  }
  return text.size();
}

// What has no place in such a file, as "line N: what is wrong"; empty: nothing has. It goes before
// toml++ 3.3, which is undefined where a character that is no ASCII stands neither in a string nor
// in a comment, and where a table's name begins as none can.
std::string misplaced(std::string_view text) {
  constexpr std::string_view kMark = "\xEF\xBB\xBF";  // of UTF-8, which may begin a file
  std::size_t line = 1;
  bool begun = false;  // the line, by more than blanks
  const auto here = [&line](const char* what) {
    return "line " + std::to_string(line) + ": " + what;
  };
  for (std::size_t at = text.starts_with(kMark) ? kMark.size() : 0; at < text.size();) {
    std::size_t next = at + 1;
    if (text[at] == '"' || text[at] == '\'') next = endOfString(text, at);
    if (text[at] == '#') next = std::min(text.find('\n', at), text.size());
    if (static_cast<unsigned char>(text[at]) >= 0x80) {
      return here(
          "a character that is no ASCII stands outside of quotes: put the text in quotes, or take "
          "the character out");
    }
    if (text[at] == '[' && !begun) {
      return here("it begins with '[': there are no tables here, and no lists of lists");
    }
    begun = text[at] != '\n' && (begun || static_cast<unsigned char>(text[at]) > ' ');
    line += static_cast<std::size_t>(std::ranges::count(text.substr(at, next - at), '\n'));
    at = next;
  }
  return "";
}

}  // namespace

Result<std::vector<TomlEntry>> parseToml(std::string_view text) {
  if (std::string why = misplaced(text); !why.empty()) {
    return fail(ErrorCode::InvalidArgument, std::move(why));
  }
  std::vector<TomlEntry> entries;
  try {
    const toml::table table = toml::parse(text);
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
