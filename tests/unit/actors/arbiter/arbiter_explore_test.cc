// Every small state of the arbiter: all orders of events for up to three tasks, each answer judged
// by a checker of its own; then long walks of nonsense from a fixed list of seeds.
//
// A state that was met before, with as many events left, is not entered again: equal digests of
// arbiter and checker mean equal futures. Sanitizer builds go less deep, for time.

#include <gtest/gtest.h>
#include <iostream>
#include <optional>
#include <unordered_map>

#include "tests/unit/actors/arbiter/arbiter_checker.h"

namespace qgpu::arbiter_explore_test {
namespace {

#ifdef QGPU_SANITIZED
constexpr int kDepthCold = 4, kDepthWarm = 3, kDepthTwins = 3;
constexpr int kWalkLength = 2'000;
#else
constexpr int kDepthCold = 6, kDepthWarm = 6, kDepthTwins = 4;
constexpr int kWalkLength = 20'000;
#endif
constexpr std::uint64_t kSeeds[] = {1, 2, 3, 5, 8, 13, 21, 34};

using Kind = ArbiterEvent::Kind;

// Times small enough that a few events cross every one of them.
ArbiterConfig smallConfig(Policy policy, Nanos patience) {
  ArbiterConfig config;
  config.policy = policy;
  config.onlineIdle = millis(5);
  config.sliceMin = millis(2);
  config.sliceMax = millis(8);
  config.settleMax = millis(6);
  config.patience = patience;
  config.resumeCost = patience / 4;
  config.drainFor = patience * 4;
  return config;
}

ArbiterTask spec(std::uint64_t id, TaskClass taskClass, std::int64_t share) {
  ArbiterTask task;
  task.id = TaskId{id};
  task.taskClass = taskClass;
  task.share = Permille(share);
  return task;
}

constexpr TaskClass kOnline = TaskClass::Online;
constexpr TaskClass kOffline = TaskClass::Offline;
constexpr TaskClass kOrdinary = TaskClass::Ordinary;

struct Scenario {
  const char* name;
  Policy policy;
  std::vector<ArbiterTask> tasks;
  Nanos patience{0};   // of holds
  bool lends = false;  // memory of them leaves the card
};

std::vector<Scenario> scenarios() {
  const std::vector<ArbiterTask> ordinary{spec(1, kOrdinary, 300), spec(2, kOrdinary, 600),
                                          spec(3, kOrdinary, 100)};
  const std::vector<ArbiterTask> hybrid{spec(1, kOnline, 0), spec(2, kOffline, 300),
                                        spec(3, kOffline, 600)};
  const std::vector<ArbiterTask> two{spec(1, kOnline, 0), spec(2, kOnline, 0),
                                     spec(3, kOffline, 0)};
  std::vector<ArbiterTask> whole{spec(1, kOrdinary, 1000)};
  whole[0].exclusive = true;
  return {{"OrdinaryBestEffort", Policy::BestEffort, ordinary},
          {"OrdinaryFixedShare", Policy::FixedShare, ordinary},
          {"OrdinaryBurstShare", Policy::BurstShare, ordinary},
          {"HybridBestEffort", Policy::BestEffort, hybrid},
          {"HybridFixedShare", Policy::FixedShare, hybrid},
          {"HybridBurstShare", Policy::BurstShare, hybrid},
          {"PatientOrdinaryFixedShare", Policy::FixedShare, ordinary, millis(3)},
          {"PatientHybridBestEffort", Policy::BestEffort, hybrid, millis(3)},
          {"TwoOnlineOneOffline", Policy::BestEffort, two},
          {"OwnerAndBorrowers",
           Policy::BurstShare,
           {spec(1, kOffline, 500), spec(2, kOffline, 0), spec(3, kOffline, 0)}},
          {"WholeCard", Policy::FixedShare, whole},
          {"LentHybridBestEffort", Policy::BestEffort, hybrid, Nanos(0), true},
          {"LentHybridFixedShare", Policy::FixedShare, hybrid, Nanos(0), true},
          {"LentHybridBurstShare", Policy::BurstShare, hybrid, Nanos(0), true},
          {"DrainedHybridBestEffort", Policy::BestEffort, hybrid, millis(3), true},
          {"DrainedHybridFixedShare", Policy::FixedShare, hybrid, millis(3), true}};
}

class Explore : public testing::TestWithParam<Scenario> {
 protected:
  struct Node {
    Arbiter arbiter;
    ArbiterChecker checker;
  };

  void start(const ArbiterConfig& config) {
    config_ = config;
    path_.clear();
    Node root{Arbiter(config, kStart), ArbiterChecker(config, kStart)};
    for (const ArbiterTask& task : GetParam().tasks) {
      ArbiterEvent join = eventNow(Kind::Join, TaskId::kNone, kStart);
      join.spec = task;
      ASSERT_TRUE(enter(root, join));
    }
    root_.emplace(root);
  }

  static ArbiterEvent eventNow(Kind kind, TaskId task, Nanos now) {
    ArbiterEvent event;
    event.kind = kind;
    event.task = task;
    event.now = event.since = now;
    return event;
  }

  // Applies and judges one event; on failure, tells the whole path.
  bool enter(Node& node, const ArbiterEvent& event) {
    path_.push_back(event);
    const std::string failure = node.checker.run(node.arbiter, event, out_);
    ++events_;
    if (failure.empty()) return true;
    std::string story = failure + "\n";
    const std::size_t from = path_.size() > 40 ? path_.size() - 40 : 0;
    for (std::size_t i = from; i < path_.size(); ++i) story += "  " + describe(path_[i]) + "\n";
    ADD_FAILURE() << story;
    return false;
  }

  // The events that may come next, those that change nothing included.
  std::vector<ArbiterEvent> choices(const Node& node) const {
    std::vector<ArbiterEvent> all;
    const Nanos now = node.checker.now();
    for (const ArbiterTask& task : GetParam().tasks) {
      const ArbiterChecker::Seen* seen = node.checker.find(task.id);
      if (seen == nullptr) {
        all.push_back(eventNow(Kind::Join, TaskId::kNone, now));
        all.back().spec = task;
        all.push_back(eventNow(Kind::Busy, task.id, now));
        continue;
      }
      for (Kind kind : {Kind::Busy, Kind::Quiet, Kind::Died, Kind::Retired, Kind::Leave}) {
        all.push_back(eventNow(kind, task.id, now));
      }
      if (GetParam().lends) {
        all.push_back(eventNow(Kind::Away, task.id, now));
        all.push_back(eventNow(Kind::Back, task.id, now));
      }
      if (drains()) {
        all.push_back(eventNow(Kind::Drains, task.id, now));
        all.push_back(eventNow(Kind::DrainsNow, task.id, now));
      }
      for (std::uint32_t age : {0u, 1u}) {  // the last hold of the task, and an older epoch
        if (seen->holdEpoch <= age) continue;
        all.push_back(eventNow(Kind::Settled, task.id, now));
        all.back().epoch = seen->holdEpoch - age;
      }
    }
    for (Policy policy : {Policy::BestEffort, Policy::FixedShare, Policy::BurstShare}) {
      all.push_back(eventNow(Kind::SetPolicy, TaskId::kNone, now));
      all.back().policy = policy;
    }
    const Nanos due = node.arbiter.nextDeadline();
    if (due != kNever) all.push_back(eventNow(Kind::Expire, TaskId::kNone, due));
    all.push_back(eventNow(Kind::Expire, TaskId::kNone, now + micros(1'100)));
    all.push_back(eventNow(Kind::Expire, TaskId::kNone, now + millis(7)));
    return all;
  }

  void descend(const Node& node, int left) {
    if (left == 0 || HasFailure()) return;
    for (const ArbiterEvent& event : choices(node)) {
      Node next = node;
      if (!enter(next, event)) return;
      const std::uint64_t key = next.arbiter.digest() * 31 + next.checker.digest();
      std::uint8_t& seen = visited_[key];
      if (seen < left) {
        if (seen == 0) checkReplay();
        seen = static_cast<std::uint8_t>(left);
        descend(next, left - 1);
      }
      path_.pop_back();
      if (HasFailure()) return;
    }
  }

  const ArbiterChecker::Seen* settling() const {
    for (const ArbiterTask& task : GetParam().tasks) {
      const ArbiterChecker::Seen* seen = root_->checker.find(task.id);
      if (seen != nullptr && seen->settling) return seen;
    }
    return nullptr;
  }

  void expireNext() {
    const Nanos due = root_->arbiter.nextDeadline();
    if (due != kNever) enter(*root_, eventNow(Kind::Expire, TaskId::kNone, due));
  }

  void tell(const char* what, int depth) const {
    std::cout << what << " depth " << depth << ": " << visited_.size() << " states, " << events_
              << " events\n";
  }

  // Remembers some states by digest and compares what they and later equals answer next.
  void findTwins(const Node& node, int left) {
    if (left == 0 || HasFailure()) return;
    for (const ArbiterEvent& event : choices(node)) {
      Node next = node;
      if (!enter(next, event)) return;
      path_.pop_back();
      const std::uint64_t key = next.arbiter.digest();
      const auto met = firsts_.find(key);
      if (met == firsts_.end()) {
        if (firsts_.size() < 2'000) firsts_.emplace(key, next);
        findTwins(next, left - 1);
      } else {
        compare(met->second, next);
      }
      if (HasFailure()) return;
    }
  }

  void compare(const Node& one, const Node& two) {
    ++twins_;
    const Nanos due = one.arbiter.nextDeadline(), other = two.arbiter.nextDeadline();
    ASSERT_EQ(due == kNever, other == kNever);
    const bool waits = due != kNever;
    EXPECT_TRUE(!waits || due - one.checker.now() == other - two.checker.now());
    for (const TaskId id : {TaskId{1}, TaskId{2}, TaskId{3}}) {
      for (const Nanos step : {Nanos(0), micros(1'100), millis(7)}) {
        for (const Kind kind : {Kind::Busy, Kind::Quiet, Kind::Died, Kind::Expire}) {
          Node first = one, second = two;
          Decisions a, b;
          apply(first.arbiter, eventNow(kind, id, one.checker.now() + step), a);
          apply(second.arbiter, eventNow(kind, id, two.checker.now() + step), b);
          ASSERT_EQ(a.gates.size(), b.gates.size());
          for (std::size_t i = 0; i < a.gates.size(); ++i) a.gates[i].epoch = b.gates[i].epoch;
          EXPECT_EQ(a.gates, b.gates);
          EXPECT_EQ(a.notes, b.notes);
          ASSERT_EQ(first.arbiter.digest(), second.arbiter.digest())
              << describe(eventNow(kind, id, step));
        }
      }
    }
  }

  static bool drains() { return GetParam().lends && GetParam().patience > Nanos(0); }

  enum class Manner { Punctual, Nonsense };

  std::uint64_t draw(std::uint64_t below) {
    random_ = random_ * 6364136223846793005ull + 1442695040888963407ull;
    return (random_ >> 33) % below;
  }

  // One event of a walk: mostly work and time, now and then a death or a change of policy.
  ArbiterEvent pick(Manner manner) {
    const Node& node = *root_;
    const Nanos now = node.checker.now();
    const std::vector<ArbiterTask>& tasks = GetParam().tasks;
    const ArbiterTask& task = tasks[draw(tasks.size())];
    const ArbiterChecker::Seen* seen = node.checker.find(task.id);
    ArbiterEvent event = eventNow(Kind::Expire, task.id, now);
    const std::uint64_t lot = draw(100);
    if (seen == nullptr) {
      event = eventNow(Kind::Join, TaskId::kNone, now);
      event.spec = task;
    } else if (lot < 30) {
      event.kind = draw(3) == 0 ? Kind::Quiet : Kind::Busy;
    } else if (lot < 55) {
      event.kind = Kind::Settled;
      event.epoch = seen->holdEpoch - (draw(8) == 0 ? 1 : 0);
    } else if (lot < 60) {
      event.kind = Kind::Retired;
    } else if (lot < 62) {
      event.kind = draw(2) == 0 ? Kind::Died : Kind::Leave;
    } else if (lot < 63) {
      event = eventNow(Kind::SetPolicy, TaskId::kNone, now);
      event.policy = static_cast<Policy>(draw(3));
    } else if (lot < 67 && GetParam().lends) {
      constexpr Kind kKinds[] = {Kind::Away, Kind::Back, Kind::Drains, Kind::DrainsNow};
      event.kind = kKinds[draw(drains() ? 4 : 2)];
    } else {
      event.task = TaskId::kNone;
      const Nanos due = node.arbiter.nextDeadline();
      event.now = now + Nanos(static_cast<std::int64_t>(draw(3'000'000)));
      if (manner == Manner::Punctual || draw(4) != 0) event.now = std::min(event.now, due);
    }
    event.since = event.now;
    if (manner == Manner::Nonsense) {
      if (draw(8) == 0)
        event.since = Nanos(static_cast<std::int64_t>(draw(20'000'000))) - millis(10) + now;
      if (draw(50) == 0) event.now -= Nanos(static_cast<std::int64_t>(draw(5'000'000)));
    }
    return event;
  }

  void walk(std::uint64_t seed, Manner manner) {
    random_ = seed * 0x9e3779b97f4a7c15ull;
    for (int i = 0; i < kWalkLength; ++i) {
      if (!enter(*root_, pick(manner))) return;
    }
    EXPECT_EQ(replay(config_, kStart, path_), replay(config_, kStart, path_)) << "A13";
  }

  // A13, for a part of the states: the whole path on two fresh arbiters.
  void checkReplay() {
    if (visited_.size() % 16 != 0) return;
    EXPECT_EQ(replay(config_, kStart, path_), replay(config_, kStart, path_)) << "A13";
  }

  static constexpr Nanos kStart = seconds(1);
  ArbiterConfig config_;
  std::optional<Node> root_;
  std::vector<ArbiterEvent> path_;
  Decisions out_;
  std::unordered_map<std::uint64_t, std::uint8_t> visited_;
  std::unordered_map<std::uint64_t, Node> firsts_;  // by digest of the arbiter
  std::uint64_t twins_ = 0;
  std::uint64_t events_ = 0;
  std::uint64_t random_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Casts, Explore, testing::ValuesIn(scenarios()),
                         [](const auto& param) { return std::string(param.param.name); });

TEST_P(Explore, EveryOrderOfAFewEventsKeepsTheInvariants) {
  start(smallConfig(GetParam().policy, GetParam().patience));
  descend(*root_, kDepthCold);
  tell("cold", kDepthCold);
}

// The same from states that lie some way in: all want it and the first is being held; the next
// runs; and the first never settled.
TEST_P(Explore, EveryOrderOfAFewEventsFromABusyCardKeepsTheInvariants) {
  for (int warmth = 0; warmth < 3 && !HasFailure(); ++warmth) {
    start(smallConfig(GetParam().policy, GetParam().patience));
    for (const ArbiterTask& task : GetParam().tasks) {
      if (task.taskClass == TaskClass::Online) continue;
      ASSERT_TRUE(enter(*root_, eventNow(Kind::Busy, task.id, root_->checker.now())));
    }
    for (int i = 0; i < 4 && settling() == nullptr; ++i) expireNext();
    if (warmth == 1 && settling() != nullptr) {
      const ArbiterChecker::Seen held = *settling();
      ArbiterEvent settled =
          eventNow(Kind::Settled, held.spec.id, root_->checker.now() + micros(300));
      settled.epoch = held.holdEpoch;
      ASSERT_TRUE(enter(*root_, settled));
    }
    if (warmth == 2 && settling() != nullptr) expireNext();
    visited_.clear();
    descend(*root_, kDepthWarm - 1);
    tell("warm", kDepthWarm - 1);
  }
}

// What the merging of states rests on.
TEST_P(Explore, EqualDigestsMeanEqualFutures) {
  start(smallConfig(GetParam().policy, GetParam().patience));
  findTwins(*root_, kDepthTwins);
  EXPECT_GT(twins_, 0u);
}

// A clock that is never late and reports that are never stale, so that the bounds of A4, A8 and A9
// are exact over a long run.
TEST_P(Explore, LongPunctualWalksKeepTheInvariantsExactly) {
  for (std::uint64_t seed : kSeeds) {
    start(smallConfig(GetParam().policy, GetParam().patience));
    walk(seed, Manner::Punctual);
    EXPECT_EQ(root_->checker.slack(), Nanos(0));
    if (HasFailure()) return;
  }
}

// Late timers, times that run backwards, reports from the future and from long ago.
TEST_P(Explore, LongWalksOfNonsenseKeepTheInvariants) {
  for (std::uint64_t seed : kSeeds) {
    start(smallConfig(GetParam().policy, GetParam().patience));
    walk(seed, Manner::Nonsense);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace qgpu::arbiter_explore_test
