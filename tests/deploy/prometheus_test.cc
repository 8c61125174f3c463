// What Prometheus itself makes of the daemons' metrics, the alerts and the dashboard: a real one
// scrapes real daemons. Skipped where Debian's package `prometheus` is not installed.

#include <fstream>
#include <gtest/gtest.h>
#include <regex>

#include "tests/deploy/documents.h"
#include "tests/e2e/harness.h"
#include "tests/testing/child_process.h"
#include "tests/testing/eventually.h"
#include "tests/testing/temp_folder.h"

namespace qgpu::prometheus_test {
namespace {

using e2e::Json;
using testing::below;
using testing::Child;
using testing::Document;
using testing::eventually;
using testing::Finished;
using testing::readDocuments;
using testing::run;
using testing::sourcePath;
using testing::TempFolder;

// Behind `mark` in a log, up to a blank; empty where that is not there yet.
std::string behind(const std::string& log, const std::string& mark) {
  const std::size_t at = log.find(mark);
  if (at == std::string::npos) return "";
  const std::size_t from = at + mark.size();
  return log.substr(from, log.find_first_of(" \n", from) - from);
}

class Prometheus : public ::testing::Test {
 protected:
  void SetUp() override {
    if (run({"prometheus", "--version"}).status != 0 ||
        run({"promtool", "--version"}).status != 0) {
      GTEST_SKIP() << "no Prometheus is installed here";
    }
    daemons_.push_back(behind(manager_.log(), "metrics-open address="));
    daemons_.push_back(behind(scheduler_.log(), "metrics-open address="));
    for (const std::string& address : daemons_) ASSERT_FALSE(address.empty());
  }

  // Scrapes both daemons.
  void start() {
    const std::string config = folder_.write("prometheus.yml", R"(
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [)" + sourcePath("deploy/prometheus/alerts.yaml") + R"(]
scrape_configs:
  - job_name: qgpu
    static_configs: [{targets: [")" + daemons_[0] + R"(", ")" + daemons_[1] +
                                                                   R"("]}]
)");
    server_.emplace(std::vector<std::string>{"prometheus", "--config.file=" + config,
                                             "--storage.tsdb.path=" + folder_.path() + "/data",
                                             "--web.listen-address=127.0.0.1:0"});
    const std::string mark = "msg=\"Listening on\" address=";
    ASSERT_TRUE(eventually([&] { return !behind(server_->output(), mark).empty(); }))
        << server_->output();
    address_ = behind(server_->output(), mark);
  }
  Json get(const std::string& path, const std::string& query = "") const {
    std::vector<std::string> argv = {"curl", "-sS", "-G", "http://" + address_ + path};
    if (!query.empty()) argv.insert(argv.end(), {"--data-urlencode", "query=" + query});
    const Finished answer = run(argv);
    return Json::parse(answer.output, nullptr, false);
  }
  std::size_t series(const std::string& query) const {
    const Json answer = get("/api/v1/query", query);
    return answer.is_object() && answer["status"] == "success" ? answer["data"]["result"].size()
                                                               : 0;
  }

  const TempFolder folder_;
  e2e::Manager manager_{{"--cards=sim:2x16", "--mixed", "--metrics=127.0.0.1:0"}};
  e2e::Scheduler scheduler_{{"--metrics=127.0.0.1:0"}};
  std::vector<std::string> daemons_;
  std::optional<Child> server_;
  std::string address_;
};

TEST_F(Prometheus, FindsNothingWrongWithRulesAndMetrics) {
  const Finished rules =
      run({"promtool", "check", "rules", sourcePath("deploy/prometheus/alerts.yaml")});
  EXPECT_EQ(rules.status, 0) << rules.output;
  for (const std::string& address : daemons_) {
    const Finished metrics =
        testing::shell("curl -sS http://" + address + "/metrics | promtool check metrics");
    EXPECT_EQ(metrics.status, 0) << metrics.output;
    EXPECT_EQ(metrics.output, "");
  }
}

TEST_F(Prometheus, AnswersEveryQueryOfTheDashboardAndEvaluatesEveryAlert) {
  start();
  EXPECT_TRUE(eventually([&] { return series("up == 1") == 2; })) << server_->output();
  EXPECT_EQ(series("qgpu_card_memory_bytes{node!=\"\"}"), 2u);
  EXPECT_EQ(series("qgpu_card_release_seconds_bucket{le=\"0.1\"}"), 2u);
  const Document board = readDocuments(sourcePath("deploy/grafana/qgpu.json")).at(0);
  std::size_t asked = 0;
  for (const std::string& panel : below(board, "/panels")) {
    for (const std::string& target : below(board, panel + "/targets")) {
      const std::string query =
          std::regex_replace(board.text(target + "/expr"), std::regex("\\$(instance|card)"), ".*");
      const Json answer = get("/api/v1/query", query);
      EXPECT_EQ(answer["status"], "success") << query << ": " << answer.dump();
      ++asked;
    }
  }
  EXPECT_GT(asked, 20u);
  const auto allWell = [&] {
    const Json answer = get("/api/v1/rules");
    std::size_t well = 0;
    for (const Json& group : answer["data"]["groups"]) {
      for (const Json& rule : group["rules"]) {
        if (rule["health"] == "unknown") return false;
        EXPECT_EQ(rule["health"], "ok") << rule.dump();
        EXPECT_EQ(rule["state"], "inactive") << rule.dump();
        ++well;
      }
    }
    return well > 0;
  };
  EXPECT_TRUE(eventually(allWell)) << server_->output();
}

}  // namespace
}  // namespace qgpu::prometheus_test
