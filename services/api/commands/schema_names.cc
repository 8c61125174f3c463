#include "services/api/commands/schema_names.h"

#include <cstdint>

#include "runtime/enum_names.h"

namespace qgpu {

std::string_view className(schema::TaskClass value) {
  return enumName(value);
}
std::string_view policyName(schema::Policy value) {
  return enumName(value);
}
std::string_view tenancyName(schema::Tenancy value) {
  return enumName(value);
}
std::string_view suspendName(schema::Suspend value) {
  return enumName(value);
}
std::string_view taskStateName(schema::TaskState value) {
  return enumName(value);
}
std::string_view cardStateName(schema::CardState value) {
  return enumName(value);
}
std::string_view traceKindName(schema::TraceKind value) {
  return enumName(value);
}
std::string_view placeStateName(schema::PlaceState value) {
  return enumName(value);
}
std::string_view nodeStateName(schema::ClusterNode::State value) {
  return enumName(value);
}
std::string_view decidedName(schema::ClusterInfo::Result value) {
  return enumName(value);
}

// The one name that differs from the schema's.
std::string_view scoreName(schema::Score value) {
  return value == schema::Score::CLASS_DEFAULT ? std::string_view("default") : enumName(value);
}

std::optional<schema::Score> scoreFromName(std::string_view name) {
  const auto score = enumFromName<schema::Score>(name);
  return score == schema::Score::CLASS_DEFAULT ? std::nullopt : score;
}

std::optional<schema::TraceKind> traceKindFromName(std::string_view name) {
  return enumFromName<schema::TraceKind>(name);
}

std::optional<schema::TaskClass> classFromName(std::string_view name) {
  return enumFromName<schema::TaskClass>(name);
}

ErrorCode errorFromName(std::string_view name) {
  for (int i = 0; i <= static_cast<int>(ErrorCode::Internal); ++i) {
    const auto code = static_cast<ErrorCode>(i);
    if (name == errorName(code)) return code;
  }
  return ErrorCode::Internal;
}

}  // namespace qgpu
