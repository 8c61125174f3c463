#pragma once
// Waiting for what another process or thread does: with a deadline far away instead of a sleep of
// guessed length.

#include <chrono>
#include <cstdint>
#include <functional>

namespace qgpu::testing {

std::int64_t monotonicNs();

// Calls `probe` until it is true or `limit` passed; the answer says which. It looks again after
// 0.2 ms, and ever more seldom, down to every 5 ms: what is soon is seen soon.
bool eventually(const std::function<bool()>& probe,
                std::chrono::milliseconds limit = std::chrono::seconds(20));

}  // namespace qgpu::testing
