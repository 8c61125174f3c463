#pragma once
// The nodes that this scheduler knows: their names, what they say of themselves, what operators
// said of them, whether they are heard of, and the term under which they are spoken to. Of each
// node the cluster's ledger has the cards; this has the rest, and keeps the two alike.
//
// A node has two numbers: MemberId from the first time that its name is heard (durable, its place
// in the list and the number of its row), NodeId from its first hello in this process.
//
// Who calls: all parts of the scheduler. Kept here: C1 (nobody is told anything but under the term
// in force), P8 (marks of operators reach the ledger, also over a restart).

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "actors/membership/membership.h"
#include "actors/placement/cluster_ledger.h"
#include "actors/scheduler/freed_room.h"
#include "actors/scheduler/round.h"
#include "runtime/actor.h"

namespace qgpu {

class Members {
 public:
  // `links`: the adapter that has the connections to the nodes.
  // `reportMsMax`: as SchedulerOptions have it.
  Members(Rounds& rounds, ClusterLedger& ledger, FreedRoom& freed, ActorId links,
          Membership::Times times, std::int64_t reportMsMax = 0)
      : rounds_(rounds),
        ledger_(ledger),
        freed_(freed),
        links_(links),
        reportMsMax_(reportMsMax),
        membership_(times) {}

  // --- who is known ---
  std::size_t size() const { return members_.size(); }
  ClusterMember& at(MemberId member) { return members_.at(static_cast<std::size_t>(member)); }
  const ClusterMember& at(MemberId member) const {
    return members_.at(static_cast<std::size_t>(member));
  }
  const std::string& name(MemberId member) const { return at(member).facts.ledger.name; }
  MemberId memberOf(NodeId node) const { return byNode_.at(static_cast<std::size_t>(node)); }
  const std::vector<MemberId>& withNode() const { return byNode_; }
  std::optional<MemberId> find(const std::string& name) const;
  // Nodes that are known by name and have not said yet what they are, lost ones too: until then
  // nobody knows what would fit the cluster.
  bool missing() const;
  // The member of this name, a new one if need be. Overloaded beyond Membership::kMembersMax.
  Result<MemberId> memberFor(const std::string& name, Nanos heardAt);
  // It said hello, so its row is to be stored with this round where there is none yet.
  void joined(MemberId member);
  // What it said of itself, into the ledger too.
  void takeFacts(MemberId member, MemberFacts facts);

  // --- cards ---
  // By id or index. NotFound.
  Result<std::size_t> findCard(MemberId member, const std::string& card) const;
  std::vector<std::string> cardIds(const Spot& spot) const;
  // What a task of this spec holds of these cards; nothing where the node has not all of them.
  std::optional<Spot> spotOf(MemberId member, const ClusterSpec& spec,
                             const std::vector<std::string>& cards) const;

  // --- marks ---
  // To be changed in this round.
  NodeMarks& touchMarks(MemberId member);
  // The ledger's view of what operators said, of the cards that are kept, and of their reports.
  void applyMarks(MemberId member);
  // Whether a report is wanted, and it has none that is new enough.
  bool isUnproven(const ClusterCard& card) const;
  // Reports grow old by themselves. To be called now and again.
  void lookAtReports();
  // A card that is kept is closed to everybody but the task for which room is made on it.
  void keep(MemberId member, const std::string& card) { kept_.emplace(member, card); }
  void keepNoMore(MemberId member, const std::string& card) { kept_.erase({member, card}); }
  bool isKept(MemberId member, const std::string& card) const {
    return kept_.contains({member, card});
  }

  // --- life, sessions and term ---
  Membership& membership() { return membership_; }
  const Membership& membership() const { return membership_; }
  void setLife(MemberId member, NodeLife life);
  // Since the last commit of a term: before that nobody is served.
  bool started() const { return started_; }
  std::uint64_t term() const { return term_; }  // in force; durable once started()
  void begin(std::uint64_t term);
  // Another scheduler had this later term: nobody is served until a higher one is committed.
  void standDown(std::uint64_t termSeen);
  // All that are known are joining from now on.
  void start();

  // To the node, if it has a session; its next hello makes up for what it missed.
  void tell(MemberId member, std::function<void(schema::ToMember::Builder)> fill);
  void turnAway(std::uint32_t link, const Error& error);

  // --- rows ---
  void load(const std::vector<StoredRow>& rows, std::uint64_t term);
  void persist(const Round& round, Turn& turn) const;
  void stored(const Round& round);
  void undo(const Round& round);

 private:
  void persistNode(MemberId member, Turn& turn) const;

  Rounds& rounds_;
  ClusterLedger& ledger_;
  FreedRoom& freed_;
  const ActorId links_;
  const std::int64_t reportMsMax_;
  Membership membership_;
  std::vector<ClusterMember> members_;  // by MemberId
  std::size_t stored_ = 0;              // of them, from the first on
  std::map<std::string, MemberId> names_;
  std::vector<MemberId> byNode_;  // by NodeId
  std::set<std::pair<MemberId, std::string>> kept_;
  std::uint64_t term_ = 0;
  bool started_ = false;  // the cluster's row of this term is committed
};

}  // namespace qgpu
