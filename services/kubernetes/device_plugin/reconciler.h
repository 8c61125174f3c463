#pragma once
// When a container is over: kubelet lists it no more, for long enough, and no process of its task
// lives. Kubelet may list nothing for a moment after its own start, so a start begins a time in
// which nothing ends. Pure: times and lists in, what to end and to sweep out.

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "runtime/units.h"
#include "services/kubernetes/device_plugin/placeholders.h"

namespace qgpu {

struct ReconcileTimes {
  Nanos goneAfter = seconds(6);  // of not being listed
  Nanos settle = seconds(30);    // after a start of kubelet, or of this plugin
};

struct PodTask {
  std::uint64_t id = 0;
  std::uint32_t processes = 0;
};

struct ReconcilePlan {
  std::vector<std::uint64_t> end;   // tasks
  std::vector<std::string> remove;  // keys of placeholders
};

// Keys of the placeholders in `held` that stand for containers which kubelet tells of: those with
// exactly a container's devices, and those of an init container of a pod that still has some of
// them, since kubelet does not list that one itself.
std::set<std::string> listedKeys(const std::vector<ContainerDevices>& listed,
                                 const std::vector<Placeholder>& held);

class Reconciler {
 public:
  explicit Reconciler(ReconcileTimes times) : times_(times) {}

  // Kubelet came up: what it lists is not to be trusted yet.
  void kubeletStarted(Nanos now) { trustedFrom_ = now + times_.settle; }

  // `listed`: keys of the device sets of all containers that kubelet tells of. To be called for
  // each answer of kubelet, with what was on disk and bound *before* kubelet was asked: what came
  // after that is not missing.
  ReconcilePlan step(Nanos now, const std::set<std::string>& listed,
                     const std::vector<Placeholder>& placeholders,
                     const std::vector<PodTask>& tasks);

 private:
  ReconcileTimes times_;
  Nanos trustedFrom_{0};
  std::map<std::string, Nanos> missing_;      // placeholders, since when
  std::map<std::uint64_t, Nanos> unclaimed_;  // tasks without a listed placeholder
};

}  // namespace qgpu
