#include "services/kubernetes/bridge/role_label.h"
#include "tests/unit/services/kubernetes/client/kube_fixture.h"

namespace qgpu::kube_role_label_test {
namespace {

using testing::ApiStandIn;
using testing::KubeFixture;
using Role = RoleLabel::Role;

struct KubeRoleLabel : KubeFixture {
  KubeRoleLabel() { server->put("pods", ApiStandIn::pod("kube-system", "me", "u1")); }
  ~KubeRoleLabel() noexcept override = default;

  static KubePlatform around(const std::string& pod) {
    KubePlatform out;
    out.pod = pod;
    out.podNameSpace = "kube-system";
    return out;
  }
  std::string stored() {
    return server->find("pods", "kube-system", "me")["metadata"]["labels"].value(RoleLabel::kLabel,
                                                                                 "none");
  }

  Log log{LogLevel::Off};
  ApiClient& api = client(plain());
};

TEST_F(KubeRoleLabel, SaysWhatThePodIsOnceTheServerHasIt) {
  RoleLabel label(api, around("me"), log);
  EXPECT_FALSE(label.says(Role::Follows) || label.says(Role::Leads));
  label.tell(Role::Follows);
  EXPECT_FALSE(label.says(Role::Follows)) << "nobody has answered yet";
  ASSERT_TRUE(served([&] { return label.says(Role::Follows); }));
  EXPECT_EQ(stored(), "follows");
  label.tell(Role::Leads);
  EXPECT_FALSE(label.says(Role::Follows)) << "it is no more";
  ASSERT_TRUE(served([&] { return label.says(Role::Leads); }));
  EXPECT_EQ(stored(), "leads");
}

TEST_F(KubeRoleLabel, WhatFailsIsTriedAgainWithTheLastWord) {
  server->refusals.push_back({500, "InternalError", "not now", ""});
  RoleLabel label(api, around("me"), log);
  label.tell(Role::Follows);
  label.tell(Role::Leads);
  ASSERT_TRUE(served([&] { return label.says(Role::Leads); }));
  EXPECT_EQ(stored(), "leads");
  EXPECT_FALSE(label.says(Role::Follows));
}

TEST_F(KubeRoleLabel, IsWrittenOnceForEachChange) {
  RoleLabel label(api, around("me"), log);
  for (int i = 0; i < 3; ++i) label.tell(Role::Follows);
  ASSERT_TRUE(served([&] { return label.says(Role::Follows); }));
  for (int i = 0; i < 3; ++i) label.tell(Role::Follows);
  EXPECT_EQ(api.calls(), 1U);
}

TEST_F(KubeRoleLabel, OutsideOfPodsNothingIsWritten) {
  RoleLabel label(api, around(""), log);
  label.tell(Role::Follows);
  EXPECT_TRUE(label.says(Role::Follows));
  EXPECT_EQ(api.calls(), 0U);
}

}  // namespace
}  // namespace qgpu::kube_role_label_test
