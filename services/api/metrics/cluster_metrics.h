#pragma once
// What a cluster counts, as Prometheus text. Pure: the scheduler's replies in, text out. Cards and
// tasks have no samples of their own here: there may be 100,000 of them, and their nodes tell them.

#include <string>

#include "schema/cluster.capnp.h"
#include "services/base/metrics_text.h"

namespace qgpu {

std::string renderClusterMetrics(schema::ClusterInfo::Reader info,
                                 capnp::List<schema::ClusterNode>::Reader nodes,
                                 const ActorClientCounts& clients);
// Of one that stands by: figures of the cluster are the acting one's alone, or they would be
// counted once for each scheduler.
std::string renderStandingBy(const ActorClientCounts& clients);

}  // namespace qgpu
