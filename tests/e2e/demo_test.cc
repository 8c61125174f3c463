// The demo as a person has it: at a terminal the screen of `qgpuctl top`, elsewhere lines.

#include <csignal>
#include <filesystem>
#include <gtest/gtest.h>

#include "tests/e2e/at_terminal.h"
#include "tests/testing/temp_folder.h"

namespace qgpu::e2e::demo_test {
namespace {

constexpr const char* kTitle = "fixed-share: 30 % and 60 %";
constexpr int kStopped = 130;  // the demo's exit status

struct Demo : AtTerminal {
  std::vector<std::string> command(const std::string& seconds) const {
    return {binary("qgpu-demo"), "--acts=fs", "--seconds=" + seconds};
  }
  Environment environment() const {
    return {{"DEMO_JSON", json}, {"LC_ALL", "C.UTF-8"}, {"NO_COLOR", "1"}};
  }
  std::unique_ptr<Child> begin(const std::string& seconds) {
    return std::make_unique<Child>(command(seconds), environment(), terminal.programsEnd());
  }
  // Both tasks at work, what they wanted and what they got.
  void showsTheScreen() {
    shows(kTitle);
    shows("WANT");
    shows([](const auto& lines) { return has(lines, " 30%") && has(lines, " 60%"); }, "wanted");
    shows([](const auto& lines) { return has(lines, "\u2588"); }, "a timeline");
  }

  const testing::TempFolder made{"demo"};
  const std::string json = made.path() + "/demo.json";
};

TEST_F(Demo, ShowsItsActsOnTheScreenAndThenItsTable) {
  const auto demo = begin("2");
  showsTheScreen();
  EXPECT_EQ(demo->wait(), 0) << terminal.shown();
  isGivenBack();
  const std::string all = terminal.shown();
  const std::size_t table = all.find("work done, of a card");
  ASSERT_NE(table, std::string::npos) << all;
  EXPECT_GT(table, all.rfind("\x1b[?1049l")) << "on the terminal's own screen";
  EXPECT_NE(all.find(kTitle), std::string::npos);
  EXPECT_EQ(all.find(" s  thirty"), std::string::npos) << "no lines beside the screen";
  EXPECT_TRUE(std::filesystem::exists(json));
}

TEST_F(Demo, WhoLeavesTheScreenHasLinesAndMayStopIt) {
  const auto demo = begin("600");
  showsTheScreen();
  terminal.type("q");
  EXPECT_TRUE(eventually([&] { return terminal.shown().find(" s  thirty") != std::string::npos; }))
      << terminal.shown();
  isGivenBack();
  EXPECT_TRUE(demo->alive());
  terminal.type("\x03");
  EXPECT_EQ(demo->wait(), kStopped) << terminal.shown();
}

TEST_F(Demo, CtrlCOnTheScreenStopsIt) {
  const auto demo = begin("600");
  showsTheScreen();
  terminal.type("\x03");
  EXPECT_EQ(demo->wait(), kStopped) << terminal.shown();
  isGivenBack();
  EXPECT_NE(terminal.shown().find("everything that it started is ended"), std::string::npos);
}

TEST_F(Demo, WithoutATerminalItPrintsLines) {
  Child demo(command("600"), environment());
  EXPECT_TRUE(eventually([&] { return demo.output().find(" s  thirty") != std::string::npos; }))
      << demo.output();
  demo.signal(SIGINT);
  EXPECT_EQ(demo.wait(), kStopped) << demo.output();
  EXPECT_NE(demo.output().find(kTitle), std::string::npos);
  EXPECT_EQ(demo.output().find('\x1b'), std::string::npos) << demo.output();
}

}  // namespace
}  // namespace qgpu::e2e::demo_test
