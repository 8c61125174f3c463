// What DNS answers for SRV records, byte by byte, and whom to try first.
#include "services/base/net/srv.h"

#include <gtest/gtest.h>
#include <map>

namespace qgpu::srv_test {
namespace {

const std::string kName = "_qgpu._tcp.example.com";

using Bytes = std::vector<std::uint8_t>;

void put16(Bytes& to, std::size_t number) {
  to.push_back(static_cast<std::uint8_t>(number >> 8));
  to.push_back(static_cast<std::uint8_t>(number));
}

// As DNS writes it: each label behind its length, then a zero.
void putName(Bytes& to, const std::string& name) {
  for (std::size_t at = 0; at < name.size();) {
    const std::size_t dot = std::min(name.find('.', at), name.size());
    to.push_back(static_cast<std::uint8_t>(dot - at));
    to.insert(to.end(), name.begin() + static_cast<std::ptrdiff_t>(at),
              name.begin() + static_cast<std::ptrdiff_t>(dot));
    at = dot + 1;
  }
  to.push_back(0);
}

constexpr std::size_t kSrvType = 33;
constexpr std::size_t kCnameType = 5;

// An answer of DNS that grows by records.
struct Dns {
  Dns() {
    for (const std::size_t word : {0x1234u, 0x8180u, 1u, 0u, 0u, 0u}) put16(bytes, word);
    putName(bytes, kName);
    put16(bytes, kSrvType);
    put16(bytes, 1);
  }
  Dns& record(std::size_t type, const Bytes& data) {
    put16(bytes, 0xC00C);  // the name of the question
    put16(bytes, type);
    for (const std::size_t word : {std::size_t{1}, std::size_t{0}, std::size_t{60}, data.size()}) {
      put16(bytes, word);
    }
    bytes.insert(bytes.end(), data.begin(), data.end());
    ++bytes[7];
    return *this;
  }
  Dns& srv(std::size_t priority, std::size_t weight, std::size_t port, const std::string& host) {
    Bytes data;
    for (const std::size_t word : {priority, weight, port}) put16(data, word);
    putName(data, host);
    return record(kSrvType, data);
  }
  Result<std::vector<SrvTarget>> parsed() const { return parseSrv(bytes, kName); }
  ErrorCode error() const {
    const auto result = parsed();
    EXPECT_FALSE(result.ok());
    if (result.ok()) return ErrorCode::Internal;
    EXPECT_NE(result.error().message.find(kName), std::string::npos);
    EXPECT_NE(result.error().message.find("dig SRV " + kName), std::string::npos);
    return result.error().code;
  }

  Bytes bytes;
};

TEST(Srv, AnAnswerNamesItsTargets) {
  const auto targets = Dns().srv(10, 5, 12346, "s1.example.com").srv(20, 0, 1, "s-2").parsed();
  ASSERT_TRUE(targets.ok()) << targets.error().message;
  ASSERT_EQ(targets->size(), 2u);
  EXPECT_EQ((*targets)[0].priority, 10);
  EXPECT_EQ((*targets)[0].weight, 5);
  EXPECT_EQ((*targets)[0].port, 12346);
  EXPECT_EQ((*targets)[0].host, "s1.example.com");
  EXPECT_EQ((*targets)[1].host, "s-2");
}

TEST(Srv, RecordsOfOtherTypesAreNoTargets) {
  Bytes other;
  putName(other, "elsewhere.example.com");
  const auto targets = Dns().record(kCnameType, other).srv(0, 0, 12346, "s1").parsed();
  ASSERT_TRUE(targets.ok()) << targets.error().message;
  EXPECT_EQ(targets->size(), 1u);
  EXPECT_EQ(Dns().record(kCnameType, other).error(), ErrorCode::NotFound);
}

TEST(Srv, WithoutATargetOrWithARootThereIsNoSuchService) {
  EXPECT_EQ(Dns().error(), ErrorCode::NotFound);
  EXPECT_EQ(Dns().srv(0, 0, 0, "").error(), ErrorCode::NotFound);
}

TEST(Srv, ACutAnswerIsNone) {
  const Dns whole = Dns().srv(10, 5, 12346, "s1.example.com").srv(20, 0, 1, "s2.example.com");
  for (std::size_t size = 0; size < whole.bytes.size(); ++size) {
    Dns cut;
    cut.bytes = Bytes(whole.bytes.begin(), whole.bytes.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_EQ(cut.error(), ErrorCode::Unavailable) << size;
  }
  Dns tooLong = whole;
  tooLong.bytes[2] |= 0x02;  // the server says itself that it cut
  EXPECT_EQ(tooLong.error(), ErrorCode::Unavailable);
}

TEST(Srv, AGarbledTargetIsNone) {
  EXPECT_EQ(Dns().srv(0, 0, 0, "s1").error(), ErrorCode::Unavailable) << "no port";
  EXPECT_EQ(Dns().srv(0, 0, 1, "a b").error(), ErrorCode::Unavailable) << "no host's name";
  EXPECT_EQ(Dns().record(kSrvType, {0, 0, 0}).error(), ErrorCode::Unavailable) << "too short";
  EXPECT_EQ(Dns().record(kSrvType, {0, 0, 0, 0, 0, 1, 1, 'a', 0, 9}).error(),
            ErrorCode::Unavailable)
      << "bytes behind the host";
  EXPECT_EQ(Dns().record(kSrvType, {0, 0, 0, 0, 0, 1, 0xC0, 0xFF}).error(), ErrorCode::Unavailable)
      << "a host beyond the end";
}

TEST(Srv, AnyByteMayBeWrongWithoutHarm) {
  const Dns whole = Dns().srv(10, 5, 12346, "s1.example.com").srv(20, 0, 1, "s2.example.com");
  for (std::size_t at = 0; at < whole.bytes.size(); ++at) {
    for (int wrong = 0; wrong < 256; ++wrong) {
      Dns garbled = whole;
      garbled.bytes[at] = static_cast<std::uint8_t>(wrong);
      const auto targets = garbled.parsed();
      if (!targets) continue;
      for (const SrvTarget& target : *targets) {
        EXPECT_TRUE(isSrvName(target.host) && target.port != 0) << at << ' ' << wrong;
      }
    }
  }
}

std::vector<SrvTarget> numbered(std::size_t count) {
  std::vector<SrvTarget> targets;
  for (std::size_t i = 0; i < count; ++i) targets.push_back({0, 0, 1, "s" + std::to_string(i)});
  return targets;
}

TEST(SrvOrder, TheLowestPriorityComesFirst) {
  const std::vector<SrvTarget> targets = {
      {20, 9, 1, "last"}, {0, 0, 1, "first"}, {10, 65535, 1, "second"}};
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const auto order = srvOrder(targets, seed);
    ASSERT_EQ(order.size(), 3u);
    EXPECT_EQ(order[0].host, "first");
    EXPECT_EQ(order[1].host, "second");
    EXPECT_EQ(order[2].host, "last");
  }
}

TEST(SrvOrder, EqualsComeByTheirWeight) {
  std::map<std::string, int> first;
  for (std::uint64_t seed = 0; seed < 4000; ++seed) {
    ++first[srvOrder({{0, 30, 1, "much"}, {0, 10, 1, "little"}, {0, 0, 1, "none"}}, seed)[0].host];
  }
  EXPECT_NEAR(first["much"], 3000, 200);
  EXPECT_NEAR(first["little"], 1000, 200);
  EXPECT_GT(first["none"], 0) << "seldom is not never";
  EXPECT_LT(first["none"], 200);
}

TEST(SrvOrder, IsTheSameForOneSeedAndHasItsLimit) {
  EXPECT_EQ(srvOrder(numbered(100), 7).size(), kSrvTargetsMax);
  EXPECT_EQ(srvOrder(numbered(3), 7)[0].host, srvOrder(numbered(3), 7)[0].host);
  EXPECT_TRUE(srvOrder({}, 7).empty());
}

TEST(SrvName, HasLabelsOfLettersDigitsAndDashes) {
  const std::string label(63, 'a');
  const std::string longest = label + "." + label + "." + label + "." + std::string(61, 'a');
  for (const std::string& good : {kName, kName + ".", std::string("a"), longest}) {
    EXPECT_TRUE(isSrvName(good)) << good;
  }
  for (const std::string& bad :
       {std::string(), std::string("."), std::string(".a"), std::string("a..b"), std::string("a b"),
        std::string("a\\b"), "a" + label, longest + "a", std::string("a..")}) {
    EXPECT_FALSE(isSrvName(bad)) << bad;
  }
}

}  // namespace
}  // namespace qgpu::srv_test
