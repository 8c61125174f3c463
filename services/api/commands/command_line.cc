#include "services/api/commands/command_line.h"

#include <algorithm>

#include "services/api/commands/schema_names.h"
#include "services/base/json.h"

namespace qgpu {
namespace {

constexpr std::string_view kBlank = " \t\r";

std::vector<std::string_view> splitWords(std::string_view text) {
  std::vector<std::string_view> words;
  while (true) {
    const std::size_t start = text.find_first_not_of(kBlank);
    if (start == std::string_view::npos) return words;
    text.remove_prefix(start);
    const std::size_t end = std::min(text.find_first_of(kBlank), text.size());
    words.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
}

std::string_view trim(std::string_view text) {
  const std::size_t start = text.find_first_not_of(kBlank);
  if (start == std::string_view::npos) return {};
  return text.substr(start, text.find_last_not_of(kBlank) - start + 1);
}

}  // namespace

Error wrong(std::string message) {
  return fail(ErrorCode::InvalidArgument, std::move(message));
}

std::string quoted(std::string_view text) {
  constexpr std::size_t kShown = 80;
  std::string out;
  appendJsonString(out, text.substr(0, kShown));
  return out;
}

Result<TypedLine> readLine(std::string_view line) {
  const std::string_view text = trim(line);
  if (text.empty()) return wrong("an empty line; `help` lists the commands");
  const auto control = [](char c) {
    return (static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7F;
  };
  if (std::any_of(text.begin(), text.end(), control) || !isUtf8(text)) {
    return wrong("the line holds bytes that are no text; `help` lists the commands");
  }
  TypedLine typed{splitWords(text), {}};
  typed.rest = trim(text.substr(typed.words.front().size()));
  return typed;
}

}  // namespace qgpu
