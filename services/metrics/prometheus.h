#pragma once
// What a node counts, as Prometheus text (format 0.0.4). Pure: the node's replies in, text out.
// Times are seconds written from whole nanoseconds, so counters stay exact; label values carry
// whatever a tenant chose as its name, escaped.

#include <string>
#include <string_view>

#include "schema/types.capnp.h"

namespace qgpu {

// What the doors themselves count.
struct DoorCounts {
  std::size_t outstanding = 0;
  std::size_t watchers = 0;
  std::uint64_t refused = 0;
  std::uint64_t late = 0;
};

std::string renderMetrics(schema::NodeInfo::Reader node,
                          capnp::List<schema::CardStatus>::Reader cards,
                          capnp::List<schema::TaskInfo>::Reader tasks, const DoorCounts& doors);

// `text` as it stands between the quotes of a label value.
std::string escapeLabel(std::string_view text);

}  // namespace qgpu
