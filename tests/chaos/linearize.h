#pragma once
// Whether operations on one small object could have happened one after the other, each at a moment
// between its question and its answer: linearizability, as Knossos and porcupine judge it, by
// linearizing an operation not before some answer needs it (Lowe, "Testing for linearizability").
// An object has at most four states. Operations whose outcome is unknown may happen at any time
// after they were invoked, or never; those that do the same are told apart by nothing, so only
// their number is kept, and of two ways to the same state the one that spent fewer is kept.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "tests/chaos/history.h"

namespace qgpu::chaos {

// What an operation makes of each state; kNo: it can't have happened in that one.
inline constexpr std::int8_t kNo = -1;
using Effect = std::array<std::int8_t, 4>;

struct Step {
  Span at;  // completed == kOpen: the outcome is unknown
  Effect effect{kNo, kNo, kNo, kNo};
};

// The first operation, by the time of its answer, that fits no order; nothing where all do.
// `initial`: the state before all of them. At most 64 operations are under way at a time. `work`
// counts the ways that were looked at.
std::optional<std::size_t> firstImpossible(const std::vector<Step>& steps, std::int8_t initial,
                                           std::uint64_t& work);

}  // namespace qgpu::chaos
