#pragma once
// What the admin sockets of all daemons have in common as far as it is text: a table of commands,
// a line found in it, and the words that errors are made of. Pure: no socket, no clock (C7).

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/result.h"

namespace qgpu {

inline constexpr std::size_t kLineMax = 64 * 1024;  // bytes of one command
inline constexpr std::size_t kWordMax = 256;        // bytes of a name or a card's id

struct CommandInfo {
  std::uint8_t verb;       // of the daemon's own enum
  std::string_view name;
  std::string_view usage;  // with its arguments; one that ends with SPEC takes the rest of the line
  std::string_view what;
  bool changes;            // only for peers that may change what the daemon keeps
};

// A line that names a command and has as many words as that takes.
struct TypedLine {
  const CommandInfo* info = nullptr;
  std::vector<std::string_view> words;  // the command's name is the first
  std::string_view rest;                // all that follows the name
};

// `line` without its newline. InvalidArgument for everything that is no command of `infos`.
Result<TypedLine> readLine(std::string_view line, std::span<const CommandInfo> infos);

Error wrong(std::string message);          // InvalidArgument
std::string quoted(std::string_view text);  // as JSON, shortened

// A task's number; a word of at most kWordMax bytes; the number of an event.
Result<std::uint64_t> taskNumber(std::string_view word);
Result<std::string> shortWord(std::string_view word, std::string_view what);
Result<std::uint64_t> eventNumber(const TypedLine& line);  // the second word, or 0

}  // namespace qgpu
