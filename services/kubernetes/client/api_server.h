#pragma once
// What the scheduler reads and writes at the Kubernetes API server when it binds a pod: what the
// pod asks, the decision as an annotation, the Binding, and a word for whoever looks at the pod.
// The extender's bind verb knows the API server by this alone, so that its tests need none.
//
// Calls never throw and end in one answer within the implementation's own deadline (C2). Codes:
//   NotFound     no such pod, or its name belongs to a later pod (another UID)
//   Conflict     the pod changed since `resourceVersion`, or is bound to another node
//   Denied       RBAC, or an admission hook, forbids it
//   InvalidArgument   the API server refuses what was sent; trying again can't help
//   Overloaded   it was told not to try now (429), or too many calls wait already: nothing was done
//   Unavailable  no answer: nobody knows whether it was done
// After any other failure than Unavailable the pod is as it was.

#include <kj/async.h>
#include <optional>
#include <string>
#include <vector>

#include "runtime/result.h"
#include "services/kubernetes/pods/event_reasons.h"

namespace qgpu {

struct PodRef {
  std::string nameSpace;  // empty, in an event: the word is of the node of this name
  std::string name;
  std::string uid;  // that of another pod under this name is a NotFound
};

// A bind of a pod, in this process, that has not ended.
struct BindUnderWay {
  PodRef pod;
  bool written = false;  // the API server may know of it
};

struct AnnotationChange {
  std::string key;
  std::optional<std::string> value;  // none: the annotation is removed
};

// An event as `kubectl describe` shows it, of a pod or of what its reason is of; those that are the
// same one (EventSame) are counted.
struct PodEvent {
  PodRef pod;  // or the node, or the claim
  EventReason reason;
  std::string message;      // one sentence; cut at 1,024 bytes
  std::string about;        // of the same pod and reason: the same event
  std::uint64_t times = 1;  // that it happened, since it was told last
};
// `values` stand in the message for those of the reason's shape, in its order; as many as it has.
PodEvent podEvent(PodRef pod, EventReason reason, const std::vector<std::string>& values,
                  std::uint64_t times = 1);

class ApiServer {
 public:
  // The pod as it is now, its JSON.
  virtual kj::Promise<Result<std::string>> readPod(PodRef pod) = 0;
  // Changes the pod's annotations in one patch. `resourceVersion` empty: whatever its version.
  virtual kj::Promise<Status> annotatePod(PodRef pod, std::vector<AnnotationChange> changes,
                                          std::string resourceVersion) = 0;
  // Creates the pod's Binding. Done already, to this same node, is no failure.
  virtual kj::Promise<Status> bindPod(PodRef pod, std::string node) = 0;
  // Best effort: nobody waits for it, and beyond a bounded queue it is counted and dropped.
  virtual void tellPod(PodEvent event) = 0;

 protected:
  ~ApiServer() = default;
};

}  // namespace qgpu
