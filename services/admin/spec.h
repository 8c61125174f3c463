#pragma once
// SPEC, the one JSON object that says what a task asks for, on a node (`run`) and in a cluster
// (`submit`). A field that nobody knows is an error, so that a misspelt quota is not lost. Pure
// (C7): what is too long, too big or of another kind is refused here, once for every door.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/result.h"
#include "schema/cluster.capnp.h"

namespace qgpu {

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

struct SubmitSpec {
  RunSpec task;
  std::string node;
  std::vector<std::string> models;
  std::uint64_t cpuMilli = 0;      // 0: not named
  std::uint64_t hostMemBytes = 0;  // 0: not named
  std::string application;
  schema::Score nodeScore = schema::Score::CLASS_DEFAULT;
  schema::Score cardScore = schema::Score::CLASS_DEFAULT;
  bool preempt = false;
};

// {"name","class","memory_gib","core_percent","cards","card","request_id","owner"}, all optional.
Result<RunSpec> parseRunSpec(std::string_view json);

// The same without "owner", and {"node","models","cpu_milli","host_memory_gib","application",
// "node_score","card_score","preempt"}.
Result<SubmitSpec> parseSubmitSpec(std::string_view json);

// {"place":SPEC,"count":N} or {"drain":"NODE[/CARD]"}.
struct PlaceOrDrain {
  SubmitSpec place;
  std::uint32_t count = 0;  // 0: a drain
  std::string node;
  std::string card;
};
Result<PlaceOrDrain> parsePlaceOrDrain(std::string_view json);

// "NODE" or "NODE/CARD".
Status parseTarget(std::string_view text, std::string& node, std::string& card);

void fillTask(schema::TaskSpec::Builder out, const RunSpec& spec, std::uint32_t uid);
void fillSubmit(schema::ClusterSpec::Builder out, const SubmitSpec& spec, std::uint32_t uid);

}  // namespace qgpu
