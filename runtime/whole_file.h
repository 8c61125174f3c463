#pragma once
// A small file that others read whole or not at all, and writes that are whole.

#include <string>
#include <string_view>

#include "runtime/result.h"

namespace qgpu {

// Writes `text` to `path` by a new file that is renamed over it; the new file's name is that with
// ".new" behind. Unavailable: with the path and the system's reason.
Status writeAnew(const std::string& path, const std::string& text, unsigned mode);

// All of it, in as many writes as it takes; false, with errno, where one fails.
bool writeAll(int fd, std::string_view text);

}  // namespace qgpu
