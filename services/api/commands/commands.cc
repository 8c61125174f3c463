#include "services/api/commands/commands.h"

#include <algorithm>
#include <capnp/message.h>
#include <map>
#include <vector>

#include "runtime/check.h"
#include "services/api/commands/command_line.h"

namespace qgpu {
namespace {

using Need = Argument::Need;

// Each request that a row makes: some make one of two, by what was given.
template <typename Request, typename Ask>
std::map<std::uint16_t, const CommandRow*> requestsOf(Ask CommandRow::*ask) {
  Arguments nothing;
  Arguments something;
  something.number = 1;
  something.count = 1;
  std::map<std::uint16_t, const CommandRow*> rows;
  for (const CommandRow& row : commandRows()) {
    if (row.*ask == nullptr) continue;
    for (const Arguments& given : {nothing, something}) {
      capnp::MallocMessageBuilder message;
      auto request = message.initRoot<Request>();
      (row.*ask)(request, given);
      rows.emplace(static_cast<std::uint16_t>(request.which()), &row);
    }
  }
  return rows;
}

const CommandRow* find(const std::map<std::uint16_t, const CommandRow*>& rows,
                       std::uint16_t which) {
  const auto found = rows.find(which);
  return found == rows.end() ? nullptr : found->second;
}

bool isThere(const Argument& argument, Side side) {
  return !argument.on(side).name.empty();
}

// A word for each argument, and none for those that this side does not take.
std::vector<std::string> wordsFor(const CommandRow& row, const TypedLine& line, Side side) {
  std::vector<std::string> words;
  std::size_t at = 1;
  for (const Argument& argument : row.arguments) {
    std::string_view word;
    if (isThere(argument, side) && at < line.words.size()) {
      word = argument.need == Need::Rest ? line.rest : line.words[at];
      ++at;
    }
    words.emplace_back(word);
  }
  return words;
}

// Whether a line has as many words as its usage stands for.
bool fits(const CommandRow& row, std::size_t count, Side side) {
  std::size_t least = 1;
  std::size_t most = 1;
  bool rest = false;
  for (const Argument& argument : row.arguments) {
    if (!isThere(argument, side)) continue;
    ++most;
    if (argument.need != Need::OptionalWord) ++least;
    rest = rest || argument.need == Need::Rest;
  }
  return count >= least && (count <= most || rest);
}

}  // namespace

std::string CommandRow::usage(Side side) const {
  std::string out(name);
  for (const Argument& argument : arguments) {
    const std::string word(argument.on(side).name);
    if (word.empty()) continue;
    out += argument.need == Need::OptionalWord ? " [" + word + "]" : " " + word;
  }
  return out;
}

const CommandRow* findRow(std::string_view name) {
  const auto rows = commandRows();
  const auto row =
      std::find_if(rows.begin(), rows.end(), [&](const auto& r) { return r.name == name; });
  return row == rows.end() ? nullptr : &*row;
}

const CommandRow& commandRow(std::string_view name) {
  const CommandRow* row = findRow(name);
  QGPU_CHECK(row != nullptr, "a command that the table has");
  return *row;
}

const CommandRow* rowOf(schema::Request::Which which) {
  static const auto rows = requestsOf<schema::Request>(&CommandRow::askNode);
  return find(rows, static_cast<std::uint16_t>(which));
}

const CommandRow* rowOf(schema::ClusterRequest::Which which) {
  static const auto rows = requestsOf<schema::ClusterRequest>(&CommandRow::askCluster);
  return find(rows, static_cast<std::uint16_t>(which));
}

Result<Arguments> readArguments(const CommandRow& row, std::span<const std::string> words,
                                Side side) {
  QGPU_CHECK(words.size() == row.arguments.size(), "a word for each argument");
  Arguments given;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const Argument& argument = row.arguments[i];
    if (words[i].empty()) continue;
    if (!isThere(argument, side)) return wrong("usage: " + row.usage(side));
    if (Status read = argument.on(side).read(words[i], given); !read) return read.error();
  }
  return given;
}

Result<Command> parseCommand(std::string_view line, Side side) {
  const Result<TypedLine> typed = readLine(line);
  if (!typed) return typed.error();
  const auto rows = commandRows();
  const auto row = std::find_if(rows.begin(), rows.end(), [&](const CommandRow& r) {
    return r.on(side) && r.name == typed->words.front();
  });
  if (row == rows.end()) {
    return wrong("unknown command " + quoted(typed->words.front()) + "; `help` lists the commands");
  }
  if (!fits(*row, typed->words.size(), side)) return wrong("usage: " + row->usage(side));
  Result<Arguments> given = readArguments(*row, wordsFor(*row, *typed, side), side);
  if (!given) return given.error();
  return Command{&*row, std::move(*given)};
}

}  // namespace qgpu
