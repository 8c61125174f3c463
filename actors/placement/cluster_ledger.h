#pragma once
// Who holds what of which card of which node: the scheduler's index of a cluster. It is a pure
// core: no clock, no I/O, and the same ledger and the same ask give the same answer (P7). The nodes
// own the truth; all of this can be built again from what they report.
//
// Choosing is a total order, so no tie is left to chance: binpack, spread and fgd (fragmentation
// gradient descent, ATC'23), each on the node and on the card. Online tasks spread and keep off
// cards with offline ones, offline tasks pack and keep off cards with online ones. Decisions come
// from an index (PlacementIndex: per shape a score of every node, a log of changed nodes and a
// tournament tree) and equal those of scan(), which looks at every card.
//
// Kept here: P1, P2, P4, P5 (several cards: all or none), P7, P8, P9 (released once), P10.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/ledger/fit.h"
#include "actors/ledger/ledger.h"
#include "actors/model.h"
#include "actors/placement/placement.h"
#include "runtime/result.h"
#include "runtime/units.h"

namespace qgpu {

struct ClusterCard {
  std::string id;
  std::uint32_t index = 0;
  std::string model;
  Bytes mem{0};
  Policy policy = Policy::BestEffort;
  CardMark mark = CardMark::Ready;
  bool healthy = true;
  std::uint64_t reportUnixMs = 0;  // of the report that holds for it; 0: there is none
  CardPlace place{};
};

// What a node says of itself.
struct ClusterNodeFacts {
  std::string name;
  bool mixed = false;
  TaskLimit tasks{};
  std::int64_t cpuMilli = 0;  // 0: not counted
  Bytes hostMem{0};           // 0: not counted
  std::vector<ClusterCard> cards;
};

struct ClusterAsk {
  LedgerAsk task;                   // task.cards 0: CPU and host memory only
  std::string node;                 // wanted; empty: any
  std::vector<std::string> models;  // allowed; empty: any
  std::int64_t cpuMilli = 0;
  Bytes hostMem{0};
  std::string application;  // replicas of one are kept apart under spread
  Score nodeScore = Score::ClassDefault;
  Score cardScore = Score::ClassDefault;
  std::string group;  // the one that it starts with; the ledger looks at one task at a time
};

// Numbers from here on are no task's: for who tries where tasks would go.
inline constexpr std::uint64_t kTrialTasks = std::uint64_t{1} << 63;

struct Spot {
  NodeId node{};
  Placement placement;  // positions of the node's cards
  std::int64_t cpuMilli = 0;
  Bytes hostMem{0};
};

// An offline task, as far as evictions look at it.
struct OfflineHeld {
  TaskId task{};
  Bytes mem{0};
  Permille share{0};
  std::int64_t cpuMilli = 0;
  Bytes hostMem{0};
};

// One line of an explanation: the nearest card of one node.
struct NodeVerdict {
  NodeId node{};
  std::optional<std::size_t> card;  // none: the whole node is out
  Reason reason = Reason::Fits;
  std::int64_t missing = 0;  // bytes, permille, tasks or cards; see shortfall()
  std::string text;          // exactly what is missing, for a person
};

struct ClusterVerdict {
  bool fits = false;
  std::size_t considered = 0;       // cards
  std::vector<std::size_t> counts;  // cards by Reason
  std::vector<NodeVerdict> nodes;   // nearest first, at most kVerdictsMax
  static constexpr std::size_t kVerdictsMax = 256;
};

struct ClusterSums {
  std::int64_t cards = 0;
  Bytes mem{0};
  Bytes memBound{0};
  Permille ordinary{0};
  Permille greedy{0};
  std::int64_t tasks = 0;
};

class ClusterLedger {
 public:
  struct Options {
    Score priority = Score::Binpack;  // of ordinary tasks that ask for none
    std::uint64_t seed = 1;           // of Score::Random alone
    bool indexed = true;              // false: every decision by scan(), for comparison
  };
  explicit ClusterLedger(Options options);
  ~ClusterLedger();
  ClusterLedger(ClusterLedger&&) noexcept;
  // A copy that can be tried out: what-if, preemption, remedies. It learns no more what is typical,
  // so that its fragments before and after compare.
  ClusterLedger clone() const;

  // --- questions ---
  // The rules that need no node, in the contract's words. InvalidArgument.
  Status check(const ClusterAsk& ask) const;
  // Where `ask` goes now. Errors: InvalidArgument; NotFound (the node or card named); NoRoom;
  // Cordoned; Conflict; Infeasible exactly where it would not fit were every node alive and empty.
  Result<Spot> place(const ClusterAsk& ask);
  // The same by looking at every card of every node: what the index must agree with.
  Result<Spot> scan(const ClusterAsk& ask) const;
  // Of an ask that names no node and fits nowhere: the error of place() were that node, or that
  // card of it, gone.
  Error refusalWithout(const ClusterAsk& ask, NodeId node, std::optional<std::size_t> card) const;
  // Whether it fits on this one node now; the queue of waiting tasks asks after each release.
  bool fitsOn(NodeId node, const ClusterAsk& ask) const;
  ClusterVerdict explain(const ClusterAsk& ask) const;
  // The first line of explain() alone, for a small part of its cost: only the node that `ask` names
  // is looked at, where it names one. Nothing where there is no such node, or no node at all.
  std::optional<NodeVerdict> nearest(const ClusterAsk& ask) const;

  // --- for who places several tasks at once (pod_fit.h); `ask` has passed check() ---
  Shape shape(const ClusterAsk& ask) const;
  const NodeRoom& nodeRoom(NodeId node) const;
  const Fragments& fragments() const;
  // The ranks of all nodes by position, replicas aside, from the index: valid until it is asked for
  // another shape, or something changes.
  const std::vector<std::uint64_t>& ranks(const ClusterAsk& ask) const;
  // The rank of one node, as it is and as if it were `room`, and the cards that it would give.
  std::uint64_t rankOn(NodeId node, const ClusterAsk& ask, Pick& pick) const;
  std::uint64_t rankIn(const NodeRoom& room, NodeId node, const ClusterAsk& ask, Pick& pick) const;
  // Nodes with tasks of that application, ascending.
  std::vector<NodeId> replicas(const std::string& application) const;

  // --- inventory ---
  // Adds a node or replaces what it is; its tasks stay where their cards still exist. The tasks
  // that lost theirs are returned; they hold nothing any more.
  std::pair<NodeId, std::vector<TaskId>> setNode(const ClusterNodeFacts& facts);
  void setLife(NodeId node, NodeLife life);
  void setCordoned(NodeId node, bool cordoned);
  void setMark(NodeId node, std::size_t card, CardMark mark);
  void setPriority(Score priority);
  // What tasks are typical, and how often: fragments are weighed by them. Without it they are
  // learnt from what is bound; none given: learn again.
  struct Typical {
    CardAsk card;
    std::uint32_t cards = 1;
    std::int64_t cpuMilli = 0;
    Bytes hostMem{0};
    std::vector<std::string> models;
    std::int64_t weight = 1;
  };
  void setTypical(std::vector<Typical> typical);

  // --- tasks ---
  // Takes the room, whatever the marks say: also for what a node reports.
  void bind(TaskId task, const Spot& spot, const std::string& application);
  // False where nothing was held: a second release changes nothing.
  bool release(TaskId task);
  // Takes rooms for a question, such as whether several tasks fit at once. At its end all is as
  // before: rooms, what is typical, and changes().
  class Trial {
   public:
    explicit Trial(ClusterLedger& ledger);
    ~Trial();
    Trial(const Trial&) = delete;
    Trial& operator=(const Trial&) = delete;
    void bind(TaskId task, const Spot& spot, const std::string& application);

   private:
    ClusterLedger& ledger_;
    std::vector<TaskId> tasks_;
  };

  // --- status ---
  std::size_t nodes() const;
  std::optional<NodeId> findNode(const std::string& name) const;
  const ClusterNodeFacts& facts(NodeId node) const;
  NodeLife life(NodeId node) const;
  bool cordoned(NodeId node) const;
  const CardRoom& room(NodeId node, std::size_t card) const;
  std::int64_t cpuBound(NodeId node) const;
  Bytes hostMemBound(NodeId node) const;
  std::vector<TaskId> tasksOn(NodeId node) const;
  std::vector<TaskId> tasksOn(NodeId node, std::size_t card) const;
  // Kept, so that whoever looks for tasks to evict looks at no others; ascending.
  const std::vector<OfflineHeld>& offlineOn(NodeId node, std::size_t card) const;
  const Spot* spot(TaskId task) const;
  std::size_t tasks() const;
  ClusterSums sums() const;  // kept, not added up
  // Permille of all cards' share that typical tasks can't use.
  std::int64_t fragmentPermille() const;
  // Equal digests: the same tasks hold the same of the same nodes.
  std::uint64_t digest() const;
  std::uint64_t evaluations() const;  // nodes scored so far, for benches and metrics
  // Grows with every change of a room: while it is the same, so is what explain() says.
  std::uint64_t changes() const;
  // What changes() was when this node's room changed last; never 0.
  std::uint64_t changedAt(NodeId node) const;
  // Grows when it is learnt anew what is typical: then ranks of unchanged rooms change, too.
  std::uint64_t learnings() const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;  // keeps the index out of the scheduler's headers
};

}  // namespace qgpu
