#pragma once
// What a node counts, as Prometheus text (format 0.0.4). Pure: the node's replies in, text out.
// Times are seconds written from whole nanoseconds, so counters stay exact; label values carry
// whatever a tenant chose as its name, escaped.

#include <string>

#include "schema/types.capnp.h"
#include "services/base/metrics_text.h"

namespace qgpu {

std::string renderMetrics(schema::NodeInfo::Reader node,
                          capnp::List<schema::CardStatus>::Reader cards,
                          capnp::List<schema::TaskInfo>::Reader tasks,
                          const ActorClientCounts& clients);

}  // namespace qgpu
