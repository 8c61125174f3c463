#pragma once
// What PodFit found of each node for the kinds of pods that were asked about lately. Replicas of
// one controller ask the same, and kube-scheduler asks again and again for a pod that fits nowhere:
// only nodes that changed since are judged anew, and why a node is out is written once. Verdicts
// equal those of a PodFit of this moment (P7, P8).
//
// Memory is bounded: beyond kKindsMax kinds, or bytesMax in all, the kind that was asked about
// least lately goes; the one that is asked about stays (C5).

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "actors/pod_fit.h"

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
  struct Verdict {
    std::uint64_t rankedAt = 0;  // changes of the ledger; 0: never
    std::uint64_t refusedAt = 0;
    std::uint64_t rank = 0;
    Refusal refusal;
  };
  struct Kind {
    std::vector<Verdict> nodes;  // by position
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
    // Where the verdict on this node is kept; null: it depends on more than the kind.
    Verdict* kept(NodeId node);
    const Refusal* likeTheLast(NodeId node) const;

    PodVerdicts& all_;
    PodFit fit_;
    Kind& kind_;
    std::optional<NodeId> last_;  // that was judged anew
  };

  // The ledger outlives it.
  explicit PodVerdicts(const ClusterLedger& ledger, std::size_t bytesMax = kBytesMax)
      : ledger_(ledger), bytesMax_(bytesMax) {}

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
  std::map<Key, Kind> kinds_;
  std::deque<Refusal> apart_;  // that are not kept, of the last pod
  std::uint64_t uses_ = 0;
  std::size_t bytes_ = 0;
};

}  // namespace qgpu
