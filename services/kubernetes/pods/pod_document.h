#pragma once
// What pod_rules.h says of a pod that is a part of a document which was parsed already: it is
// judged where it stands. Whatever the pod, this costs one walk over it, and nothing of it is
// copied but what the sentences quote (C7).

#include <simdjson.h>
#include <string>
#include <vector>

#include "services/kubernetes/pods/pod_rules.h"

namespace qgpu {

// The rules that the pod breaks, a sentence each, no two alike; empty: none. Where a pod breaks
// very many, the first of them: of containers as many as may ask for something of ours.
std::vector<std::string> brokenRules(const simdjson::dom::element& pod, const PodRules& rules);

// As readHeldPod() of pod_rules.h.
Result<PodDemands> readHeldPod(const simdjson::dom::element& pod, const PodRules& rules);

}  // namespace qgpu
