#pragma once
// Pods that start together or not at all, as their annotations say (PodGroup, pod_rules.h): who of
// a group is here, where each would go, and when their binds may go on.
//
//   filter   Once so many pods of a group are here, and each was asked about, each passes on one
//            node alone: its own in a plan by which all of them fit at once. Where there is no such
//            plan it passes nowhere, and nothing is evicted for it.
//   bind     takes its room, writes its decision, and waits here until so many others have done the
//            same. Then all have Bindings made. Where one fails before, or some don't come for
//            `hold`, all give their rooms back.
//
// kube-scheduler looks at one pod after the other and binds beside that, so that binds of a group
// wait for each other as they would in its own phase Permit. A group has started from when its
// binds went on, and for as long as a pod of it is bound: who comes meanwhile goes as every pod
// does.
//
// Groups don't block each other: what is planned for one is in no plan of another until `hold`
// after that. Anybody else may take such a room, and then there is another plan, or none. A group
// whose binds gave up more than once pauses, longer each time. Pods of one name and namespace with
// another size are another group. All that is kept is of pods that the API server has (C5).

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
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
#include "services/kubernetes/extender/seen_pods.h"
#include "services/kubernetes/pods/pod_rules.h"

namespace qgpu {

class PodGroups {
 public:
  // Of binds, from the first of a group on: longer than kube-scheduler pauses after a try (10 s
  // before 1.33), and shorter than it waits for an extender (httpTimeout, 30 s).
  static constexpr kj::Duration kHold = 15 * kj::SECONDS;
  static constexpr kj::Duration kLook = 500 * kj::MILLISECONDS;
  static constexpr kj::Duration kLookFor = 20 * kj::MILLISECONDS;  // of each kLook, about
  static constexpr kj::Duration kPauseMax = 64 * kj::SECONDS;
  // Below so many names kube-scheduler has named every node that it would take; of more it may
  // name some (minFeasibleNodesToFind in its sources).
  static constexpr std::size_t kAllNamedBelow = 100;

  // All outlive it.
  PodGroups(const ClusterLedger& ledger, PodsUnderWay& underWay, kj::Timer& timer,
            kj::Duration hold = kHold);
  PodGroups(const PodGroups&) = delete;
  PodGroups& operator=(const PodGroups&) = delete;
  ~PodGroups() noexcept(false);

  // What the API server says of pods, whether or not they are in a group. Who waits has
  // demands.
  void waits(const SeenPod& seen);
  void bound(const PodDemands& pod);
  void gone(const std::string& uid);

  // Whether it goes with others: it is in a group that has not started.
  bool startsTogether(const PodDemands& pod) const;
  // What filter says to such a pod.
  struct Turn {
    std::optional<NodeId> node;  // the one on which it passes
    std::string why;             // it passes nowhere
  };
  // `named`: those that kube-scheduler would take.
  Turn turn(const PodDemands& pod, std::vector<NodeId> named);

  // A bind begins.
  void begins(const std::string& uid);
  // It is ready for its Binding: done when that may be made, or why not. `stillPlaced` is asked
  // before all go on, and lives as long as the promise.
  kj::Promise<Status> together(const PodDemands& pod, std::function<Status()> stillPlaced);
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
    Passed,   // on that node
    Binds,    // is under way
    Arrived,  // has its room, and waits for the others
    GivesUp,  // its bind, since another's failed
    Bound,    // or its Binding is being made
  };
  static constexpr std::size_t kStages = 7;
  // The nodes that kube-scheduler would take, when it asked last.
  struct Named {
    std::vector<NodeId> nodes;  // ascending
    bool all = false;           // it would take no other
    std::size_t of = 0;         // nodes that there were; it may take any that came since
    bool operator==(const Named&) const = default;
  };
  struct Member {
    PodAsk ask;
    Stage stage = Stage::Waits;      // changed by set() alone
    bool isSeen = false;             // bound, by the API server
    NodeId node{};                   // Planned, Passed
    PodsUnderWay::Place underWay{};  // Planned, Passed
    kj::TimePoint passedAt = kj::origin<kj::TimePoint>();
    std::optional<Named> named;                  // nothing: it was not asked about, or did not come
    kj::Own<kj::PromiseFulfiller<Status>> bind;  // Arrived
    std::function<Status()> stillPlaced;         // Arrived
  };
  using Members = std::map<std::string, Member>;  // by UID
  // When a plan was looked for: it is the same until one of these changes.
  using Moment = std::pair<std::uint64_t, std::uint64_t>;
  struct Group {
    Members members;
    std::array<std::size_t, kStages> counts{};  // of them
    kj::TimePoint plannedAt = kj::origin<kj::TimePoint>();
    kj::TimePoint bindsUntil = kj::origin<kj::TimePoint>();
    kj::TimePoint pausesUntil = kj::origin<kj::TimePoint>();
    unsigned givenUp = 0;           // binds of it, one after the other
    bool open = false;              // there was a plan
    std::optional<Moment> refused;  // there was none at that moment
    std::string why;
    Error gaveUp;  // the last time

    std::size_t at(Stage stage) const { return counts[static_cast<std::size_t>(stage)]; }
    bool hasStarted() const { return at(Stage::Bound) > 0; }
    // Those that are on their way beyond filter.
    std::size_t passed() const { return at(Stage::Passed) + at(Stage::Binds) + at(Stage::Arrived); }
    void set(Member& member, Stage stage);
  };

  Group* find(const std::string& uid);
  Member& enter(const PodDemands& pod);
  Moment now() const { return {ledger_.changes(), underWay_.changes()}; }
  std::vector<Members::value_type*> due(const Key& key, Group& group,
                                        const std::string& first) const;
  std::string whyNotYet(const Key& key, const Group& group) const;
  bool plan(const Key& key, Group& group, const std::string& first, bool isAsked);
  std::vector<NodeId> nodesOf(const std::vector<const Named*>& asked) const;
  std::vector<PodTrial::Member> asksOf(const std::vector<Members::value_type*>& members,
                                       std::deque<std::vector<NodeId>>& nodes) const;
  void reserve(Group& group, Member& member, NodeId node);
  void leave(Group& group, Member& member, Stage stage);
  void dropPlan(Group& group);
  void dropOldPlans();
  void giveUp(Group& group, const Error& why);
  static Status whetherPlaced(const Group& group);
  void passBinds(Group& group);
  kj::Promise<Status> tooLate(std::string uid);

  const ClusterLedger& ledger_;
  PodsUnderWay& underWay_;
  kj::Timer& timer_;
  const kj::Duration hold_;
  std::map<Key, Group> groups_;
  std::map<std::string, Key> keys_;  // by UID
  std::set<Key> planned_;            // groups with pods that are Planned or Passed
  std::vector<std::string> opened_;  // to be told
  kj::TimePoint lookAt_ = kj::origin<kj::TimePoint>();
  Key lookedAt_;  // the last group of a look
};

}  // namespace qgpu
