#pragma once
// Pods that start together or not at all, as their annotations say (PodGroup, pod_rules.h): who of
// a group is here, where each would go, and when their binds may go on.
//
//   filter   A pod of a group passes on one node alone: its own in a plan by which all that the
//            group is short of fit at once. Before so many are here, or where there is no such
//            plan, it passes nowhere, and nothing is evicted for it.
//   bind     Once its room is taken it waits here until so many others have theirs. Where one of
//            them fails, or nobody else comes for kHold, all are refused and give their rooms back.
//
// kube-scheduler looks at one pod after the other and binds beside that, so that binds of a group
// wait for each other as they would in its own phase Permit. A group of which so many are bound has
// started: who comes later goes as every pod does.
//
// Groups don't block each other: what is planned for one is in no plan of another until kHold after
// its last step. Anybody else may take that room, and then there is another plan, or none. Pods of
// one name and namespace with another size are another group. All that is kept is of pods that the
// API server has (C5).

#include <array>
#include <cstdint>
#include <kj/async.h>
#include <kj/timer.h>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "actors/placement/pod_trial.h"
#include "services/kubernetes/extender/pods_under_way.h"
#include "services/kubernetes/pods/pod_rules.h"

namespace qgpu {

class PodGroups {
 public:
  // Less than kube-scheduler waits for an extender (httpTimeout).
  static constexpr kj::Duration kHold = 4 * kj::SECONDS;
  static constexpr kj::Duration kLook = 500 * kj::MILLISECONDS;  // plans cost more than verdicts
  static constexpr std::size_t kLooksMax = 4;                    // plans, in one look
  // Below so many names kube-scheduler has named every node that it would take; of more it may
  // name some (minFeasibleNodesToFind in its sources).
  static constexpr std::size_t kAllNamedBelow = 100;

  // Both outlive it.
  PodGroups(const ClusterLedger& ledger, PodsUnderWay& underWay, kj::Timer& timer);
  PodGroups(const PodGroups&) = delete;
  PodGroups& operator=(const PodGroups&) = delete;
  ~PodGroups() noexcept(false);

  // What the API server says of pods, whether or not they are in a group.
  void waits(const PodDemands& pod, const PodAsk& ask);
  void bound(const PodDemands& pod);
  void gone(const std::string& uid);

  // What filter says to a pod of a group.
  struct Turn {
    bool alone = false;          // it goes as if it were in no group
    std::optional<NodeId> node;  // the one on which it passes
    std::string why;             // it passes nowhere
  };
  // `named`: those that kube-scheduler would take.
  Turn turn(const PodDemands& pod, std::vector<NodeId> named);
  // Whether it goes with others: it is in a group that has not started.
  bool startsTogether(const PodDemands& pod) const;

  // A bind begins.
  void begins(const std::string& uid);
  // Its room is taken: done when it may go on, or why not.
  kj::Promise<Status> together(const PodDemands& pod);
  // A bind is over.
  void ended(const std::string& uid, const Status& how);

  // Whether it is of any use to try that pod.
  bool mayGo(const std::string& uid) const;
  // Pods that could not go before and could now. It looks every kLook, however often it is asked.
  std::vector<std::string> opened();

  std::size_t waiting() const;  // groups

 private:
  // Namespace, name and size.
  using Key = std::tuple<std::string, std::string, std::uint32_t>;
  enum class Stage : std::uint8_t {
    Waits,
    Planned,  // for a node
    Binds,    // and is to take its room
    Arrived,  // has it, and waits for the others
    Bound,    // or its bind goes on
  };
  static constexpr std::size_t kStages = 5;
  // All nodes that kube-scheduler would take, when it last named them all.
  struct Named {
    std::vector<NodeId> nodes;  // ascending
    std::size_t of = 0;         // nodes that there were; it may take any that came since
    bool operator==(const Named&) const = default;
  };
  struct Member {
    PodAsk ask;
    Stage stage = Stage::Waits;      // changed by set() alone
    NodeId node{};                   // Planned
    PodsUnderWay::Place underWay{};  // Planned
    std::optional<Named> named;
    kj::Own<kj::PromiseFulfiller<Status>> bind;  // Arrived
  };
  // When a plan was looked for: it is the same until one of these changes.
  using Moment = std::pair<std::uint64_t, std::uint64_t>;
  struct Group {
    std::map<std::string, Member> members;      // by UID
    std::array<std::size_t, kStages> counts{};  // of them
    kj::TimePoint lastStep = kj::origin<kj::TimePoint>();
    bool open = false;              // there was a plan
    std::optional<Moment> refused;  // there was none at that moment
    std::string why;

    std::size_t at(Stage stage) const { return counts[static_cast<std::size_t>(stage)]; }
    std::size_t arrived() const { return at(Stage::Bound) + at(Stage::Arrived); }
    void set(Member& member, Stage stage);
  };

  Group* find(const std::string& uid);
  Member& enter(const PodDemands& pod);
  Moment now() const { return {ledger_.changes(), underWay_.changes()}; }
  bool hasStarted(const Key& key, const Group& group) const;
  std::vector<std::pair<const std::string, Member>*> due(const Key& key, Group& group,
                                                         const std::string& first) const;
  bool plan(const Key& key, Group& group, const std::string& first,
            const std::vector<NodeId>* named);
  std::optional<std::vector<NodeId>> nodesOf(const std::optional<Named>& named) const;
  void dropPlan(Group& group);
  void dropOldPlans();
  void refuseBinds(Group& group, const Error& why);
  void passBinds(Group& group);
  kj::Promise<Status> tooLate(std::string uid);

  const ClusterLedger& ledger_;
  PodsUnderWay& underWay_;
  kj::Timer& timer_;
  std::map<Key, Group> groups_;
  std::map<std::string, Key> keys_;  // by UID
  std::set<Key> planned_;            // groups with a plan
  kj::TimePoint lookAt_ = kj::origin<kj::TimePoint>();
  Key lookedAt_;  // the last group of a look
};

}  // namespace qgpu
