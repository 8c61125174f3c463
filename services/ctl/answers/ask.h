#pragma once
// What a person typed for a daemon, as one command of the table (services/api/commands/commands.h):
// for an admin socket it becomes its line, over RPC a request; neither is read again on this side.

#include <string>
#include <string_view>
#include <vector>

#include "runtime/result.h"
#include "services/api/commands/commands.h"

namespace qgpu::ctl {

struct Ask {
  const CommandRow* row = nullptr;
  std::vector<std::string> words;  // one for each argument of the row; empty: not given
  SaidSpec said;                   // what a task asks for, instead of the words
  std::uint32_t count = 0;         // tasks like it that a what-if places
};

// `name` of the table, with one word at most.
Ask askFor(std::string_view name, std::string word = {});

// So that the question may be asked again, over restarts of the daemon too, and means the same
// task. A request that the person named stays.
void nameRequest(SaidSpec& said);

// Whether asking twice does what asking once does: of what only reads, and of a named request.
bool isRepeatable(const Ask& ask);

// What an admin socket is told, without its newline.
std::string lineOf(const Ask& ask);

// The same, read for a request. InvalidArgument says what is wrong with a word.
Result<Command> commandOf(const Ask& ask, Side side);

// A daemon's sentence about a field of a SPEC, which has other names there than where it was typed.
std::string asTyped(std::string message);

}  // namespace qgpu::ctl
