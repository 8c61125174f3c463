#include "tests/crash/disk_full.h"

#include <algorithm>
#include <random>
#include <vector>

#include "tests/crash/churn.h"
#include "tests/crash/folder.h"
#include "tests/crash/tenants.h"
#include "tests/crash/tmpfs.h"
#include "tests/crash/violation.h"

namespace qgpu::crash {
namespace {

constexpr std::uint64_t kDiskKib = 16 * 1024;
constexpr std::uint64_t kLeftPagesMax = 24;  // of 4 KiB, when the disk is "full"
constexpr std::size_t kPlain = 6;
constexpr std::size_t kClients = 3;
constexpr std::uint64_t kBindsUntilFull = 20'000;
constexpr std::int64_t kAnswerNsMax = 5'000'000'000;
constexpr milliseconds kResumesWithin = std::chrono::seconds(10);

class FullDisk {
 public:
  explicit FullDisk(const DiskFullOptions& options)
      : options_(options),
        prng_(options.seed),
        disk_(folder_ / "disk", kDiskKib),
        daemon_({"--cards=sim:4x64", "--max-tasks-per-card=32", "--log-level=off",
                 "--dbfile=" + disk_.file("meta.db")}),
        tenants_(daemon_, bindings_, folder_.path()) {}

  std::string run() {
    const std::int64_t from = testing::monotonicNs();
    daemon_.start();
    for (std::size_t i = 0; i < kPlain; i++) {
      const std::string card = "sim-" + std::to_string(i % 3);
      tenants_.addPlain({"plain-" + std::to_string(i), "ordinary", 1, 5, card}, Pace{500, 2'000});
    }
    tenants_.awaitProgress();
    Churn churn(daemon_, bindings_, {kClients, "sim-3", options_.seed, "c"});
    for (round_ = 0; round_ < options_.rounds; round_++) {
      oneRound();
      churn.check();
    }
    churn.stop();
    churn.check();
    checkBindings(daemon_, bindings_);
    const std::size_t count = tenants_.count();
    tenants_.finish();
    std::sort(resumedNs_.begin(), resumedNs_.end());
    const Json line = {{"part", "disk-full"},
                       {"seed", options_.seed},
                       {"rounds", round_},
                       {"acknowledged", bindings_.acknowledged()},
                       {"lost", 0},
                       {"refused", refused_},
                       {"killed_while_full", killedFull_},
                       {"started_while_full", startedFull_},
                       {"tenants", count},
                       {"harmed", 0},
                       {"resumed_p50_ms", resumedNs_[resumedNs_.size() / 2] / 1'000'000},
                       {"resumed_max_ms", resumedNs_.back() / 1'000'000},
                       {"longest_standstill_ms", tenants_.longestStandstillNs() / 1'000'000},
                       {"seconds", (testing::monotonicNs() - from) / 1'000'000'000}};
    return line.dump();
  }

 private:
  void oneRound() {
    disk_.fill(prng_() % kLeftPagesMax * 4096);
    awaitRefusal();
    lookAround();
    if (round_ % 2 == 1) killWhileFull();
    resume();
    daemon_.kill();
    daemon_.start();
    checkBindings(daemon_, bindings_);
    tenants_.checkUnharmed();
  }

  // The answer to a bind of a new name; written down either way.
  Json bindNew() {
    Wish wish;
    wish.name = "probe-" + std::to_string(probes_++);
    wish.card = "sim-3";
    bindings_.asked(wish);
    const std::int64_t from = testing::monotonicNs();
    const Json answer = daemon_.tryAsk(bindLine(wish));
    if (answer.is_null() || testing::monotonicNs() - from > kAnswerNsMax) {
      throw Violation("a bind on a full disk is not answered in time: " + daemon_.log());
    }
    if (answer["ok"] == true) {
      bindings_.bound(wish.name, answer["task"], answer["token"]);
      endProbe(wish.name, answer["task"]);
    } else {
      bindings_.refused(wish.name);
    }
    return answer;
  }

  // Its end may be refused as well; then it is asked again in resume().
  void endProbe(const std::string& name, std::uint64_t task) {
    bindings_.endAsked(name);
    const Json ended = daemon_.tryAsk("end " + std::to_string(task));
    if (!ended.is_null() && ended["ok"] == true) {
      bindings_.ended(name);
    } else {
      toEnd_.emplace_back(name, task);
    }
  }

  void awaitRefusal() {
    for (std::uint64_t i = 0; i < kBindsUntilFull; i++) {
      const Json answer = bindNew();
      if (answer["ok"] == true) continue;
      if (answer["code"] != "unavailable" || answer["error"].get<std::string>().empty()) {
        throw Violation("on a full disk a bind was refused with " + answer.dump());
      }
      refused_++;
      return;
    }
    throw Violation("the disk is full and binds go on; left: " + std::to_string(disk_.leftBytes()));
  }

  // Everything but changes goes on.
  void lookAround() {
    tenants_.awaitProgress();
    const Json status = daemon_.ask("status");
    const Json answer = bindNew();
    if (answer["ok"] == true) return;  // a checkpoint has made room
    refused_++;
    if (daemon_.ask("status")["storage"] == "ok" && status["storage"] == "ok") {
      throw Violation("binds are refused and status says that storage is ok");
    }
  }

  // It may come up and refuse, or end with the documented status and a reason; tenants run on.
  void killWhileFull() {
    killedFull_++;
    daemon_.kill();
    daemon_.launch();
    const bool decided = testing::eventually(
        [&] { return !daemon_.alive() || !daemon_.tryAsk("status").is_null(); });
    if (!decided) throw Violation("on a full disk the manager neither serves nor ends");
    if (daemon_.alive()) {
      startedFull_++;
      tenants_.awaitProgress();
      return;
    }
    const int status = daemon_.wait(milliseconds(100)).value_or(-1);
    const std::string said = daemon_.log();
    if ((status != 2 && status != 5) || said.empty()) {
      throw Violation("on a full disk the manager starts and ends with " + std::to_string(status) +
                      ": " + said);
    }
    tenants_.checkUnharmed();
    disk_.free();
    daemon_.start();
  }

  void resume() {
    const pid_t before = daemon_.pid();
    disk_.free();
    const std::int64_t from = testing::monotonicNs();
    Json last;
    const bool resumed = testing::eventually(
        [&] {
          last = bindNew();
          return last["ok"] == true;
        },
        kResumesWithin);
    if (!resumed) throw Violation("there is space, and binds are still refused: " + last.dump());
    resumedNs_.push_back(testing::monotonicNs() - from);
    if (!daemon_.alive() || daemon_.pid() != before) throw Violation("the manager has ended");
    for (const auto& [name, task] : toEnd_) {
      const Json ended = daemon_.tryAsk("end " + std::to_string(task));
      if (ended["ok"] != true && ended["code"] != "not-found") {
        throw Violation("task " + name + " can't be ended: " + ended.dump());
      }
      bindings_.ended(name);
    }
    toEnd_.clear();
  }

  const DiskFullOptions options_;
  std::mt19937_64 prng_;
  const testing::TempFolder folder_ = makeFolder();
  Tmpfs disk_;
  Bindings bindings_;
  Daemon daemon_;
  Tenants tenants_;
  std::vector<std::pair<std::string, std::uint64_t>> toEnd_;
  std::vector<std::int64_t> resumedNs_;
  std::uint64_t round_ = 0;
  std::uint64_t probes_ = 0;
  std::uint64_t refused_ = 0;
  std::uint64_t killedFull_ = 0;
  std::uint64_t startedFull_ = 0;
};

}  // namespace

std::string runDiskFull(const DiskFullOptions& options) {
  return FullDisk(options).run();
}

}  // namespace qgpu::crash
