// Memory that counts where NVIDIA's kernel driver is asked for it, under a real manager: the bytes
// of a process that is killed come back to its task, and the quota is that of the whole task; and
// turns of programs whose work waits for work of their own; and cards that go and come, and what is
// said of a driver's version. The card is imagined; libcuda, the kernel's side and NVML are
// stand-ins.

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/e2e/harness.h"

namespace qgpu::e2e::driver_test {
namespace {

class Driver : public ::testing::Test {
 protected:
  Driver() {
    std::filesystem::create_directory(root_.path() + "/dev");
    EXPECT_EQ(mkfifo(lines().c_str(), 0600), 0);
    for (const char* name : {"/dev/nvidiactl", "/dev/nvidia0"}) std::ofstream(root_.path() + name);
  }
  std::string lines() const { return root_.path() + "/lines"; }
  // A shell script in a task of 1 GiB, in which $CUDA is the program that obeys lines, and $PIPE
  // where the test writes some.
  std::unique_ptr<Child> task(const std::string& script, const std::string& name = "tenant") {
    return manager_.runTask({"--name", name, "--memory", "1", "--", "sh", "-c", script},
                            {{"LD_LIBRARY_PATH", QGPU_STAND_IN_DIR},
                             {"LD_PRELOAD", QGPU_STAND_IN_KERNEL},
                             {"QGPU_LIB", QGPU_TESTING_LIBRARY},
                             {"QGPU_DRIVER_ROOT", root_.path()},
                             {"CUDA", binary("cuda_program")},
                             {"PIPE", lines()}});
  }
  std::int64_t used() {
    const Json task = manager_.task("tenant");
    return task.is_null() ? -1 : task["mem_used_bytes"].get<std::int64_t>();
  }

  TempFolder root_;
  Manager manager_{{"--cards=sim:1x16"}};
};

constexpr std::int64_t kMiB = 1 << 20;

// What init has in the kernel, as the unit tests say it: a context, a module, a page.
constexpr std::int64_t kInit = 2 * kMiB + (64 << 10) + (64 << 10);

TEST_F(Driver, TheManagerSeesWhatTheKernelHolds) {
  auto tenant = task("exec $CUDA < $PIPE");
  std::ofstream to(lines());
  to << "init\nalloc plain 1 419430400" << std::endl;
  EXPECT_TRUE(eventually([&] { return used() == kInit + 400 * kMiB; })) << used();
  to << "free 1" << std::endl;
  EXPECT_TRUE(eventually([&] { return used() == kInit; })) << used();
  to.close();
  EXPECT_EQ(tenant->wait().value_or(-1), 0) << tenant->output();
}

TEST_F(Driver, A14_TheBytesOfAKilledProcessComeBackToItsTask) {
  // The first dies with 900 MiB of its task's GiB; the next ones ask until they get as much.
  auto tenant = task(
      "printf 'init\nalloc plain 1 943718400\ndie\n' | $CUDA | tail -n 1\n"
      "until printf 'init\nalloc plain 1 943718400\n' | $CUDA | tail -n 1 | grep -qx 0; do :; "
      "done\n"
      "echo came back");
  EXPECT_EQ(tenant->wait().value_or(-1), 0);
  EXPECT_NE(tenant->output().find("0\n"), std::string::npos) << "it had them: " << tenant->output();
  EXPECT_NE(tenant->output().find("came back"), std::string::npos) << tenant->output();
}

TEST_F(Driver, A14_TheQuotaIsTheTasksOverItsProcesses) {
  auto tenant = task(
      "$CUDA < $PIPE > /dev/null &\n"
      "until [ -e $PIPE.go ]; do :; done\n"
      "until [ \"$(printf 'init\nalloc plain 1 629145600\n' | $CUDA | tail -n 1)\" = 2 ]\n"
      "do :; done\n"
      "echo refused; wait");
  std::ofstream to(lines());
  to << "init\nalloc plain 1 629145600" << std::endl;
  EXPECT_TRUE(eventually([&] { return used() == kInit + 600 * kMiB; })) << used();
  std::ofstream(lines() + ".go") << "go";
  const auto refused = [&] { return tenant->output().find("refused") != std::string::npos; };
  EXPECT_TRUE(eventually(refused)) << tenant->output();
  to.close();
  EXPECT_EQ(tenant->wait().value_or(-1), 0) << tenant->output();
}

// HAZARDS 3: what is in flight waits for a launch that the shut gate holds.
TEST_F(Driver, AProgramThatCanOnlyGoOnByALaunchGetsItThoughItDidNotSettle) {
  auto tenant = task("exec $CUDA < $PIPE");
  std::ofstream to(lines());
  to << "init\nstream a\nstream b\nwaitvalue a\nadd a" << std::endl;
  const auto launches = [&] {
    const Json now = manager_.task("tenant");
    return !now.is_null() && now["state"] == "running";
  };
  ASSERT_TRUE(eventually(launches)) << manager_.log();
  auto neighbour = task(
      "(printf 'init\nstream a\n'; for i in 1 2 3 4 5; do printf 'sleep a 40000\nsync a\n'; done)"
      " | $CUDA",
      "neighbour");
  EXPECT_TRUE(eventually([&] { return manager_.task("tenant")["quarantined"] == true; }));
  to << "sleep b 100\nsync b\nset\nsync a\nsum" << std::endl;
  to.close();
  EXPECT_EQ(tenant->wait().value_or(-1), 0) << tenant->output();
  EXPECT_TRUE(tenant->output().ends_with("\n1\n")) << tenant->output();
  EXPECT_EQ(neighbour->wait().value_or(-1), 0) << neighbour->output();
}

// --- cards that go and come, by the stand-in of their library ---

TEST(Cards, P8_ACordonOutlivesThatItsCardWasAwayAndAnotherHadItsIndex) {
  TempFolder machine;
  const auto cards = [&](const std::vector<std::string>& ids) {
    std::ofstream out(machine.path() + "/cards");
    for (const std::string& id : ids) out << id << "|Tesla T4|15843721216|0|0|0|0|0\n";
  };
  cards({"GPU-a", "GPU-b"});
  Manager manager(
      {"--cards=nvidia", "--suspend=gate"},
      {{"LD_LIBRARY_PATH", QGPU_STAND_IN_DIR}, {"QGPU_STAND_IN_CARDS", machine.path() + "/cards"}});
  const auto restartWith = [&](const std::vector<std::string>& ids) {
    manager.kill();
    cards(ids);
    manager.start();
  };
  ASSERT_TRUE(manager.ask("cordon GPU-a")["ok"]);
  restartWith({"GPU-b"});
  ASSERT_TRUE(manager.ask("policy GPU-b burst-share")["ok"]);
  restartWith({"GPU-a", "GPU-b"});
  const Json all = manager.ask("cards")["cards"];
  ASSERT_EQ(all.size(), 2u) << all.dump();
  EXPECT_EQ(all[0]["state"], "cordoned") << all.dump();
  EXPECT_EQ(all[1]["state"], "ready") << all.dump();
  EXPECT_EQ(all[1]["policy"], "burst-share") << all.dump();
}

// --- the version of the driver ---

// Two cards of a driver of this version, and their manager.
struct CardsOf {
  explicit CardsOf(const std::string& version)
      : manager({"--cards=nvidia", "--suspend=gate"}, {{"LD_LIBRARY_PATH", QGPU_STAND_IN_DIR},
                                                       {"QGPU_STAND_IN_CARDS", listed()},
                                                       {"QGPU_STAND_IN_DRIVER", version}}) {}
  std::string listed() const {
    std::ofstream cards(machine.path() + "/cards");
    for (const char* id : {"GPU-a", "GPU-b"}) cards << id << "|Tesla T4|15843721216|0|0|0|0|0\n";
    return machine.path() + "/cards";
  }
  // What it tells of its driver since its start, and by which card.
  std::vector<std::pair<std::string, std::string>> told() {
    std::vector<std::pair<std::string, std::string>> found;
    const auto look = [&] {
      bool started = false;
      found.clear();
      const Json answer = manager.ask("events");
      for (const Json& event : answer["events"]) {
        if (event["kind"] == "driver-unknown") found.emplace_back(event["card"], event["text"]);
        started = started || event["kind"] == "node-started";
      }
      return started;
    };
    EXPECT_TRUE(eventually(look)) << manager.log();
    return found;
  }
  // The cards with this sample of the metric.
  std::string counted(const std::string& sample) const {
    std::string found;
    std::istringstream lines(manager.get("/metrics"));
    for (std::string line; std::getline(lines, line);) {
      if (!line.starts_with("qgpu_card_memory_counted_by_driver{")) continue;
      if (line.ends_with("} " + sample)) found += line.substr(line.find("GPU-"), 5) + " ";
    }
    return found;
  }

  const TempFolder machine;
  Manager manager;
};

TEST(DriverVersion, OneThatIsNotKnownIsToldOfOnceForEachCardAtEachStart) {
  CardsOf cards("450.102.04");
  for (int start = 0; start < 2; ++start) {
    const auto told = cards.told();
    ASSERT_EQ(told.size(), 2u);
    EXPECT_EQ(told[0].first, "GPU-a");
    EXPECT_EQ(told[1].first, "GPU-b");
    EXPECT_EQ(
        told[0].second,
        "memory counts at CUDA's calls, without contexts and what pools keep: driver 450.102.04 "
        "is not known to qgpu (515 to 595 are); no rm, and no cap of memory. Install a driver "
        "that is known, or a qgpu that knows this one");
    EXPECT_EQ(cards.counted("0"), "GPU-a GPU-b ");
    cards.manager.kill();
    cards.manager.start();
  }
}

TEST(DriverVersion, NothingIsToldOfOneThatIsKnown) {
  CardsOf cards("580.142");
  EXPECT_TRUE(cards.told().empty());
  EXPECT_EQ(cards.counted("1"), "GPU-a GPU-b ");
}

}  // namespace
}  // namespace qgpu::e2e::driver_test
