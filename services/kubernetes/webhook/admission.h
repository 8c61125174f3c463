#pragma once
// What the API server is answered when it asks whether a pod may be created or updated:
// AdmissionReview v1 and v1beta1, one JSON in, one out. Pure.
//
// A pod is refused for the rules of pods/pod_rules.h alone, which the scheduler knows too: the
// webhook says them at once, to whoever wrote the pod, and for each container that breaks one.
// An update is judged where it changes app-class: of a pod that is bound it is refused, since
// what is bound keeps its demands until it ends. What is no pod, or asks nothing of qgpu, is
// allowed: others judge it.

#include <string>
#include <string_view>

#include "runtime/result.h"
#include "services/kubernetes/pods/pod_rules.h"

namespace qgpu {

// The API server takes no larger request, so no larger pod; stored objects have 1.5 MiB at most.
inline constexpr std::size_t kReviewBytesMax = std::size_t{3} << 20;

struct Review {
  std::string json;  // the AdmissionReview that answers
  bool allowed = true;
};

// InvalidArgument: no AdmissionReview with a request, or of a version that we don't speak.
Result<Review> answerReview(std::string_view body, const PodRules& rules);

}  // namespace qgpu
