#pragma once
// What a daemon shows of the Kubernetes events that it tells, in its /metrics.

#include <string>

#include "services/kubernetes/client/pod_writer.h"

namespace qgpu {

// qgpu_kube_events_total by reason, with those that were dropped and those that wait.
std::string eventMetrics(const PodWriter& writer);

}  // namespace qgpu
