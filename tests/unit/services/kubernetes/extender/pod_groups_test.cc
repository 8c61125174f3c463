// Pods that start together or not at all, over the verbs of kube-scheduler on a real scheduler.
#include "services/kubernetes/extender/pod_groups.h"

#include <gtest/gtest.h>
#include <simdjson.h>

#include "tests/unit/services/kubernetes/extender/extender_world.h"

namespace qgpu::pod_groups_test {
namespace {

using testing::ExtenderWorld;
using testing::NodeShape;
using PodSpec = ExtenderWorld::PodSpec;

constexpr const char* kBound = R"({"Error":""})";

struct PodGroupsTest : ::testing::Test {
  void begin(std::vector<NodeShape> nodes) {
    world.emplace(std::move(nodes));
    world->extender.setReady(true);
  }
  static PodSpec pod(const std::string& uid, const std::string& asks = "core=100",
                     std::uint32_t size = 3, const std::string& group = "train") {
    PodSpec spec{uid, {{"c", asks}}, "", "", ""};
    spec.group = group;
    spec.groupSize = size;
    return spec;
  }
  PodDemands demandsOf(const PodSpec& spec) {
    const auto demands = readPod(world->pod(spec), {});
    EXPECT_TRUE(demands.ok()) << demands.error().message;
    return *demands;
  }
  void waits(const PodSpec& spec) { world->extender.waiting().waits(demandsOf(spec)); }
  // The watch shows it as kube-scheduler's Binding made it.
  void seenBound(const PodSpec& spec) {
    PodDemands demands = demandsOf(spec);
    demands.nodeName = world->api.pods[spec.uid].node;
    world->extender.waiting().waitsNoMore(spec.uid);
    world->extender.bound(demands);
  }
  // The nodes on which it passes, as "a b".
  std::string passes(const PodSpec& spec) {
    const std::string answer = world->filter(spec, world->names());
    simdjson::dom::parser parser;
    const auto json = parser.parse(answer).value();
    why.clear();
    for (const auto failed : json["FailedAndUnresolvableNodes"].get_object()) {
      why[std::string(failed.key)] = std::string(failed.value.get_string().value());
    }
    EXPECT_EQ(json["FailedNodes"].get_object().value().size(), why.size())
        << "nobody is evicted for a group: " << answer;
    std::string nodes;
    for (const auto name : json["NodeNames"].get_array()) {
      nodes += (nodes.empty() ? "" : " ") + std::string(name.get_string().value());
    }
    return nodes;
  }
  kj::Promise<std::string> bind(const std::string& uid, const std::string& node) {
    return world->posted("bind", world->bindingArgs(uid, node));
  }
  std::string wait(kj::Promise<std::string>& promise) {
    return promise.wait(world->kj.waitScope());
  }
  bool isBound(const std::string& uid) { return !world->api.pods[uid].node.empty(); }
  bool isWoken(const std::string& uid) {
    return world->api.pods[uid].annotations.contains(kWokenAnnotation);
  }
  void pass(kj::Duration time) { world->kj.timer().afterDelay(time).wait(world->kj.waitScope()); }

  std::optional<ExtenderWorld> world;
  std::map<std::string, std::string> why;  // of the last passes()
};

TEST_F(PodGroupsTest, NoPodPassesBeforeAllOfItsGroupAreHere) {
  begin({{"a", 2}, {"b", 2}});
  for (const char* uid : {"1", "2"}) {
    waits(pod(uid));
    EXPECT_EQ(passes(pod(uid)), "");
    EXPECT_EQ(why["a"], std::string("GroupWaits: ") + uid + " of 3 pods of its group are here");
  }
  waits(pod("other", "core=100", 3, "another"));
  waits(pod("size", "core=100", 4));
  EXPECT_EQ(passes(pod("2")), "") << "pods of other groups don't count";
  waits(pod("3"));
  for (const char* uid : {"1", "2", "3"}) EXPECT_NE(passes(pod(uid)), "") << why["a"];
  world->extender.waiting().waitsNoMore("2");
  EXPECT_EQ(passes(pod("3")), "") << "one is gone";
}

TEST_F(PodGroupsTest, P5_NothingIsBoundBeforeAllHaveTheirRooms) {
  begin({{"a", 2}, {"b", 2}});
  std::map<std::string, kj::Promise<std::string>> binds;
  for (const char* uid : {"1", "2", "3"}) waits(pod(uid));
  for (const char* uid : {"1", "2"}) binds.emplace(uid, bind(uid, passes(pod(uid))));
  ASSERT_TRUE(world->served([&] { return world->nodes.tasks.size() == 2; }));
  pass(20 * kj::MILLISECONDS);
  for (const char* uid : {"1", "2", "3"}) EXPECT_FALSE(isBound(uid)) << uid;
  EXPECT_EQ(passes(pod("1")), "") << "its bind is under way";
  EXPECT_EQ(why["b"], "GroupWaits: it is being bound");
  binds.emplace("3", bind("3", passes(pod("3"))));
  for (auto& [uid, answer] : binds) EXPECT_EQ(wait(answer), kBound) << uid;
  for (const char* uid : {"1", "2", "3"}) EXPECT_TRUE(isBound(uid)) << uid;
  EXPECT_EQ(world->nodes.tasks.size(), 3U);
}

// Its node is as good as the plan's, and so the rest of the group finds no room.
TEST_F(PodGroupsTest, EachPassesOnTheNodeThatLeavesRoomForTheOthers) {
  begin({{"small", 1}, {"large", 2}});
  const PodSpec both = pod("both", "core=200", 2);
  const PodSpec one = pod("one", "core=100", 2);
  waits(one);
  waits(both);
  EXPECT_EQ(passes(one), "small");
  EXPECT_EQ(why["large"], "GroupWaits: its group has it on node small");
  EXPECT_EQ(passes(both), "large");
}

TEST_F(PodGroupsTest, WhereTooFewFitNobodyPassesUntilThereIsRoomForAll) {
  begin({{"a", 2}});
  const PodSpec single{"single", {{"c", "core=100"}}, "", "", ""};
  ASSERT_NE(passes(single), "");
  auto bound = bind("single", "a");
  ASSERT_EQ(wait(bound), kBound);
  for (const char* uid : {"1", "2"}) waits(pod(uid, "core=100", 2));
  EXPECT_EQ(passes(pod("1", "core=100", 2)), "");
  EXPECT_EQ(why["a"], "GroupWaits: 2 pods of its group are to start at once, and 1 fit");
  EXPECT_EQ(passes(pod("2", "core=100", 2)), "");
  pass(8 * WaitingPods::kLook);
  EXPECT_FALSE(isWoken("1"));
  world->join({"b", 1});
  for (const char* uid : {"1", "2"}) {
    EXPECT_TRUE(world->served([&] { return isWoken(uid); })) << uid;
    EXPECT_NE(passes(pod(uid, "core=100", 2)), "") << why["a"];
  }
}

TEST_F(PodGroupsTest, TheLastOneThatComesWakesTheOthers) {
  begin({{"a", 3}});
  for (const char* uid : {"1", "2"}) {
    waits(pod(uid));
    EXPECT_EQ(passes(pod(uid)), "");
  }
  pass(8 * WaitingPods::kLook);
  EXPECT_FALSE(isWoken("1")) << "there is room for each alone";
  waits(pod("3"));
  EXPECT_TRUE(world->served([&] { return isWoken("1") && isWoken("2"); }));
}

// What one has been promised is not promised to the other.
TEST_F(PodGroupsTest, TwoGroupsDontBlockEachOther) {
  begin({{"a", 2}, {"b", 1}});
  const auto of = [&](const char* uid) { return pod(uid, "core=100", 2, std::string(1, uid[0])); };
  for (const char* uid : {"x1", "x2", "y1", "y2"}) waits(of(uid));
  const std::string x1 = passes(of("x1"));
  ASSERT_NE(x1, "");
  EXPECT_EQ(passes(of("y1")), "") << "one card is left beside the plan of x";
  std::vector<kj::Promise<std::string>> binds;
  binds.push_back(bind("x1", x1));
  EXPECT_EQ(passes(of("y2")), "");
  binds.push_back(bind("x2", passes(of("x2"))));
  for (auto& answer : binds) EXPECT_EQ(wait(answer), kBound);
}

TEST_F(PodGroupsTest, WhereOneIsRefusedTheOthersGiveTheirRoomsBack) {
  begin({{"a", 2}, {"b", 2}});
  for (const char* uid : {"1", "2", "3"}) waits(pod(uid));
  std::vector<kj::Promise<std::string>> binds;
  for (const char* uid : {"1", "2"}) binds.push_back(bind(uid, passes(pod(uid))));
  ASSERT_TRUE(world->served([&] { return world->nodes.tasks.size() == 2; }));
  const std::string node = passes(pod("3"));
  world->nodes.refuses = true;
  auto last = bind("3", node);
  EXPECT_NE(wait(last), kBound);
  for (auto& answer : binds) {
    const std::string said = wait(answer);
    EXPECT_NE(said.find("another pod of its group was not bound: "), std::string::npos) << said;
  }
  EXPECT_TRUE(world->served([&] { return world->tasks() == 0; }));
  for (const char* uid : {"1", "2", "3"}) EXPECT_FALSE(isBound(uid)) << uid;
  world->nodes.refuses = false;
  std::vector<kj::Promise<std::string>> again;
  for (const char* uid : {"1", "2", "3"}) again.push_back(bind(uid, passes(pod(uid))));
  for (auto& answer : again) EXPECT_EQ(wait(answer), kBound);
}

TEST_F(PodGroupsTest, ABindThatNobodyJoinsGivesItsRoomBack) {
  begin({{"a", 3}});
  for (const char* uid : {"1", "2", "3"}) waits(pod(uid));
  auto answer = bind("1", passes(pod("1")));
  const std::string said = wait(answer);
  EXPECT_NE(said.find("1 of 3 pods of its group have their rooms, and no other came for 4 s"),
            std::string::npos)
      << said;
  EXPECT_TRUE(world->served([&] { return world->tasks() == 0; }));
  EXPECT_FALSE(isBound("1"));
}

TEST_F(PodGroupsTest, APodThatGoesMeanwhileLetsNobodyWaitForIt) {
  begin({{"a", 3}});
  for (const char* uid : {"1", "2", "3"}) waits(pod(uid));
  std::vector<kj::Promise<std::string>> binds;
  for (const char* uid : {"1", "2"}) binds.push_back(bind(uid, passes(pod(uid))));
  ASSERT_TRUE(world->served([&] { return world->nodes.tasks.size() == 2; }));
  world->extender.waiting().waitsNoMore("2");
  for (auto& answer : binds) {
    const std::string said = wait(answer);
    EXPECT_NE(said, kBound);
    EXPECT_EQ(said.find("no other came"), std::string::npos) << said;
  }
  EXPECT_TRUE(world->served([&] { return world->tasks() == 0; }));
}

TEST_F(PodGroupsTest, WhoeverComesOnceItHasStartedGoesAlone) {
  begin({{"a", 4}});
  for (const char* uid : {"1", "2", "3"}) waits(pod(uid));
  std::vector<kj::Promise<std::string>> binds;
  for (const char* uid : {"1", "2", "3"}) binds.push_back(bind(uid, passes(pod(uid))));
  for (auto& answer : binds) EXPECT_EQ(wait(answer), kBound);
  for (const char* uid : {"1", "2", "3"}) seenBound(pod(uid));
  waits(pod("4"));
  EXPECT_EQ(passes(pod("4")), "a");
  auto more = bind("4", "a");
  EXPECT_EQ(wait(more), kBound);
}

// As after a restart of the scheduler, or where one of a group that runs is made anew.
TEST_F(PodGroupsTest, WhoIsBoundAlreadyIsNotPlannedAgain) {
  begin({{"a", 1}});
  world->api.pods["1"].node = world->api.pods["2"].node = "elsewhere";
  for (const char* uid : {"1", "2"}) seenBound(pod(uid));
  waits(pod("3"));
  EXPECT_EQ(passes(pod("3")), "a") << "it needs no room but its own";
  auto answer = bind("3", "a");
  EXPECT_EQ(wait(answer), kBound);
}

// By what another scheduler's plugins leave of the nodes.
TEST_F(PodGroupsTest, APlanKeepsToTheNodesThatKubeSchedulerNames) {
  begin({{"a", 1}, {"b", 1}, {"c", 1}});
  for (const char* uid : {"1", "2"}) waits(pod(uid, "core=100", 2));
  const std::string only = world->filter(pod("1", "core=100", 2), {"a"});
  EXPECT_NE(only.find("2 pods of its group are to start at once, and 1 fit"), std::string::npos)
      << "the other is alike, so it may go nowhere else: " << only;
  const std::string two = world->filter(pod("1", "core=100", 2), {"b", "c"});
  EXPECT_NE(two.find(R"("NodeNames":["b"])"), std::string::npos) << two;
}

TEST_F(PodGroupsTest, NoPodIsNamedAsAVictimForAPartOfAGroup) {
  begin({{"a", 1}});
  world->filter({"off", {{"c", "memory=12 core-greedy=90"}}, "offline", "", ""}, {"a"});
  auto bound = bind("off", "a");
  ASSERT_EQ(wait(bound), kBound);
  PodSpec online = pod("1", "memory=10", 2);
  online.appClass = "online";
  online.priority = 10;
  const std::string args = R"({"Pod":)" + world->pod(online) +
                           R"(,"NodeNameToVictims":null,"NodeNameToMetaVictims":)"
                           R"({"a":{"Pods":[],"NumPDBViolations":0}}})";
  EXPECT_EQ(world->post("preempt", args), R"({"NodeNameToMetaVictims":{}})");
}

TEST_F(PodGroupsTest, C5_WhatIsAskedOfAPodThatTheApiServerHasNotIsNotKept) {
  begin({{"a", 2}});
  for (int i = 0; i < 4; ++i) EXPECT_EQ(passes(pod("forged" + std::to_string(i))), "");
  waits(pod("1"));
  EXPECT_EQ(passes(pod("1")), "");
  EXPECT_EQ(why["a"], "GroupWaits: 1 of 3 pods of its group are here");
  EXPECT_NE(world->extender.metrics().find("\nqgpu_pod_groups_waiting 1\n"), std::string::npos);
}

// Pods come, go, are tried and bound in any order; whatever happens, a group is bound whole.
TEST_F(PodGroupsTest, P5_NoGroupIsBoundInPartWhateverHappens) {
  std::size_t started = 0;
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE(seed);
    begin({{"a", 2}, {"b", 1}, {"c", 2}});
    std::uint64_t state = seed * 2 + 1;
    const auto below = [&](std::uint64_t bound) {
      state = state * 6364136223846793005ULL + 1442695040888963407ULL;
      return (state >> 33) % bound;
    };
    std::vector<kj::Promise<void>> answers;
    std::map<std::string, PodSpec> pods;
    for (int group = 0; group < 3; ++group) {
      const auto size = static_cast<std::uint32_t>(2 + below(2));
      for (std::uint32_t i = 0; i < size; ++i) {
        const std::string uid = std::to_string(group) + "-" + std::to_string(i);
        pods[uid] =
            pod(uid, below(3) == 0 ? "core=200" : "memory=8 core=50", size, std::to_string(group));
        waits(pods[uid]);
      }
    }
    for (int step = 0; step < 40; ++step) {
      auto at = pods.begin();
      std::advance(at, below(pods.size()));
      const auto& [uid, spec] = *at;
      if (isBound(uid)) continue;
      const std::string node = passes(spec);
      if (node.empty() || below(8) == 0) continue;
      world->nodes.refuses = below(8) == 0;
      answers.push_back(bind(uid, node).ignoreResult());
      if (below(2) == 0) pass(kj::MILLISECONDS);
    }
    // Nobody waits any longer for who has not come.
    for (const auto& [uid, spec] : pods) world->extender.waiting().waitsNoMore(uid);
    for (auto& answer : answers) answer.wait(world->kj.waitScope());
    std::map<std::string, std::pair<std::size_t, std::size_t>> groups;  // bound, of all
    for (const auto& [uid, spec] : pods) {
      groups[spec.group].first += isBound(uid) ? 1 : 0;
      ++groups[spec.group].second;
    }
    for (const auto& [name, counts] : groups) {
      EXPECT_TRUE(counts.first == 0 || counts.first == counts.second)
          << counts.first << " of " << counts.second << " of group " << name;
      started += counts.first != 0 ? 1 : 0;
    }
  }
  EXPECT_GT(started, 0U);
}

}  // namespace
}  // namespace qgpu::pod_groups_test
