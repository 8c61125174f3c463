// The demo's figures: percentiles, windows, the timeline, the table and demo.json.

#include <gtest/gtest.h>
#include <simdjson.h>

#include "services/demo/act_common.h"
#include "services/demo/acts.h"
#include "services/demo/demo_options.h"
#include "services/demo/result_sheet.h"
#include "services/demo/tenants/hybrid_stamps.h"
#include "services/demo/tenants/machine_use.h"
#include "services/demo/tenants/statistics.h"
#include "services/demo/tenants/timeline.h"
#include "services/demo/workload/work_report.h"

namespace qgpu::demo::demo_figures_test {
namespace {

constexpr std::int64_t kMs = 1'000'000;

TEST(Statistics, PercentilesAreNearestRankAndZeroOfNothing) {
  EXPECT_EQ(percentile({}, 500), 0);
  EXPECT_EQ(percentile({7}, 990), 7);
  EXPECT_EQ(percentile({4, 1, 3, 2}, 500), 2);
  std::vector<std::int64_t> hundred;
  for (std::int64_t i = 100; i >= 1; i--) hundred.push_back(i);
  EXPECT_EQ(percentile(hundred, 500), 50);
  EXPECT_EQ(percentile(hundred, 990), 99);
  EXPECT_EQ(percentile(hundred, 0), 1);
  EXPECT_EQ(percentile(hundred, 1000), 100);
  EXPECT_EQ(percentiles(hundred).n, 100U);
}

TEST(Statistics, UncoveredTimeCountsOverlapsOnceAndStaysInTheWindow) {
  EXPECT_EQ(uncovered({0, 100}, {}), 100);
  EXPECT_EQ(uncovered({0, 100}, {{10, 30}, {20, 40}}), 70);
  EXPECT_EQ(uncovered({0, 100}, {{90, 150}, {-20, 10}}), 80);
  EXPECT_EQ(uncovered({0, 100}, {{-5, 200}}), 0);
  EXPECT_EQ(uncovered({0, 100}, {{150, 160}, {-9, -3}}), 100);
}

TEST(Statistics, UsedTimeIsInterpolatedBetweenSamples) {
  const Series series = {{100, 0}, {200, 50}, {400, 50}};
  EXPECT_EQ(usedAt(series, 0), 0);
  EXPECT_EQ(usedAt(series, 150), 25);
  EXPECT_EQ(usedAt(series, 300), 50);
  EXPECT_EQ(usedAt(series, 900), 50);
  EXPECT_EQ(shareOver(series, {{100, 400}}), 167);
  EXPECT_EQ(shareOver(series, {{200, 200}}), 0);
  EXPECT_EQ(shareOver(series, {}), 0);
}

TEST(Statistics, SlidingSharesFindTheWorstWindow) {
  Series series;
  for (std::int64_t i = 0; i <= 30; i++) {  // all of the card for 1 s, then half of it
    series.push_back({i * 100, i <= 10 ? i * 100 : 1000 + (i - 10) * 50});
  }
  const auto all = slidingShares(series, 0, 1000);
  ASSERT_TRUE(all.has_value());
  EXPECT_EQ(all->high, 1000);
  EXPECT_EQ(all->low, 500);
  const auto late = slidingShares(series, 1000, 1000);
  ASSERT_TRUE(late.has_value());
  EXPECT_EQ(late->high, 500);
  EXPECT_FALSE(slidingShares(series, 2500, 1000).has_value());
  EXPECT_FALSE(slidingShares({}, 0, 1000).has_value());
}

TEST(Statistics, A4_ExcessIsTheWorstWindowAboveTheShareEvenAfterIdleTime) {
  // 100 idle, then 60 used in 60: a share of 500 permille allows 30 of them.
  EXPECT_EQ(excessOver({{0, 0}, {100, 0}, {160, 60}, {300, 60}}, 500), 30);
  EXPECT_EQ(excessOver({{0, 0}, {100, 50}, {200, 100}}, 500), 0);
  EXPECT_EQ(excessOver({}, 500), 0);
}

TEST(ResultSheet, AFigureIsMetOrMissedAndTheRoomIsForNoiseAlone) {
  const Wanted least{Wanted::Kind::AtLeast, 990}, most{Wanted::Kind::AtMost, 100};
  const Wanted near{Wanted::Kind::Near, 300, 9};
  EXPECT_TRUE(least.met(990, 0));
  EXPECT_FALSE(least.met(989, 0));
  EXPECT_TRUE(least.met(892, 10));
  EXPECT_TRUE(most.met(100, 0));
  EXPECT_FALSE(most.met(101, 0));
  EXPECT_TRUE(most.met(110, 10));
  EXPECT_TRUE(near.met(291, 0));
  EXPECT_FALSE(near.met(290, 0));
  EXPECT_FALSE(near.met(310, 0));
  EXPECT_TRUE(near.met(339, 10));
  EXPECT_FALSE(near.met(340, 10));
  ResultSheet sheet;
  sheet.roomPercent = 10;
  sheet.measure("fs", "work", near, 295, percentText);
  sheet.measure("fs", "work", near, 280, percentText);
  sheet.measure("fs", "work", near, 200, percentText);
  sheet.add("fs", "right", "yes", "no", false);
  sheet.miss("fs", "seen", "not seen");
  EXPECT_EQ(sheet.figures[0].wanted, "30.0 % +- 0.9 %");
  EXPECT_EQ(sheet.missed(), 4U);
  EXPECT_EQ(sheet.beyondRoom(), 3U);
}

TEST(MachineUse, TellsOthersAndTheHostFromThisProcess) {
  auto before = MachineUse::parse("cpu  100 10 20 1000 30 5 5 40 7 7\ncpu0 1 2 3\n");
  EXPECT_EQ(before.all, 1210);
  EXPECT_EQ(before.busy, 140);
  EXPECT_EQ(before.stolen, 40);
  before.own = 50;
  auto after = MachineUse::parse("cpu  500 10 120 1400 30 5 5 140 7 7\n");
  after.own = 450;
  const MachineUse use = MachineUse::between(before, after);
  EXPECT_EQ(use.othersPermille, 100);
  EXPECT_EQ(use.stolenPermille, 100);
  EXPECT_EQ(MachineUse::between(after, after).othersPermille, 0);
  EXPECT_GT(MachineUse::count().all, 0);
}

TEST(WorkReport, ARateIsTakenBetweenTwoMarks) {
  const std::vector<Mark> marks = {{1'000'000'000, 50}, {3'000'000'000, 250}};
  EXPECT_DOUBLE_EQ(rateBetween(marks, 0, 1), 100);
  EXPECT_DOUBLE_EQ(rateBetween(marks, 0, 2), 0);
  EXPECT_DOUBLE_EQ(rateBetween(marks, 1, 1), 0);
  EXPECT_DOUBLE_EQ(rateBetween({}, 0, 1), 0);
}

TEST(Timeline, DarkerCellsMeanMoreOfTheCard) {
  EXPECT_EQ(timelineCell(0), ' ');
  EXPECT_EQ(timelineCell(1), '.');
  EXPECT_EQ(timelineCell(475), '=');
  EXPECT_EQ(timelineCell(950), '#');
  EXPECT_EQ(timelineCell(5000), '#');
}

TEST(Timeline, KeepsTheNewestColumnsOfEachTask) {
  Timeline timeline({"batch", "serve"}, 3);
  timeline.addColumn({1000, 0});
  EXPECT_EQ(timeline.line(), "batch 100% [#]  serve   0% [ ]");
  timeline.addColumn({0, 1000});
  timeline.addColumn({0, 1000});
  timeline.addColumn({500, 0});
  EXPECT_EQ(timeline.line(), "batch  17% [  +]  serve  67% [## ]");
}

TEST(BareRates, EachRoundIsJudgedByTheMeasuresAroundIt) {
  const BareRates rates = bareRatesOf({1000, 1100, 1200});
  EXPECT_EQ(rates.around, (std::vector<double>{1050, 1150}));
  EXPECT_EQ(rates.apartPermille, 200);
  EXPECT_TRUE(bareRatesOf({1000}).around.empty());
  EXPECT_EQ(bareRatesOf({}).apartPermille, 0);

  WorkReport report;  // a third of 1,050 a second in the first round, half of 1,150 in the second
  report.marks = {{0, 0}, {kSecond, 350}, {5 * kSecond, 350}, {6 * kSecond, 925}};
  EXPECT_EQ(workPermille(report, rates.around, 0, 1), 333);
  EXPECT_EQ(workPermille(report, rates.around, 1), 500);
  EXPECT_EQ(workPermille(report, rates.around), 420) << "925 of 2,200";
  EXPECT_EQ(workPermille(report, rates.around, 2), 0);
  EXPECT_EQ(workPermille(WorkReport{}, rates.around), 0);
}

HybridStamps twoBursts() {
  // Bursts at 1000..1010 and 1200..1210 ms; offline stood still from 1000 to 1111 ms, and again.
  HybridStamps stamps;
  stamps.onlineIdleNs = 100 * kMs;
  stamps.windows = {{900 * kMs, 1400 * kMs}};
  stamps.bursts = {{1000 * kMs, 1000 * kMs, 1010 * kMs, 1},
                   {1200 * kMs, 1200 * kMs, 1210 * kMs, 1}};
  stamps.standstills = {{1001 * kMs, 1111 * kMs}, {1199 * kMs, 1310 * kMs}};
  return stamps;
}

TEST(Hybrid, RestLeavesOutEachBurstAndTheOnlineIdleTimeAfterIt) {
  EXPECT_EQ(restOf(twoBursts()), (500 - 110 - 110) * kMs);
  HybridStamps rounds = twoBursts();
  rounds.windows = {{900 * kMs, 1100 * kMs}, {1150 * kMs, 1400 * kMs}};
  EXPECT_EQ(restOf(rounds), (100 + 50 + 90) * kMs) << "what lies between rounds is nobody's";
}

TEST(Hybrid, ReleaseRunsFromTheEndOfABurstToOfflinesNextProgress) {
  EXPECT_EQ(releasesOf(twoBursts()), (std::vector<std::int64_t>{101 * kMs, 100 * kMs}));
  EXPECT_EQ(stopsOf(twoBursts()), (std::vector<std::int64_t>{1 * kMs, 0}));
}

TEST(Hybrid, ABurstThatFollowsBeforeTheReleaseHidesIt) {
  HybridStamps stamps = twoBursts();
  stamps.bursts[1].submitNs = 1050 * kMs;
  stamps.bursts[1].endNs = 1060 * kMs;
  stamps.standstills = {{1000 * kMs, 1160 * kMs}};
  EXPECT_EQ(releasesOf(stamps), (std::vector<std::int64_t>{100 * kMs}));
}

ResultSheet sheetOfEverything() {
  ResultSheet sheet;
  sheet.cardJson = R"({"id":"opencl-0-0"})";
  sheet.realtime = "fifo";
  sheet.acts.push_back({"fs",
                        "fixed-share",
                        {{"thirty", TenantClass::Ordinary, 300, 299, 301, 2990, true},
                         {"plain", TenantClass::Offline, std::nullopt, 5, 50, false}}});
  sheet.hybrid = HybridFigures{{40, 900, 210}, {300, 2000, 210}, {1003, 1040, 200}, 961, 970, true};
  sheet.alonePermille = 995;
  sheet.add("fs", "share \"x\"", "30.0 %", "29.9 %", true);
  sheet.add("fs", "other", "1", "2", false);
  sheet.tell("fs", "told", "3");
  return sheet;
}

TEST(ResultSheet, WritesTheDemoJsonThatTheContractDescribes) {
  simdjson::dom::parser parser;
  const std::string json = sheetOfEverything().json();
  const simdjson::dom::element root = parser.parse(json);
  EXPECT_EQ(root["card"]["id"].get_string().value(), "opencl-0-0");
  const simdjson::dom::element act = root["acts"].at(0);
  EXPECT_EQ(act["policy"].get_string().value(), "fixed-share");
  const simdjson::dom::element task = act["tasks"].at(0);
  EXPECT_EQ(task["name"].get_string().value(), "thirty");
  EXPECT_EQ(task["class"].get_string().value(), "ordinary");
  EXPECT_EQ(task["share_wanted_permille"].get_int64().value(), 300);
  EXPECT_EQ(task["share_got_permille"].get_int64().value(), 299);
  EXPECT_EQ(task["account_permille"].get_int64().value(), 301);
  EXPECT_EQ(task["gpu_ms"].get_int64().value(), 2990);
  EXPECT_TRUE(task["checksum_ok"].get_bool().value());
  const simdjson::dom::element plain = act["tasks"].at(1);
  EXPECT_EQ(plain["share_wanted_permille"].error(), simdjson::NO_SUCH_FIELD);
  EXPECT_EQ(plain["share_got_permille"].error(), simdjson::NO_SUCH_FIELD);
  const simdjson::dom::element hybrid = root["hybrid"];
  for (const char* key : {"preempt_us", "start_us"}) {
    for (const char* part : {"p50", "p99", "n"}) {
      EXPECT_EQ(hybrid[key][part].error(), simdjson::SUCCESS) << key << " " << part;
    }
  }
  EXPECT_DOUBLE_EQ(hybrid["release_ms"]["p50"].get_double().value(), 100.3);
  EXPECT_DOUBLE_EQ(hybrid["release_ms"]["p99"].get_double().value(), 104.0);
  EXPECT_EQ(hybrid["offline_share_of_rest_permille"].get_int64().value(), 961);
  EXPECT_TRUE(hybrid["offline_resumed"].get_bool().value());
}

TEST(ResultSheet, LeavesOutWhatWasNotPlayed) {
  simdjson::dom::parser parser;
  const std::string json = ResultSheet().json();
  const simdjson::dom::element root = parser.parse(json);
  EXPECT_EQ(root["hybrid"].error(), simdjson::NO_SUCH_FIELD);
  EXPECT_TRUE(root["card"].is_null());
}

TEST(ResultSheet, PrintsAMissAsAMissAndSaysNothingOfWhatIsOnlyTold) {
  const std::string table = sheetOfEverything().table();
  EXPECT_NE(table.find("fs   share \"x\"  30.0 %  29.9 %  ok\n"), std::string::npos) << table;
  EXPECT_NE(table.find("fs   other      1       2       MISS\n"), std::string::npos) << table;
  EXPECT_NE(table.find("fs   told               3\n"), std::string::npos) << table;
}

TEST(ResultSheet, WritesTenthsWithTheirSign) {
  EXPECT_EQ(percentText(335), "33.5 %");
  EXPECT_EQ(tenthsText(-4, "ms"), "-0.4 ms");
}

TEST(DemoOptions, TakesActsAndSecondsAndRefusesTheRestWithAReason) {
  const auto options = parseDemoOptions({"--acts=be,hybrid", "--seconds=2.5"});
  ASSERT_TRUE(options.ok());
  EXPECT_EQ(options->acts, (std::vector<std::string>{"be", "hybrid"}));
  EXPECT_DOUBLE_EQ(options->seconds, 2.5);
  for (const char* bad :
       {"--acts=", "--acts=be,xx", "--seconds=1", "--seconds=x", "--seconds=", "--fast", "be"}) {
    EXPECT_FALSE(parseDemoOptions({bad}).ok()) << bad;
  }
}

}  // namespace
}  // namespace qgpu::demo::demo_figures_test
