// Several schedulers that share an etcd, on hosts of their own: three of each, and two managers, of
// which one knows all schedulers and the other one. One scheduler acts. Whatever is killed, stands
// still or is cut off, what was acknowledged stays, no task is held twice (P3), and the words of
// who lost the seat change nothing (C1).

#include <algorithm>
#include <array>
#include <filesystem>
#include <gtest/gtest.h>
#include <iostream>
#include <map>
#include <optional>
#include <set>
#include <signal.h>

#include "tests/e2e/hosts/host_daemon.h"
#include "tests/testing/story.h"

namespace qgpu::e2e::group_test {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kGroup = 3;  // hosts 0..2: an etcd and a scheduler each
constexpr std::size_t kNodes = 2;  // hosts 3..4: a manager each
constexpr auto kPatience = HostDaemon::kPatience;

std::string etcdUrl(std::size_t host, const char* port) {
  return "http://" + Network::address(host) + ":" + port;
}

struct Group : ::testing::Test {
  Group() {
    for (std::size_t i = 0; i < kGroup; ++i) startEtcd(i);
    std::string all = "--scheduler=";
    for (std::size_t i = 0; i < kGroup; ++i) {
      store += (i == 0 ? "" : ",") + etcdUrl(i, "2379");
      all += (i == 0 ? "" : ",") + rpcOf(i);
    }
    for (std::size_t i = 0; i < kGroup; ++i) {
      schedulers[i] = std::make_unique<HostDaemon>(
          network, i, "qgpu-scheduler",
          std::vector<std::string>{store, "--rpc=" + rpcOf(i), "--insecure", "--lease=4s",
                                   "--record=" + records(i)});
    }
    for (std::size_t i = 0; i < kNodes; ++i) {
      nodes[i] = std::make_unique<HostDaemon>(
          network, kGroup + i, "qgpu-manager",
          std::vector<std::string>{"--cards=sim:4x64", "--nodename=node-" + std::to_string(i),
                                   i == 0 ? all : "--scheduler=" + rpcOf(0),
                                   "--max-tasks-per-card=60", "--insecure"});
    }
    EXPECT_TRUE(eventually([&] { return alive() == kNodes; }, kPatience));
  }
  ~Group() override {
    if (!HasFailure()) return;
    for (const auto& etcd : etcds) {
      if (etcd) std::cerr << "etcd:\n" << etcd->output() << "\n";
    }
  }

  // Without syncs, for which a busy disk makes it stand still for longer than a lease: what is
  // killed here is a process, and the page cache outlives it.
  void startEtcd(std::size_t i) {
    std::string cluster;
    for (std::size_t n = 0; n < kGroup; ++n) {
      cluster +=
          (n == 0 ? "" : ",") + std::string("e") + std::to_string(n) + "=" + etcdUrl(n, "2380");
    }
    const std::string client = etcdUrl(i, "2379"), peer = etcdUrl(i, "2380");
    etcds[i] = std::make_unique<Child>(
        network.on(i, {"etcd", "--name=e" + std::to_string(i),
                       "--data-dir=" + data[i].path() + "/etcd", "--listen-client-urls=" + client,
                       "--advertise-client-urls=" + client, "--listen-peer-urls=" + peer,
                       "--initial-advertise-peer-urls=" + peer, "--initial-cluster=" + cluster,
                       "--logger=zap", "--log-level=error", "--unsafe-no-fsync"}));
  }
  void endEtcd(std::size_t i) {
    etcds[i]->signal(SIGKILL);
    etcds[i]->wait();
  }
  // What a scheduler that acted did, it does again when it is told the same (A13).
  void TearDown() override {
    std::size_t lives = 0;
    for (std::size_t i = 0; i < kGroup; ++i) {
      schedulers[i]->kill();
      if (!std::filesystem::exists(records(i))) continue;
      for (const auto& record : std::filesystem::directory_iterator(records(i))) {
        const Finished again =
            run({binary("qgpu-scheduler"), "--replay=" + record.path().string()});
        EXPECT_EQ(again.status, 0) << again.output;
        ++lives;
      }
    }
    EXPECT_GE(lives, 1U);
  }
  std::string records(std::size_t i) const { return data[i] / "records"; }

  static std::string rpcOf(std::size_t host) { return Network::address(host) + ":12346"; }

  // --- what is looked at ---

  // Which scheduler acts, as it says itself, but for `unlike`; nothing where none does.
  std::optional<std::size_t> acting(std::size_t unlike = kGroup) {
    for (std::size_t i = 0; i < kGroup; ++i) {
      if (i == unlike || !schedulers[i]->answers()) continue;
      if (schedulers[i]->log().find("acts rows=") != std::string::npos) return i;
    }
    return {};
  }
  std::size_t awaitActing(std::size_t unlike) {
    std::optional<std::size_t> found;
    EXPECT_TRUE(eventually([&] { return (found = acting(unlike)).has_value(); }, kPatience));
    return found.value_or(0);
  }
  Json anybody(const std::string& line) {
    for (const auto& scheduler : schedulers) {
      const Json answer = scheduler->ask(line);
      if (answer.is_object() && answer["ok"] == true) return answer;
    }
    return {};
  }
  std::size_t alive() {
    const Json answer = anybody("nodes");
    if (!answer.is_object()) return 0;
    std::size_t count = 0;
    for (const Json& node : answer["nodes"]) count += node["state"] == "alive" ? 1 : 0;
    return count;
  }
  // The tasks that the nodes hold, in order. One that was placed again after the fence time is
  // there twice until the node that was silent is back and hears so.
  std::vector<std::uint64_t> held() {
    std::vector<std::uint64_t> all;
    for (const auto& node : nodes) {
      const Json answer = node->ask("tasks");
      if (!answer.is_object()) continue;
      for (const Json& task : answer["tasks"]) {
        all.push_back(task["cluster_task"].get<std::uint64_t>());
      }
    }
    std::ranges::sort(all);
    return all;
  }
  std::vector<std::uint64_t> eachOnce() { return {acknowledged.begin(), acknowledged.end()}; }

  // As a person would, who names all of them.
  Finished ctl(std::vector<std::string> words) {
    std::string all;
    for (std::size_t i = 0; i < kGroup; ++i) all += (i == 0 ? "" : ",") + rpcOf(i);
    return ctl(all, std::move(words));
  }
  Finished ctl(const std::string& server, std::vector<std::string> words) {
    std::vector<std::string> argv = {binary("qgpuctl"), "--server", server};
    argv.insert(argv.end(), words.begin(), words.end());
    return run(network.on(kGroup, argv));
  }
  // On the acting scheduler's own socket, whose users may have tasks. 0: not acknowledged.
  std::uint64_t submit(std::size_t at, const std::string& name) {
    const Json answer =
        schedulers[at]->ask(R"(submit {"name":")" + name +
                            R"(","memory_gib":1,"core_percent":1,"request_id":")" + name + R"("})");
    return answer.is_object() && answer["ok"] == true ? answer["task"].get<std::uint64_t>() : 0;
  }
  // As a client that asks again until it is answered, since a machine that stands still for longer
  // than a lease costs the seat; and who ended for that is started again, as its unit would be.
  // `unlike` is left as it is. Who acknowledged the last.
  std::size_t submitMany(int count, std::size_t unlike = kGroup) {
    std::size_t at = kGroup;
    for (int i = 0; i < count; ++i) {
      const std::string name = "t" + std::to_string(++submitted);
      std::uint64_t task = 0;
      EXPECT_TRUE(eventually(
          [&] {
            launchEnded(unlike);
            at = acting(unlike).value_or(kGroup);
            return at < kGroup && (task = submit(at, name)) != 0;
          },
          kPatience))
          << name;
      if (task != 0) acknowledged.insert(task);
    }
    return at < kGroup ? at : 0;
  }
  void launchEnded(std::size_t unlike = kGroup) {
    for (std::size_t i = 0; i < kGroup; ++i) {
      if (i == unlike || schedulers[i]->child().alive()) continue;
      EXPECT_NE(schedulers[i]->log().find("another scheduler may act now"), std::string::npos)
          << schedulers[i]->log();
      schedulers[i]->launch();
    }
  }
  // The tasks that whoever acts knows; none where nobody acts.
  std::set<std::uint64_t> known() {
    std::set<std::uint64_t> all;
    const Json answer = anybody("tasks");
    if (!answer.is_object()) return all;
    for (const Json& task : answer["tasks"]) all.insert(task["id"].get<std::uint64_t>());
    return all;
  }
  // Whoever acts knows all that was acknowledged, and the nodes hold it. The seat may change
  // between two questions, as in submitMany.
  void expectNothingLost() {
    const auto whole = [&] {
      launchEnded();
      return alive() == kNodes && held() == eachOnce() && known() == acknowledged;
    };
    EXPECT_TRUE(eventually(whole, kPatience))
        << held().size() << " held, " << known().size() << " known, " << acknowledged.size()
        << " acknowledged";
  }

  Network network{kGroup + kNodes};
  std::string store = "--store=etcd:";
  std::array<TempFolder, kGroup> data;
  std::array<std::unique_ptr<Child>, kGroup> etcds;
  std::array<std::unique_ptr<HostDaemon>, kGroup> schedulers;
  std::array<std::unique_ptr<HostDaemon>, kNodes> nodes;
  std::set<std::uint64_t> acknowledged;
  int submitted = 0;
};

TEST_F(Group, OneActsAndTheOthersPassQuestionsOn) {
  const std::size_t at = submitMany(3);
  for (std::size_t i = 0; i < kGroup; ++i) {
    ASSERT_TRUE(eventually([&] {
      const Json answer = schedulers[i]->ask("tasks");
      return answer.is_object() && answer["ok"] == true && answer["tasks"].size() == 3;
    })) << i;
    const Finished seen = ctl(rpcOf(i), {"nodes"});
    EXPECT_EQ(seen.status, 0) << seen.output;
    EXPECT_NE(seen.output.find("node-1"), std::string::npos) << seen.output;
  }
  for (std::size_t i = 0; i < kGroup; ++i) {
    const std::string page = "http://" + schedulers[i]->logged("http") + "/metrics";
    const std::string figures = run(network.on(i, {"curl", "-s", page})).output;
    const char* acts = i == at ? "\nqgpu_cluster_acting 1\n" : "\nqgpu_cluster_acting 0\n";
    EXPECT_NE(figures.find(acts), std::string::npos) << figures;
    EXPECT_EQ(figures.find("qgpu_cluster_tasks 3") != std::string::npos, i == at) << figures;
  }
  const std::size_t other = (at + 1) % kGroup;
  const Json refused = schedulers[other]->ask("cordon node-0");
  EXPECT_EQ(refused["code"], "stands-by") << refused;
  EXPECT_NE(refused["error"].get<std::string>().find(rpcOf(at)), std::string::npos) << refused;
  // Over TCP without TLS nobody may change anything: the refusal is of the one that acts.
  const Finished followed = ctl(rpcOf(other), {"cordon", "node-0"});
  EXPECT_EQ(followed.status, 3) << followed.output;
  EXPECT_EQ(followed.output.find("stands by"), std::string::npos) << followed.output;
}

// Every etcd loses all it has. What was bound after the copy was taken is known from the nodes.
TEST_F(Group, D5_AWipedEtcdIsRestoredFromACopyAndFromNodesAndNobodyEnds) {
  const std::size_t at = submitMany(3);
  const std::string file = data[0] / "snapshot";
  const Finished saved =
      run({binary("qgpuctl"), "--socket", schedulers[at]->socket(), "snapshot", "save", file});
  ASSERT_EQ(saved.status, 0) << saved.output;
  const auto restore = [&] {
    return run(network.on(0, {binary("qgpu-scheduler"), "--restore=" + file, store}));
  };
  const Finished refused = restore();
  EXPECT_EQ(refused.status, 2);
  EXPECT_NE(refused.output.find("acts: stop every scheduler"), std::string::npos) << refused.output;
  submitMany(3);
  ASSERT_TRUE(eventually([&] { return held() == eachOnce(); }, kPatience));

  for (const auto& scheduler : schedulers) scheduler->kill();
  for (std::size_t i = 0; i < kGroup; ++i) endEtcd(i);
  for (std::size_t i = 0; i < kGroup; ++i) {
    std::filesystem::remove_all(data[i] / "etcd");
    startEtcd(i);
  }
  ASSERT_TRUE(eventually([&] { return restore().status == 0; }, kPatience)) << restore().output;
  EXPECT_EQ(held(), eachOnce());
  const Finished again = restore();
  EXPECT_EQ(again.status, 2);
  EXPECT_NE(again.output.find("rows already"), std::string::npos) << again.output;
  for (const auto& scheduler : schedulers) scheduler->launch();
  ASSERT_TRUE(eventually(
      [&] {
        return std::ranges::any_of(schedulers, [](const auto& scheduler) {
          return scheduler->log().find("gathered") != std::string::npos;
        });
      },
      kPatience));
  expectNothingLost();
  submitMany(2);
  expectNothingLost();
}

TEST_F(Group, C1_KilledItIsFollowedWithin3sAndNothingIsLost) {
  for (int round = 0; round < 3; ++round) {
    const std::size_t at = submitMany(4);
    const std::int64_t killed = testing::monotonicNs();
    schedulers[at]->kill();
    const std::size_t next = awaitActing(at);
    const double seconds = static_cast<double>(testing::monotonicNs() - killed) / 1e9;
    std::cout << "acts again after " << seconds << " s\n";
    EXPECT_LT(seconds, 8.0);
    schedulers[at]->start();
    EXPECT_NE(next, at);
    expectNothingLost();
  }
}

TEST_F(Group, AnEndInOrderGivesTheSeatToTheNextAtOnce) {
  const std::size_t at = submitMany(2);
  schedulers[at]->child().signal(SIGTERM);
  EXPECT_EQ(schedulers[at]->child().wait(20s).value_or(-1), 0);
  awaitActing(at);
  schedulers[at]->start();
  expectNothingLost();
}

TEST_F(Group, C1_OneThatStoodStillChangesNothingWhenItGoesOn) {
  const std::size_t at = submitMany(3);
  schedulers[at]->pause();
  const std::size_t next = submitMany(3, at);
  schedulers[at]->resume();
  ASSERT_TRUE(schedulers[at]->child().wait(30s).has_value()) << "it goes on as if nothing was";
  schedulers[at]->start();
  expectNothingLost();
  if (schedulers[next]->child().alive()) {
    EXPECT_EQ(acting(), next);
  }
}

TEST_F(Group, OneEtcdLessChangesNothingAndWithoutAnyTheNodesGoOn) {
  const std::size_t at = submitMany(2);
  endEtcd((at + 1) % kGroup);
  submitMany(2);
  endEtcd(at);
  endEtcd((at + 2) % kGroup);
  EXPECT_EQ(held(), eachOnce());
  for (std::size_t i = 0; i < kGroup; ++i) startEtcd(i);
  ASSERT_TRUE(eventually(
      [&] {
        launchEnded();
        return acting().has_value() && alive() == kNodes;
      },
      kPatience));
  submitMany(2);
  expectNothingLost();
}

TEST_F(Group, C1_CutOffFromTheOthersItNoLongerActs) {
  const std::size_t at = submitMany(3);
  network.cut(at, Network::Cut::FromHost);
  submitMany(3, at);
  network.heal(at);
  ASSERT_TRUE(schedulers[at]->child().wait(30s).has_value()) << "two act";
  schedulers[at]->start();
  expectNothingLost();
}

// Namespaces are entered before any thread.
const testing::Before before("group", [](char**) { return Network::enter(); });

}  // namespace
}  // namespace qgpu::e2e::group_test
