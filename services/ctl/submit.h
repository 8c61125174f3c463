#pragma once
// A task for a cluster, asked for until it has a card.

#include <cstdint>
#include <functional>
#include <optional>

#include "runtime/result.h"
#include "services/ctl/answers/client.h"
#include "services/ctl/options.h"

namespace qgpu::ctl {

inline constexpr Nanos kClusterLimit = seconds(40);  // it is answered when its node has confirmed

// The task of an answer that is to be waited for; 0 where none is.
std::uint64_t waitingTask(const Answer& answer);

// True where what was asked for is known to be done, or refused for good. Where it isn't, the
// scheduler was away, too busy or without storage, its answer was lost or made no sense, or another
// acts now: it may have done it.
bool isSettled(const Result<Answer>& answer);

// The number of the task that a submit made, 0 where it made none; nothing where that isn't known.
std::optional<std::uint64_t> taskOf(const Result<Answer>& answer);

// The scheduler's answer to a submit; with options.wait the last one. Asked again with the same
// request id (nameRequest()) it answers for the same task, over its own restarts too. `waits` is
// told each answer whose task waits.
Result<Answer> submitTask(const Options& options, const Ask& ask,
                          const std::function<void(const Answer&)>& waits);

}  // namespace qgpu::ctl
