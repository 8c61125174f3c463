#pragma once
// A task for a cluster, asked for until it has a card.

#include <functional>

#include "runtime/result.h"
#include "services/ctl/answers/client.h"
#include "services/ctl/options.h"

namespace qgpu::ctl {

inline constexpr Nanos kClusterLimit = seconds(40);  // it is answered when its node has confirmed

// The task of an answer that is to be waited for; 0 where none is.
std::uint64_t waitingTask(const Answer& answer);

// The scheduler's answer to a submit; with options.wait the last one. Asked again with the same
// request id (nameRequest()) it answers for the same task, over its own restarts too. `waits` is
// told each answer whose task waits.
Result<Answer> submitTask(const Options& options, const Ask& ask,
                          const std::function<void(const Answer&)>& waits);

}  // namespace qgpu::ctl
