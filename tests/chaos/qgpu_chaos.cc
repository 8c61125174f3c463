// qgpu-chaos: a real cluster on network namespaces, harmed in storms of faults that overlap while
// clients go on. In the calm after each storm all must be as it should within kCalm, and what every
// client was ever told must be what one scheduler could have said that loses and undoes nothing
// (check_history.h). Ends with one JSON line. Exit status: 0 nothing found, 1 something is wrong
// (what, stands before that line, and on stderr the folder that keeps history and logs), 2 usage,
// 77 this machine does not allow it.

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <set>

#include "tests/chaos/admin_line.h"
#include "tests/chaos/chaos_clients.h"
#include "tests/chaos/chaos_cluster.h"
#include "tests/chaos/check_history.h"
#include "tests/chaos/keep_record.h"
#include "tests/chaos/slow_sync.h"
#include "tests/crash/violation.h"
#include "tests/testing/eventually.h"
#include "tests/testing/temp_folder.h"

namespace qgpu::chaos {
namespace {

using Json = nlohmann::json;
using std::chrono::milliseconds;
using testing::eventually;
using testing::monotonicNs;

constexpr std::int64_t kStormMs = 25'000;
constexpr std::int64_t kBetweenMs = 3'000;  // of clients alone, before each storm
constexpr milliseconds kCalm{60'000};       // until all is as it should be
constexpr milliseconds kAnswer{5'000};
constexpr std::int64_t kMs = 1'000'000;
constexpr int kWrong = 1, kUsage = 2, kSkipped = 77;

struct Options {
  double minutes = 60;
  std::uint64_t seed = 1;
  bool keep = false;
  bool planted = false;
};

class Run {
 public:
  Run(const Options& options, const std::string& folder)
      : options_(options), folder_(folder), cluster_(folder), random_(options.seed) {}

  int run() {
    const std::int64_t begun = monotonicNs();
    const auto until = begun + static_cast<std::int64_t>(options_.minutes * 60e9);
    note_.open(folder_ + "/logs/faults.log");
    clients_ = std::make_unique<ChaosClients>(doors(), options_.seed * 1'000);
    bool good = calm();
    while (good && monotonicNs() < until) {
      clients_->goOn();
      pass(kBetweenMs);
      if (options_.planted) loseOne();
      storm();
      good = calm();
    }
    for (const Violation& one : violations_) {
      std::printf("found: %s: %s\n", one.rule.c_str(), one.what.c_str());
    }
    report(static_cast<double>(monotonicNs() - begun) / 60e9);
    if (options_.planted && !good) return 0;
    if (options_.planted) std::fprintf(stderr, "qgpu-chaos: what was planted was not found\n");
    if (good && !options_.planted && !options_.keep) return 0;
    cluster_.stop();
    const std::string kept = keepRecord(folder_, options_.seed, clients_->history(), violations_);
    std::fprintf(stderr, "kept: %s\n", kept.c_str());
    return good && !options_.planted ? 0 : kWrong;
  }

 private:
  Doors doors() const {
    Doors doors;
    for (std::size_t i = 0; i < kGroup; ++i) {
      doors.schedulers.push_back(cluster_.schedulerSocket(i));
    }
    for (std::size_t i = 0; i < kManagers; ++i) {
      doors.managers.push_back(cluster_.managerSocket(i));
      doors.nodes.push_back(ChaosCluster::nodeName(i));
    }
    doors.ctl = [this](std::vector<std::string> words) { return cluster_.ctl(std::move(words)); };
    return doors;
  }

  void note(const std::string& text) { note_ << monotonicNs() << " ns  " << text << std::endl; }
  void pass(std::int64_t ms) {
    eventually(
        [this] {
          cluster_.keepUp(monotonicNs());
          return false;
        },
        milliseconds(ms));
  }

  // --- storms ---

  void storm() {
    const std::vector<Planned> plan = planStorm(random_, kStormMs);
    const std::int64_t begun = monotonicNs();
    std::vector<bool> under(plan.size()), over(plan.size());
    ++storms_;
    eventually(
        [&] {
          const std::int64_t now = (monotonicNs() - begun) / kMs;
          for (std::size_t i = 0; i < plan.size(); ++i) {
            if (!under[i] && plan[i].fromMs <= now) {
              under[i] = true;
              note("begins: " + describe(plan[i]));
              cluster_.begin(plan[i]);
              ++faults_[static_cast<std::size_t>(plan[i].fault)];
            } else if (under[i] && !over[i] && plan[i].untilMs <= now) {
              over[i] = true;
              note("ends: " + describe(plan[i]));
              cluster_.end(plan[i]);
            }
          }
          cluster_.keepUp(monotonicNs());
          return now >= kStormMs && std::find(over.begin(), over.end(), false) == over.end();
        },
        milliseconds(2 * kStormMs));
  }

  // What no cluster may do: a task goes, and no client asked for it.
  void loseOne() {
    const Json listed = anybody("tasks");
    if (listed.is_object()) anybody("delete " + listed["tasks"][0]["id"].dump());
  }

  // --- calms ---

  // Whether all is well again, and what was said was right.
  bool calm() {
    note("calm");
    clients_->rest();
    const std::int64_t begun = monotonicNs();
    std::string missing;
    const bool rests = eventually([&] { return (missing = lacking()).empty(); }, kCalm);
    const std::int64_t took = monotonicNs() - begun;
    longestCalm_ = std::max(longestCalm_, took);
    note("calm after " + std::to_string(took / kMs) + " ms" + (rests ? "" : ": not: " + missing));
    if (!eventually([&] { return clients_->resting(); }, kCalm) && missing.empty()) {
      missing = "a client has no answer";
    }
    if (!missing.empty()) {
      violations_.push_back(
          {"rest", monotonicNs(),
           missing + ", " + std::to_string(kCalm.count() / 1'000) + " s after all was mended"});
    }
    const Findings findings = checkHistory(clients_->history());
    violations_.insert(violations_.end(), findings.violations.begin(), findings.violations.end());
    return violations_.empty();
  }

  // What is not as it should be; empty: nothing.
  std::string lacking() {
    cluster_.keepUp(monotonicNs());
    if (!cluster_.allRun()) return "a process does not run";
    if (!clients_->resting()) return "a client has no answer";
    const Json nodes = anybody("nodes");
    if (!nodes.is_object()) return "no scheduler acts";
    std::size_t alive = 0;
    for (const Json& node : nodes["nodes"]) alive += node["state"] == "alive" ? 1 : 0;
    if (alive != kManagers) return std::to_string(alive) + " nodes are alive";
    for (const Json& node : nodes["nodes"]) {
      if (node["cordoned"] == true && !clients_->uncordonAll()) return "a cordon stays";
    }
    return differing();
  }

  // Between what the scheduler has and what the nodes have.
  std::string differing() {
    const Json listed = anybody("tasks");
    if (!listed.is_object()) return "no scheduler lists tasks";
    std::map<std::uint64_t, std::string> where;
    for (const Json& task : listed["tasks"]) {
      const auto id = task["id"].get<std::uint64_t>();
      if (task["place"] != "bound") {
        return "task " + std::to_string(id) + " is " + task["place"].get<std::string>() + ": " +
               task.value("reason", "");
      }
      where[id] = task["node"].get<std::string>() + " epoch " + task["epoch"].dump();
    }
    std::map<std::uint64_t, std::string> held;
    for (std::size_t i = 0; i < kManagers; ++i) {
      const Json answer = askAdmin(cluster_.managerSocket(i), "tasks", kAnswer).said;
      if (!answer.is_object()) return "a manager does not answer";
      for (const Json& task : answer["tasks"]) {
        const auto id = task["cluster_task"].get<std::uint64_t>();
        std::string& at = held[id];
        if (!at.empty()) return "task " + std::to_string(id) + " is on two nodes";
        at = ChaosCluster::nodeName(i) + " epoch " + task["cluster_epoch"].dump();
      }
    }
    if (held == where) return "";
    return "the scheduler has " + std::to_string(where.size()) + " tasks bound, and the nodes " +
           std::to_string(held.size()) + ", or others";
  }

  Json anybody(const std::string& line) const {
    for (std::size_t i = 0; i < kGroup; ++i) {
      const Answer answer = askAdmin(cluster_.schedulerSocket(i), line, kAnswer);
      if (answer.ok()) return answer.said;
    }
    return nullptr;
  }

  void report(double minutes) const {
    Json faults = Json::object();
    for (std::size_t i = 0; i < kFaults; ++i) faults[kFaultNames[i]] = faults_[i];
    const History history = clients_->history();
    std::printf("%s\n", Json{{"chaos", "cluster"},
                             {"seed", options_.seed},
                             {"minutes", std::round(minutes * 100) / 100},
                             {"storms", storms_},
                             {"faults", faults},
                             {"ended_by_themselves", cluster_.ownEnds()},
                             {"operations", history.operations()},
                             {"unknown", history.unknown()},
                             {"longest_calm_ms", longestCalm_ / kMs},
                             {"violations", violations_.size()}}
                            .dump()
                            .c_str());
    std::fflush(stdout);
  }

  const Options options_;
  const std::string folder_;
  ChaosCluster cluster_;
  std::mt19937_64 random_;
  std::unique_ptr<ChaosClients> clients_;
  std::ofstream note_;
  std::array<std::size_t, kFaults> faults_{};
  std::size_t storms_ = 0;
  std::int64_t longestCalm_ = 0;
  std::vector<Violation> violations_;
};

int main(int argc, char** argv) {
  if (argc >= 4 && std::strcmp(argv[1], "slow-sync") == 0) {
    std::fprintf(stderr, "qgpu-chaos: %s\n", becomeSlowSyncing(argv[2], argv + 3).c_str());
    return kWrong;
  }
  CLI::App app("qgpu-chaos: a cluster under storms of faults, and a judge of what clients saw");
  Options options;
  app.add_option("--minutes", options.minutes, "how long; the storm that runs then ends")
      ->capture_default_str()
      ->check(CLI::Range(0.01, 1'000'000.0));
  app.add_option("--seed", options.seed, "draws the faults")->capture_default_str();
  app.add_flag("--planted", options.planted,
               "a task is deleted behind the clients' backs, and that must be found");
  app.add_flag("--keep", options.keep, "keep history and logs also where nothing is found");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& wrong) {
    return app.exit(wrong) == 0 ? 0 : kUsage;
  }
  const std::string why = e2e::Network::enter();
  if (!why.empty()) {
    std::fprintf(stderr, "qgpu-chaos: SKIPPED, nothing was tested: %s\n", why.c_str());
    return kSkipped;
  }
  try {
    const testing::TempFolder folder("chaos");
    return Run(options, folder.path()).run();
  } catch (const crash::Skipped& skipped) {
    std::fprintf(stderr, "qgpu-chaos: SKIPPED, nothing was tested: %s\n", skipped.what());
    return kSkipped;
  } catch (const std::exception& wrong) {
    std::fprintf(stderr, "qgpu-chaos: %s\n", wrong.what());
    return kWrong;
  }
}

}  // namespace
}  // namespace qgpu::chaos

int main(int argc, char** argv) {
  return qgpu::chaos::main(argc, argv);
}
