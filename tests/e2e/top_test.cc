// `qgpuctl top` as a person has it: at a terminal, before real daemons.

#include <csignal>
#include <gtest/gtest.h>

#include "tests/e2e/at_terminal.h"
#include "tests/e2e/harness.h"

namespace qgpu::e2e::top_test {
namespace {

const std::string kUp = "\x1b[A", kDown = "\x1b[B", kEnter = "\r", kEscape = "\x1b";
const std::vector<std::string> kQuick = {"--interval", "0.1"};
// What is drawn within a test is drawn for a key or a signal.
const std::vector<std::string> kOnce = {"--interval", "3600"};

struct Top : AtTerminal {
  std::unique_ptr<Child> begin(Manager& of, std::vector<std::string> arguments,
                               Environment extra = {}) {
    return beginAt({"--socket", of.socket()}, std::move(arguments), std::move(extra));
  }
  std::unique_ptr<Child> beginAt(std::vector<std::string> whom, std::vector<std::string> arguments,
                                 Environment extra = {}) {
    std::vector<std::string> argv = {binary("qgpuctl")};
    argv.insert(argv.end(), whom.begin(), whom.end());
    argv.emplace_back("top");
    argv.insert(argv.end(), arguments.begin(), arguments.end());
    extra.try_emplace("LC_ALL", "C.UTF-8");
    extra.try_emplace("NO_COLOR", "");
    return std::make_unique<Child>(argv, extra, terminal.programsEnd());
  }
  void waitFor(Manager& manager, std::size_t tasks) {
    EXPECT_TRUE(eventually([&] { return manager.tasks().size() == tasks; })) << manager.tasks();
  }
};

struct TwoTasks : Top {
  TwoTasks() { waitFor(manager, 2); }
  Manager manager{{"--cards=sim:2x8"}};
  std::unique_ptr<Child> train = manager.runTask({"--name", "train", "--", "sleep", "1000"});
  std::unique_ptr<Child> batch = manager.runTask({"--name", "batch", "--", "sleep", "1000"});
};

TEST_F(TwoTasks, KeysSortFilterPickAndExplain) {
  const auto top = begin(manager, kOnce);
  shows("train");
  EXPECT_FALSE((terminal.modes().c_lflag & ECHO) != 0) << "keys are not echoed";
  EXPECT_EQ(terminal.picture().size(), 24u) << seen();
  shows("by task");
  terminal.type("s");
  shows("by name");
  terminal.type("/tra");
  shows("show only: tra_");
  showsNot("batch");
  terminal.type(kEnter);
  shows("only: tra");
  terminal.type(kEscape);
  shows("batch");
  terminal.type(kDown);
  shows([](const auto& lines) { return has(lines, ">"); }, "a mark before a row");
  terminal.type(kEnter);
  shows("it asked for");
  shows("(batch, ordinary)");
  terminal.type(kDown);
  shows("(train, ordinary)");
  terminal.type(kEscape);
  showsNot("it asked for");
  terminal.type("?");
  shows("any key goes back");
  terminal.type("x");
  shows("by name");
  terminal.type("q");
  EXPECT_EQ(top->wait(), 0);
  isGivenBack();
}

TEST_F(TwoTasks, AnotherSizeIsDrawnAtOnce) {
  const auto top = begin(manager, kOnce);
  shows("train");
  for (const auto& [columns, rows] : {std::pair{60, 10}, {200, 50}}) {
    terminal.resize(static_cast<unsigned short>(columns), static_cast<unsigned short>(rows));
    shows([&, high = static_cast<std::size_t>(rows)](
              const auto& lines) { return lines.size() == high; },
          "as many lines");
  }
  shows("PROCS");
  top->signal(SIGTERM);
  EXPECT_EQ(top->wait(), 128 + SIGTERM);
  isGivenBack();
}

TEST_F(TwoTasks, AManagerThatWasKilledIsSaidAndFoundAgain) {
  const auto top = begin(manager, kQuick);
  shows("train");
  showsNot("looking again");
  manager.kill();
  shows("looking again");
  shows("train");
  manager.start();
  showsNot("looking again");
  shows("train");
  terminal.type("\x03");
  EXPECT_EQ(top->wait(), 0);
  isGivenBack();
}

TEST_F(TwoTasks, AStopGivesTheTerminalBackUntilItGoesOn) {
  const auto top = begin(manager, kOnce);
  shows("train");
  terminal.type("\x1a");
  EXPECT_TRUE(eventually([&] { return top->stopped(); }));
  isGivenBack();
  top->signal(SIGCONT);
  EXPECT_TRUE(eventually([&] { return (terminal.modes().c_lflag & ECHO) == 0; }));
  terminal.type("s");
  shows("by name");
  terminal.type("q");
  EXPECT_EQ(top->wait(), 0);
  isGivenBack();
}

TEST_F(TwoTasks, ColoursAreForThoseWhoWantThem) {
  for (const char* plain : {"", "1"}) {
    const std::size_t from = terminal.shown().size();
    const auto top = begin(manager, {"-n", "1"}, {{"NO_COLOR", plain}});
    EXPECT_EQ(top->wait(), 0);
    const bool coloured = terminal.shown().find("\x1b[36m", from) != std::string::npos;
    EXPECT_EQ(coloured, *plain == 0) << terminal.shown().substr(from);
    isGivenBack();
  }
}

TEST_F(TwoTasks, ATitleStandsAboveIt) {
  const auto top = begin(manager, {"--interval", "3600", "--title", "two that sleep"});
  shows([](const auto& lines) { return lines.size() == 24 && lines[0] == "two that sleep"; },
        "its title first");
  shows("train");
  terminal.type("q");
  EXPECT_EQ(top->wait(), 0);
}

TEST_F(TwoTasks, OncePrintsOnePlainPictureWithRates) {
  const auto top = begin(manager, {"--once", "--interval", "0.1"});
  EXPECT_EQ(top->wait(), 0);
  const std::string all = terminal.shown();
  EXPECT_EQ(all.find('\x1b'), std::string::npos) << all;
  EXPECT_EQ(all.find("USED"), all.rfind("USED")) << all;
  EXPECT_NE(all.find("0%"), std::string::npos) << all;
}

TEST_F(Top, OfAClusterTasksHaveNodes) {
  Scheduler scheduler;
  Manager manager({"--cards=sim:1x8", "--nodename=n-1", "--scheduler=" + scheduler.rpc()});
  EXPECT_TRUE(scheduler.waitFor("n-1", "alive"));
  const Json submitted = scheduler.ask(R"(submit {"name":"far","memory":1,"core_percent":10})");
  EXPECT_TRUE(submitted.value("ok", false)) << submitted;
  for (const auto& whom : {std::vector<std::string>{"--socket", scheduler.socket()},
                           std::vector<std::string>{"--server", scheduler.rpc()}}) {
    const auto top = beginAt(whom, kQuick);
    shows([](const auto& lines) { return has(lines, "NODE") && has(lines, "n-1"); }, "its node");
    shows("far");
    terminal.type(kDown + kEnter);
    shows("Esc back");
    shows("runs on node n-1");
    terminal.type("q");
    EXPECT_EQ(top->wait(), 0);
    isGivenBack();
  }
}

}  // namespace
}  // namespace qgpu::e2e::top_test
