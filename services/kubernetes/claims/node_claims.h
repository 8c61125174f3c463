#pragma once
// How pods get the cards of this node. There are two ways: cards are devices that kubelet counts,
// for pods that the extender binds; or they are in a ResourceSlice, for pods with claims that
// kube-scheduler places by itself. The label qgpu.io/claims of the node says which one. Each way
// keeps its own account of what is given, so a node never uses both at once: after a change of the
// label, no pod gets a card in either way until the tasks of the old way have ended.

#include <functional>
#include <string>

#include "services/kubernetes/claims/claim_tasks.h"
#include "services/kubernetes/claims/slice_publisher.h"

namespace qgpu {

class NodeClaims {
 public:
  enum class Way : std::uint8_t {
    Unknown,  // not looked yet
    Devices,
    Claims,
    Neither,  // the other way's tasks have not ended
  };

  // All outlive it. `mixed`: whether online and offline tasks may run on this node.
  NodeClaims(NodeActorClient& actor, ApiClient& api, Log& log, std::string node,
             std::function<bool()> mixed);

  // What the label wants and the cards are. To be called again and again, never while under way.
  kj::Promise<void> round(Peer peer, bool byClaims, SliceFacts facts);
  Way way() const { return way_; }
  // Why nothing new is given: where it is Neither.
  const std::string& why() const { return why_; }
  ClaimTasks& tasks() { return tasks_; }

 private:
  kj::Promise<void> choose(Peer peer, bool byClaims);

  NodeActorClient& actor_;
  Log& log_;
  ClaimTasks tasks_;
  SlicePublisher slices_;
  Way way_ = Way::Unknown;
  std::string why_;
};

}  // namespace qgpu
