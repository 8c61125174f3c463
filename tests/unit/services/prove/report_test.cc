// The document, written and read again, and what of it a change of the machine makes stale.

#include "services/prove/report.h"

#include <fstream>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "services/prove/card_reports.h"
#include "tests/testing/temp_folder.h"
#include "tests/unit/services/prove/example_report.h"

namespace qgpu::prove::report_test {
namespace {

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(ReportDocument, ReadsAsItWasWritten) {
  Report report = exampleReport();
  report.head.model = "a \"CPU\"\n<b>&| \\ ü";
  const Result<Report> read = readReport(jsonOf(report));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(*read, report);
  EXPECT_EQ(jsonOf(*read), jsonOf(report));
}

TEST(ReportDocument, OfANewerSchemaSaysSo) {
  const auto read = readReport(replaced(jsonOf(exampleReport()), "\"schema\":1", "\"schema\":2"));
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, ErrorCode::Unsupported);
  EXPECT_EQ(read.error().message,
            "the report is of schema 2, and this qgpuctl knows them up to 1: take a newer one");
}

TEST(ReportDocument, WithAFieldMoreIsReadAllTheSame) {
  EXPECT_TRUE(readReport(replaced(jsonOf(exampleReport()), "\"head\":{", "\"head\":{\"new\":1,")));
}

TEST(ReportDocument, DamagedNamesTheField) {
  const std::string json = jsonOf(exampleReport());
  const auto messageOf = [](const std::string& text) {
    const auto read = readReport(text);
    EXPECT_FALSE(read);
    return read ? "" : read.error().message;
  };
  EXPECT_EQ(messageOf(""), "this is no report of `qgpuctl prove`");
  EXPECT_EQ(messageOf("{}"), "this is no report of `qgpuctl prove`");
  EXPECT_EQ(messageOf(replaced(json, "\"card\":", "\"cart\":")),
            "the report is damaged: its \"card\" is no text");
  EXPECT_EQ(messageOf(replaced(json, "\"verdict\":\"weaker\"", "\"verdict\":\"fine\"")),
            "the report is damaged: its \"verdict\" is no verdict");
  EXPECT_EQ(messageOf(replaced(json, "\"start_us\":[1,", "\"start_us\":[")),
            "the report is damaged: its \"start_us\" is no list of 101 percentiles");
  EXPECT_EQ(messageOf(replaced(json, "\"wanted_permille\":300", "\"wanted_permille\":\"x\"")),
            "the report is damaged: its \"figures\" is no object of whole numbers");
}

TEST(ReportDocument, HoldsWhereNothingIsNotProven) {
  Report report = exampleReport();
  EXPECT_FALSE(report.allHold());
  report.promises.pop_back();
  EXPECT_TRUE(report.allHold());
  report.promises.clear();
  EXPECT_FALSE(report.allHold()) << "an empty one proves nothing";
}

TEST(ReportDocument, IsStaleOnceDriverKernelOrVersionIsAnother) {
  const Head head = exampleReport().head;
  EXPECT_TRUE(staleSince(head, {"3.1", "6.1.0", "0.1.0"}).empty());
  EXPECT_TRUE(staleSince(head, {}).empty()) << "what is not known is not compared";
  EXPECT_EQ(staleSince(head, {"4.0", "6.1.0", "0.1.0"}),
            std::vector<std::string>{"driver 3.1 is 4.0"});
  EXPECT_EQ(staleSince(head, {"", "6.2.0", "0.2.0"}),
            (std::vector<std::string>{"kernel 6.1.0 is 6.2.0", "qgpu 0.1.0 is 0.2.0"}));
}

TEST(ReportDocument, CountsWhileItIsOfThisCardAndNothingOfItIsNotProven) {
  Report report = exampleReport();
  const Standing here{"3.1", "6.1.0", "0.1.0"};
  const auto judge = [](const Result<Report>& of, const char* card, const Standing& now) {
    return judgeNow(of, card, now, 1'767'323'045'000);
  };
  EXPECT_EQ(judge(report, "opencl-0", here).why, "1 of 3 promises are not proven");
  report.promises.pop_back();
  EXPECT_EQ(judge(report, "opencl-0", here).madeUnixMs, 1'767'323'045'000);
  EXPECT_EQ(judge(report, "opencl-0", here).why, "");
  EXPECT_EQ(judge(report, "opencl-1", here).why, "it is of card opencl-0");
  EXPECT_EQ(judge(report, "opencl-0", {"", "6.1.1", ""}).why, "kernel 6.1.0 is 6.1.1");
  report.head.date = "yesterday";
  EXPECT_EQ(judge(report, "opencl-0", here).why, "\"yesterday\" is no date");
  EXPECT_EQ(judge(report, "opencl-0", here).madeUnixMs, 0);
  report.head.date = "2026-01-04T03:04:05Z";
  EXPECT_EQ(judge(report, "opencl-0", here).why, "it is of 2026-01-04T03:04:05Z, which is to come");
  EXPECT_EQ(judge(fail(ErrorCode::NotFound, "/root/x can't be read"), "opencl-0", here).why,
            "there is no report to be read");
}

TEST(ReportDocument, IsNotWaitedForWhereItsFileIsNone) {
  testing::TempFolder folder;
  const std::string fifo = folder / "report.json";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_EQ(readReportFile(fifo).error().message, fifo + " can't be read");
  EXPECT_EQ(readReportFile("/dev/zero").error().message, "/dev/zero can't be read");
  const std::string large = folder / "large.json";
  std::ofstream(large) << std::string((4 << 20) + 1, ' ');
  EXPECT_EQ(readReportFile(large).error().message, large + " is too large");
}

}  // namespace
}  // namespace qgpu::prove::report_test
