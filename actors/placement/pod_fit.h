#pragma once
// Where all containers of one pod go together on one node: the pure core of the extender's filter,
// prioritize and bind. It looks at a ledger and changes nothing.
//
// A pod fits a node if there are cards for all of its demands at once; several may share a card
// where the rules allow it. A single demand is judged by the ledger's index, so that a list of
// 5,000 names costs a look at each rank. Several are placed the largest first, each as the ledger
// would, and where that fails by a search of all ways, up to kStepsMax; what a longer search would
// find is not found, so a node is never promised too much (P1, P2, P5, P8). The same ledger and the
// same pod give the same answer, and no two nodes compare equal (P7).

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "actors/placement/cluster_ledger.h"

namespace qgpu {

struct PodAsk {
  static constexpr std::size_t kDemandsMax = 64;
  struct Demand {
    std::string container;
    LedgerAsk ask;  // has passed checkAsk(); all of one class
  };
  std::vector<Demand> demands;      // at least one, at most kDemandsMax
  std::vector<std::string> models;  // allowed; empty: any
  std::string application;          // replicas of one are kept apart under spread
};

// Whether one finds room wherever the other does; names and replicas aside.
bool asksTheSame(const PodAsk& one, const PodAsk& other);

// The cards of each demand, as positions on the node.
using PodCards = std::vector<std::vector<std::size_t>>;

// The demands in the order in which a ledger is asked for them one by one: it chooses several cards
// itself, so these go first and find free what is free here.
std::vector<std::size_t> askingOrder(const PodCards& cards);

struct PodRefusal {
  Reason reason = Reason::Fits;
  bool hopeless = false;  // not even if the node were alive and empty
  std::string text;       // the code, and why each card is out
};

class PodFit {
 public:
  static constexpr std::size_t kStepsMax = 2'048;  // cards tried on one node

  // Of this moment: a change of the ledger ends it.
  PodFit(const ClusterLedger& ledger, const PodAsk& ask);

  // Lower is better, and fitsAt() says whether the pod fits at all. Nodes of equal rank follow each
  // other in the order of their positions.
  std::uint64_t rank(NodeId node);
  // Where everything goes; nothing exactly where rank() says that it does not fit.
  std::optional<PodCards> cards(NodeId node);
  // Of a node that it does not fit.
  PodRefusal refusal(NodeId node);

  // In the terms of the ledger, as far as verdicts depend on them.
  const std::vector<Shape>& shapes() const { return shapes_; }
  bool single() const { return shapes_.size() == 1; }
  // Whether replicas of the application change the node's verdict.
  bool isApart(NodeId node) const;

 private:
  struct Way {  // one try on one node
    NodeRoom room;
    PodCards cards;
    std::uint64_t rank = 0;  // of the demand that suits the node least
    std::size_t failed = 0;  // the demand that found no card
  };
  Way& fresh(NodeId node);
  bool placeInTurn(NodeId node, Way& way) const;
  bool search(Way& way, std::size_t next, std::size_t& steps) const;
  bool searchPart(Way& way, std::size_t next, std::size_t& steps) const;
  bool couldFitEmpty(NodeId node) const;
  std::size_t refuseCards(const NodeRoom& room, std::size_t demand, PodRefusal& refusal) const;
  void take(Way& way, std::size_t demand, std::vector<std::size_t> cards) const;
  void giveBack(Way& way, std::size_t demand) const;
  CardAsk held(const Way& way, std::size_t demand, std::size_t card) const;

  const ClusterLedger& ledger_;
  const PodAsk& ask_;
  std::vector<ClusterAsk> asks_;
  std::vector<Shape> shapes_;                          // of the demands
  std::vector<std::size_t> order_;                     // of the demands, the largest first
  const std::vector<std::uint64_t>* ranks_ = nullptr;  // of a single demand
  std::vector<NodeId> apart_;  // nodes with replicas, ascending: they are ranked one by one
  Way way_;                    // kept for its memory
};

}  // namespace qgpu
