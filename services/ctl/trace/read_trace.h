#pragma once
// Reads a card's trace from its manager, part by part.

#include <string>
#include <vector>

#include "runtime/result.h"
#include "services/ctl/answers/client.h"
#include "services/ctl/trace/card_history.h"

namespace qgpu::ctl {

// Of one question of the several that a look at a daemon takes.
inline constexpr Nanos kAskLimit = seconds(6);

// All that the card has and the reader has not; each answer within `limit`. `told`: the answers
// too, where somebody wants them.
Status catchUp(Asker& asker, TraceReader& reader, Nanos limit, std::vector<Answer>* told = nullptr);

}  // namespace qgpu::ctl
