#pragma once
// TOML of one level, as configuration files are written: a key and its value a line. It exists so
// that every mistake in such a file is told with the line where it stands.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/result.h"

namespace qgpu {

struct TomlEntry {
  enum class Kind : std::uint8_t { Text, Number, Flag, Texts, Other };

  std::string key;
  std::string value;  // a number and a flag as they read (a part in its shortest form), texts
                      // joined by commas
  Kind kind = Kind::Other;
  std::size_t line = 0;  // from 1
};

// In the order of their keys' lines. InvalidArgument: what is wrong, after "line N: ".
Result<std::vector<TomlEntry>> parseToml(std::string_view text);

}  // namespace qgpu
