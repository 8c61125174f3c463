#pragma once
// A binding of this node as the scheduler is told of it, see schema::HeldTask; and what of it, and
// of the cards, is news to the scheduler. What a card does with a task from slice to slice is none.

#include <cstdint>
#include <string>
#include <vector>

#include "actors/base/codec.h"
#include "schema/cluster.capnp.h"

namespace qgpu {

struct HeldRecord {
  std::uint64_t nodeTask = 0;
  TaskSpec spec;  // with the scheduler's number and epoch
  std::vector<std::string> cards;
  schema::TaskState state = schema::TaskState::BOUND;
  TaskFigures figures;
  ShareFigures shares;
  bool ended = false;
};
HeldRecord readHeld(schema::TaskInfo::Reader info);
void writeHeld(const HeldRecord& record, schema::HeldTask::Builder builder);
// What every binding says of itself. The spec has the scheduler's number and epoch.
void writeBinding(std::uint64_t nodeTask, const TaskSpec& spec,
                  const std::vector<std::string>& cards, schema::HeldTask::Builder builder);

// Whether the scheduler should hear of the newer one. Figures of use count with `Use` alone.
enum class Compare : std::uint8_t { States, Use };
bool differs(const HeldRecord& told, const HeldRecord& now, Compare compare);

// What the scheduler decides by, and how a card suspends, as text to compare; with Compare::Use
// also the sums, which it knows from its own account.
std::string digestOf(capnp::List<schema::CardStatus>::Reader cards, Compare compare);

}  // namespace qgpu
