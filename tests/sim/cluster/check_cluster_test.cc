// The judge of clusters: it lets a sound history pass and finds the one that is not.
#include "tests/sim/cluster/check_cluster.h"

#include <gtest/gtest.h>

#include "tests/unit/store/make_row.h"

namespace qgpu::sim::check_cluster_test {
namespace {

constexpr std::uint64_t kTask = 1;
using State = schema::PlaceState;

class ClusterCheckTest : public ::testing::Test, public Verdict {
 protected:
  ClusterCheckTest() : check_(*this, {{"n0", {CardFact{{}, gibibytes(8), false}}, true, 0}}) {
    check_.schedulerBoot(0, {});
    commit({makeRow({RowKind::Cluster, 0}, [](auto r) { r.initCluster().setTerm(1); }),
            nodeRow(Marked::Free)});
  }
  ~ClusterCheckTest() override { EXPECT_EQ(found_, expected_); }

  void violated(const char* invariant, const std::string&) override {
    if (found_.empty()) found_ = invariant;
  }
  void expect(const char* invariant) { expected_ = invariant; }

  enum class Marked { Free, Cordoned, Draining };
  static StoredRow nodeRow(Marked marked) {
    return makeRow({RowKind::ClusterNode, 0}, [marked](auto r) {
      auto node = r.initClusterNode();
      node.setName("n0");
      node.setCordoned(marked == Marked::Cordoned);
      node.setDraining(marked == Marked::Draining);
    });
  }
  // A task that names n0 and has its place there.
  static StoredRow taskRow(schema::PlaceState state) {
    return makeRow({RowKind::ClusterTask, kTask}, [state](auto r) {
      auto stored = r.initClusterTask();
      stored.setEndedUnixMs(state == schema::PlaceState::ENDED ? 1 : 0);
      auto task = stored.initTask();
      task.setEpoch(1);
      task.setNode("n0");
      task.setState(state);
      task.initCards(1).set(0, "sim-0");
      task.initSpec().setNode("n0");
      task.getSpec().initTask().setMemBytes(static_cast<std::uint64_t>(gibibytes(1).value));
    });
  }
  // One of a group of two.
  static StoredRow memberRow(std::uint64_t id, schema::PlaceState state) {
    return makeRow({RowKind::ClusterTask, id}, [state](auto r) {
      auto stored = r.initClusterTask();
      stored.setEndedUnixMs(state == schema::PlaceState::ENDED ? 1 : 0);
      auto task = stored.initTask();
      task.setEpoch(1);
      task.setState(state);
      auto spec = task.initSpec();
      spec.setGroup("train");
      spec.setGroupSize(2);
      spec.initTask().setMemBytes(static_cast<std::uint64_t>(gibibytes(1).value));
      if (state == schema::PlaceState::WAITING) return;
      task.setNode("n0");
      task.initCards(1).set(0, "sim-0");
    });
  }
  void commit(const std::vector<StoredRow>& rows) {
    check_.schedulerAppended(++batch_, rows, now_);
    check_.schedulerAnswered(batch_, true);
  }
  template <typename Fill>
  void ask(Fill&& fill) {
    capnp::MallocMessageBuilder message;
    auto request = message.initRoot<schema::ClusterRequest>();
    fill(request);
    check_.schedulerAsked(0, request.asReader());
  }
  template <typename Fill>
  void reply(Fill&& fill) {
    capnp::MallocMessageBuilder message;
    auto reply = message.initRoot<schema::ClusterReply>();
    fill(reply);
    check_.schedulerReplies(0, reply.asReader());
  }
  void drainAsked() {
    ask([](auto request) { request.initDrain().initTarget().setNode("n0"); });
  }
  void nodeHeard() {
    capnp::MallocMessageBuilder message;
    auto words = message.initRoot<schema::ToMember>();
    words.setTerm(1);
    words.setBeatSeen(1);
    check_.schedulerSays(0, 0, words.asReader(), now_);
  }

  ClusterCheck check_;
  Nanos now_ = seconds(100);
  std::uint64_t batch_ = 0;
  std::string found_;
  std::string expected_;
};

TEST_F(ClusterCheckTest, D1_ATaskThatNobodyDeletedAndNoNodeEndedStays) {
  commit({taskRow(State::BOUND)});
  expect("D1");
  commit({taskRow(State::ENDED)});
}

// Cluster seed 14318.
TEST_F(ClusterCheckTest, D1_TheTimeOfADrainMayBeOverInTheLookThatFindsTheNodeLost) {
  drainAsked();
  nodeHeard();
  commit({taskRow(State::BOUND), nodeRow(Marked::Draining)});
  now_ += ClusterCheck::kFence;
  commit({taskRow(State::ENDED)});
}

TEST_F(ClusterCheckTest, D1_OfADrainedNodeThatIsHeardOfNoTaskIsDroppedBeforeItEndedThere) {
  drainAsked();
  nodeHeard();
  commit({taskRow(State::BOUND), nodeRow(Marked::Draining)});
  now_ += ClusterCheck::kFence - millis(1);
  expect("D1");
  commit({taskRow(State::ENDED)});
}

TEST_F(ClusterCheckTest, P11_AGroupIsPlacedAsAWhole) {
  nodeHeard();
  commit({memberRow(1, State::WAITING), memberRow(2, State::WAITING)});
  commit({memberRow(1, State::ASSUMED), memberRow(2, State::ASSUMED)});
  commit({memberRow(1, State::BOUND)});
  commit({memberRow(2, State::BOUND)});
}

TEST_F(ClusterCheckTest, P11_OneOfTwoIsNoGroup) {
  nodeHeard();
  commit({memberRow(1, State::WAITING), memberRow(2, State::WAITING)});
  expect("P11");
  commit({memberRow(1, State::ASSUMED)});
}

TEST_F(ClusterCheckTest, P11_WhoIsLeftOfAGroupThatHasNotStartedGivesItsPlaceBack) {
  nodeHeard();
  commit({memberRow(1, State::ASSUMED), memberRow(2, State::BOUND)});
  commit({memberRow(1, State::WAITING), memberRow(2, State::ENDING)});
  commit({memberRow(2, State::WAITING)});
  commit({memberRow(1, State::ASSUMED), memberRow(2, State::BOUND)});
  expect("P11");
  commit({memberRow(1, State::WAITING)});
}

TEST_F(ClusterCheckTest, P11_WhatHasStartedMayLoseATaskAndGetItBackAlone) {
  nodeHeard();
  commit({memberRow(1, State::BOUND), memberRow(2, State::BOUND)});
  commit({memberRow(1, State::WAITING)});
  commit({memberRow(1, State::ASSUMED)});
}

// Cluster seed 15136.
TEST_F(ClusterCheckTest, P11_WhoIsEndedInTheBatchMayHaveMadeItWholeUntilThen) {
  nodeHeard();
  commit({memberRow(1, State::BOUND), memberRow(2, State::BOUND)});
  commit({memberRow(1, State::ENDING), memberRow(3, State::WAITING), memberRow(4, State::WAITING)});
  commit({memberRow(2, State::ENDING), memberRow(3, State::ASSUMED)});
}

TEST_F(ClusterCheckTest, P11_WhatHasStartedAndLostAllComesBackAsAWhole) {
  nodeHeard();
  commit({memberRow(1, State::BOUND), memberRow(2, State::BOUND)});
  commit({memberRow(1, State::WAITING), memberRow(2, State::WAITING)});
  expect("P11");
  commit({memberRow(1, State::ASSUMED)});
}

TEST_F(ClusterCheckTest, P11_NoTokenIsToldBeforeTheGroupIsWhole) {
  nodeHeard();
  ask([](auto request) { request.initSubmit().initTask().setRequestId("a"); });
  commit({memberRow(1, State::BOUND), memberRow(2, State::ASSUMED)});
  expect("P11");
  reply([](auto reply) {
    auto assigned = reply.initAssigned();
    assigned.setTask(1);
    assigned.setEpoch(1);
    assigned.setNode("n0");
    assigned.setToken("token");
  });
}

TEST_F(ClusterCheckTest, P8_ACordonedNodeGetsNothingNew) {
  nodeHeard();
  commit({nodeRow(Marked::Cordoned)});
  expect("P8");
  commit({taskRow(State::ASSUMED)});
}

TEST_F(ClusterCheckTest, P8_ANodeThatStaysCordonedByItsNewRowGetsNothingNewEither) {
  nodeHeard();
  commit({nodeRow(Marked::Cordoned)});
  expect("P8");
  commit({nodeRow(Marked::Cordoned), taskRow(State::ASSUMED)});
}

// Cluster seed 40987.
TEST_F(ClusterCheckTest, P8_ANodeMayGetATaskWhileItWasGivenFreeBetweenTwoCordonsOfOneCommit) {
  nodeHeard();
  commit({nodeRow(Marked::Cordoned)});
  ask([](auto request) { request.initUncordon().setNode("n0"); });
  commit({nodeRow(Marked::Cordoned), taskRow(State::ASSUMED)});
}

// --- several schedulers ---

TEST_F(ClusterCheckTest, D1_WhatOneSchedulerPromisedTheNextOneKnows) {
  ask([](auto request) { request.initSubmit().initTask().setRequestId("a"); });
  commit({taskRow(State::WAITING)});
  reply([](auto reply) { reply.initAssigned().setTask(kTask); });
  Boot next;
  next.rows = {taskRow(State::WAITING)};
  check_.schedulerBoot(1, next);
  expect("D1");
  check_.schedulerBoot(0, {});
}

TEST_F(ClusterCheckTest, D1_WhatOneSchedulerDeletedDoesNotLiveAgain) {
  commit({taskRow(State::BOUND)});
  ask([](auto request) { request.setDelete(kTask); });
  commit({taskRow(State::ENDING)});
  reply([](auto reply) { reply.setDone("ends"); });
  Boot next;
  next.rows = {taskRow(State::ENDING)};
  check_.schedulerBoot(1, next);
  next.rows = {taskRow(State::BOUND)};
  expect("D1");
  check_.schedulerBoot(0, next);
}

TEST_F(ClusterCheckTest, AnAnswerOfASchedulerThatAnotherOneFollowedPromisesNothing) {
  ask([](auto request) { request.initSubmit().initTask().setRequestId("a"); });
  check_.schedulerBoot(1, {});
  EXPECT_FALSE(check_.acts(0));
  reply([](auto reply) { reply.initAssigned().setTask(kTask); });
  check_.schedulerBoot(0, {});
}

}  // namespace
}  // namespace qgpu::sim::check_cluster_test
