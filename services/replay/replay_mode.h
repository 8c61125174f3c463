#pragma once
// `--replay=PATH` of the scheduler: decides once more as a recording says, and tells what came out.

#include <cstdint>
#include <string>

#include "runtime/result.h"

namespace qgpu {

struct ReplayOrder {
  std::string path;              // a recording, or a folder, of which each is replayed
  std::int64_t untilUnixMs = 0;  // of each: no later turn
  std::uint64_t explain = 0;     // a task that is asked about then; 0: none
  std::string version;           // of this binary, ...
  std::string build;             // ... to be told where the recorded one was another
};

enum class SameAgain : std::uint8_t { Yes, No };

// Prints a paragraph for each recording, and warnings on stderr. Errors: nothing to replay, or
// damage, of which the first ends it.
Result<SameAgain> replayAll(const ReplayOrder& order);

}  // namespace qgpu
