// The page and its pictures, made of the document alone.

#include "services/prove/page.h"

#include <algorithm>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <vector>

#include "services/prove/prove.h"
#include "tests/unit/services/prove/example_report.h"

namespace qgpu::prove::page_test {
namespace {

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Each element ends in its order, and nothing but an entity has an ampersand: what a reader of XML
// asks. What is wrong, or nothing.
std::string xmlTrouble(const std::string& text) {
  std::vector<std::string> open;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '&') {
      bool known = false;
      for (const char* entity : {"&amp;", "&lt;", "&gt;", "&quot;"}) {
        known = known || text.compare(at, std::string(entity).size(), entity) == 0;
      }
      if (!known) return "a bare &";
    }
    if (text[at] != '<') continue;
    const std::size_t end = text.find('>', at);
    if (end == std::string::npos) return "a tag without end";
    const std::string tag = text.substr(at + 1, end - at - 1);
    if (std::ranges::count(tag, '"') % 2 != 0) return "a quote without end in " + tag;
    const std::string name = tag.substr(0, tag.find_first_of(" /", 1));
    if (tag.front() == '/') {
      if (open.empty() || "/" + open.back() != tag) return tag + " ends nothing";
      open.pop_back();
    } else if (tag.back() != '/') {
      open.push_back(name);
    }
    at = end;
  }
  return open.empty() ? "" : open.back() + " has no end";
}

TEST(Page, HasEachPromiseWithItsVerdictReasonAndCommand) {
  const std::string page = pageOf(exampleReport());
  EXPECT_TRUE(has(page, "1 of 3 promises are proven, 1 weaker, 1 not proven"));
  EXPECT_TRUE(has(page, "**weaker**"));
  EXPECT_TRUE(has(page, "no memory was left"));
  EXPECT_TRUE(has(page, "`qgpuctl prove --only x --card opencl-0`"));
  EXPECT_TRUE(has(page, "| driver | 3.1 (opencl) |"));
  EXPECT_TRUE(has(page, "](latency.svg)"));
  EXPECT_TRUE(has(page, "](shares.svg)"));
}

TEST(Page, ShowsNoPictureOfWhatWasNotMeasured) {
  Report report = exampleReport();
  report.curves.clear();
  report.promises.erase(report.promises.begin());
  const std::string page = pageOf(report);
  EXPECT_FALSE(has(page, "latency.svg"));
  EXPECT_FALSE(has(page, "shares.svg"));
}

TEST(Page, LetsNoNameBeASignOfMarkdown) {
  Report report = exampleReport();
  report.head.model = "a|b\n# c <script> [x](y) `d` \x1b[2J";
  report.promises[0].again = "a ` b | c";
  const std::string page = pageOf(report);
  EXPECT_TRUE(has(page, "a\\|b \\# c \\<script\\> \\[x\\](y) \\`d\\`  \\[2J"));
  EXPECT_FALSE(has(page, "<script>"));
  EXPECT_FALSE(has(page, "\x1b"));
  EXPECT_TRUE(has(page, "| a \\` b \\| c |"));
}

TEST(Pictures, AreWellFormedWhateverThingsAreCalled) {
  Report report = exampleReport();
  report.promises[0].id = "<a & \"b\">";
  for (const std::string& svg : {latencySvg(report), sharesSvg(report)}) {
    EXPECT_EQ(xmlTrouble(svg), "") << svg;
    EXPECT_TRUE(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""));
  }
  EXPECT_TRUE(has(sharesSvg(report), "&lt;a &amp; &quot;b&quot;&gt;"));
}

TEST(Pictures, AreNoneOfWhatWasNotMeasured) {
  EXPECT_EQ(latencySvg(Report()), "");
  EXPECT_EQ(sharesSvg(Report()), "");
}

TEST(Pictures, HaveACurveForEachLengthAndThreeBarsForEachShare) {
  const std::string latency = latencySvg(exampleReport());
  EXPECT_TRUE(has(latency, "<polyline"));
  EXPECT_TRUE(has(latency, "behind kernels of 10 ms"));
  const std::string shares = sharesSvg(exampleReport());
  std::size_t bars = 0;
  for (std::size_t at = 0; (at = shares.find("<rect fill", at)) != std::string::npos; ++at) ++bars;
  EXPECT_EQ(bars, 3U + 3U) << "and three in the legend";
}

// The one that the documents show: whoever changes a byte of it signs it anew, or this fails.
TEST(Example, IsWhatItsSignerSignedAndItsPageAndPicturesAreMadeOfIt) {
  const std::string folder = QGPU_SOURCE_ROOT "/bench/results/prove/";
  ProveOptions options;
  options.verify = folder + "report.json";
  options.allowedSigners = folder + "signers";
  const Result<Verified> verified = verifyReport(options);
  ASSERT_TRUE(verified) << verified.error().message;
  EXPECT_EQ(verified->signer, "example@qgpu");
  const auto fileOf = [&](const std::string& name) {
    std::ifstream file(folder + name);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  EXPECT_EQ(fileOf("report.md"), pageOf(verified->report));
  EXPECT_EQ(fileOf(kLatencyPicture), latencySvg(verified->report));
  EXPECT_EQ(fileOf(kSharesPicture), sharesSvg(verified->report));
}

}  // namespace
}  // namespace qgpu::prove::page_test
