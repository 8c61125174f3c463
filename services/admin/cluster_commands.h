#pragma once
// The commands of a scheduler's admin socket: a line becomes a ClusterCommand, or an error that
// names what is wrong and what would be right, and a command a request. qgpuctl reads its own lines
// with this too, before it asks over RPC. Pure: no socket, no clock (C7).

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "runtime/result.h"
#include "runtime/units.h"
#include "schema/cluster.capnp.h"
#include "services/admin/command_line.h"
#include "services/admin/spec.h"

namespace qgpu {

enum class ClusterVerb : std::uint8_t {
  Help, Info, Nodes, Cards, Tasks, Submit, Delete, Explain, ExplainSpec, WhatIf, Preempt, Cordon,
  Uncordon, Drain, Priority, Events, Watch, Snapshot, LogLevel,
};

// In the order in which help shows them.
std::span<const CommandInfo> clusterCommandInfos();

struct ClusterCommand {
  ClusterVerb verb = ClusterVerb::Help;
  bool changes = false;
  std::uint64_t number = 0;  // TASK (0 for `tasks`: all), or SINCE
  std::string node;
  std::string card;          // empty: the whole node
  Nanos timeout{};
  std::string level;
  schema::Score priority = schema::Score::BINPACK;
  SubmitSpec spec;
  PlaceOrDrain question;
};

// How long a drain waits for its tasks where the line does not say.
inline constexpr Nanos kDrainTimeDefault = seconds(300);

// `line` without its newline. InvalidArgument for everything that is no command.
Result<ClusterCommand> parseClusterCommand(std::string_view line);

// "binpack", "spread" or "fgd": what ordinary tasks are placed by.
Result<schema::Score> parsePriority(std::string_view name);

// Whether it is answered with a list that may be long: it is asked for page by page.
bool isList(const ClusterCommand& command);

// The request of every command but help and watch. `uid`: who submits.
void fillClusterRequest(schema::ClusterRequest::Builder request, const ClusterCommand& command,
                        std::uint32_t uid);

}  // namespace qgpu
