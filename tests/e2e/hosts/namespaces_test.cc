// A cluster of real daemons on hosts of their own: a scheduler and three managers that speak mutual
// TLS, while cables are pulled, one direction is lost, and managers are killed or stand still. At
// each look at it no task is held twice under one epoch (P3), who has no lease binds nothing new
// (C1), and what was lost comes back elsewhere only after the fence (C3). In the end each task is
// where the scheduler says, and nowhere else (C4).

#include <algorithm>
#include <array>
#include <gtest/gtest.h>
#include <iostream>
#include <map>
#include <poll.h>
#include <set>

#include "tests/e2e/hosts/host_daemon.h"
#include "tests/testing/certificates.h"
#include "tests/testing/story.h"

namespace qgpu::e2e::namespaces_test {
namespace {

using namespace std::chrono_literals;
using Cut = Network::Cut;
using testing::Certificates;

constexpr std::size_t kHosts = 4;  // the scheduler's is 0
constexpr auto kPatience = HostDaemon::kPatience;
constexpr const char* kPort = "12346";  // of a namespace that nobody else is in
constexpr const char* kLease = "--lease=4s";

struct Namespaces : ::testing::Test {
  Namespaces() {
    made.makeCa("ca");
    const std::string at = Network::address(0);
    scheduler = std::make_unique<HostDaemon>(
        network, 0, "qgpu-scheduler", flags("ca", at, {"--rpc=" + at + ":" + kPort, kLease}));
    for (std::size_t i = 1; i < kHosts; ++i) {
      nodes[i] = std::make_unique<HostDaemon>(network, i, "qgpu-manager",
                                              flags("ca", nameOf(i), memberFlags(nameOf(i))));
    }
    for (std::size_t i = 1; i < kHosts; ++i) EXPECT_TRUE(comesTo(i, "alive"));
  }

  static std::string nameOf(std::size_t host) { return "node-" + std::to_string(host); }
  static std::vector<std::string> memberFlags(const std::string& name) {
    return {"--cards=sim:2x16", "--nodename=" + name,
            "--scheduler=" + Network::address(0) + ":" + kPort};
  }
  // With a certificate of this name, signed by `ca`.
  std::vector<std::string> flags(const std::string& ca, const std::string& name,
                                 std::vector<std::string> more) {
    const TlsFiles files = made.make(ca, name);
    more.insert(more.end(), {"--tls-cert=" + files.cert, "--tls-key=" + files.key,
                             "--tls-ca=" + made.path("ca.pem")});
    return more;
  }

  // --- what is asked of the cluster ---

  // The task's number; the answer may take until the task is placed again elsewhere.
  std::uint64_t submit() {
    const std::string name = "task-" + std::to_string(++submitted);
    const Json answer = scheduler->ask(R"(submit {"name":")" + name +
                                       R"(","memory_gib":2,"core_percent":10,)"
                                       R"("node_score":"spread"})");
    EXPECT_TRUE(answer.is_object() && answer["ok"] == true) << answer;
    if (!answer.is_object() || answer["ok"] != true) return 0;
    return answer["task"];
  }
  void submitMany(int count) {
    for (int i = 0; i < count; ++i) submit();
  }
  // A program on that host that asks its own manager for a task.
  Finished runThere(std::size_t host) {
    return run({binary("qgpuctl"), "--socket", nodes[host]->socket(), "run", "--", "true"});
  }

  // --- what is looked at ---

  Json tasks() {
    const Json answer = scheduler->ask("tasks");
    return answer.is_object() ? answer["tasks"] : Json::array();
  }
  std::string lifeOf(std::size_t host) {
    const Json answer = scheduler->ask("nodes");
    if (!answer.is_object()) return "";
    for (const Json& node : answer["nodes"]) {
      if (node["name"] == nameOf(host)) return node["state"];
    }
    return "unknown";
  }
  std::string standingOf(std::size_t host) {
    const Json status = nodes[host]->ask("status");
    return status.is_object() ? status["cluster"].get<std::string>() : "";
  }
  Json heldBy(std::size_t host) {
    const Json answer = nodes[host]->ask("tasks");
    return answer.is_object() ? answer["tasks"] : Json::array();
  }

  // P3, as far as nodes can be asked.
  void lookForDoubles() {
    std::map<std::pair<std::uint64_t, std::uint32_t>, std::size_t> holders;
    for (std::size_t i = 1; i < kHosts; ++i) {
      for (const Json& task : heldBy(i)) {
        const std::uint64_t id = task["cluster_task"];
        const auto [entry, isNew] = holders.try_emplace({id, task["cluster_epoch"]}, i);
        EXPECT_TRUE(isNew) << "task " << id << " is held by " << nameOf(entry->second) << " and "
                           << nameOf(i) << " under epoch " << task["cluster_epoch"];
      }
    }
  }
  template <typename Condition>
  bool comes(Condition condition) {
    return eventually(
        [&] {
          lookForDoubles();
          if (HasFailure() || condition()) return true;
          ::poll(nullptr, 0, 50);  // daemons that answer all the time do little else
          return false;
        },
        kPatience);
  }
  bool comesTo(std::size_t host, const std::string& life) {
    return comes([&] { return lifeOf(host) == life; });
  }
  // Every task has a place that its node confirmed, beside those on this host.
  bool allBoundElsewhere(std::size_t than) {
    const Json all = tasks();
    return all.size() == submitted && std::all_of(all.begin(), all.end(), [&](const Json& task) {
             return task["place"] == "bound" && task["node"] != nameOf(than);
           });
  }

  // C4: nodes hold exactly what the scheduler says. What still differs, for a person; else empty.
  std::string difference() {
    std::map<std::uint64_t, Json> bound;
    for (const Json& task : tasks()) {
      if (task["place"] != "bound") return "not bound: " + task.dump();
      bound[task["id"]] = task;
    }
    if (bound.size() != submitted) return std::to_string(bound.size()) + " tasks";
    std::size_t held = 0;
    for (std::size_t i = 1; i < kHosts; ++i) {
      if (lifeOf(i) != "alive") return nameOf(i) + " is " + lifeOf(i);
      for (const Json& task : heldBy(i)) {
        const auto found = bound.find(task["cluster_task"]);
        if (found == bound.end()) return "an orphan: " + task.dump();
        const Json& known = found->second;
        if (known["node"] != nameOf(i) || known["epoch"] != task["cluster_epoch"] ||
            known["node_task"] != task["id"]) {
          return "held as " + task.dump() + " but known as " + known.dump();
        }
        ++held;
      }
    }
    return held == bound.size() ? "" : std::to_string(held) + " are held";
  }
  void expectAgreement() {
    EXPECT_TRUE(comes([&] { return difference().empty(); })) << difference();
  }

  Network network{kHosts};
  TempFolder folder;
  Certificates made{folder.path()};
  std::unique_ptr<HostDaemon> scheduler;
  std::array<std::unique_ptr<HostDaemon>, kHosts> nodes;
  std::size_t submitted = 0;
};

// A node is cut off, its tasks go elsewhere after the fence, it binds nothing meanwhile, and when
// it is back it gives up what it held.
struct CutOff : Namespaces, ::testing::WithParamInterface<Cut> {};

TEST_P(CutOff, C3_ANodesTasksArePlacedAgainAndItEndsItsOwnWhenItIsBack) {
  submitMany(9);
  const std::size_t before = heldBy(2).size();
  EXPECT_GT(before, 0u);
  network.cut(2, GetParam());
  ASSERT_TRUE(comesTo(2, "lost"));
  ASSERT_TRUE(comes([&] { return allBoundElsewhere(2); })) << tasks();
  ASSERT_TRUE(comes([&] { return !standingOf(2).starts_with("joined"); })) << standingOf(2);
  const Finished refused = runThere(2);
  EXPECT_EQ(refused.status, 125) << "a node without a lease binds nothing new";
  EXPECT_NE(refused.output.find("placed by the scheduler"), std::string::npos) << refused.output;
  EXPECT_EQ(heldBy(2).size(), before) << "and what it holds runs on";
  network.heal(2);
  expectAgreement();
  const Finished ran = runThere(2);
  EXPECT_EQ(ran.status, 0) << ran.output;
}

std::string cutName(const ::testing::TestParamInfo<Cut>& cut) {
  constexpr const char* kNames[] = {"CablePulled", "NotHeard", "Deaf"};
  return kNames[static_cast<std::size_t>(cut.param)];
}
INSTANTIATE_TEST_SUITE_P(Namespaces, CutOff,
                         ::testing::Values(Cut::Pulled, Cut::FromHost, Cut::ToHost), cutName);

TEST_F(Namespaces, C1_AManagerThatStoodStillBeyondTheFenceEndsWhatWasPlacedAgain) {
  submitMany(6);
  nodes[1]->pause();
  ASSERT_TRUE(comesTo(1, "lost"));
  ASSERT_TRUE(comes([&] { return allBoundElsewhere(1); })) << tasks();
  nodes[1]->resume();
  expectAgreement();
}

TEST_F(Namespaces, AManagerThatIsKilledComesBackAndTheViewsAgree) {
  submitMany(6);
  nodes[3]->kill();
  ASSERT_TRUE(comesTo(3, "lost"));
  ASSERT_TRUE(comes([&] { return allBoundElsewhere(3); })) << tasks();
  nodes[3]->start();
  expectAgreement();
}

TEST_F(Namespaces, ASchedulerThatIsKilledWhileANodeIsCutOffFindsEverythingAgain) {
  submitMany(9);
  network.cut(1, Cut::ToHost);
  scheduler->kill();
  nodes[2]->kill();
  scheduler->start();
  ASSERT_TRUE(comesTo(3, "alive"));
  submit();
  nodes[2]->start();
  network.heal(1);
  expectAgreement();
}

// Each of them at once, and tasks come meanwhile.
TEST_F(Namespaces, OneIsCutOffOneIsKilledAndOneStandsStill) {
  submitMany(6);
  network.cut(1, Cut::FromHost);
  nodes[2]->kill();
  submitMany(2);  // each may have been given to a node that never answers
  nodes[3]->pause();
  ASSERT_TRUE(comes([&] { return lifeOf(1) == "lost" && lifeOf(2) == "lost"; }));
  nodes[3]->resume();
  nodes[2]->start();
  submitMany(2);
  network.heal(1);
  expectAgreement();
  for (const Json& task : tasks()) {
    EXPECT_EQ(scheduler->ask("delete " + task["id"].dump())["ok"], true);
  }
  submitted = 0;
  expectAgreement();
}

TEST_F(Namespaces, C7_WhoHasNoCertificateOfTheCaDoesNotJoin) {
  made.makeCa("other");
  HostDaemon stranger(network, 1, "qgpu-manager",
                      flags("other", "stranger", memberFlags("stranger")));
  std::string standing;
  EXPECT_TRUE(eventually(
      [&] {
        standing = stranger.ask("status")["cluster"];
        return standing.starts_with("no scheduler");
      },
      kPatience))
      << standing;
  EXPECT_EQ(scheduler->ask("nodes")["nodes"].size(), kHosts - 1);
  submitMany(3);
  expectAgreement();
}

// Namespaces are entered before any thread.
const testing::Before before("namespaces", [](char**) { return Network::enter(); });

}  // namespace
}  // namespace qgpu::e2e::namespaces_test
