#pragma once
// The names that people and programs type and read for the enums of the schemas, and the way back.
// One place for all clients, so that JSON, tables, metrics and RPC say the same. Names come from
// the schemas themselves (runtime/enum_names.h) and live as long as the program.

#include <optional>
#include <string_view>

#include "runtime/result.h"
#include "schema/cluster.capnp.h"
#include "schema/types.capnp.h"
#include "services/base/text.h"

namespace qgpu {

// A value that this build does not know reads as "unknown": schemas only grow.
std::string_view className(schema::TaskClass value);
std::string_view policyName(schema::Policy value);  // the full name, "best-effort"
std::string_view tenancyName(schema::Tenancy value);
std::string_view suspendName(schema::Suspend value);
std::string_view taskStateName(schema::TaskState value);
std::string_view cardStateName(schema::CardState value);
std::string_view traceKindName(schema::TraceKind value);
std::string_view scoreName(schema::Score value);
std::string_view placeStateName(schema::PlaceState value);
std::string_view nodeStateName(schema::ClusterNode::State value);
std::string_view decidedName(schema::ClusterInfo::Result value);

// The way back, of exactly such a name; nothing for any other text.
std::optional<schema::TaskClass> classFromName(std::string_view name);
std::optional<schema::TraceKind> traceKindFromName(std::string_view name);
std::optional<schema::Score> scoreFromName(std::string_view name);  // not of the class default
ErrorCode errorFromName(std::string_view name);  // Internal where the name is not ours

}  // namespace qgpu
