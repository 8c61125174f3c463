// The dashboard and the alerts against what the daemons export: a panel that asks for a metric
// which nobody has stays empty without a word, and such an alert is silent for ever.

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <gtest/gtest.h>
#include <regex>
#include <set>

#include "tests/deploy/documents.h"

namespace qgpu::grafana_test {
namespace {

using testing::below;
using testing::Document;
using testing::readDocuments;
using testing::readText;
using testing::sourcePath;

namespace fs = std::filesystem;

std::set<std::string> allOf(const std::string& text, const char* pattern) {
  const std::regex names(pattern);
  std::set<std::string> found;
  for (std::sregex_iterator at(text.begin(), text.end(), names), end; at != end; ++at) {
    found.insert((*at)[1]);
  }
  return found;
}

// The families that are named where pages are written.
std::set<std::string> exported() {
  std::set<std::string> names;
  for (const char* folder : {"services/api", "services/base", "services/kubernetes"}) {
    for (const auto& entry : fs::recursive_directory_iterator(sourcePath(folder))) {
      if (entry.path().extension() != ".cc") continue;
      names.merge(allOf(readText(entry.path().string()), "\"(qgpu_[a-z_]+)\""));
    }
  }
  return names;
}

// A histogram's samples have longer names than it.
std::string family(const std::string& name) {
  return std::regex_replace(name, std::regex("_(bucket|sum|count)$"), "");
}

Document dashboard() {
  return readDocuments(sourcePath("deploy/grafana/qgpu.json")).at(0);
}

std::set<std::string> asked(const Document& board) {
  std::set<std::string> names;
  for (const std::string& panel : below(board, "/panels")) {
    for (const std::string& target : below(board, panel + "/targets")) {
      const std::string expression = board.text(target + "/expr");
      const std::set<std::string> here = allOf(expression, "(qgpu_[a-z_]+)");
      EXPECT_FALSE(here.empty()) << board.text(panel + "/title") << ": " << expression;
      names.insert(here.begin(), here.end());
    }
  }
  return names;
}

TEST(Grafana, AsksForNothingThatTheDaemonsDoNotExport) {
  const std::set<std::string> known = exported();
  EXPECT_TRUE(known.contains("qgpu_card_memory_bytes"));
  EXPECT_FALSE(known.contains("qgpu_nobody_has_this"));
  for (const std::string& name : asked(dashboard())) {
    EXPECT_TRUE(known.contains(family(name))) << name;
  }
}

TEST(Alerts, AskForNothingThatTheDaemonsDoNotExportAndHaveAPartInTheDocuments) {
  const std::set<std::string> known = exported();
  const std::string page = readText(sourcePath("docs/operate/monitoring.md"));
  const Document alerts = readDocuments(sourcePath("deploy/prometheus/alerts.yaml")).at(0);
  std::size_t rules = 0;
  for (const std::string& group : below(alerts, "/groups")) {
    for (const std::string& rule : below(alerts, group + "/rules")) {
      const std::string name = alerts.text(rule + "/alert");
      for (const std::string& metric : allOf(alerts.text(rule + "/expr"), "(qgpu_[a-z_]+)")) {
        EXPECT_TRUE(known.contains(family(metric))) << name << ": " << metric;
      }
      EXPECT_NE(page.find("\n### " + name + "\n"), std::string::npos) << name;
      std::string anchor = name;
      std::transform(anchor.begin(), anchor.end(), anchor.begin(),
                     [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
      EXPECT_EQ(alerts.text(rule + "/annotations/runbook_url"),
                "docs/operate/monitoring.md#" + anchor);
      ++rules;
    }
  }
  EXPECT_GT(rules, 8u);
}

TEST(Grafana, ShowsCardsPodsAndWhyTasksWait) {
  const std::set<std::string> names = asked(dashboard());
  for (const char* name :
       {"qgpu_card_memory_bound_bytes", "qgpu_card_used_seconds_total",
        "qgpu_card_online_seconds_total", "qgpu_card_greedy_bound_permille", "qgpu_pending_tasks",
        "qgpu_binds_total", "qgpu_kube_events_total", "qgpu_kube_watch_age_seconds"}) {
    EXPECT_TRUE(names.contains(name)) << name;
  }
}

TEST(Grafana, HasPanelsThatCanBeToldApart) {
  const Document board = dashboard();
  std::set<std::string> ids, places;
  for (const std::string& panel : below(board, "/panels")) {
    const std::string title = board.text(panel + "/title");
    EXPECT_TRUE(ids.insert(board.at(panel + "/id")).second) << title;
    EXPECT_TRUE(places.insert(board.at(panel + "/gridPos")).second) << title;
    if (board.text(panel + "/type") == "row") continue;
    EXPECT_FALSE(board.text(panel + "/description").empty()) << title;
    EXPECT_EQ(board.text(panel + "/datasource/uid"), "${datasource}") << title;
  }
}

}  // namespace
}  // namespace qgpu::grafana_test
