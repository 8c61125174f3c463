#include "actors/policies.h"

#include <gtest/gtest.h>
#include <iterator>

#include "actors/base/codec.h"
#include "runtime/enum_names.h"

namespace qgpu {
namespace {

TEST(Policies, HaveARowForEachNameOfTheSchema) {
  const std::vector<std::string>& names = enumNames<schema::Policy>();
  ASSERT_EQ(std::size(kPolicyRules), names.size());
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto policy = static_cast<Policy>(i);
    EXPECT_EQ(policyName(policy), names[i]);
    EXPECT_EQ(readPolicy(word(policy)), policy) << names[i];
    EXPECT_FALSE(rulesOf(policy).promise.empty()) << names[i];
  }
}

TEST(Policies, OneThatThisBuildLacksReadsAsTheFirst) {
  EXPECT_EQ(readPolicy(static_cast<schema::Policy>(std::size(kPolicyRules))), Policy::BestEffort);
}

TEST(Policies, WhatCapsAlsoWeighs) {
  for (const PolicyRules& rules : kPolicyRules) EXPECT_TRUE(rules.weighs || !rules.caps);
}

}  // namespace
}  // namespace qgpu
