#pragma once
// The commands of a manager's admin socket: a line becomes a Command, or an error that names what
// is wrong and what would be right. Pure: no socket, no clock (C7).

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "runtime/result.h"
#include "schema/envelope.capnp.h"
#include "services/admin/command_line.h"
#include "services/admin/spec.h"

namespace qgpu {

enum class Verb : std::uint8_t {
  Help, Info, Cards, Tasks, Events, Watch, Policy, Cordon, Uncordon, Drain, Evict, Snapshot,
  LogLevel, Run, End,
};

// In the order in which help shows them.
std::span<const CommandInfo> commandInfos();

struct Command {
  Verb verb = Verb::Help;
  bool changes = false;
  std::uint64_t number = 0;  // SINCE, or TASK
  std::string card;          // id, index or "all"
  std::string level;
  schema::Policy policy = schema::Policy::BEST_EFFORT;
  RunSpec spec;
};

// `line` without its newline. InvalidArgument for everything that is no command.
Result<Command> parseCommand(std::string_view line);

}  // namespace qgpu
