#pragma once
// The names of the schemas' enums, from the schemas themselves: `bestEffort` reads "best-effort".
// A value that is added to an enum has its name at once, in every list of names.

#include <capnp/schema.h>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace qgpu {

// "bestEffort" as people write it: "best-effort".
std::string kebab(std::string_view camelCase);

// All names of `Enum`, an enum of a schema, in the order of their values. Made once for each enum,
// so that a name stays where it is.
template <typename Enum>
const std::vector<std::string>& enumNames() {
  static const std::vector<std::string> kNames = [] {
    std::vector<std::string> names;
    for (const auto one : capnp::Schema::from<Enum>().getEnumerants()) {
      const kj::StringPtr name = one.getProto().getName();
      names.push_back(kebab({name.begin(), name.size()}));
    }
    return names;
  }();
  return kNames;
}

// "unknown" for a value that this build does not have: schemas only grow. The text ends with a 0.
template <typename Enum>
std::string_view enumName(Enum value) {
  const auto index = static_cast<std::size_t>(value);
  const std::vector<std::string>& names = enumNames<Enum>();
  return index < names.size() ? std::string_view(names[index]) : std::string_view("unknown");
}

// Whether this build has the value.
template <typename Enum>
bool enumKnows(Enum value) {
  return static_cast<std::size_t>(value) < enumNames<Enum>().size();
}

// The way back, of exactly such a name; nothing where the enum has none like it.
template <typename Enum>
std::optional<Enum> enumFromName(std::string_view name) {
  const std::vector<std::string>& names = enumNames<Enum>();
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i] == name) return static_cast<Enum>(i);
  }
  return std::nullopt;
}

}  // namespace qgpu
