#pragma once
// `explain` on a node alone: why a task is where it is, what it wants and gets, and what holds it,
// in the words of docs/concepts.md. A scheduler explains its tasks by itself. Pure: two looks at
// what a manager lists in, a document out.

#include <simdjson.h>
#include <string>

#include "runtime/units.h"

namespace qgpu::ctl {

struct NodeLook {
  simdjson::dom::element tasks;
  simdjson::dom::element cards;
};

// {"ok":true,"task":N,"text":...,"lines":[...]}, `elapsed` between both looks; a refusal where the
// task is not there.
std::string explainOnNode(std::uint64_t id, const NodeLook& before, const NodeLook& now,
                          Nanos elapsed);

}  // namespace qgpu::ctl
