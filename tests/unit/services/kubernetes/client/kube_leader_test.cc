#include "services/kubernetes/client/leader.h"
#include "tests/unit/services/kubernetes/client/kube_fixture.h"

namespace qgpu::kube_leader_test {
namespace {

using testing::Json;
using testing::KubeFixture;

struct KubeLeader : KubeFixture {
  // One that may lead, and how often it was told so.
  struct One {
    One(KubeLeader& f, const std::string& identity, int slower = 1)
        : election(f.client(f.plain(), f.limits(slower)), f.options(identity, slower), f.log,
                   {[this] { ++led; }, [this] { ++lost; }, [this] { ++follows; }}) {
      election.start();
    }
    int led = 0;
    int lost = 0;
    int follows = 0;
    LeaderElection election;
  };

  ~KubeLeader() noexcept override = default;

  static ApiLimits limits(int slower) {
    ApiLimits out = quick();
    out.deadline = millis(200 * slower);
    return out;
  }
  static LeaseOptions options(const std::string& identity, int slower) {
    LeaseOptions out;
    out.identity = identity;
    out.duration = millis(600 * slower);
    out.renewMost = millis(400 * slower);
    out.retryEvery = millis(5);
    return out;
  }
  Json lease() { return server->find("leases", "kube-system", "qgpu-scheduler"); }
  bool after(kj::Duration time) {
    const kj::TimePoint end = kj.timer().now() + time;
    return served([&] { return kj.timer().now() > end; });
  }

  Log log{LogLevel::Off};
};

TEST_F(KubeLeader, TheFirstLeadsAndOthersWait) {
  One first(*this, "a");
  ASSERT_TRUE(served([&] { return first.led == 1; }));
  One second(*this, "b");
  ASSERT_TRUE(after(1600 * kj::MILLISECONDS));
  EXPECT_EQ(second.led, 0) << "the first renews";
  EXPECT_GT(second.follows, 0);
  EXPECT_EQ(first.follows, 0);
  EXPECT_EQ(first.lost, 0);
  EXPECT_EQ(second.election.holder(), "a");
  EXPECT_EQ(lease()["spec"]["holderIdentity"], "a");
  EXPECT_EQ(lease()["spec"]["leaseTransitions"], 0);
}

TEST_F(KubeLeader, OneThatFellSilentIsFollowedAfterTheLease) {
  One second(*this, "b");
  {
    One first(*this, "a");
    ASSERT_TRUE(served([&] { return first.led + second.led == 1; }));
    if (second.led == 1) return;  // it was the quicker one
  }
  ASSERT_TRUE(after(50 * kj::MILLISECONDS));
  EXPECT_EQ(second.led, 0) << "the lease is not over yet";
  ASSERT_TRUE(served([&] { return second.led == 1; }));
  EXPECT_EQ(lease()["spec"]["leaseTransitions"], 1);
}

TEST_F(KubeLeader, ACleanStopGivesTheLeaseBack) {
  constexpr int kNeverOver = 50;  // 30 s, longer than served() waits
  One first(*this, "a", kNeverOver);
  ASSERT_TRUE(served([&] { return first.led == 1; }));
  ASSERT_TRUE(after(20 * kj::MILLISECONDS));
  wait(first.election.release());
  EXPECT_EQ(lease()["spec"]["holderIdentity"], "");
  One second(*this, "b", kNeverOver);
  ASSERT_TRUE(served([&] { return second.led == 1; }));
}

TEST_F(KubeLeader, AStopJustAfterItsLeaseWasMadeGivesItBack) {
  One first(*this, "a");
  ASSERT_TRUE(served([&] { return first.led == 1; }));
  wait(first.election.release());
  EXPECT_EQ(lease()["spec"]["holderIdentity"], "");
}

TEST_F(KubeLeader, AStopBeforeItLeadsGivesBackTheLeaseOfItsEarlierLife) {
  {
    One earlier(*this, "a");
    ASSERT_TRUE(served([&] { return earlier.led == 1; }));
  }
  One first(*this, "a");
  wait(first.election.release());
  EXPECT_EQ(first.led, 0);
  EXPECT_EQ(lease()["spec"]["holderIdentity"], "");
}

TEST_F(KubeLeader, ARenewalThatArrivesWhileItIsGivenBackDoesNotKeepIt) {
  One first(*this, "a");
  ASSERT_TRUE(served([&] { return first.led == 1; }));
  Json renewed = lease();
  int calls = 0;
  server->onRequest = [&] {
    if (++calls == 2) server->put("leases", renewed);  // between what is read and what is written
  };
  wait(first.election.release());
  EXPECT_GT(calls, 2);
  EXPECT_EQ(lease()["spec"]["holderIdentity"], "");
}

TEST_F(KubeLeader, WhoCannotRenewStopsBeforeAnotherMayBeginAndGoesOnOnceItCan) {
  constexpr int kSlower = 3;  // 0.6 s between its end and another's begin
  One first(*this, "a", kSlower);
  ASSERT_TRUE(served([&] { return first.election.holds(); }));
  server->cut();
  const kj::TimePoint before = kj.timer().now();
  ASSERT_TRUE(served([&] { return !first.election.holds(); }));
  EXPECT_LT(kj.timer().now() - before, kSlower * 600 * kj::MILLISECONDS);
  EXPECT_EQ(first.lost, 0);
  server->restart();
  ASSERT_TRUE(served([&] { return first.election.holds(); }));
  EXPECT_EQ(first.led, 1);
  EXPECT_EQ(first.lost, 0);
}

TEST_F(KubeLeader, ALeaseThatAnotherTookIsLost) {
  One first(*this, "a");
  ASSERT_TRUE(served([&] { return first.led == 1; }));
  Json taken = lease();
  taken["spec"]["holderIdentity"] = "c";
  server->put("leases", taken);
  EXPECT_TRUE(served([&] { return first.lost == 1; }));
}

TEST_F(KubeLeader, WithoutTheRightToLeasesNobodyIsWaitedFor) {
  for (int i = 0; i < 2; ++i) server->refusals.push_back({403, "Forbidden", "no leases", ""});
  One first(*this, "a");
  EXPECT_TRUE(served([&] { return first.led == 1; }));
}

}  // namespace
}  // namespace qgpu::kube_leader_test
