#pragma once
// A pod that asks for qgpu by resources, changed so that it asks by a claim instead: the resources
// go, and each container that had some names a request of a ResourceClaimTemplate, which is made
// for it. DRA's own way for pods that were written for resources, an extended resource's name in a
// device class, counts devices and not parts of one. Pure: read by the rules of pods/pod_rules.h,
// written as JSON.
//
//   ordinary, a part    ordinary.qgpu.io, capacity core and memory
//   ordinary, N whole   ordinary.qgpu.io, N devices
//   online              online.qgpu.io, capacity memory
//   offline             offline.qgpu.io, capacity core (greedy percent) and memory
//
// Models that the pod names become a selector of each request. An init container that uses the room
// of a main one names that one's request. A template is called by a hash of what it asks for, so
// pods that ask for the same share one. Who may create templates in a namespace may make one of
// that name that asks for something else; it could as well create its pods with that.

#include <optional>
#include <simdjson.h>
#include <string>

#include "runtime/result.h"
#include "services/kubernetes/pods/pod_rules.h"

namespace qgpu {

inline constexpr const char* kPodClaim = "qgpu";  // what the claim is called in the pod
// The label by which uninstall.sh finds the templates.
inline constexpr const char* kTemplateLabel = "app";
inline constexpr const char* kTemplateLabelValue = "qgpu-scheduler";

struct PodByClaim {
  std::string templateName;
  std::string templateJson;  // the whole object
  std::string patch;         // of the pod
};

// Nothing where the pod asks for nothing, or has a node already and passes no scheduler.
// InvalidArgument: it breaks a rule, or can't be said by a claim.
Result<std::optional<PodByClaim>> podByClaim(const simdjson::dom::element& pod,
                                             const PodRules& rules);

// Whether the pod asks for something of ours and leaves to the cluster which scheduler places it.
bool leavesScheduler(const simdjson::dom::element& pod, const PodRules& rules);
std::string schedulerPatch(const std::string& scheduler);

}  // namespace qgpu
