#pragma once
// What a node counts, as Prometheus text (format 0.0.4). Pure: the node's replies in, text out.
// Times are seconds written from whole nanoseconds, so counters stay exact; label values carry
// whatever a tenant chose as its name, escaped.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "schema/types.capnp.h"
#include "services/base/metrics_text.h"

namespace qgpu {

// The container on Kubernetes whose task it is.
struct PodLabels {
  std::string_view nameSpace;
  std::string_view pod;
  std::string_view container;
};

// Of a task by its number; empty where it is no pod's. What it answers lives until it is asked
// again. There is none where no pods are.
using PodOfTask = std::function<PodLabels(std::uint64_t task)>;

// With `podOf` each sample of a task has the labels namespace, pod and container too. Those of a
// task of no pod are empty, or Prometheus would take the ones of the pod that it scrapes.
std::string renderMetrics(schema::NodeInfo::Reader node,
                          capnp::List<schema::CardStatus>::Reader cards,
                          capnp::List<schema::TaskInfo>::Reader tasks,
                          const ActorClientCounts& clients, const PodOfTask& podOf = nullptr);

}  // namespace qgpu
