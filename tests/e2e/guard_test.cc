// A manager with the guard in the kernel: a task's program has its card's node when it has
// attached, and not before; also while no manager runs. The card is imagined, and its node is one
// of the kernel's own that harms nobody. As root, on a kernel that takes the guard; else skipped.

#include "services/guard/guard.h"

#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <gtest/gtest.h>
#include <optional>
#include <sys/stat.h>
#include <unistd.h>

#include "services/prove/judge.h"
#include "tests/e2e/harness.h"
#include "tests/guard/standin_card.h"

namespace qgpu::e2e::guard_test {
namespace {

using testing::kStandinNode;
using testing::loadStandin;

constexpr const char* kNode = "/dev/zero";
constexpr const char* kOtherNode = "/dev/full";

class GuardedNode : public ::testing::Test {
 protected:
  void SetUp() override { begin(std::string("0:") + kNode + ",1:" + kOtherNode); }
  void begin(const std::string& nodes, const std::string& cards = "sim:2x16") {
    const std::string folder = "/sys/fs/bpf/qgpu/e2e";
    const auto tried = Guard::open(folder);
    if (!tried) GTEST_SKIP() << tried.error().message;
    EXPECT_TRUE(Guard::remove(folder));
    manager_.emplace(
        std::vector<std::string>{"--cards=" + cards, "--guard=on", "--guard-nodes=" + nodes});
  }
  void TearDown() override {
    if (manager_) guardGoes();
  }
  // What an administrator does to be rid of it.
  void guardGoes() {
    if (manager_->alive()) manager_->stop();
    const Child off({binary("qgpu-manager"), "--run-dir=" + manager_->runDir(), "--guard=off",
                     "--dbfile=" + manager_->database(), "--http=127.0.0.1:0", "--cards=sim:2x16"});
    EXPECT_TRUE(eventually([&] {
      return askSocket(manager_->socket(), "cards").find("\"isolation\":\"library\"") !=
             std::string::npos;
    })) << off.output();
  }

  // What a shell's line ends with in a task, which has one of the two cards. $T is the tenant.
  int ends(const std::string& line) {
    const auto task =
        manager_->runTask({"--name", "tenant", "--", "sh", "-c", line}, {{"T", tenant()}});
    return task->wait().value_or(-1);
  }
  static std::string tenant() { return binary("guard_tenant"); }
  bool hasEvent(const std::string& kind, const std::string& text = "") {
    const Json answer = manager_->ask("events");
    for (const Json& event : answer["events"]) {
      if (event["kind"] == kind && event.dump().find(text) != std::string::npos) return true;
    }
    return false;
  }

  TempFolder folder_{"guard"};
  std::optional<Manager> manager_;
};

TEST_F(GuardedNode, WhoLeavesTheLibraryOutHasNoCard) {
  EXPECT_EQ(manager_->cards()[0]["isolation"], "guarded");
  EXPECT_EQ(ends("$T /dev/zero"), EPERM);
  EXPECT_EQ(ends("unset LD_PRELOAD; $T /dev/full"), EPERM);
  EXPECT_TRUE(eventually([&] { return hasEvent("guard-refused"); }));
  const std::string page = manager_->get("/metrics");
  EXPECT_NE(page.find("qgpu_guard_refusals_total{card=\"sim-0\"} 1\n"), std::string::npos) << page;
  EXPECT_NE(page.find("qgpu_guard_refusals_total{card=\"sim-1\"} 1\n"), std::string::npos) << page;
}

// As `qgpuctl prove` has it.
TEST_F(GuardedNode, NoWayLeadsPastTheLibraryToTheCard) {
  const std::string option = std::string("--ways-out=") + kNode;
  const auto alone = demo::parseWays(run({binary("qgpu-work"), option}).output);
  const auto task =
      manager_->runTask({"--", "env", "-u", "LD_PRELOAD", binary("qgpu-work"), option});
  EXPECT_EQ(task->wait(), 0);
  const auto inTask = demo::parseWays(task->output());
  ASSERT_TRUE(alone && inTask) << task->output();
  ASSERT_EQ(alone->size(), inTask->size());
  const prove::Promise promise =
      prove::judgeWays(prove::WaysFigures{manager_->cards()[0]["isolation"], *alone, *inTask});
  EXPECT_EQ(promise.verdict, prove::Verdict::Proven) << promise.why;
  EXPECT_GE(promise.figure("ways_tried")->value, 10);
}

TEST_F(GuardedNode, WhoAttachedHasItsOwnCardAlone) {
  // One of the two is refused, with EPERM, which is 1.
  EXPECT_EQ(ends("$T /dev/zero attach; a=$?; $T /dev/full attach; exit $((a + $?))"), EPERM);
  EXPECT_EQ(ends("$T /dev/zero attach,exec || $T /dev/full attach,exec"), EPERM);
}

TEST_F(GuardedNode, WhoIsOfNoTaskHasWhatItHad) {
  EXPECT_EQ(run({tenant(), kNode}).status, 0);
  EXPECT_EQ(run({tenant(), kOtherNode}).status, 0);
}

TEST_F(GuardedNode, ItHoldsWhileNoManagerRunsAndTheNextOneGoesOn) {
  const std::string go = folder_ / "go";
  ASSERT_EQ(::mkfifo(go.c_str(), 0600), 0);
  auto task = manager_->runTask(
      {"--name", "stays", "--", "sh", "-c", "read go <" + go + "; exec " + tenant() + " " + kNode});
  ASSERT_TRUE(eventually([&] { return !manager_->task("stays").is_null(); }));
  manager_->kill();
  std::ofstream(go) << "go\n";
  EXPECT_EQ(task->wait().value_or(-1), EPERM);
  manager_->start();
  EXPECT_EQ(manager_->cards()[0]["isolation"], "guarded");
  EXPECT_EQ(ends("$T /dev/zero"), EPERM);
  EXPECT_EQ(ends("$T /dev/zero attach || $T /dev/full attach"), 0);
}

// Beside a driver that stands in for NVIDIA's (tests/guard/driver), whose card the simulated one
// is taken to be.
class CappedNode : public GuardedNode {
 protected:
  void SetUp() override {
    const char* driver = std::getenv("QGPU_STANDIN_DRIVER");
    if (driver == nullptr || !loadStandin(driver)) {
      GTEST_SKIP() << "no driver that stands in for NVIDIA's: ./dev test-guard makes one";
    }
    begin(std::string("0:") + kStandinNode, "sim:1x16");
  }
  // A task of one GiB that asks the driver past the library.
  int takes(const std::string& mib) {
    const auto task = manager_->runTask(
        {"--name", "tenant", "--memory", "1", "--", tenant(), kStandinNode, "attach,take=" + mib});
    return task->wait().value_or(-1);
  }
};

TEST_F(CappedNode, WhoAsksTheDriverPastTheLibraryHasItsQuota) {
  EXPECT_EQ(manager_->cards()[0]["isolation"], "capped");
  EXPECT_EQ(takes("1024"), 0);
  EXPECT_EQ(takes("1025"), ENOMEM);
  EXPECT_TRUE(eventually([&] { return hasEvent("guard-refused", "quota has no room"); }));
}

TEST_F(CappedNode, AManagerThatWasKilledLeavesTheCap) {
  const std::string go = folder_ / "go";
  ASSERT_EQ(::mkfifo(go.c_str(), 0600), 0);
  const std::string line = "read go <" + go + "; $T /dev/standin attach,take=1025";
  auto task = manager_->runTask({"--name", "stays", "--memory", "1", "--", "sh", "-c", line},
                                {{"T", tenant()}});
  ASSERT_TRUE(eventually([&] { return !manager_->task("stays").is_null(); }));
  manager_->kill();
  manager_->start();
  EXPECT_EQ(manager_->cards()[0]["isolation"], "capped");
  std::ofstream(go) << "go\n";
  EXPECT_EQ(task->wait().value_or(-1), ENOMEM);
}

}  // namespace
}  // namespace qgpu::e2e::guard_test
