#pragma once
// A history that a correct scheduler could have made, drawn from a seed: clients that overlap, are
// left without an answer and ask again, tasks that move from node to node, nodes whose lists come
// late. The scheduler of it does each thing at one moment, in the order of the moments.

#include <cstdint>

#include "tests/chaos/history.h"

namespace qgpu::chaos {

History generatedHistory(std::uint64_t seed, std::size_t operations);

}  // namespace qgpu::chaos
