#pragma once
// The line protocol of the admin socket, as far as it is text: a line becomes a Command, or an
// error that names what is wrong and what would be right. Pure: no socket, no clock (C7).

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "runtime/result.h"
#include "schema/envelope.capnp.h"

namespace qgpu {

inline constexpr std::size_t kLineMax = 64 * 1024;  // bytes of one command
inline constexpr std::size_t kWordMax = 256;        // bytes of a task's name or a card's id

enum class Verb : std::uint8_t {
  Help, Info, Cards, Tasks, Events, Watch, Policy, Cordon, Uncordon, Drain, Evict, Snapshot,
  LogLevel, Run, End,
};

struct CommandInfo {
  Verb verb;
  std::string_view name;
  std::string_view usage;  // with its arguments
  std::string_view what;
  bool changes;            // only for peers that may change the node
};

// In the order in which help shows them.
std::span<const CommandInfo> commandInfos();

// What `run` asks for, out of one JSON object.
struct RunSpec {
  std::string name;
  schema::TaskClass taskClass = schema::TaskClass::ORDINARY;
  std::uint64_t memBytes = 0;
  std::uint32_t sharePermille = 0;
  std::uint32_t cards = 1;
  std::string card;
  std::string requestId;
  bool owned = true;       // ends when the peer's process dies; false: "owner":"none"
};

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

// SPEC: {"name","class","memory_gib","core_percent","cards","card","request_id","owner"}, all
// optional. A field that it does not know is an error, so that a misspelt quota is not lost.
Result<RunSpec> parseRunSpec(std::string_view json);

}  // namespace qgpu
