#pragma once
// What the API server is answered when it asks whether a pod, a claim, a template of claims or a
// device class may be created or updated. Pure.
//
// A pod is refused for the rules of pods/pod_rules.h alone, which the scheduler knows too: the
// webhook says them at once, to whoever wrote the pod, and for each container that breaks one.
// An update is judged where it changes app-class: of a pod that is bound it is refused, since
// what is bound keeps its demands until it ends.
//
// What asks by claims is refused for the rules of claims/claim_document.h, which the driver would
// tell of when kubelet prepares the claim. An update of one is judged where it changes the spec.
//
// What is none of these, or asks nothing of qgpu, is allowed: others judge it.

#include <string_view>

#include "services/kubernetes/pods/pod_rules.h"
#include "services/kubernetes/webhook/review.h"

namespace qgpu {

// InvalidArgument: as ReviewQuestion::read().
Result<Review> answerReview(std::string_view body, const PodRules& rules);

}  // namespace qgpu
