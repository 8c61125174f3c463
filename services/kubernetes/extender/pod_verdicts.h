#pragma once
// What PodFit found of each node for the kinds of pods that were asked about lately. Replicas of
// one controller ask the same, and kube-scheduler asks again and again for a pod that fits nowhere:
// only nodes that changed since are judged anew, and why a node is out is written once for all that
// look the same (room_faces.h). Verdicts equal those of a PodFit of this moment (P7, P8).
//
// Memory is bounded: beyond kKindsMax kinds, or bytesMax in all, the kind that was asked about
// least lately goes; the one that is asked about stays (C5).

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "actors/placement/pod_fit.h"
#include "services/kubernetes/extender/room_faces.h"

namespace qgpu {

class PodVerdicts {
 public:
  static constexpr std::size_t kKindsMax = 256;
  static constexpr std::size_t kBytesMax = std::size_t{64} << 20;

  struct Refusal {
    bool hopeless = false;
    std::string why;  // PodRefusal's text, as a JSON string
  };

 private:
  struct Ranked {
    std::uint64_t at = 0;  // changes of the ledger; 0: never
    std::uint64_t rank = 0;
  };
  struct Told {
    std::uint64_t face = 0;  // its number; 0: none
    Refusal refusal;
  };
  struct Kind {
    std::vector<Ranked> ranks;  // by position; of several demands
    std::vector<Told> told;     // by the places of faces
    std::uint64_t learnings = 0;
    std::uint64_t usedAt = 0;
    std::size_t bytes = 0;
  };

 public:
  // The questions about one pod: PodFit's, and answers as PodFit gives them.
  class Pod {
   public:
    std::uint64_t rank(NodeId node);
    // Of a node that it does not fit.
    const Refusal& refusal(NodeId node);

   private:
    friend class PodVerdicts;
    Pod(PodVerdicts& all, const PodAsk& ask);
    // The verdict on this node depends on more than the kind.
    bool isApart(NodeId node) const { return !fit_.single() && fit_.isApart(node); }
    void lookAtFaces();
    Refusal judged(NodeId node);

    PodVerdicts& all_;
    PodFit fit_;
    Kind& kind_;
    bool chance_ = false;  // it depends on chance where several demands would go
    bool looked_ = false;  // at the faces of this moment
  };

  // The ledger outlives it.
  explicit PodVerdicts(const ClusterLedger& ledger, std::size_t bytesMax = kBytesMax)
      : ledger_(ledger), bytesMax_(bytesMax), faces_(ledger) {}

  // Of this moment: a change of the ledger ends it. What it says of refusals lives until the next
  // pod.
  Pod of(const PodAsk& ask) { return {*this, ask}; }

  std::size_t kinds() const { return kinds_.size(); }
  std::size_t bytes() const { return bytes_; }

 private:
  // What each demand asks, and what the containers are called where a refusal names one.
  using Key = std::pair<std::vector<Shape>, std::vector<std::string>>;

  Kind& kindOf(const PodFit& fit, const PodAsk& ask);
  void forgetOldest(const Kind& but);
  void grow(Kind& kind, std::size_t before, std::size_t after);

  const ClusterLedger& ledger_;
  const std::size_t bytesMax_;
  RoomFaces faces_;
  std::map<Key, Kind> kinds_;
  std::deque<Refusal> apart_;  // that are not kept, of the last pod
  std::uint64_t uses_ = 0;
  std::size_t bytes_ = 0;
};

}  // namespace qgpu
