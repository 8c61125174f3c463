// Verdicts at their borders. What was not measured is never proven.

#include "services/prove/judge.h"

#include <gtest/gtest.h>

namespace qgpu::prove::judge_test {
namespace {

constexpr std::int64_t kQuota = 64 << 20;

Verdict quota(std::int64_t taken, std::int64_t refused, std::int64_t again) {
  return judgeQuota(QuotaFigures{kQuota, taken, refused, again}).verdict;
}

TEST(Judge, AQuotaIsProvenToTheByteAndByNothingLess) {
  EXPECT_EQ(quota(kQuota, kQuota + 1, kQuota), Verdict::Proven);
  EXPECT_EQ(quota(kQuota + 1, kQuota + 2, kQuota + 1), Verdict::NotProven) << "a byte too much";
  EXPECT_EQ(quota(kQuota - 9, kQuota - 8, kQuota - 9), Verdict::Weaker) << "the driver's own";
  EXPECT_EQ(quota(kQuota, 0, kQuota), Verdict::NotProven) << "nothing was refused";
  EXPECT_EQ(quota(kQuota, kQuota + 2, kQuota), Verdict::NotProven) << "the last byte was not tried";
  EXPECT_EQ(quota(kQuota, kQuota + 1, kQuota - 1), Verdict::NotProven) << "a byte is lost";
}

TEST(Judge, AShareMayBeThreePercentOfItselfAway) {
  const auto share = [](std::int64_t work) {
    return judgeShare(600, ShareFigures{600, work, 600, 0, 0}).verdict;
  };
  EXPECT_EQ(share(600 - 18), Verdict::Proven);
  EXPECT_EQ(share(600 + 18), Verdict::Proven);
  EXPECT_NE(share(600 - 19), Verdict::Proven);
  EXPECT_EQ(share(600 + 19), Verdict::NotProven);
  EXPECT_EQ(judgeShare(600, ShareFigures{600, 600, 600, 0, 1}).verdict, Verdict::NotProven)
      << "an item was wrong";
}

TEST(Judge, AShareOfTheTimeWithoutItsWorkIsWeaker) {
  const auto share = [](std::int64_t work, std::int64_t account) {
    return judgeShare(600, ShareFigures{600, work, account, 0, 0}).verdict;
  };
  EXPECT_EQ(share(540, 600), Verdict::Weaker);
  EXPECT_EQ(share(540, 582), Verdict::Weaker);
  EXPECT_EQ(share(539, 600), Verdict::NotProven);
  EXPECT_EQ(share(540, 581), Verdict::NotProven) << "nor did it have the time";
  EXPECT_EQ(share(619, 600), Verdict::NotProven) << "too much is never a cost";
}

TEST(Judge, AShareIsJudgedByTheWorkAndNotByTheManagersAccount) {
  EXPECT_EQ(judgeShare(300, ShareFigures{300, 200, 300, 0, 0}).verdict, Verdict::NotProven);
  EXPECT_EQ(judgeShare(300, ShareFigures{300, 300, 200, 0, 0}).verdict, Verdict::Proven);
}

Verdict latency(const std::string& suspend, std::int64_t kernelMs, std::int64_t us,
                std::size_t bursts = kBurstsMin) {
  return judgeLatency(kernelMs,
                      OnlineFigures{suspend, kernelMs, std::vector<std::int64_t>(bursts, us)})
      .verdict;
}

TEST(Judge, OnlineBeginsAtOnceWhereKernelsAreStoppedForIt) {
  EXPECT_EQ(latency("freeze", 100, kStartP50UsMax), Verdict::Proven);
  EXPECT_EQ(latency("freeze", 100, kStartP50UsMax + 1), Verdict::NotProven);
  EXPECT_EQ(latency("rm", 100, 90'000), Verdict::NotProven);
  EXPECT_EQ(latency("freeze", 100, 1, kBurstsMin - 1), Verdict::NotProven) << "too few";
}

TEST(Judge, OneSlowBurstOfTenIsTheirP99) {
  OnlineFigures figures{"freeze", 10, std::vector<std::int64_t>(10, 100)};
  figures.startUs.back() = kStartP99UsMax;
  EXPECT_EQ(judgeLatency(10, figures).verdict, Verdict::Proven);
  figures.startUs.back() = kStartP99UsMax + 1;
  EXPECT_EQ(judgeLatency(10, figures).verdict, Verdict::NotProven);
}

TEST(Judge, BehindGatesAloneOnlineWaitsForKernelsAndThatIsWeaker) {
  EXPECT_EQ(latency("gate", 1, 500), Verdict::Proven);
  EXPECT_EQ(latency("gate", 100, 2 * 110'000 + kStartP99UsMax), Verdict::Weaker);
  EXPECT_EQ(latency("gate", 100, 2 * 110'000 + kStartP99UsMax + 1), Verdict::NotProven);
}

TEST(Judge, AReleaseIsNearTheIdleTimeOnBothSides) {
  const auto release = [](std::int64_t us, std::int64_t last) {
    std::vector<std::int64_t> seen(kBurstsMin, us);
    seen.back() = last;
    return judgeRelease(ReleaseFigures{100'000, seen, 0, 0, 0}).verdict;
  };
  EXPECT_EQ(release(95'000, 95'000), Verdict::Proven);
  EXPECT_EQ(release(105'000, 105'000), Verdict::Proven);
  EXPECT_EQ(release(94'999, 94'999), Verdict::NotProven);
  EXPECT_EQ(release(105'001, 105'001), Verdict::NotProven);
  EXPECT_EQ(release(100'000, 110'000), Verdict::Proven);
  EXPECT_EQ(release(100'000, 110'001), Verdict::NotProven);
}

TEST(Judge, AReleaseThatTheManagerAloneSawIsWeaker) {
  EXPECT_EQ(judgeRelease(ReleaseFigures{100'000, {}, 100'200, 101'000, 40}).verdict,
            Verdict::Weaker);
  EXPECT_EQ(judgeRelease(ReleaseFigures{100'000, {}, 100'200, 101'000, 9}).verdict,
            Verdict::NotProven);
  EXPECT_EQ(judgeRelease(ReleaseFigures{100'000, {}, 100'200, 120'000, 40}).verdict,
            Verdict::NotProven);
}

TEST(Judge, ResultsAfterHoldsNeedHoldsAndResults) {
  EXPECT_EQ(judgeResume(ResumeFigures{"freeze", 20, 19, 1'000, 0}).verdict, Verdict::Proven);
  EXPECT_EQ(judgeResume(ResumeFigures{"freeze", 20, 19, 1'000, 1}).verdict, Verdict::NotProven);
  EXPECT_EQ(judgeResume(ResumeFigures{"freeze", 0, 0, 1'000, 0}).verdict, Verdict::NotProven);
  EXPECT_EQ(judgeResume(ResumeFigures{"freeze", 20, 19, 0, 0}).verdict, Verdict::NotProven);
  EXPECT_EQ(judgeResume(ResumeFigures{"gate", 20, 0, 1'000, 0}).verdict, Verdict::Weaker);
}

TEST(Judge, AKillIsJudgedInTheStateThatItWasIn) {
  const auto kill = [](KillAt at, const std::string& state, std::int64_t goneMs = 5,
                       std::int64_t loops = 1, std::int64_t wrong = 0,
                       const std::string& card = "ready") {
    return judgeKill(at, KillFigures{state, goneMs, loops, wrong, card}).verdict;
  };
  EXPECT_EQ(kill(KillAt::Holds, "running"), Verdict::Proven);
  EXPECT_EQ(kill(KillAt::Holds, "ready"), Verdict::NotProven);
  EXPECT_EQ(kill(KillAt::Held, "suspended"), Verdict::Proven);
  EXPECT_EQ(kill(KillAt::Held, "ready"), Verdict::Weaker) << "none of its kernels was stopped";
  EXPECT_EQ(kill(KillAt::Held, "running"), Verdict::NotProven);
  EXPECT_EQ(kill(KillAt::Held, "suspended", kGoneMsMax), Verdict::Proven);
  EXPECT_EQ(kill(KillAt::Held, "suspended", kGoneMsMax + 1), Verdict::NotProven);
  EXPECT_EQ(kill(KillAt::Held, "suspended", 5, 0), Verdict::NotProven) << "others stand still";
  EXPECT_EQ(kill(KillAt::Held, "suspended", 5, 1, 1), Verdict::NotProven);
  EXPECT_EQ(kill(KillAt::Held, "suspended", 5, 1, 0, "quarantined"), Verdict::NotProven);
}

TEST(Judge, AnEscapeIsWeakerByTheLibraryAndABreachOfAGuard) {
  const auto escape = [](const std::string& isolation, std::int64_t kernels) {
    return judgeEscape(EscapeFigures{isolation, kernels, 0, kernels > 0 ? 0 : 4});
  };
  EXPECT_EQ(escape("library", 40).verdict, Verdict::Weaker);
  EXPECT_NE(escape("library", 40).why.find("library"), std::string::npos) << "it names the rung";
  EXPECT_EQ(escape("guarded", 0).verdict, Verdict::Proven);
  EXPECT_EQ(escape("guarded", 1).verdict, Verdict::NotProven);
  EXPECT_EQ(escape("capped", 0).verdict, Verdict::Proven);
  EXPECT_EQ(escape("capped", 1).verdict, Verdict::NotProven);
  EXPECT_EQ(escape("library", 0).verdict, Verdict::NotProven) << "nothing is known that kept it";
}

TEST(Judge, EachWayThatLeadsToTheNodeAloneMustBeRefusedByTheGuard) {
  constexpr int kIn = 0, kRefused = 1, kDenied = 13, kNoWay = 200;  // EPERM, EACCES
  const auto ways = [](const std::string& isolation, std::vector<std::pair<int, int>> results) {
    WaysFigures figures{isolation, {}, {}};
    for (const auto& [alone, inTask] : results) {
      const std::string name = "way" + std::to_string(figures.alone.size());
      figures.alone.push_back({name, alone});
      figures.inTask.push_back({name, inTask});
    }
    return judgeWays(figures);
  };
  const Promise all = ways("guarded", {{kIn, kRefused}, {kNoWay, kNoWay}, {kIn, kRefused}});
  EXPECT_EQ(all.verdict, Verdict::Proven);
  EXPECT_EQ(all.figure("ways_tried")->value, 2);
  EXPECT_EQ(all.figure("ways_refused")->value, 2);
  const Promise one = ways("capped", {{kIn, kRefused}, {kIn, kIn}});
  EXPECT_EQ(one.verdict, Verdict::NotProven);
  EXPECT_NE(one.why.find("way1"), std::string::npos) << one.why;
  const Promise other = ways("guarded", {{kIn, kDenied}, {kIn, kRefused}});
  EXPECT_EQ(other.verdict, Verdict::NotProven) << "something else refused it";
  EXPECT_NE(other.why.find("way0"), std::string::npos) << other.why;
  EXPECT_EQ(ways("guarded", {{kIn, kNoWay}}).verdict, Verdict::NotProven);
  EXPECT_EQ(ways("guarded", {{kDenied, kRefused}}).verdict, Verdict::NotProven) << "none was tried";
  EXPECT_EQ(ways("library", {{kIn, kIn}}).verdict, Verdict::Weaker);
  EXPECT_EQ(ways("library", {{kIn, kRefused}}).verdict, Verdict::NotProven);
  const WaysFigures fewer{"guarded", {{"open", kIn}, {"ring", kIn}}, {{"open", kRefused}}};
  EXPECT_EQ(judgeWays(fewer).verdict, Verdict::NotProven) << "not all were tried in the task";
}

TEST(Judge, WhatCouldNotRunIsNotProvenAndSaysWhy) {
  const Error why = fail(ErrorCode::Unavailable, "no memory was left");
  const Promise all[] = {judgeQuota(why),
                         judgeShare(300, why),
                         judgeLatency(1, why),
                         judgeRelease(why),
                         judgeResume(why),
                         judgeEscape(why),
                         judgeWays(why),
                         judgeKill(KillAt::Held, why),
                         judgeKill(KillAt::Holds, why)};
  for (const Promise& promise : all) {
    EXPECT_EQ(promise.verdict, Verdict::NotProven) << promise.id;
    EXPECT_NE(promise.why.find("no memory was left"), std::string::npos) << promise.id;
    EXPECT_TRUE(promise.figures.empty()) << promise.id;
  }
}

TEST(Judge, BesideOthersNothingIsProven) {
  Promise promise = judgeResume(ResumeFigures{"freeze", 20, 19, 1'000, 0});
  disturb(promise, "other tasks came: 7 (train)");
  EXPECT_EQ(promise.verdict, Verdict::NotProven);
  EXPECT_EQ(promise.why, "other tasks came: 7 (train)");
}

}  // namespace
}  // namespace qgpu::prove::judge_test
