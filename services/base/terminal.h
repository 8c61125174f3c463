#pragma once
// What somebody looks at: whether it is a terminal, its size, and what may be drawn on it.

#include <cstddef>

namespace qgpu {

struct TerminalSize {
  std::size_t columns = 80, rows = 24;  // of one that doesn't say
};

bool isTerminal(int fd);
TerminalSize terminalSize(int fd);

// Blocks need UTF-8; a terminal that speaks something else gets ASCII.
bool speaksUtf8();
// On a terminal alone, and not where NO_COLOR is set (no-color.org).
bool takesColours(int fd);

}  // namespace qgpu
