#pragma once
// A line of an admin socket as far as it is text, and the words that its errors are made of. Pure:
// no socket, no clock (C7).

#include <string>
#include <string_view>
#include <vector>

#include "runtime/result.h"

namespace qgpu {

inline constexpr std::size_t kLineMax = 64 * 1024;  // bytes of one command
inline constexpr std::size_t kWordMax = 256;        // bytes of a name or a card's id

struct TypedLine {
  std::vector<std::string_view> words;  // at least one: the command's name
  std::string_view rest;                // all that follows the name
};

// `line` without its newline. InvalidArgument for an empty one, and for bytes that are no text.
Result<TypedLine> readLine(std::string_view line);

Error wrong(std::string message);           // InvalidArgument
std::string quoted(std::string_view text);  // as JSON, shortened

}  // namespace qgpu
