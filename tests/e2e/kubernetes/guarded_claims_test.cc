// The pods of a claim under the guard in the kernel (guarded.h): the first, for which kubelet has
// the claim prepared, and one that comes to it later, of which kubelet tells nobody.

#include <cerrno>

#include "tests/e2e/kubernetes/claims_world.h"
#include "tests/e2e/kubernetes/guarded.h"
#include "tests/e2e/kubernetes/kubelet_cgroups.h"

namespace qgpu::e2e::guarded_claims_test {
namespace {

struct GuardedClaims : Claims {
  void SetUp() override {
    if (const std::string why = noGuard(); !why.empty()) GTEST_SKIP() << why;
    if (const std::string why = cgroups.mount(); !why.empty()) GTEST_SKIP() << why;
    start(guardFlags());
  }
  void TearDown() override {
    if (!manager) return;
    manager->stop();
    EXPECT_TRUE(Guard::remove(guardFolderOf(*manager)));
  }
  void reserve(const Json& users) {
    allocate("train", "sim-0", {{"memory", "2Gi"}, {"core", "50"}}, "ordinary", users);
  }
  int ends(const std::string& uid, const std::vector<std::string>& argv) {
    return run(cgroups.inPod(uid, argv), environment).status;
  }
  int opens(const std::string& uid) { return ends(uid, {binary("guard_tenant"), kZero}); }

  KubeletCgroups cgroups;
  Environment environment;
};

TEST_F(GuardedClaims, AClaimIsPreparedForJudgedPodsAlone) {
  reserve(Json::array({user("p1")}));
  const std::string said = prepare("train").error;
  EXPECT_NE(said.find("the guard finds no cgroup of pod uid-p1"), std::string::npos) << said;
  cgroups.makeBurstable("uid-p1");
  const auto prepared = prepare("train");
  ASSERT_EQ(prepared.error, "") << manager->log();
  environment = onHost(container(prepared, "train"));
  EXPECT_EQ(opens("uid-p1"), EPERM);
  EXPECT_EQ(ends("uid-p1", {binary("guard_tenant"), kZero, "attach"}), 0);
  EXPECT_EQ(ends("uid-p1", {binary("guard_tenant"), kFull, "attach"}), EPERM);
}

TEST_F(GuardedClaims, APodThatComesToAPreparedClaimIsJudgedOnceItsCgroupIsThere) {
  cgroups.makeBurstable("uid-p1");
  reserve(Json::array({user("p1")}));
  ASSERT_EQ(prepare("train").error, "") << manager->log();
  reserve(Json::array({user("p1"), user("p2")}));
  cgroups.makeGuaranteed("uid-p2");
  cgroups.makeGuaranteed("uid-p3");
  EXPECT_TRUE(eventually([&] { return opens("uid-p2") == EPERM; })) << manager->log();
  EXPECT_EQ(opens("uid-p3"), 0) << "it has nothing of the claim";
}

}  // namespace
}  // namespace qgpu::e2e::guarded_claims_test
