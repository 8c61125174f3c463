#pragma once
// Pods under the guard (services/guard): all that runs in a pod's cgroup is judged, its container
// of ours and every other, from before the first one that has a card is made until the cgroup is
// gone. Kubelet makes the cgroup before it asks for a container's start or for a claim; both wait
// for this.
//
// What is judged lies in the kernel and outlives a manager; a cgroup's number is never given again.

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/result.h"
#include "services/guard/guard.h"

namespace qgpu {

class PodGuard {
 public:
  // `guard` outlives it. Cgroups are looked for where this process has them mounted now.
  explicit PodGuard(Guard& guard);

  // The pod of this uid is judged from now on, as of `task` where somebody asks whose it is; a pod
  // of several tasks goes by the last one. NotFound: it has no cgroup that is to be seen from here.
  Status judge(const std::string& uid, std::uint64_t task);

  // Whether the node has got pods since this was asked last, whatever they are; true after
  // lookAgain().
  bool hasNewPods();
  void lookAgain() { seen_.clear(); }

 private:
  Guard& guard_;
  const std::vector<std::string> mounts_;
  std::vector<std::string> seen_;  // folders, sorted
};

}  // namespace qgpu
