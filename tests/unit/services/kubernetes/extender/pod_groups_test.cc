// Pods that start together or not at all, over the verbs of kube-scheduler on a real scheduler.
#include "services/kubernetes/extender/pod_groups.h"

#include <algorithm>
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
  void begin(std::vector<NodeShape> nodes, kj::Duration hold = PodGroups::kHold) {
    world.emplace(std::move(nodes), Score::Binpack, PodRules{}, hold);
    world->extender.setReady(true);
  }
  static PodSpec pod(const std::string& uid, std::uint32_t size = 3,
                     const std::string& asks = "core=100", const std::string& group = "train") {
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
  void waits(const PodSpec& spec) { world->extender.waits(demandsOf(spec)); }
  void wait(const std::vector<PodSpec>& pods) {
    for (const PodSpec& spec : pods) waits(spec);
  }
  // The watch shows it as kube-scheduler's Binding made it.
  void seenBound(const PodSpec& spec) {
    PodDemands demands = demandsOf(spec);
    demands.nodeName = world->api.pods[spec.uid].node;
    world->extender.bound(demands);
  }
  // Of these nodes, all without any, the ones on which it passes, as "a b".
  std::string passes(const PodSpec& spec, std::vector<std::string> named = {}) {
    const std::string answer = world->filter(spec, named.empty() ? world->names() : named);
    simdjson::dom::parser parser;
    const auto json = parser.parse(answer).value();
    why.clear();
    for (const auto failed : json["FailedAndUnresolvableNodes"].get_object()) {
      why[std::string(failed.key)] = std::string(failed.value.get_string().value());
    }
    const bool together = std::any_of(why.begin(), why.end(), [](const auto& one) {
      return one.second.starts_with("GroupWaits");
    });
    if (together) {
      EXPECT_EQ(json["FailedNodes"].get_object().value().size(), why.size())
          << "nobody is evicted for a group: " << answer;
    }
    std::string nodes;
    for (const auto name : json["NodeNames"].get_array()) {
      nodes += (nodes.empty() ? "" : " ") + std::string(name.get_string().value());
    }
    return nodes;
  }
  // kube-scheduler tries each, and each again but for the last, which found the others asked.
  std::map<std::string, std::string> allPass(const std::vector<PodSpec>& pods) {
    std::map<std::string, std::string> nodes;
    for (const PodSpec& spec : pods) nodes[spec.uid] = passes(spec);
    for (const PodSpec& spec : pods) {
      std::string& node = nodes[spec.uid];
      if (node.empty()) node = passes(spec);
      EXPECT_NE(node, "") << spec.uid << ": " << (why.empty() ? "" : why.begin()->second);
    }
    return nodes;
  }
  void bind(const std::string& uid, const std::string& node) {
    binds.insert_or_assign(uid, world->posted("bind", world->bindingArgs(uid, node)));
  }
  std::string said(const std::string& uid) {
    return binds.extract(uid).mapped().wait(world->kj.waitScope());
  }
  void bindAll(const std::vector<PodSpec>& pods) {
    for (const auto& [uid, node] : allPass(pods)) bind(uid, node);
    for (const PodSpec& spec : pods) EXPECT_EQ(said(spec.uid), kBound);
  }
  bool isBound(const std::string& uid) { return !world->api.pods[uid].node.empty(); }
  bool isDecided(const std::string& uid) {
    return world->api.pods[uid].annotations.contains(kAssignedAnnotation);
  }
  bool isWoken(const std::string& uid) {
    return world->api.pods[uid].annotations.contains(kWokenAnnotation);
  }
  void pass(kj::Duration time) { world->kj.timer().afterDelay(time).wait(world->kj.waitScope()); }
  bool allGiven(const std::vector<PodSpec>& pods) {
    return world->served([&] {
      return world->tasks() == 0 && std::none_of(pods.begin(), pods.end(), [&](const auto& one) {
               return isBound(one.uid) || isDecided(one.uid);
             });
    });
  }

  std::optional<ExtenderWorld> world;
  std::map<std::string, kj::Promise<std::string>> binds;
  std::map<std::string, std::string> why;  // of the last passes()
};

TEST_F(PodGroupsTest, NoPodPassesBeforeAllOfItsGroupAreHere) {
  begin({{"a", 2}, {"b", 2}});
  for (const char* uid : {"1", "2"}) {
    waits(pod(uid));
    EXPECT_EQ(passes(pod(uid)), "");
    EXPECT_EQ(why["a"], std::string("GroupWaits: ") + uid + " of 3 pods of its group are here");
  }
  waits(pod("other", 3, "core=100", "another"));
  waits(pod("size", 4));
  EXPECT_EQ(passes(pod("2")), "") << "pods of other groups don't count";
  waits(pod("3"));
  for (const char* uid : {"3", "2", "1"}) EXPECT_NE(passes(pod(uid)), "") << why["a"];
  world->extender.gone("2");
  EXPECT_EQ(passes(pod("3")), "") << "one is gone";
}

// It may be that kube-scheduler has no node for it at all.
TEST_F(PodGroupsTest, NoPodPassesBeforeKubeSchedulerHasANodeForEach) {
  begin({{"a", 3}});
  wait({pod("1"), pod("2"), pod("3")});
  for (const char* uid : {"1", "2", "1"}) EXPECT_EQ(passes(pod(uid)), "");
  EXPECT_EQ(why["a"],
            "GroupWaits: 2 of 3 pods of its group have a node by kube-scheduler's other rules");
  EXPECT_TRUE(world->served([&] { return isWoken("3"); })) << "whom nobody asked about";
  EXPECT_FALSE(isWoken("1"));
  EXPECT_EQ(passes(pod("3")), "a");
}

TEST_F(PodGroupsTest, P5_NothingIsBoundBeforeAllHaveTheirRooms) {
  begin({{"a", 2}, {"b", 2}});
  const std::vector<PodSpec> pods = {pod("1"), pod("2"), pod("3")};
  wait(pods);
  const auto nodes = allPass(pods);
  for (const char* uid : {"1", "2"}) bind(uid, nodes.at(uid));
  ASSERT_TRUE(world->served([&] { return isDecided("1") && isDecided("2"); }));
  pass(20 * kj::MILLISECONDS);
  for (const PodSpec& one : pods) EXPECT_FALSE(isBound(one.uid)) << one.uid;
  EXPECT_EQ(passes(pod("1")), "") << "its bind is under way";
  EXPECT_EQ(why["b"], "GroupWaits: it is being bound");
  bind("3", nodes.at("3"));
  for (const PodSpec& one : pods) {
    EXPECT_EQ(said(one.uid), kBound) << one.uid;
    EXPECT_TRUE(isBound(one.uid)) << one.uid;
  }
  EXPECT_EQ(world->nodes.tasks.size(), 3U);
}

// Its node is as good as the plan's, and so the rest of the group finds no room.
TEST_F(PodGroupsTest, EachPassesOnTheNodeThatLeavesRoomForTheOthers) {
  begin({{"small", 1}, {"large", 2}});
  const PodSpec both = pod("both", 2, "core=200");
  const PodSpec one = pod("one", 2);
  wait({one, both});
  EXPECT_EQ(passes(both), "");
  EXPECT_EQ(passes(one), "small");
  EXPECT_EQ(why["large"], "GroupWaits: its group has it on node small");
  EXPECT_EQ(passes(both), "large");
}

TEST_F(PodGroupsTest, WhereTooFewFitNobodyPassesUntilThereIsRoomForAll) {
  begin({{"a", 2}});
  const PodSpec single{"single", {{"c", "core=100"}}, "", "", ""};
  ASSERT_EQ(passes(single), "a");
  bind("single", "a");
  ASSERT_EQ(said("single"), kBound);
  const std::vector<PodSpec> pods = {pod("1", 2), pod("2", 2)};
  wait(pods);
  for (const PodSpec& one : pods) EXPECT_EQ(passes(one), "");
  EXPECT_EQ(why["a"], "GroupWaits: 2 pods of its group are to start at once, and 1 fit");
  pass(8 * WaitingPods::kLook);
  EXPECT_FALSE(isWoken("1"));
  world->join({"b", 1});
  for (const PodSpec& one : pods) {
    EXPECT_TRUE(world->served([&] { return isWoken(one.uid); })) << one.uid;
    EXPECT_NE(passes(one), "") << why["a"];
  }
}

TEST_F(PodGroupsTest, TheLastOneThatIsAskedAboutWakesTheOthers) {
  begin({{"a", 3}});
  for (const char* uid : {"1", "2"}) {
    waits(pod(uid));
    EXPECT_EQ(passes(pod(uid)), "");
  }
  pass(8 * WaitingPods::kLook);
  EXPECT_FALSE(isWoken("1")) << "there is room for each alone";
  waits(pod("3"));
  EXPECT_EQ(passes(pod("3")), "a");
  EXPECT_TRUE(world->served([&] { return isWoken("1") && isWoken("2"); }));
}

// What one has been promised is not promised to the other.
TEST_F(PodGroupsTest, TwoGroupsDontBlockEachOther) {
  begin({{"a", 2}, {"b", 1}});
  const auto of = [&](const char* uid) { return pod(uid, 2, "core=100", std::string(1, uid[0])); };
  wait({of("x1"), of("x2"), of("y1"), of("y2")});
  EXPECT_EQ(passes(of("x1")), "");
  EXPECT_EQ(passes(of("y1")), "");
  const std::string x2 = passes(of("x2"));
  ASSERT_NE(x2, "");
  EXPECT_EQ(passes(of("y2")), "");
  EXPECT_EQ(why["a"], "GroupWaits: 2 pods of its group are to start at once, and 1 fit");
  bind("x2", x2);
  EXPECT_EQ(passes(of("y1")), "");
  bind("x1", passes(of("x1")));
  for (const char* uid : {"x1", "x2"}) EXPECT_EQ(said(uid), kBound);
}

TEST_F(PodGroupsTest, WhereOneIsRefusedTheOthersGiveTheirRoomsBack) {
  begin({{"a", 2}, {"b", 2}});
  const std::vector<PodSpec> pods = {pod("1"), pod("2"), pod("3")};
  wait(pods);
  const auto nodes = allPass(pods);
  for (const char* uid : {"1", "2"}) bind(uid, nodes.at(uid));
  ASSERT_TRUE(world->served([&] { return isDecided("1") && isDecided("2"); }));
  world->nodes.refuses = true;
  bind("3", nodes.at("3"));
  EXPECT_NE(said("3"), kBound);
  for (const char* uid : {"1", "2"}) {
    EXPECT_NE(said(uid).find("another pod of its group was not bound: "), std::string::npos);
  }
  EXPECT_TRUE(allGiven(pods));
  world->nodes.refuses = false;
  bindAll(pods);
}

// As on a server that refuses it, which is known before anything is bound.
TEST_F(PodGroupsTest, WhereADecisionCantBeWrittenNobodyIsBound) {
  begin({{"a", 3}});
  const std::vector<PodSpec> pods = {pod("1"), pod("2"), pod("3")};
  wait(pods);
  const auto nodes = allPass(pods);
  pass(2 * WaitingPods::kLook);  // who was woken by the last one
  world->api.annotateFails = {std::nullopt, ErrorCode::Denied};
  for (const auto& [uid, node] : nodes) bind(uid, node);
  for (const PodSpec& one : pods) EXPECT_NE(said(one.uid), kBound) << one.uid;
  EXPECT_TRUE(allGiven(pods));
}

TEST_F(PodGroupsTest, WhoLosesHisRoomBeforeTheLastOneCameStopsThemAll) {
  begin({{"a", 2}});
  const std::vector<PodSpec> pods = {pod("1", 2), pod("2", 2)};
  wait(pods);
  const auto nodes = allPass(pods);
  bind("1", nodes.at("1"));
  ASSERT_TRUE(world->served([&] { return isDecided("1"); }));
  Peer peer;
  peer.mayChange = true;
  const auto ended =
      world->actor.ask(peer, [](schema::ClusterRequest::Builder one) { one.setDelete(1); })
          .wait(world->kj.waitScope());
  ASSERT_TRUE(ended.ok());
  bind("2", nodes.at("2"));
  for (const PodSpec& one : pods) {
    EXPECT_NE(said(one.uid).find("was taken back before it was bound"), std::string::npos);
  }
  EXPECT_TRUE(allGiven(pods));
}

// Whoever did not come has to be asked about before the others are tried again.
TEST_F(PodGroupsTest, BindsThatNotAllJoinGiveTheirRoomsBack) {
  begin({{"a", 3}}, 1500 * kj::MILLISECONDS);
  const std::vector<PodSpec> pods = {pod("1"), pod("2"), pod("3")};
  wait(pods);
  const auto nodes = allPass(pods);
  for (const char* uid : {"1", "2"}) bind(uid, nodes.at(uid));
  for (const char* uid : {"1", "2"}) {
    EXPECT_NE(said(uid).find(" of 3 pods of its group came to be bound within 1500 ms"),
              std::string::npos);
  }
  EXPECT_TRUE(allGiven(pods));
  EXPECT_EQ(passes(pod("1")), "");
  EXPECT_EQ(why["a"],
            "GroupWaits: 2 of 3 pods of its group have a node by kube-scheduler's other rules");
  EXPECT_TRUE(world->served([&] { return isWoken("3"); }));
}

TEST_F(PodGroupsTest, AGroupThatGivesUpAgainPauses) {
  begin({{"a", 2}}, 100 * kj::MILLISECONDS);
  const std::vector<PodSpec> pods = {pod("1", 2), pod("2", 2)};
  wait(pods);
  for (int round = 0; round < 2; ++round) {
    bind("1", allPass(pods).at("1"));
    EXPECT_NE(said("1"), kBound);
  }
  EXPECT_EQ(passes(pod("1", 2)), "");
  EXPECT_TRUE(why["a"].starts_with("GroupWaits: its group did not come together, and is tried "))
      << why["a"];
}

TEST_F(PodGroupsTest, APodThatGoesMeanwhileLetsNobodyWaitForIt) {
  begin({{"a", 3}});
  const std::vector<PodSpec> pods = {pod("1"), pod("2"), pod("3")};
  wait(pods);
  const auto nodes = allPass(pods);
  for (const char* uid : {"1", "2"}) bind(uid, nodes.at(uid));
  ASSERT_TRUE(world->served([&] { return isDecided("1") && isDecided("2"); }));
  world->extender.gone("2");
  EXPECT_NE(said("1").find("a pod of its group is gone"), std::string::npos);
  EXPECT_NE(said("2").find("the pod is gone"), std::string::npos);
  EXPECT_TRUE(allGiven(pods));
}

TEST_F(PodGroupsTest, WhoeverComesOnceItHasStartedGoesAlone) {
  begin({{"a", 4}});
  const std::vector<PodSpec> pods = {pod("1"), pod("2"), pod("3")};
  wait(pods);
  bindAll(pods);
  for (const PodSpec& one : pods) seenBound(one);
  world->extender.gone("1");  // it is over
  waits(pod("4"));
  bindAll({pod("4")});
}

TEST_F(PodGroupsTest, ASpareOneIsLeftAsideUntilTheGroupHasStarted) {
  begin({{"a", 3}});
  const std::vector<PodSpec> pods = {pod("1", 2), pod("2", 2)};
  wait(pods);
  waits(pod("0", 2));
  EXPECT_EQ(passes(pod("1", 2)), "");
  const std::string first = passes(pod("0", 2));
  EXPECT_EQ(passes(pod("1", 2)), "a");
  EXPECT_EQ(passes(pod("2", 2)), "");
  EXPECT_EQ(why["a"], "GroupWaits: the others of its group are being bound");
  bind("0", first);
  bind("1", "a");
  for (const char* uid : {"0", "1"}) EXPECT_EQ(said(uid), kBound);
  EXPECT_TRUE(world->served([&] { return isWoken("2"); }));
  bindAll({pod("2", 2)});
}

// As after a restart of the scheduler, or where one of a group that runs is made anew. What is
// asked of one that is bound already, by whomever, changes nothing.
TEST_F(PodGroupsTest, WhoIsBoundAlreadyIsNotPlannedAgain) {
  begin({{"a", 1}});
  for (const char* uid : {"1", "2"}) {
    world->pod(pod(uid));
    world->api.pods[uid].node = "elsewhere";
    seenBound(pod(uid));
  }
  EXPECT_EQ(passes(pod("1")), "a");
  bind("1", "a");
  EXPECT_NE(said("1").find("is bound already, to node elsewhere"), std::string::npos);
  waits(pod("3"));
  pass(2 * PodGroups::kLook);
  EXPECT_EQ(passes(pod("3")), "a") << "it needs no room but its own";
  bindAll({pod("3")});
}

// By what other rules leave of the nodes, for each pod.
TEST_F(PodGroupsTest, APlanKeepsToTheNodesThatKubeSchedulerNames) {
  begin({{"a", 1}, {"b", 1}, {"c", 1}});
  wait({pod("1", 2), pod("2", 2)});
  EXPECT_EQ(passes(pod("1", 2), {"a"}), "");
  EXPECT_EQ(passes(pod("2", 2), {"a"}), "");
  EXPECT_EQ(why["a"], "GroupWaits: 2 pods of its group are to start at once, and 1 fit");
  EXPECT_EQ(passes(pod("2", 2), {"b"}), "b");
  EXPECT_EQ(passes(pod("1", 2), {"a"}), "a");
}

// Its place may be another's by the time that it comes: then there is another plan.
TEST_F(PodGroupsTest, APlanThatHoldsNoMoreIsMadeAnewAroundThoseThatPassed) {
  begin({{"a", 1}, {"b", 1}, {"c", 1}});
  wait({pod("1", 2), pod("2", 2)});
  EXPECT_EQ(passes(pod("1", 2)), "");
  EXPECT_EQ(passes(pod("2", 2)), "a");
  const PodSpec single{"single", {{"c", "core=100"}}, "", "", ""};
  passes(single);
  bind("single", "b");
  ASSERT_EQ(said("single"), kBound);
  EXPECT_EQ(passes(pod("1", 2)), "c");
  bind("1", "c");
  bind("2", "a");
  for (const char* uid : {"1", "2"}) EXPECT_EQ(said(uid), kBound);
}

TEST_F(PodGroupsTest, NoPodIsNamedAsAVictimForAPartOfAGroup) {
  begin({{"a", 1}});
  world->filter({"off", {{"c", "memory=12 core-greedy=90"}}, "offline", "", ""}, {"a"});
  bind("off", "a");
  ASSERT_EQ(said("off"), kBound);
  PodSpec online = pod("1", 2, "memory=10");
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

// Pods come, go, are tried and bound in any order, nodes and the API server refuse, and some never
// come: a group has all of so many bound, or none.
TEST_F(PodGroupsTest, P5_NoGroupIsBoundInPartWhateverHappens) {
  std::size_t started = 0;
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE(seed);
    binds.clear();
    begin({{"a", 2}, {"b", 1}, {"c", 2}}, 200 * kj::MILLISECONDS);
    const auto allSaid = [&] {
      while (!binds.empty()) said(std::string(binds.begin()->first));
    };
    std::uint64_t state = seed * 2 + 1;
    const auto below = [&](std::uint64_t bound) {
      state = state * 6364136223846793005ULL + 1442695040888963407ULL;
      return (state >> 33) % bound;
    };
    std::map<std::string, PodSpec> pods;
    for (int group = 0; group < 3; ++group) {
      const auto size = static_cast<std::uint32_t>(2 + below(2));
      for (std::uint32_t i = 0; i < size + below(2); ++i) {
        const std::string uid = std::to_string(group) + "-" + std::to_string(i);
        pods[uid] =
            pod(uid, size, below(3) == 0 ? "core=200" : "memory=8 core=50", std::to_string(group));
        waits(pods[uid]);
      }
    }
    for (int step = 0; step < 60; ++step) {
      auto at = pods.begin();
      std::advance(at, below(pods.size()));
      const auto& [uid, spec] = *at;
      if (below(12) == 0) allSaid();
      if (below(30) == 0) world->extender.gone(uid);
      if (below(10) == 0) isBound(uid) ? seenBound(spec) : waits(spec);
      if (isBound(uid) || binds.contains(uid)) continue;
      const std::string node = passes(spec);
      world->nodes.refuses = below(8) == 0;
      if (below(8) == 0) world->api.annotateFails = {ErrorCode::Denied};
      if (node.empty() || below(8) == 0) continue;
      bind(uid, node);
      if (below(2) == 0) pass(kj::MILLISECONDS);
    }
    allSaid();
    std::map<std::string, std::pair<std::size_t, std::size_t>> groups;  // bound, wanted
    for (const auto& [uid, spec] : pods) {
      groups[spec.group].first += isBound(uid) ? 1 : 0;
      groups[spec.group].second = spec.groupSize;
    }
    for (const auto& [name, counts] : groups) {
      EXPECT_TRUE(counts.first == 0 || counts.first >= counts.second)
          << counts.first << " of " << counts.second << " of group " << name;
      started += counts.first != 0 ? 1 : 0;
    }
  }
  EXPECT_GT(started, 0U);
}

}  // namespace
}  // namespace qgpu::pod_groups_test
