#include "services/ctl/answers/ask.h"

#include <algorithm>
#include <cstdio>
#include <sys/random.h>

namespace qgpu::ctl {
namespace {

constexpr std::string_view kRequestId = "request_id";

bool isSpec(const CommandRow& row) {
  return row.arguments[0].name == "SPEC";
}
bool isQuestion(const CommandRow& row) {
  return row.shown == Shown::Plan && isSpec(row);
}

Result<Command> readQuestion(const Ask& ask) {
  Command command{ask.row, {}};
  Arguments& given = command.given;
  given.count = ask.count;
  if (ask.count == 0) {
    const Status target = parseTarget(ask.words.front(), given.node, given.card);
    if (!target) return target.error();
    return command;
  }
  Result<AskedTask> asked = fillSpec(ask.said);
  if (!asked) return asked.error();
  given.spec = std::move(asked->spec);
  return command;
}

// Empty, so none, where the kernel gives nothing: a number that comes twice would be worse.
std::string newRequestId() {
  std::uint64_t words[2] = {};
  if (::getrandom(words, sizeof words, 0) != sizeof words) return {};
  char text[48];
  std::snprintf(text, sizeof text, "qgpuctl-%016llx%016llx",
                static_cast<unsigned long long>(words[0]),
                static_cast<unsigned long long>(words[1]));
  return text;
}

}  // namespace

Ask askFor(std::string_view name, std::string word) {
  Ask ask;
  ask.row = &commandRow(name);
  ask.words.resize(ask.row->arguments.size());
  ask.words.front() = std::move(word);
  return ask;
}

void nameRequest(SaidSpec& said) {
  for (auto& [field, value] : said) {
    if (field->key != kRequestId) continue;
    if (value.text.empty()) value.text = newRequestId();
    return;
  }
  for (const SpecField& field : specFields()) {
    if (field.key == kRequestId) said.emplace_back(&field, SaidValue{.text = newRequestId()});
  }
}

bool isRepeatable(const Ask& ask) {
  if (ask.row->right == Right::Read) return true;
  return std::any_of(ask.said.begin(), ask.said.end(), [](const auto& said) {
    return said.first->key == kRequestId && !said.second.text.empty();
  });
}

std::string lineOf(const Ask& ask) {
  std::string line(ask.row->name);
  if (isQuestion(*ask.row)) {
    return line + " " +
           (ask.count == 0 ? drainJson(ask.words.front()) : placeJson(ask.said, ask.count));
  }
  if (isSpec(*ask.row)) return line + " " + specJson(ask.said);
  for (const std::string& word : ask.words) line += word.empty() ? "" : " " + word;
  return line;
}

Result<Command> commandOf(const Ask& ask, Side side) {
  if (isQuestion(*ask.row)) return readQuestion(ask);
  if (isSpec(*ask.row)) {
    Result<AskedTask> asked = fillSpec(ask.said);
    if (!asked) return asked.error();
    Command command{ask.row, {}};
    command.given.spec = std::move(asked->spec);
    return command;
  }
  Result<Arguments> given = readArguments(*ask.row, ask.words, side);
  if (!given) return given.error();
  return Command{ask.row, std::move(*given)};
}

std::string asTyped(std::string message) {
  for (const SpecField& field : specFields()) {
    const std::string key = std::string(field.key) + ": ";
    if (field.option.empty() || !message.starts_with(key)) continue;
    return message.replace(0, field.key.size(), field.option);
  }
  return message;
}

}  // namespace qgpu::ctl
