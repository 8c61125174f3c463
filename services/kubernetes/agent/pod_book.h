#pragma once
// What was decided for the pods of this node: which container has which cards, how much of them,
// and of what class it is. Whoever learns of it (the watch of the API server, an RPC client) writes
// it here; where kubelet starts a container it is looked up, and what is not here is not known.

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "actors/base/codec.h"
#include "runtime/result.h"

namespace qgpu {

struct ContainerPlan {
  std::string name;
  std::vector<std::string> cards;  // ids; more than one: whole cards
  Bytes mem{0};                    // of each card; 0: all of it, for whole cards alone
  Permille share{0};               // ordinary or greedy, by the pod's class
  std::string uses{};              // container whose task it uses: it ends before that one starts
  bool init = false;  // it ends before the next one starts, and kubelet does not list it
  bool operator==(const ContainerPlan&) const = default;

  bool whole() const { return cards.size() > 1 || share == kWholeCard; }
};

struct PodPlan {
  std::string uid;
  std::string nameSpace;
  std::string name;
  TaskClass taskClass = TaskClass::Ordinary;
  std::vector<ContainerPlan> containers;
  bool operator==(const PodPlan&) const = default;
};

class PodBook {
 public:
  static constexpr std::size_t kPodsMax = 4096;  // more than kubelet runs on any node

  // Replaces what was known of this uid, and of an earlier pod of this name. InvalidArgument where
  // it can't be a decision for a pod; Overloaded beyond kPodsMax.
  Status put(PodPlan pod);
  void forget(const std::string& uid);

  struct Found {
    const PodPlan* pod;
    const ContainerPlan* container;
  };
  // Both valid until the book changes. NotFound says what is missing: the pod, or the container.
  Result<const PodPlan*> findPod(const std::string& nameSpace, const std::string& pod) const;
  Result<Found> find(const std::string& nameSpace, const std::string& pod,
                     const std::string& container) const;

  const std::map<std::string, PodPlan>& pods() const { return pods_; }

 private:
  using Name = std::pair<std::string, std::string>;
  std::map<std::string, PodPlan> pods_;  // by uid
  std::map<Name, std::string> uids_;     // by namespace and name
};

}  // namespace qgpu
