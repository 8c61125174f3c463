#pragma once
// Programs in PyTorch, which not every machine with a card has.

#include <string>

#include "tests/gpu/scene.h"

namespace qgpu::gpu {

// What such a program found; null with `why` set where there is no PyTorch that sees the card: it
// ends with 77 then. Throws a Violation where it failed.
Json torchResult(Child& child, std::string& why);

}  // namespace qgpu::gpu
