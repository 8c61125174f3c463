#pragma once
// `explain` on a node alone: why a task is where it is, what it wants and gets, and what holds it,
// in the words of docs/concepts.md. A scheduler explains its tasks by itself. Pure: two looks at
// what a manager lists in, a document out.

#include <string>

#include "runtime/units.h"
#include "services/ctl/answers/document.h"

namespace qgpu::ctl {

struct NodeLook {
  Value tasks;
  Value cards;
};

// {"ok":true,"task":N,"text":...,"lines":[...]}, `elapsed` between both looks; a refusal where the
// task is not there.
Document explainOnNode(std::uint64_t id, const NodeLook& before, const NodeLook& now,
                       Nanos elapsed);

}  // namespace qgpu::ctl
