#pragma once
// The pods that filter has seen, by UID: a bind names its pod and says nothing of what it asks. A
// pod is forgotten after a while, and the ones seen longest ago where there are too many (C5); its
// bind is then refused, and kube-scheduler begins again with a filter.

#include <deque>
#include <kj/timer.h>
#include <map>
#include <string>
#include <vector>

#include "actors/placement/pod_fit.h"
#include "services/kubernetes/pods/pod_rules.h"

namespace qgpu {

struct SeenPod {
  PodDemands pod;
  PodAsk ask;                         // of the containers that need room of their own
  std::vector<std::size_t> demandOf;  // of each container: whose room it has
};
SeenPod seenPod(PodDemands pod);

class SeenPods {
 public:
  static constexpr std::size_t kPodsMax = 20'000;
  static constexpr kj::Duration kKept = 10 * kj::MINUTES;

  void add(SeenPod pod, kj::TimePoint now);
  const SeenPod* find(const std::string& uid) const;
  std::size_t size() const { return pods_.size(); }

 private:
  struct Entry {
    SeenPod pod;
    kj::TimePoint at;
  };
  std::map<std::string, Entry> pods_;
  std::deque<std::pair<kj::TimePoint, std::string>> order_;  // oldest first; stale ones are passed
};

}  // namespace qgpu
