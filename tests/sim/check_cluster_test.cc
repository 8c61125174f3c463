// The judge of clusters: it lets a sound history pass and finds the one that is not.
#include "tests/sim/check_cluster.h"

#include <capnp/message.h>
#include <gtest/gtest.h>

#include "schema/rows.capnp.h"

namespace qgpu::sim {
namespace {

constexpr std::uint64_t kTask = 1;

class ClusterCheckTest : public ::testing::Test, public Verdict {
 protected:
  ClusterCheckTest() : check_(*this, {{"n0", {CardFact{{}, gibibytes(8), false}}, true, 0}}) {
    check_.schedulerBoot({});
    commit(
        {row({RowKind::Cluster, 0}, [](auto r) { r.initCluster().setTerm(1); }), nodeRow(false)});
  }
  ~ClusterCheckTest() override { EXPECT_EQ(found_, expected_); }

  void violated(const char* invariant, const std::string&) override {
    if (found_.empty()) found_ = invariant;
  }
  void expect(const char* invariant) { expected_ = invariant; }

  template <typename Fill>
  static StoredRow row(RowKey key, Fill&& fill) {
    capnp::MallocMessageBuilder message(4096);
    fill(message.initRoot<schema::Row>());
    const auto segment = message.getSegmentsForOutput()[0];
    return {key, {segment.begin(), segment.end()}};
  }
  static StoredRow nodeRow(bool draining) {
    return row({RowKind::ClusterNode, 0}, [draining](auto r) {
      auto node = r.initClusterNode();
      node.setName("n0");
      node.setDraining(draining);
    });
  }
  // A task that names n0 and is bound there.
  static StoredRow taskRow(std::uint64_t endedUnixMs = 0) {
    return row({RowKind::ClusterTask, kTask}, [endedUnixMs](auto r) {
      auto stored = r.initClusterTask();
      stored.setEndedUnixMs(endedUnixMs);
      auto task = stored.initTask();
      task.setEpoch(1);
      task.setNode("n0");
      task.setState(endedUnixMs == 0 ? schema::PlaceState::BOUND : schema::PlaceState::ENDED);
      task.initCards(1).set(0, "sim-0");
      task.initSpec().setNode("n0");
      task.getSpec().initTask().setMemBytes(static_cast<std::uint64_t>(gibibytes(1).value));
    });
  }
  void commit(const std::vector<StoredRow>& rows) {
    check_.schedulerAppended(++batch_, rows, now_);
    check_.schedulerAnswered(batch_, true);
  }
  void drainAsked() {
    capnp::MallocMessageBuilder message;
    auto request = message.initRoot<schema::ClusterRequest>();
    request.initDrain().initTarget().setNode("n0");
    check_.schedulerAsked(request.asReader());
  }
  void nodeHeard() {
    capnp::MallocMessageBuilder message;
    auto words = message.initRoot<schema::ToMember>();
    words.setTerm(1);
    words.setBeatSeen(1);
    check_.schedulerSays(0, words.asReader(), now_);
  }

  ClusterCheck check_;
  Nanos now_ = seconds(100);
  std::uint64_t batch_ = 0;
  std::string found_;
  std::string expected_;
};

TEST_F(ClusterCheckTest, D1_ATaskThatNobodyDeletedAndNoNodeEndedStays) {
  commit({taskRow()});
  expect("D1");
  commit({taskRow(1)});
}

// Cluster seed 14318.
TEST_F(ClusterCheckTest, D1_TheTimeOfADrainMayBeOverInTheLookThatFindsTheNodeLost) {
  drainAsked();
  nodeHeard();
  commit({taskRow(), nodeRow(true)});
  now_ += ClusterCheck::kFence;
  commit({taskRow(1)});
}

TEST_F(ClusterCheckTest, D1_OfADrainedNodeThatIsHeardOfNoTaskIsDroppedBeforeItEndedThere) {
  drainAsked();
  nodeHeard();
  commit({taskRow(), nodeRow(true)});
  now_ += ClusterCheck::kFence - millis(1);
  expect("D1");
  commit({taskRow(1)});
}

}  // namespace
}  // namespace qgpu::sim
