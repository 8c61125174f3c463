// A cluster whose daemons become those of another release one after the other, and back, while
// programs with the library of either run on and either qgpuctl speaks to it. QGPU_PREVIOUS is the
// build folder of the other release (`./dev test-upgrade` makes one); without it there is nothing
// to be tried.

#include <gtest/gtest.h>

#include "tests/e2e/launching_program.h"

namespace qgpu::e2e::upgrade_test {
namespace {

constexpr auto kPatience = std::chrono::seconds(60);

std::string previous() {
  const char* folder = std::getenv("QGPU_PREVIOUS");
  return folder != nullptr ? folder : "";
}

enum class Release : std::uint8_t { Old, New };
constexpr Release kBoth[] = {Release::Old, Release::New};

std::string programOf(Release release, const std::string& name) {
  return release == Release::New ? binary(name) : previous() + "/bin/" + name;
}

class Daemon : public testing::PrivateDaemon {
 public:
  Daemon(const std::string& name, std::vector<std::string> arguments)
      : PrivateDaemon(name, TempFolder("upgrade"), std::move(arguments)) {}

  void become(Release release) {
    if (alive()) {
      EXPECT_EQ(stop(), 0) << log();
    }
    launch(programOf(release, "qgpu-" + name()));
    EXPECT_TRUE(awaitService(kPatience)) << log();
  }
  Json ask(const std::string& line) const {
    return Json::parse(askSocket(socket(), line, kPatience), nullptr, false);
  }
};

class Upgrade : public ::testing::Test {
 protected:
  void SetUp() override {
    if (previous().empty()) GTEST_SKIP() << "QGPU_PREVIOUS names no build of another release";
    for (Daemon* one : all()) one->become(Release::Old);
    expectJoined();
  }

  std::vector<Daemon*> all() { return {&scheduler_, &a_, &b_}; }
  std::vector<std::string> memberNamed(const std::string& name) {
    return {"--cards=sim:2x64", "--nodename=" + name,
            "--scheduler=unix:" + scheduler_.runDir() + "/scheduler.rpc"};
  }
  void expectJoined() {
    const auto alive = [&] {
      const Json answer = scheduler_.ask("nodes");
      std::size_t count = 0;
      for (const Json& node : answer["nodes"]) count += node["state"] == "alive" ? 1 : 0;
      return count == 2;
    };
    EXPECT_TRUE(eventually(alive, kPatience)) << scheduler_.ask("nodes");
  }
  Json submit(const std::string& name) {
    const Json assigned = scheduler_.ask(R"(submit {"memory_gib":2,"name":")" + name +
                                         R"(","request_id":")" + name + R"(","core_percent":10})");
    EXPECT_TRUE(assigned.contains("env")) << assigned;
    return assigned;
  }
  void begin(const std::string& name, Release library) {
    const Json assigned = submit(name);
    tasks_[name] = assigned["task"];
    const Daemon& node = assigned["node"] == "node-a" ? a_ : b_;
    programs_.push_back(std::make_unique<LaunchingProgram>(
        assigned, node, programOf(library, "qgpu-crash-tenant")));
    EXPECT_TRUE(programs_.back()->launches()) << name;
  }

  // Who runs goes on, the cluster knows them as before, and both qgpuctl speak to each daemon.
  void expectUndisturbed(const std::string& step) {
    SCOPED_TRACE(step);
    expectJoined();
    for (const auto& program : programs_) EXPECT_TRUE(program->launches());
    for (const auto& [name, id] : tasks_) EXPECT_EQ(submit(name)["task"], id) << name;
    for (const Release release : kBoth) {
      const std::string ctl = programOf(release, "qgpuctl");
      for (const Daemon* one : all()) {
        const Finished tasks = run({ctl, "--socket", one->socket(), "-o", "json", "tasks"});
        EXPECT_EQ(tasks.status, 0) << ctl << ": " << tasks.output;
      }
      const Finished nodes = run({ctl, "--socket", scheduler_.socket(), "nodes"});
      EXPECT_EQ(nodes.status, 0) << ctl << ": " << nodes.output;
      const Finished program =
          run({ctl, "--socket", a_.socket(), "run", "--memory", "1", "--core", "5", "--", "true"});
      EXPECT_EQ(program.status, 0) << ctl << ": " << program.output;
    }
    const Json brief = submit("brief-" + step);
    EXPECT_TRUE(scheduler_.ask("delete " + brief["task"].dump())["ok"]) << brief;
  }
  void step(Daemon& daemon, Release to, const std::string& name) {
    daemon.become(to);
    expectUndisturbed(name);
  }

  Daemon scheduler_{"scheduler", {"--rpc=127.0.0.1:0", "--lease=3s"}};
  Daemon a_{"manager", memberNamed("node-a")};
  Daemon b_{"manager", memberNamed("node-b")};
  std::map<std::string, Json> tasks_;
  std::vector<std::unique_ptr<LaunchingProgram>> programs_;
};

TEST_F(Upgrade, DaemonsBecomeNewOnesAndOldOnesAgainUnderRunningPrograms) {
  for (const Release library : kBoth) {
    const std::string of = library == Release::Old ? "old" : "new";
    for (int i = 0; i < 4; ++i) begin(of + "-" + std::to_string(i), library);
  }
  expectUndisturbed("all-old");
  step(a_, Release::New, "a-new");
  step(scheduler_, Release::New, "scheduler-new");
  step(b_, Release::New, "all-new");
  begin("late-old", Release::Old);
  begin("late-new", Release::New);
  step(scheduler_, Release::Old, "scheduler-old");
  step(b_, Release::Old, "b-old");
  step(a_, Release::Old, "all-old-again");
}

}  // namespace
}  // namespace qgpu::e2e::upgrade_test
