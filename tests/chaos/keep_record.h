#pragma once
// What is kept of a run that found something: the history, as JSON lines, and the logs.

#include <string>

#include "tests/chaos/check_history.h"

namespace qgpu::chaos {

// Copies `folder`/logs and writes history.jsonl and violations.txt beside them, into a new folder
// below /tmp; its path.
std::string keepRecord(const std::string& folder, std::uint64_t seed, const History& history,
                       const std::vector<Violation>& violations);

}  // namespace qgpu::chaos
