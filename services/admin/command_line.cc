#include "services/admin/command_line.h"

#include <algorithm>

#include "services/admin/words.h"
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

// Whether a line has as many words as its usage stands for: [X] may be missing.
bool fits(std::size_t count, std::string_view usage) {
  std::size_t least = 0;
  std::size_t most = 0;
  for (const std::string_view word : splitWords(usage)) {
    ++most;
    if (word.front() != '[') ++least;
  }
  return count >= least && (count <= most || usage.ends_with("SPEC"));
}

}  // namespace

Error wrong(std::string message) { return fail(ErrorCode::InvalidArgument, std::move(message)); }

std::string quoted(std::string_view text) {
  constexpr std::size_t kShown = 80;
  std::string out;
  appendJsonString(out, text.substr(0, kShown));
  return out;
}

Result<std::uint64_t> taskNumber(std::string_view word) {
  const auto number = parseUint(word);
  if (number && *number != 0) return *number;
  return wrong(quoted(word) + " is no task id: `tasks` lists them");
}

Result<std::string> shortWord(std::string_view word, std::string_view what) {
  if (word.size() <= kWordMax) return std::string(word);
  return wrong(std::string(what) + " has at most " + std::to_string(kWordMax) + " characters");
}

Result<std::uint64_t> eventNumber(const TypedLine& line) {
  if (line.words.size() < 2) return std::uint64_t{0};
  const auto since = parseUint(line.words[1]);
  if (!since) return wrong(quoted(line.words[1]) + " is no sequence number of an event");
  return *since;
}

Result<TypedLine> readLine(std::string_view line, std::span<const CommandInfo> infos) {
  const std::string_view text = trim(line);
  if (text.empty()) return wrong("an empty line; `help` lists the commands");
  const auto control = [](char c) {
    return (static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7F;
  };
  if (std::any_of(text.begin(), text.end(), control) || !isUtf8(text)) {
    return wrong("the line holds bytes that are no text; `help` lists the commands");
  }
  const std::string_view name = text.substr(0, text.find_first_of(kBlank));
  const auto info = std::find_if(infos.begin(), infos.end(),
                                 [&](const CommandInfo& i) { return i.name == name; });
  if (info == infos.end()) {
    return wrong("unknown command " + quoted(name) + "; `help` lists the commands");
  }
  TypedLine typed{&*info, splitWords(text), trim(text.substr(name.size()))};
  if (!fits(typed.words.size(), info->usage)) return wrong("usage: " + std::string(info->usage));
  return typed;
}

}  // namespace qgpu
