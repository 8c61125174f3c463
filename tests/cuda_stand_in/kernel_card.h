#pragma once
// What the kernel's stand-in has a card say of itself: one Hopper with two multiprocessors, as far
// as NVIDIA's own libcuda, 525 to 555, looks until it has a context with its channels; then that
// waits for the card to work, which this one doesn't. What it asks beside, it may keep.

#include <cstdint>

namespace qgpu::stand_in {

// Fills the parameters of a control that succeeded, for the driver `version`; false: it is none of
// these.
bool tellOfCard(std::uint32_t command, void* parameters, std::uint32_t size, const char* version);

// Answers a call that is about no object: 0 or an error number, or -1: it is another.
int answerForCard(std::uint32_t number, std::uint32_t size, void* argument);

}  // namespace qgpu::stand_in
