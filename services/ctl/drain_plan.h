#pragma once
// What a drain of a card would end on a node alone, told before anything is done. A scheduler plans
// the drains of its nodes by itself (`whatif`). Pure: a manager's lists in, a document out.

#include <string>
#include <string_view>

#include "services/ctl/answers/document.h"

namespace qgpu::ctl {

// {"ok":true,"card":ID,"ends":[{"id","name"}]}; a refusal where no card is called `word`.
Document planNodeDrain(std::string_view word, Value tasks, Value cards);

// How many tasks a plan is about, of a node or a cluster.
std::size_t concernedBy(Value plan);

// "ends 2 tasks: 7 (train), 9 (serve)", or that no task is concerned.
std::string sayNodeDrain(Value plan);

}  // namespace qgpu::ctl
