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

}  // namespace

Result<std::vector<TomlEntry>> parseToml(std::string_view text) {
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
    return fail(ErrorCode::InvalidArgument, "line " + std::to_string(error.source().begin.line) +
                                                ": " + std::string(error.description()));
  }
  std::stable_sort(entries.begin(), entries.end(),
                   [](const auto& a, const auto& b) { return a.line < b.line; });
  return entries;
}

}  // namespace qgpu
