#pragma once
// Judges a cluster from what is committed where and what is said, by rules of its own: it knows the
// schema and the times of DESIGN section 9, and nothing of how scheduler, member and node decide.
// Times are those of the world, so it sees what no machine of the cluster can see.
//
// Judged: P1, P2, P5, P8 (each node's rows, and each decision of the scheduler), P3 (over the rows
// of all nodes), P4 (at rest all views say the same), P6 (epochs, request ids), P7 (infeasible is
// what fits no empty node), P9 (no orphan, and nothing that was deleted, at rest), P10 (what waits
// at rest has no room), P11 (groups start whole), C1 (terms and leases), C2 (one answer), C3
// (placed again only after the fence), C4 (views agree soon after everything healed), D1 and D2 of
// what was answered.
//
// Of several schedulers the last one that booted is the one that acts. What another one still says
// counts for nothing here: it may promise nothing that was not stored before (D1), and change
// nothing any more (C1).

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/sim/checkers/ledger_model.h"
#include "tests/sim/watch.h"

namespace qgpu::sim {

// What the judge is told of a node before anything happens.
struct JudgedNode {
  std::string name;
  std::vector<CardFact> cards;
  bool mixed = true;
  std::uint64_t cpuMilli = 0;
};

class ClusterCheck {
 public:
  static constexpr Nanos kLease = seconds(15);
  static constexpr Nanos kFence = seconds(20);
  static constexpr Nanos kLookLate = seconds(5);  // from the end of a lease until it is noticed
  // A row as the scheduler stores it.
  struct Row {
    std::uint32_t epoch = 0;
    schema::PlaceState state = schema::PlaceState::WAITING;
    std::string node;
    std::string wantedNode;
    std::vector<std::string> models;
    std::string group;  // its owner's; empty: none
    std::uint32_t groupSize = 0;
    std::uint64_t cpuMilli = 0;
    std::uint64_t nodeTask = 0;
    std::string token;
    HeldTask held;  // cards as indices
    bool forwarded = false;
    bool adopted = false;
    bool again = false;   // ending: it waits again after that
    bool holds() const;   // room of its node
    bool placed() const;  // and keeps it, as far as is decided
  };
  // A cluster's task on a node.
  struct Copy {
    std::uint64_t nodeTask = 0;
    std::uint64_t task = 0;  // 0: the node's own
    std::uint32_t epoch = 0;
    std::string token;
    std::vector<std::uint32_t> cards;
  };

  ClusterCheck(Verdict& verdict, std::vector<JudgedNode> nodes);

  // --- a node, by number ---
  void nodeBoot(std::size_t node, const Boot& boot);
  void nodeEnd(std::size_t node);
  void nodeAppended(std::size_t node, std::uint64_t batch, const std::vector<StoredRow>& rows,
                    Nanos now);
  void nodeAnswered(std::size_t node, std::uint64_t batch, bool ok);
  void nodeStalls(std::size_t node, Nanos until);
  // Of the member actor: to the node, and to its link.
  void memberAsks(std::size_t node, schema::Request::Reader request, Nanos now);
  void memberSays(std::size_t node, schema::FromMember::Reader words);

  // --- a scheduler, by number ---
  // It begins to act.
  void schedulerBoot(std::size_t scheduler, const Boot& boot);
  void schedulerEnd(std::size_t scheduler);
  bool acts(std::size_t scheduler) const { return scheduler == acting_; }
  void schedulerStalls(Nanos until) { stalledUntil_ = std::max(stalledUntil_, until); }
  // Of the one that acts.
  void schedulerAppended(std::uint64_t batch, const std::vector<StoredRow>& rows, Nanos now);
  void schedulerAnswered(std::uint64_t batch, bool ok);
  // Of any.
  void schedulerAsked(std::size_t scheduler, schema::ClusterRequest::Reader request);
  void schedulerReplies(std::size_t scheduler, schema::ClusterReply::Reader reply);
  void schedulerHears(std::size_t node, std::uint32_t link, schema::FromMember::Reader words,
                      Nanos now);
  void schedulerSays(std::size_t scheduler, std::size_t node, schema::ToMember::Reader words,
                     Nanos now);

  // --- what the world asks ---
  const std::map<std::uint64_t, Row>& rows() const { return rows_; }
  std::vector<Copy> copiesOn(std::size_t node) const;
  const LedgerModel& model(std::size_t node) const { return nodes_[node].model; }
  // Where what is stored here and there is not the same; empty: nowhere. One line for each.
  std::set<std::string> differences() const;
  // Of rows; changes with each of them.
  std::uint64_t changes() const { return changes_; }
  // Everything rests: nothing may wait that fits, differ or be left over.
  void atRest();

 private:
  struct Change {  // of one row
    std::uint64_t id = 0;
    bool erased = false;
    Copy copy;
    HeldTask held;
  };
  struct NodeBatch {
    std::uint64_t number = 0;
    std::vector<Change> changes;
    std::vector<StoredRow> cards;  // rows of cards
    std::uint64_t term = 0;
  };
  struct Node {
    JudgedNode facts;
    LedgerModel model;                     // of what is committed
    std::map<std::uint64_t, Copy> copies;  // committed, by its number
    std::map<std::uint64_t, Copy> maybe;   // appended by a life that got no answer (yet)
    std::deque<NodeBatch> open;
    std::map<std::uint64_t, std::uint32_t> over;  // epochs of tasks that ended here
    std::uint64_t term = 0;                       // stored
    Nanos heard = Nanos(-seconds(1'000).value);   // the last beat or hello that was taken
    Nanos heardActing = heard;                    // ... by the scheduler that acts
    Nanos helloAt = Nanos(-seconds(1'000).value);
    Nanos stalledUntil{0};
    bool cordoned = false;  // as the scheduler has stored it
    bool marked = false;    // or some of its cards
    bool freed = false;     // somebody asked to, since its marks were stored last
    bool stored = false;    // the scheduler knows it by name
  };
  struct SchedulerBatch {
    std::uint64_t number = 0;
    std::map<std::uint64_t, Row> rows;
    std::set<std::uint64_t> erased;
    std::map<std::string, std::pair<bool, bool>> marks;  // cordoned, marked
    std::uint64_t term = 0;
  };
  using RequestKey = std::pair<std::uint32_t, std::string>;
  struct Submit {  // that has no answer yet
    RequestKey key;
    Row row;                      // what it asks for
    std::set<std::size_t> known;  // nodes, when it was asked
  };

  static Row readRow(schema::ClusterTaskRow::Reader row);
  static void readSpec(schema::ClusterSpec::Reader spec, Row& row);
  static bool suits(const Node& node, const Row& row);
  const Node* named(const std::string& name) const;
  void violated(const char* id, const std::string& what) { verdict_.violated(id, what); }
  void begins(std::size_t node, const Copy& copy, const HeldTask& held, Nanos now);
  bool holds(const Node& node, std::uint64_t task) const;
  LedgerModel viewOf(const Node& node, const std::map<std::uint64_t, Row>& rows) const;
  void decided(std::uint64_t task, const Row& row, const std::map<std::uint64_t, Row>& others,
               Nanos now);
  void judgeDecisions(const SchedulerBatch& batch, const std::vector<std::uint64_t>& decisions,
                      Nanos now);
  void moved(std::uint64_t task, const Row& before, const Row& after, Nanos now);
  void dropped(std::uint64_t task, const Row& before, Nanos now);
  void assigned(const Submit& submit, schema::Assigned::Reader assigned);
  void infeasible(const Submit& submit);
  void termStored(std::uint64_t term);
  void promisesHold(const std::map<std::uint64_t, Row>& rows, const std::set<std::uint64_t>& over);
  void staysDeleted(std::uint64_t task, const Row& row);
  void waits(std::uint64_t task, const Row& row);
  struct Group {  // its tasks, in some rows
    std::uint32_t size = 0;
    std::set<std::uint64_t> waiting, placed, bound;
    bool started = false;  // one of them was placed as it was whole
  };
  std::map<std::string, Group> groupsIn(const std::map<std::uint64_t, Row>& rows) const;
  void judgeGroups(const SchedulerBatch& batch, const std::vector<std::uint64_t>& decisions);
  void noteStarted(const std::map<std::string, Group>& before);
  static bool asksAlike(const Row& one, const Row& other);
  void groupsRest();
  std::size_t fitting(const Row& row, std::size_t most) const;

  Verdict& verdict_;
  std::vector<Node> nodes_;
  std::map<std::uint64_t, Row> rows_;  // the scheduler's, committed
  std::deque<SchedulerBatch> open_;
  std::uint64_t changes_ = 0;
  std::size_t acting_ = 0;                             // the scheduler that booted last
  std::uint64_t term_ = 0;                             // stored by this life; 0: not yet
  std::map<std::size_t, std::uint64_t> earlierTerms_;  // of schedulers that another one followed
  std::uint64_t termMax_ = 0;                          // of all lives
  std::map<std::uint64_t, std::uint64_t> sessionTerm_;
  std::map<std::uint32_t, Nanos> helloAt_;      // by link
  std::map<std::uint64_t, Submit> submits_;     // by correlation id
  std::map<std::uint64_t, std::size_t> asked_;  // of whom, what has no answer yet, by its number
  std::map<std::uint64_t, std::uint64_t> deletes_;  // of these, the task to be deleted
  std::set<std::uint64_t> promised_;                // tasks whose submits were answered
  std::set<std::uint64_t> gone_;                    // ... and deletes
  std::map<RequestKey, std::uint64_t> requests_;    // the task that each has, as was answered
  std::map<std::pair<std::uint64_t, std::uint32_t>, std::string> tokens_;  // by task and epoch
  std::set<std::uint64_t> deleted_;                                        // asked for
  bool drained_ = false;             // somebody drains, so tasks may be evicted
  Nanos stalledUntil_{0};            // the scheduler
  std::set<std::uint64_t> started_;  // tasks that had a place as their group was whole
  std::set<std::uint64_t> begun_;    // a node has held it
  std::set<std::uint64_t> ended_;    // a node has ended it
};

}  // namespace qgpu::sim
