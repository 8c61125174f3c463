#pragma once
// The queue of kube-scheduler: who is tried, and what brings a pod that an extender refused back.
// One pod is tried after the other, and bound beside that. Only the events do to which the real one
// reacts; its patience of five minutes is longer than any test. As read in its sources
// (pkg/scheduler: eventhandlers.go, internal/queue, later backend/queue and framework/events.go):
//
//   both    a node's allocatable, labels, taints, conditions' statuses, or that it may be used
//           again; a bound pod that ended or was deleted; the pod itself, status and versions aside
//   1.36    also a node's annotations, bound pods that change, and the pod's own status
//
// Not played: the pause after a try (1 to 10 s before 1.33; since then none while it has nothing
// else to do).

#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/e2e/harness.h"
#include "tests/e2e/kubernetes/served_api.h"

namespace qgpu::e2e {

class SmallKubeScheduler {
 public:
  enum class Version { V1_26, V1_36 };
  // What was answered to a try, and the bind where it is to be bound.
  struct Tried {
    Json answer;
    std::function<Json()> bind;
  };
  using Try = std::function<Tried(const std::string& pod)>;

  SmallKubeScheduler(ServedApi& api, Version version, Try tries);
  ~SmallKubeScheduler();
  SmallKubeScheduler(const SmallKubeScheduler&) = delete;
  SmallKubeScheduler& operator=(const SmallKubeScheduler&) = delete;

  std::size_t tries(const std::string& pod) const;
  Json lastAnswer(const std::string& pod) const;

 private:
  struct Seen {
    std::map<std::string, Json> nodes;  // by name
    std::map<std::string, Json> pods;   // by name
  };
  struct Known {
    std::size_t times = 0;  // it was tried
    Json answer;
    bool binds = false;
  };

  void run();
  Seen look();
  bool movesAll(const Seen& before, const Seen& now) const;
  Json nodeParts(const Json& node) const;
  Json podParts(Json pod) const;
  void tryPod(const std::string& pod);
  void take(const std::string& pod, Json answer);

  ServedApi& api_;
  const Version version_;
  const Try try_;
  mutable std::mutex mutex_;
  std::map<std::string, Known> known_;
  std::atomic<bool> over_{false};
  std::vector<std::thread> binds_;
  std::thread thread_;  // last
};

}  // namespace qgpu::e2e
