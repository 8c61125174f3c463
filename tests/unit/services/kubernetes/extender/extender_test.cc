// The verbs of kube-scheduler over real HTTP on a real scheduler.
#include <algorithm>
#include <gtest/gtest.h>
#include <simdjson.h>
#include <sys/resource.h>

#include "services/kubernetes/pods/pod_names.h"
#include "tests/unit/services/kubernetes/extender/extender_world.h"

namespace qgpu::extender_test {
namespace {

using testing::ExtenderWorld;
using testing::NodeShape;
using PodSpec = ExtenderWorld::PodSpec;

constexpr const char* kBound = R"({"Error":""})";
const std::string kUid = "0a1b2c3d-0000-4000-8000-000000000001";

PodSpec ordinary(const std::string& uid, const std::string& asks = "memory=4 core=30") {
  return {uid, {{"c", asks}}, "", "", ""};
}

std::map<std::string, std::int64_t> scores(const std::string& answer) {
  simdjson::dom::parser parser;
  std::map<std::string, std::int64_t> all;
  for (const auto one : parser.parse(answer).get_array()) {
    all[std::string(one["Host"].get_string().value())] = one["Score"].get_int64().value();
  }
  return all;
}

TEST(Extender, FilterKeepsTheNodesWithRoomAndSaysWhyOfTheOthers) {
  ExtenderWorld world({{"a"}, {"b", 1, 2}, {"none", 0}});
  const std::string hopeless = R"x({"b":"CardTooSmall: card 0 CardTooSmall (has 2 GiB in all)",)x"
                               R"("none":"NoQgpuNode: the node has no cards of qgpu",)"
                               R"("stranger":"NoQgpuNode: the node has no cards of qgpu"})";
  EXPECT_EQ(world.filter(ordinary(kUid), {"a", "b", "none", "stranger"}),
            R"({"Nodes":null,"NodeNames":["a"],"FailedNodes":)" + hopeless +
                R"(,"FailedAndUnresolvableNodes":)" + hopeless + R"(,"Error":""})");
  EXPECT_EQ(world.tasks(), 0U) << "filter has no effect";
  EXPECT_TRUE(world.api.pods[kUid].annotations.empty());
}

TEST(Extender, ANodeThatIsKnownToGiveNoneHereSaysWhy) {
  ExtenderWorld world({{"a"}});
  world.extender.setWhyNot([](const std::string& node) {
    return node == "claims" ? std::string("it gives \"claims\"") : std::string();
  });
  const std::string others = R"x({"claims":"NoQgpuNode: it gives \"claims\"",)x"
                             R"("none":"NoQgpuNode: the node has no cards of qgpu"})";
  EXPECT_EQ(world.filter(ordinary(kUid), {"a", "claims", "none"}),
            R"({"Nodes":null,"NodeNames":["a"],"FailedNodes":)" + others +
                R"(,"FailedAndUnresolvableNodes":)" + others + R"(,"Error":""})");
}

TEST(Extender, APodThatNamesModelsRunsOnSuchCardsAlone) {
  ExtenderWorld world({{"t4", 1, 16, true, 0, "Tesla T4"}, {"a10", 1, 24, true, 0, "A10"}});
  PodSpec pod = ordinary(kUid);
  pod.models = "V100, A10";
  const std::string other =
      R"x({"t4":"ModelMismatch: card 0 ModelMismatch (is of another model)"})x";
  EXPECT_EQ(world.filter(pod, {"t4", "a10"}),
            R"({"Nodes":null,"NodeNames":["a10"],"FailedNodes":)" + other +
                R"(,"FailedAndUnresolvableNodes":)" + other + R"(,"Error":""})");
  EXPECT_NE(world.post("bind", world.bindingArgs(kUid, "t4")).find("ModelMismatch"),
            std::string::npos);
  EXPECT_EQ(world.post("bind", world.bindingArgs(kUid, "a10")), kBound);
  EXPECT_EQ(world.scheduler.task(1)->spec.models, (std::vector<std::string>{"A10", "V100"}));
}

// One of its containers would fit the other node.
TEST(Extender, ModelsAreOfAllContainersOfAPod) {
  ExtenderWorld world({{"t4", 2, 16, true, 0, "Tesla T4"}, {"a10", 2, 16, true, 0, "A10"}});
  PodSpec pod{kUid, {{"x", "memory=10 core=30"}, {"y", "memory=10 core=30"}}, "", "", ""};
  pod.models = "A10";
  EXPECT_NE(world.filter(pod, {"t4", "a10"}).find(R"("NodeNames":["a10"])"), std::string::npos);
  EXPECT_EQ(world.post("bind", world.bindingArgs(kUid, "a10")), kBound);
}

TEST(Extender, FilterGivesBackWholeNodesAsTheyCame) {
  ExtenderWorld world({{"a"}, {"b", 0}});
  const std::string node =
      R"({"metadata":{"name":"a","labels":{"x":"\u00e9"}},"spec": {"n":1.50}})";
  const std::string body = R"({"Pod":)" + world.pod(ordinary(kUid)) +
                           R"(,"Nodes":{"items":[{"metadata":{"name":"b"}},)" + node +
                           R"(]},"NodeNames":null})";
  EXPECT_EQ(world.post("filter", body),
            R"({"Nodes":{"metadata":{},"items":[)" + node +
                R"(]},"NodeNames":null,"FailedNodes":)"
                R"({"b":"NoQgpuNode: the node has no cards of qgpu"},)"
                R"("FailedAndUnresolvableNodes":)"
                R"({"b":"NoQgpuNode: the node has no cards of qgpu"},"Error":""})");
}

TEST(Extender, APodThatBreaksARuleFitsNowhereAndIsToldWhy) {
  ExtenderWorld world({{"a"}});
  const std::string answer = world.filter(ordinary(kUid, "memory=4 core=150"), {"a"});
  EXPECT_NE(answer.find(R"("FailedAndUnresolvableNodes":{"a":"InvalidRequest: container 'c': )"),
            std::string::npos)
      << answer;
  ASSERT_EQ(world.api.events.size(), 1U);
  EXPECT_EQ(world.api.events[0].reason, EventReason::Rejected);
  EXPECT_EQ(world.api.events[0].pod.uid, kUid);
}

TEST(Extender, APodThatAsksNothingOfOursPassesAndIsBoundByOthers) {
  ExtenderWorld world({{"a"}});
  const std::string answer = world.filter({kUid, {{"c", ""}}, "", "", ""}, {"a", "stranger"});
  EXPECT_NE(answer.find(R"("NodeNames":["a","stranger"])"), std::string::npos) << answer;
  const std::string refused = world.post("bind", world.bindingArgs(kUid, "stranger"));
  EXPECT_NE(refused.find("asks for nothing of qgpu"), std::string::npos) << refused;
  EXPECT_EQ(world.api.pods[kUid].node, "");
  EXPECT_EQ(world.tasks(), 0U);
  EXPECT_TRUE(world.api.events.empty());
}

// kube-scheduler leaves its bind to us, as it names a resource of ours.
TEST(Extender, APodThatAsksForZeroIsBound) {
  ExtenderWorld world({{"a"}});
  world.filter({kUid, {{"c", "memory=0"}}, "", "", ""}, {"a", "stranger"});
  EXPECT_EQ(world.post("bind", world.bindingArgs(kUid, "stranger")), kBound);
  EXPECT_EQ(world.api.pods[kUid].node, "stranger");
  EXPECT_EQ(world.tasks(), 0U);
}

// Whoever is on the scheduler's machine may ask what he likes.
TEST(Extender, AForgedFilterMakesNobodyElsesPodOursToBind) {
  ExtenderWorld world({{"a"}});
  world.create({kUid, {{"c", ""}}, "", "", ""});  // somebody's, who wants nothing of us
  for (const std::string& forged : {std::string(), std::string("memory=1 core=1")}) {
    world.filter({kUid, {{"c", forged}}, "", "", ""}, {"a"});
    const std::string said = world.post("bind", world.bindingArgs(kUid, "a"));
    EXPECT_NE(said.find("asks for nothing of qgpu"), std::string::npos) << said;
  }
  EXPECT_EQ(world.api.pods[kUid].node, "");
  EXPECT_FALSE(world.api.pods[kUid].annotations.contains("qgpu.io/assigned"));
  EXPECT_EQ(world.tasks(), 0U);
}

TEST(Extender, AForgedDemandNeverReplacesThatOfThePod) {
  ExtenderWorld world({{"a"}});
  const PodSpec real{kUid, {{"c", "memory=12 core=60"}}, "", "", ""};
  world.create(real);
  world.filter(real, {"a"});
  world.filter({kUid, {{"c", "memory=1 core=1"}}, "", "", ""}, {"a"});
  world.filter({kUid, {{"c", ""}}, "", "", ""}, {"a"});
  EXPECT_EQ(world.post("bind", world.bindingArgs(kUid, "a")), kBound);
  ASSERT_EQ(world.nodes.tasks.size(), 1U);
  EXPECT_EQ(world.nodes.tasks.begin()->second.spec.mem, gibibytes(12));
  EXPECT_EQ(world.nodes.tasks.begin()->second.spec.share, Permille(600));
}

TEST(Extender, AForgedNameOrVersionChangesNothingOfAPod) {
  ExtenderWorld world({{"a"}});
  world.create(ordinary(kUid));
  world.create({"other", {{"c", "memory=1 core=1"}}, "", "", ""});
  std::string forged = world.pod(ordinary(kUid));
  forged.replace(forged.find(kUid), kUid.size(), "other");  // its name
  forged.replace(forged.find(R"("resourceVersion":"1")"), 21, R"("resourceVersion":"7")");
  world.post("filter", world.args(forged, {"a"}));
  EXPECT_NE(world
                .post("bind", R"({"PodName":"other","PodNamespace":"ns","PodUID":")" + kUid +
                                  R"(","Node":"a"})")
                .find("has the UID other"),
            std::string::npos);
  EXPECT_EQ(world.tasks(), 0U);
  EXPECT_EQ(world.post("bind", world.bindingArgs(kUid, "a")), kBound);
}

TEST(Extender, EveryAnswerIs200AndNonsenseIsSaidInError) {
  ExtenderWorld world({{"a"}});
  for (const char* body : {"", "{", "null", "[1]", "\xff", R"({"Pod":7})"}) {
    EXPECT_NE(world.post("filter", body).find(R"("Error":"the body is no ExtenderArgs)"),
              std::string::npos)
        << body;
    EXPECT_EQ(world.post("priorities", body), "[]");
    EXPECT_EQ(world.post("preempt", body), R"({"NodeNameToMetaVictims":{}})");
    EXPECT_NE(world.post("bind", body).find(R"({"Error":"the )"), std::string::npos);
  }
  EXPECT_NE(world.post("bind", std::string(kBindBodyMax + 1, ' ')).find("too large"),
            std::string::npos);
  world.extender.setReady(false);
  EXPECT_NE(world.filter(ordinary(kUid), {"a"}).find("not all known yet"), std::string::npos);
}

TEST(Extender, PrioritiesHaveOneWinner) {
  ExtenderWorld world({{"a"}, {"b"}, {"c"}, {"d", 0}});
  EXPECT_EQ(world.post("priorities", world.args(world.pod(ordinary(kUid)), world.names())),
            R"([{"Host":"a","Score":10},{"Host":"b","Score":9},{"Host":"c","Score":6},)"
            R"({"Host":"d","Score":0}])")
      << "equal nodes are told apart by their order";
}

TEST(Extender, ThePolicyDecidesWhoWins) {
  for (const Score policy : {Score::Binpack, Score::Spread}) {
    ExtenderWorld world({{"a"}, {"b"}}, policy);
    ASSERT_NE(world.filter(ordinary("u1"), {"b"}).find(R"(["b"])"), std::string::npos);
    ASSERT_EQ(world.post("bind", world.bindingArgs("u1", "b")), kBound);
    auto told =
        scores(world.post("priorities", world.args(world.pod(ordinary("u2")), world.names())));
    EXPECT_EQ(told[policy == Score::Binpack ? "b" : "a"], 10) << scoreName(policy);
    EXPECT_LT(told[policy == Score::Binpack ? "a" : "b"], 10) << scoreName(policy);
  }
}

// kube-scheduler binds while it filters the next pod, and binpack would name the same node again.
TEST(Extender, TheWinnerIsNoNodeThatABindUnderWayFills) {
  ExtenderWorld world({{"a", 1}, {"b", 1}});
  const auto winner = [&](const std::string& uid) {
    return scores(world.extender.priorities(
        world.args(world.pod(ordinary(uid, "memory=12 core=30")), {"a", "b"})))["b"];
  };
  world.filter(ordinary("u1", "memory=12 core=30"), {"a"});
  EXPECT_LT(winner("u2"), 10);
  auto bind = world.extender.bind(world.bindingArgs("u1", "a"));
  EXPECT_EQ(world.tasks(), 0U) << "the scheduler has not taken it yet";
  EXPECT_EQ(winner("u2"), 10);
  EXPECT_EQ(bind.wait(world.kj.waitScope()), kBound);
  EXPECT_EQ(winner("u2"), 10);
}

TEST(Extender, OnlineKeepsOffCardsWithOfflineAndOfflineOffThoseWithOnline) {
  ExtenderWorld world({{"a", 1}, {"b", 1}});
  const PodSpec offline{"off", {{"c", "memory=2 core-greedy=50"}}, "offline", "", ""};
  const PodSpec online{"on", {{"c", "memory=2"}}, "online", "", ""};
  world.filter(offline, {"a"});
  ASSERT_EQ(world.post("bind", world.bindingArgs("off", "a")), kBound);
  auto told = scores(world.post("priorities", world.args(world.pod(online), {"a", "b"})));
  EXPECT_EQ(told["b"], 10);
  world.filter(online, {"b"});
  ASSERT_EQ(world.post("bind", world.bindingArgs("on", "b")), kBound);
  const PodSpec another{"off2", {{"c", "memory=2 core-greedy=50"}}, "offline", "", ""};
  told = scores(world.post("priorities", world.args(world.pod(another), {"a", "b"})));
  EXPECT_EQ(told["a"], 10);
}

// --- bind ---

TEST(Extender, BindWritesTheDecisionAndThenTheBinding) {
  ExtenderWorld world({{"a"}, {"b"}});
  const PodSpec spec{kUid, {{"x", "memory=4 core=30"}, {"y", "memory=14 core=50"}}, "", "", "rs"};
  world.filter(spec, world.names());
  EXPECT_EQ(world.post("bind", world.bindingArgs(kUid, "b")), kBound);
  const auto& pod = world.api.pods[kUid];
  EXPECT_EQ(pod.node, "b");
  EXPECT_EQ(pod.annotations.at("qgpu.io/assigned"), R"({"x":["GPU-b-1"],"y":["GPU-b-0"]})")
      << "the larger one first";
  ASSERT_EQ(world.nodes.tasks.size(), 2U);
  for (const auto& [id, held] : world.nodes.tasks) {
    EXPECT_EQ(held.node, "b");
    EXPECT_EQ(podUidOf(held.spec.requestId), kUid);
    const Job* job = world.scheduler.task(id);
    ASSERT_NE(job, nullptr);
    EXPECT_EQ(job->spec.application, "rs");
  }
  EXPECT_EQ(world.nodes.tasks.begin()->second.spec.name, podTaskName("ns", kUid, "x"));
  ASSERT_EQ(world.api.events.size(), 1U);
  EXPECT_EQ(world.api.events[0].reason, EventReason::Scheduled);
  EXPECT_EQ(world.api.events[0].message, "bound to node b: x on GPU-b-1; y on GPU-b-0");
}

TEST(Extender, AnInitContainerGetsTheCardsOfTheOneWhoseRoomItUses) {
  ExtenderWorld world({{"a", 3}});
  const std::string init =
      R"({"name":"i","resources":{"limits":{"tke.cloud.tencent.com/qgpu-core":"200"}}})";
  world.filter({kUid, {{"m", "core=200"}}, "", init, ""}, {"a"});
  EXPECT_EQ(world.post("bind", world.bindingArgs(kUid, "a")), kBound);
  EXPECT_EQ(world.api.pods[kUid].annotations.at("qgpu.io/assigned"),
            R"({"i":["GPU-a-0","GPU-a-1"],"m":["GPU-a-0","GPU-a-1"]})");
  EXPECT_EQ(world.nodes.tasks.size(), 1U);
}

TEST(Extender, BindIsIdempotentByUid) {
  ExtenderWorld world({{"a"}, {"b"}});
  world.filter(ordinary(kUid), world.names());
  const std::string body = world.bindingArgs(kUid, "a");
  auto first = world.posted("bind", body);
  auto second = world.posted("bind", body);
  EXPECT_EQ(first.wait(world.kj.waitScope()), kBound);
  EXPECT_EQ(second.wait(world.kj.waitScope()), kBound);
  EXPECT_EQ(world.post("bind", body), kBound);
  EXPECT_EQ(world.tasks(), 1U);
  EXPECT_NE(world.post("bind", world.bindingArgs(kUid, "b")).find("is bound to node a"),
            std::string::npos);
  EXPECT_EQ(world.tasks(), 1U);
}

TEST(Extender, OnlyPodsThatWereFilteredAreBound) {
  ExtenderWorld world({{"a"}});
  EXPECT_NE(world.post("bind", world.bindingArgs(kUid, "a")).find("was not filtered"),
            std::string::npos);
  world.filter(ordinary(kUid), {"a"});
  EXPECT_NE(world
                .post("bind", R"({"PodName":"other","PodNamespace":"ns","PodUID":")" + kUid +
                                  R"(","Node":"a"})")
                .find("there is no pod other"),
            std::string::npos);
  EXPECT_EQ(world.tasks(), 0U);
}

// What a bind leaves behind when it did not succeed: nothing. And the next one succeeds.
void expectNothingLeft(ExtenderWorld& world) {
  EXPECT_TRUE(world.served([&] { return world.tasks() == 0 && world.nodes.tasks.empty(); }));
  EXPECT_EQ(world.api.pods[kUid].node, "");
  EXPECT_FALSE(world.api.pods[kUid].annotations.contains("qgpu.io/assigned"));
  EXPECT_EQ(world.scheduler.ledger().sums().tasks, 0);
}

void expectBindsNow(ExtenderWorld& world, const std::string& node) {
  world.filter({kUid, {{"x", "memory=4 core=30"}, {"y", "memory=14 core=50"}}, "", "", ""},
               world.names());
  EXPECT_EQ(world.post("bind", world.bindingArgs(kUid, node)), kBound);
  EXPECT_EQ(world.api.pods[kUid].node, node);
  EXPECT_EQ(world.nodes.tasks.size(), 2U);
}

TEST(Extender, AFailedAnnotationOrBindingIsTakenBack) {
  for (const ErrorCode code : {ErrorCode::Conflict, ErrorCode::Denied, ErrorCode::Overloaded}) {
    for (const bool binding : {false, true}) {
      ExtenderWorld world({{"a"}, {"b"}});
      (binding ? world.api.bindFails : world.api.annotateFails).push_back(code);
      world.filter({kUid, {{"x", "memory=4 core=30"}, {"y", "memory=14 core=50"}}, "", "", ""},
                   world.names());
      const std::string answer = world.post("bind", world.bindingArgs(kUid, "a"));
      EXPECT_NE(answer.find(errorName(code)), std::string::npos) << answer;
      expectNothingLeft(world);
      EXPECT_EQ(world.api.events.back().reason, EventReason::BindRolledBack);
      expectBindsNow(world, "b");
    }
  }
}

TEST(Extender, APodThatChangedSinceItWasReadIsNotBound) {
  ExtenderWorld world({{"a"}});
  world.filter(ordinary(kUid), {"a"});
  world.api.meanwhileRead = [&]() { world.api.pods[kUid].resourceVersion = "9"; };
  EXPECT_NE(world.post("bind", world.bindingArgs(kUid, "a")).find("conflict"), std::string::npos);
  expectNothingLeft(world);
}

// Its cards may be others' by then.
TEST(Extender, P1_WhatWasTakenBackWhileItWasBoundGetsNoBinding) {
  ExtenderWorld world({{"a"}});
  world.filter(ordinary(kUid), {"a"});
  world.api.meanwhile = [&]() {
    EXPECT_EQ(world.extender.binder().underWayOf(kUid)->pod.uid, kUid);
    return world.actor
        .ask(Peer{0, 1, true, ""},
             [&](auto request) { request.setDelete(world.nodes.tasks.begin()->first); })
        .ignoreResult();
  };
  EXPECT_NE(world.post("bind", world.bindingArgs(kUid, "a")).find("taken back"), std::string::npos);
  expectNothingLeft(world);
  EXPECT_FALSE(world.extender.binder().underWayOf(kUid));
}

TEST(Extender, P1_RoomIsKeptWhereTheDecisionCouldNotBeTakenOffThePod) {
  ExtenderWorld world({{"a"}});
  world.api.bindFails = {ErrorCode::Denied};
  world.api.annotateFails = {std::nullopt, ErrorCode::Unavailable};
  world.filter(ordinary(kUid), {"a"});
  EXPECT_NE(world.post("bind", world.bindingArgs(kUid, "a")).find("denied"), std::string::npos);
  EXPECT_EQ(world.tasks(), 1U) << "an earlier Binding may still be on its way";
}

TEST(Extender, WhatTheNodeRefusesIsTakenBack) {
  ExtenderWorld world({{"a"}});
  world.nodes.refuses = true;
  world.filter(ordinary(kUid), {"a"});
  EXPECT_NE(world.post("bind", world.bindingArgs(kUid, "a")).find("no room"), std::string::npos);
  EXPECT_TRUE(world.served([&] { return world.tasks() == 0; }));
  EXPECT_EQ(world.api.pods[kUid].node, "");
}

TEST(Extender, ABindingOfWhichNobodyKnowsIsTriedUntilItIsKnown) {
  ExtenderWorld world({{"a"}});
  world.api.bindFails = {ErrorCode::Unavailable, ErrorCode::Unavailable};
  world.filter(ordinary(kUid), {"a"});
  EXPECT_EQ(world.post("bind", world.bindingArgs(kUid, "a")), kBound);
  EXPECT_EQ(world.api.pods[kUid].node, "a");
  EXPECT_EQ(world.tasks(), 1U);
}

TEST(Extender, ANodeThatFilledUpMeanwhileIsRefusedBeforeAnythingIsWritten) {
  ExtenderWorld world({{"a", 1}});
  world.filter(ordinary("u1", "memory=12 core=50"), {"a"});
  world.filter(ordinary("u2", "memory=12 core=50"), {"a"});
  auto first = world.posted("bind", world.bindingArgs("u1", "a"));
  auto second = world.posted("bind", world.bindingArgs("u2", "a"));
  EXPECT_EQ(first.wait(world.kj.waitScope()), kBound);
  const std::string refused = second.wait(world.kj.waitScope());
  EXPECT_NE(refused.find("room"), std::string::npos) << refused;
  EXPECT_EQ(world.api.pods["u2"].node, "");
  EXPECT_TRUE(world.served([&] { return world.tasks() == 1; }));
}

// Pods choose their node as kube-scheduler would, all at once, and every bind is under way while
// others are filtered. The time it takes is told, not judged: it is the machine's as well.
TEST(Extender, AThousandPodsAtOnceAreAllBoundRight) {
  rlimit descriptors{};  // both ends of every connection are here
  ::getrlimit(RLIMIT_NOFILE, &descriptors);
  descriptors.rlim_cur = descriptors.rlim_max;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &descriptors), 0);
  std::vector<NodeShape> shapes;
  for (int i = 0; i < 100; ++i) shapes.push_back({"n" + std::to_string(i), 4, 16, true, 16});
  ExtenderWorld world(shapes);
  const kj::TimePoint begin = world.kj.timer().now();
  std::vector<kj::Promise<std::string>> binds;
  for (int i = 0; i < 1000; ++i) {
    const std::string uid = "pod-" + std::to_string(i);
    const std::string args =
        world.args(world.pod(ordinary(uid, "memory=4 core=25")), world.names());
    ASSERT_NE(world.extender.filter(args).find(R"("FailedNodes":{})"), std::string::npos);
    const std::string node = "n" + std::to_string(i % 100);
    binds.push_back(world.posted("bind", world.bindingArgs(uid, node)));
  }
  for (auto& bind : binds) EXPECT_EQ(bind.wait(world.kj.waitScope()), kBound);
  const kj::Duration took = world.kj.timer().now() - begin;
  RecordProperty("ms", std::to_string(took / kj::MILLISECONDS));
  EXPECT_EQ(world.tasks(), 1000U);
  EXPECT_LE(world.api.busiest, Binder::kWritesMax);
  for (int i = 0; i < 1000; ++i) {
    EXPECT_EQ(world.api.pods["pod-" + std::to_string(i)].node, "n" + std::to_string(i % 100));
  }
  for (std::uint32_t node = 0; node < 100; ++node) {
    for (std::size_t card = 0; card < 4; ++card) {
      const CardRoom& room = world.scheduler.ledger().room(NodeId{node}, card);
      EXPECT_LE(room.memBound, room.mem);
      EXPECT_LE(room.ordinary, kWholeCard);
    }
  }
}

// Plans that are made at once give the same cards to several pods.
TEST(Extender, PodsOfSeveralContainersAtOnceFindOtherCards) {
  ExtenderWorld world({{"a", 4}});
  std::vector<kj::Promise<std::string>> binds;
  for (const char* uid : {"u1", "u2", "u3", "u4"}) {
    world.filter({uid, {{"x", "memory=4 core=30"}, {"y", "memory=6 core=50"}}, "", "", ""}, {"a"});
  }
  for (const char* uid : {"u1", "u2", "u3", "u4"}) {
    binds.push_back(world.posted("bind", world.bindingArgs(uid, "a")));
  }
  for (auto& bind : binds) EXPECT_EQ(bind.wait(world.kj.waitScope()), kBound);
  EXPECT_EQ(world.nodes.tasks.size(), 8U);
}

TEST(SeenPods, C5_AreForgottenByAgeAndNumber) {
  SeenPods seen;
  const auto add = [&](const std::string& uid, kj::TimePoint at) {
    PodDemands pod;
    pod.uid = uid;
    seen.add(seenPod(std::move(pod)), at);
  };
  const kj::TimePoint begin = kj::origin<kj::TimePoint>() + 1 * kj::HOURS;
  add("", begin);
  EXPECT_EQ(seen.size(), 0U);
  add("old", begin);
  add("kept", begin);
  add("kept", begin + 6 * kj::MINUTES);  // filtered again
  add("new", begin + 11 * kj::MINUTES);
  EXPECT_EQ(seen.find("old"), nullptr);
  EXPECT_NE(seen.find("kept"), nullptr);
  for (std::size_t i = 0; i < SeenPods::kPodsMax; ++i) {
    add("many-" + std::to_string(i), begin + 12 * kj::MINUTES);
  }
  EXPECT_EQ(seen.size(), SeenPods::kPodsMax);
  EXPECT_EQ(seen.find("kept"), nullptr);
  EXPECT_NE(seen.find("many-0"), nullptr);
}

TEST(Extender, CountsWhatItWasAsked) {
  ExtenderWorld world({{"a"}});
  world.filter(ordinary(kUid), {"a", "stranger"});
  world.post("bind", world.bindingArgs(kUid, "a"));
  world.post("bind", "{");
  const std::string page = world.extender.metrics();
  for (const char* line :
       {"qgpu_extender_requests_total{verb=\"filter\"} 1",
        "qgpu_extender_requests_total{verb=\"bind\"} 2", "qgpu_extender_malformed_total 1",
        "qgpu_extender_names_total{result=\"fails\"} 1",
        "qgpu_extender_seconds_count{verb=\"filter\"} 1",
        "qgpu_extender_seconds_count{verb=\"bind\"} 2", "qgpu_binds_total{result=\"bound\"} 1",
        "qgpu_binds_under_way 0"}) {
    EXPECT_NE(page.find(std::string("\n") + line + "\n"), std::string::npos) << line << page;
  }
}

// --- preempt ---

std::string preemptArgs(const std::string& pod, const std::string& victims) {
  return R"({"Pod":)" + pod + R"(,"NodeNameToVictims":null,"NodeNameToMetaVictims":)" + victims +
         "}";
}

TEST(Extender, PreemptNamesTheFewestOfflinePodsThatFreeACard) {
  ExtenderWorld world({{"a", 2}, {"b", 1}, {"c", 1}});
  int number = 0;
  const auto bind = [&](const std::string& uid, const std::string& node, const std::string& asks,
                        const std::string& appClass) {
    ++number;
    world.filter({uid, {{"c", asks}}, appClass, "", ""}, {node});
    ASSERT_EQ(world.post("bind", world.bindingArgs(uid, node)), kBound) << number;
  };
  bind("off-a0", "a", "memory=8 core-greedy=90", "offline");
  bind("off-a1", "a", "memory=12 core-greedy=50", "offline");
  bind("off-b", "b", "memory=15 core-greedy=50", "offline");
  bind("on-c", "c", "memory=15", "online");
  const std::string online = world.pod({kUid, {{"c", "memory=10"}}, "online", "", "", 10});
  const std::string answer = world.post(
      "preempt", preemptArgs(online, R"({"a":{"Pods":[],"NumPDBViolations":2},)"
                                     R"("b":{"Pods":[{"UID":"cpu"}],"NumPDBViolations":0},)"
                                     R"("c":{"Pods":[],"NumPDBViolations":0}})"));
  EXPECT_EQ(answer, R"({"NodeNameToMetaVictims":{)"
                    R"("a":{"Pods":[{"UID":"off-a1"}],"NumPDBViolations":2},)"
                    R"("b":{"Pods":[{"UID":"cpu"},{"UID":"off-b"}],"NumPDBViolations":0}}})");
  EXPECT_EQ(world.tasks(), 4U) << "preempt has no effect";
}

TEST(Extender, PreemptNamesNoPodOfEqualOrHigherPriority) {
  ExtenderWorld world({{"a", 1}, {"b", 1}, {"c", 1}});
  const auto bind = [&](const std::string& uid, const std::string& node, std::int32_t priority) {
    world.filter({uid, {{"c", "memory=12 core-greedy=50"}}, "offline", "", "", priority}, {node});
    ASSERT_EQ(world.post("bind", world.bindingArgs(uid, node)), kBound);
  };
  bind("lower", "a", 9);
  bind("equal", "b", 10);
  bind("higher", "c", 11);
  const std::string online = world.pod({kUid, {{"c", "memory=10"}}, "online", "", "", 10});
  const std::string none = R"({"Pods":[],"NumPDBViolations":0})";
  EXPECT_EQ(world.post("preempt", preemptArgs(online, R"({"a":)" + none + R"(,"b":)" + none +
                                                          R"(,"c":)" + none + "}")),
            R"({"NodeNameToMetaVictims":{"a":{"Pods":[{"UID":"lower"}],"NumPDBViolations":0}}})");
  world.api.pods["lower"].node = "";  // nobody has seen it there
  EXPECT_EQ(world.post("preempt", preemptArgs(online, R"({"a":)" + none + "}")),
            R"({"NodeNameToMetaVictims":{}})");
}

// kube-scheduler knows sums alone, and names pods whose card stays full without them.
TEST(Extender, PreemptSparesNamedPodsWhereOthersFreeTheCard) {
  ExtenderWorld world({{"a", 2}, {"b", 3}});
  const auto bind = [&](const std::string& uid, const std::string& node, const std::string& asks,
                        const std::string& appClass) {
    world.filter({uid, {{"c", asks}}, appClass, "", ""}, {node});
    ASSERT_EQ(world.post("bind", world.bindingArgs(uid, node)), kBound);
  };
  bind("large", "a", "memory=14 core-greedy=50", "offline");
  bind("online", "a", "memory=12", "online");
  bind("small", "a", "memory=4 core-greedy=10", "offline");  // beside the online one
  const std::string online = world.pod({kUid, {{"c", "memory=5"}}, "online", "", "", 10});
  EXPECT_EQ(
      world.post("preempt", preemptArgs(online, R"({"a":{"Pods":[{"UID":"cpu"},)"
                                                R"({"UID":"small"}],"NumPDBViolations":0}})")),
      R"({"NodeNameToMetaVictims":{"a":{"Pods":[{"UID":"cpu"},{"UID":"large"}],)"
      R"("NumPDBViolations":0}}})");
  bind("x", "b", "memory=8 core-greedy=50", "offline");
  bind("y", "b", "memory=8 core-greedy=40", "offline");  // on the same card
  bind("z", "b", "memory=8 core-greedy=10", "offline");
  bind("ordinary", "b", "memory=8 core=50", "");
  const std::string whole = world.pod({"whole", {{"c", "core=200"}}, "", "", "", 10});
  EXPECT_EQ(world.post("preempt", preemptArgs(whole, R"({"b":{"Pods":[{"UID":"ordinary"},)"
                                                     R"({"UID":"x"}],"NumPDBViolations":0}})")),
            R"({"NodeNameToMetaVictims":{"b":{"Pods":[{"UID":"ordinary"},{"UID":"z"}],)"
            R"("NumPDBViolations":0}}})");
}

TEST(Extender, PreemptFreesNoCardOfAnotherModel) {
  ExtenderWorld world({{"t4", 1, 16, true, 0, "Tesla T4"}, {"a10", 1, 16, true, 0, "A10"}});
  for (const char* node : {"t4", "a10"}) {
    world.filter({node, {{"c", "memory=12 core-greedy=50"}}, "offline", "", ""}, {node});
    ASSERT_EQ(world.post("bind", world.bindingArgs(node, node)), kBound);
  }
  const std::string pod = world.pod({kUid, {{"c", "memory=10"}}, "online", "", "", 10, "A10"});
  EXPECT_EQ(world.post("preempt", preemptArgs(pod, R"({"t4":{"Pods":[],"NumPDBViolations":0},)"
                                                   R"("a10":{"Pods":[],"NumPDBViolations":0}})")),
            R"({"NodeNameToMetaVictims":{"a10":{"Pods":[{"UID":"a10"}],"NumPDBViolations":0}}})");
}

TEST(Extender, PreemptLeavesANodeAloneWhereTheVictimsOfKubeSchedulerAreEnough) {
  ExtenderWorld world({{"a", 1}});
  world.filter(ordinary("u1", "memory=12 core=80"), {"a"});
  ASSERT_EQ(world.post("bind", world.bindingArgs("u1", "a")), kBound);
  const std::string pod = world.pod(ordinary(kUid, "memory=10 core=50"));
  const std::string named = R"({"a":{"Pods":[{"UID":"u1"}],"NumPDBViolations":1}})";
  EXPECT_EQ(world.post("preempt", preemptArgs(pod, named)),
            R"({"NodeNameToMetaVictims":)" + named + "}");
  const std::string none = R"({"a":{"Pods":null,"NumPDBViolations":0}})";
  EXPECT_EQ(world.post("preempt", preemptArgs(pod, none)), R"({"NodeNameToMetaVictims":{}})")
      << "ordinary pods are never evicted";
}

TEST(Extender, PreemptFreesCardsForAllContainersTogether) {
  ExtenderWorld world({{"a", 2}});
  for (const char* uid : {"o1", "o2"}) {
    world.filter({uid, {{"c", "memory=12 core-greedy=90"}}, "offline", "", ""}, {"a"});
    ASSERT_EQ(world.post("bind", world.bindingArgs(uid, "a")), kBound);
  }
  const std::string pod =
      world.pod({kUid, {{"x", "memory=10"}, {"y", "memory=10"}}, "online", "", "", 10});
  EXPECT_EQ(world.post("preempt", preemptArgs(pod, R"({"a":{"Pods":[],"NumPDBViolations":0}})")),
            R"({"NodeNameToMetaVictims":{"a":{"Pods":[{"UID":"o1"},{"UID":"o2"}],)"
            R"("NumPDBViolations":0}}})");
}

}  // namespace
}  // namespace qgpu::extender_test
