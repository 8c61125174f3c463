// What --store=etcd:... may say.

#include "services/etcd/etcd_options.h"

#include <gtest/gtest.h>

namespace qgpu {
namespace {

TEST(EtcdStoreFlag, NamesEndpointsAndAPrefix) {
  const auto one = parseEtcdStore("etcd:http://10.0.0.1:2379");
  ASSERT_TRUE(one.ok());
  EXPECT_EQ(one->endpoints, std::vector<std::string>{"http://10.0.0.1:2379"});
  EXPECT_EQ(one->prefix, "/qgpu/");
  const auto three = parseEtcdStore("etcd:https://a:1,https://b:2,https://[::1]:3/teams/blue");
  ASSERT_TRUE(three.ok());
  EXPECT_EQ(three->endpoints.size(), 3U);
  EXPECT_EQ(three->endpoints.back(), "https://[::1]:3");
  EXPECT_EQ(three->prefix, "/teams/blue/");
}

TEST(EtcdStoreFlag, WhatIsNoAddressIsRefusedAndNamed) {
  for (const char* wrong :
       {"sqlite", "etcd:", "etcd:10.0.0.1:2379", "etcd:http://10.0.0.1", "etcd:http://:2379",
        "etcd:http://a:port", "etcd:http://a:1/x,http://b:2", "etcd:http://a:1,https://b:2",
        "etcd:http://a:1,", "etcd:ftp://a:1"}) {
    const auto parsed = parseEtcdStore(wrong);
    ASSERT_FALSE(parsed.ok()) << wrong;
    EXPECT_EQ(parsed.error().code, ErrorCode::InvalidArgument);
    EXPECT_NE(parsed.error().message.find("etcd:http://10.0.0.1:2379"), std::string::npos)
        << parsed.error().message;
  }
  std::string many = "etcd:http://a:1";
  for (int i = 0; i < 9; ++i) many += ",http://a:1";
  EXPECT_FALSE(parseEtcdStore(many).ok());
}

}  // namespace
}  // namespace qgpu
