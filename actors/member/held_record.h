#pragma once
// A binding of this node in the form in which the scheduler is told of it (schema::HeldTask), and
// the comparison that decides whether the scheduler has to be told again. Slices of a task change
// its figures of use all the time; they are sent only with Compare::Use.

#include <cstdint>
#include <string>
#include <vector>

#include "actors/base/codec.h"
#include "schema/cluster.capnp.h"

namespace qgpu {

struct HeldRecord {
  std::uint64_t nodeTask = 0;  // the node's own number
  TaskSpec spec;               // with the scheduler's number and epoch
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

// What the scheduler decides by, reports too, and how a card suspends, as text to compare; with
// Compare::Use also the sums, which it knows from its own account.
std::string digestOf(capnp::List<schema::CardStatus>::Reader cards, Compare compare);

}  // namespace qgpu
