// Findings on a card as the report that qgpuctl prove writes.
#include "tests/gpu/isolation_report.h"

#include <gtest/gtest.h>

namespace qgpu::gpu {
namespace {

Finding found(std::string check, Verdict verdict, Json figures = Json::object()) {
  return {std::move(check), "it holds", std::move(figures), verdict};
}

prove::Report reportOf(std::vector<Finding> findings) {
  Record record;
  record.begin("latency");
  for (Finding& each : findings) record.add(std::move(each));
  return isolationReport(record);
}

TEST(IsolationReport, OnlyWhatWasMetIsProvenAndTheRestSaysWhy) {
  const prove::Report report = reportOf({found("a", Verdict::kMet),
                                         found("b", Verdict::kMissed),
                                         found("c", Verdict::kReported),
                                         {"d", "it holds", {}, Verdict::kSkipped, "no torch"},
                                         {"e", "", {}, Verdict::kFailed, "the program died"},
                                         {"skipped", "", {}, Verdict::kSkipped, "no PyTorch"},
                                         {"f", "", {}}});
  ASSERT_EQ(report.promises.size(), 6u) << "nothing was promised of the last";
  EXPECT_EQ(report.count(prove::Verdict::Proven), 1u);
  EXPECT_EQ(report.promises[0].verdict, prove::Verdict::Proven);
  EXPECT_EQ(report.promises[0].why, "");
  for (std::size_t i = 1; i < report.promises.size(); ++i) {
    EXPECT_EQ(report.promises[i].verdict, prove::Verdict::NotProven) << i;
    EXPECT_NE(report.promises[i].why, "") << i;
  }
  EXPECT_EQ(report.promises[3].why, "no torch");
  EXPECT_EQ(report.promises[4].says, "e");
  EXPECT_FALSE(report.allHold());
}

TEST(IsolationReport, WhatIsMetByAWeakerRungNamesIt) {
  const prove::Report report = reportOf({found("a", Verdict::kMet, {{"suspend", "gate"}}),
                                         found("b", Verdict::kMet, {{"isolation", "library"}}),
                                         found("c", Verdict::kMet, {{"suspend", "rm"}}),
                                         found("d", Verdict::kMet, {{"isolation", "guarded"}}),
                                         found("e", Verdict::kMissed, {{"suspend", "gate"}})});
  EXPECT_EQ(report.promises[0].verdict, prove::Verdict::Weaker);
  EXPECT_EQ(report.promises[0].why, prove::weakerHeldBy("gate"));
  EXPECT_EQ(report.promises[1].verdict, prove::Verdict::Weaker);
  EXPECT_EQ(report.promises[1].why, prove::weakerContainedBy("library"));
  EXPECT_EQ(report.promises[2].verdict, prove::Verdict::Proven);
  EXPECT_EQ(report.promises[3].verdict, prove::Verdict::Proven);
  EXPECT_EQ(report.promises[4].verdict, prove::Verdict::NotProven) << "what is missed is not kept";
}

TEST(IsolationReport, HasWhatProveJudgedAsItIsThere) {
  const prove::OnlineFigures starts{"gate", 100, std::vector<std::int64_t>(20, 150'000)};
  const prove::Promise wanted = prove::judgeLatency(100, starts);
  Record record;
  record.begin("starts");
  record.addStarts(starts);
  record.add(findingOf(wanted));
  record.add(findingOf(prove::judgeShare(300, prove::ShareFigures{300, 300, 300, 0, 0})));
  const prove::Report report = isolationReport(record);
  EXPECT_EQ(report.curves, prove::curvesOf({starts}));
  ASSERT_EQ(report.promises.size(), 2u);
  EXPECT_EQ(report.promises[0].id, "latency-100ms");
  EXPECT_EQ(report.promises[0].verdict, prove::Verdict::Weaker);
  EXPECT_EQ(report.promises[0].why, wanted.why);
  EXPECT_EQ(report.promises[0].figures, wanted.figures);
  EXPECT_NE(report.promises[1].figure("wanted_permille"), nullptr) << "it is drawn by that";
  EXPECT_TRUE(record.allMet());
}

TEST(IsolationReport, FiguresAreIntegersWithTheirUnit) {
  const prove::Report report =
      reportOf({found("online's start, 10 ms", Verdict::kMet,
                      {{"start_p50_us", 519.9},
                       {"bursts", 300},
                       {"ratio", 0.9931},
                       {"seconds", 8.2},
                       {"sum", 2146747849.0},
                       {"added_ns_p25", -14.99},
                       {"stood_still", true},
                       {"suspend", "rm"},
                       {"settle_us", {{"n", 302}, {"p50", 981}, {"p99", 1120}}}})});
  const prove::Promise& promise = report.promises.at(0);
  EXPECT_EQ(promise.id, "online-s-start-10-ms");
  EXPECT_EQ(promise.says, "online's start, 10 ms: it holds");
  EXPECT_EQ(promise.again, "./dev test-gpu latency");
  const std::vector<prove::Figure> wanted = {
      {"start_p50_us", 520},  {"bursts", 300},        {"ratio_permille", 993}, {"seconds", 8},
      {"sum", 2146747849},    {"added_ns_p25", -15},  {"stood_still", 1},      {"settle_us_n", 302},
      {"settle_p50_us", 981}, {"settle_p99_us", 1120}};
  EXPECT_EQ(promise.figures, wanted);
}

TEST(IsolationReport, IsReadAgainAsItWasWritten) {
  prove::Report report = reportOf({found("a", Verdict::kMet, {{"gone_ms", 57.2}})});
  report.head.card = "GPU-0";
  const auto again = prove::readReport(prove::jsonOf(report));
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(*again, report);
}

}  // namespace
}  // namespace qgpu::gpu
