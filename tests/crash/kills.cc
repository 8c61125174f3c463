#include "tests/crash/kills.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <random>
#include <vector>

#include "tests/crash/busy_node.h"
#include "tests/crash/churn.h"
#include "tests/crash/violation.h"

namespace qgpu::crash {
namespace {

constexpr std::uint64_t kUpMsMin = 3;
constexpr std::uint64_t kUpMsMax = 300;
constexpr std::uint64_t kStartingMsMax = 40;  // for kills before it serves
constexpr std::uint64_t kStartingOneIn = 8;
constexpr std::uint64_t kQuietEvery = 10;  // kills between looks at progress and tokens,
constexpr std::int64_t kQuietAfterNs = 3'000'000'000;  // and the time between them
constexpr std::uint64_t kProgramQuotaEvery = 50;
constexpr std::uint64_t kToldEvery = 50;
constexpr std::uint64_t kCleanOneIn = 12;  // ends by SIGTERM, as an upgrade does

class Storm {
 public:
  explicit Storm(const KillOptions& options)
      : options_(options), prng_(options.seed), node_(options.cards) {}

  std::string run() {
    node_.raise();
    churn_ = std::make_unique<Churn>(
        daemon_, bindings_, Churn::Plan{kBusyNodeClients, node_.clientsCard(), options_.seed, "c"});
    const std::int64_t from = testing::monotonicNs();
    for (kills_ = 0; kills_ < options_.count;) {
      oneKill();
      if (kills_ >= quietAt_ || testing::monotonicNs() - quietAtNs_ > kQuietAfterNs) quiet();
      if (kills_ >= toldAt_) tell(from);
    }
    end();
    return verdict(from);
  }

 private:
  std::uint64_t draw(std::uint64_t low, std::uint64_t high) {
    return low + prng_() % (high - low + 1);
  }

  // Lives for a while, dies, comes back; then everything that is cheap to check.
  void oneKill() {
    awaitItsTime(milliseconds(draw(kUpMsMin, kUpMsMax)));
    const std::set<std::string> policies = churn_->policies();
    draw(1, kCleanOneIn) == 1 ? stopNow() : killNow();
    while (kills_ < options_.count && draw(1, kStartingOneIn) == 1) {
      daemon_.launch();
      pause(milliseconds(draw(0, kStartingMsMax)));
      killNow();
    }
    const std::int64_t from = testing::monotonicNs();
    daemon_.start();
    restartsNs_.push_back(testing::monotonicNs() - from);
    checkIncarnation();
    checkPolicy(policies);
    checkBindings(daemon_, bindings_);
    tenants_.checkUnharmed();
    churn_->check();
  }

  void killNow() {
    daemon_.kill();
    kills_++;
    const std::string said = daemon_.log();
    if (!said.empty()) throw Violation("the manager complained: " + said);
  }

  void stopNow() {
    const int status = daemon_.stop();
    stops_++;
    if (status == 0) return;
    throw Violation("stopped by SIGTERM, the manager ended with " + std::to_string(status) + ": " +
                    daemon_.log());
  }

  void awaitItsTime(milliseconds up) {
    const std::int64_t end = testing::monotonicNs() + up.count() * 1'000'000;
    while (testing::monotonicNs() < end) {
      pause(std::min<milliseconds>(up, milliseconds(10)));
      if (!daemon_.alive()) {
        throw Violation("the manager ended by itself with status " +
                        std::to_string(daemon_.wait(milliseconds(100)).value_or(-1)) + ": " +
                        daemon_.log());
      }
    }
  }

  void checkIncarnation() {
    const std::uint64_t now = daemon_.ask("status")["incarnation"];
    if (now <= incarnation_) {
      throw Violation("incarnation " + std::to_string(now) + " after " +
                      std::to_string(incarnation_));
    }
    incarnation_ = now;
  }

  void checkPolicy(std::set<std::string> may) {
    if (may.empty()) return;
    const Json cards = daemon_.ask("cards")["cards"];
    may.merge(churn_->policies());
    const std::string policy = cards.back()["policy"];
    if (may.contains(policy)) return;
    std::string wanted;
    for (const std::string& one : may) wanted += " " + one;
    throw Violation("card " + node_.clientsCard() + " has policy " + policy +
                    ", acknowledged or asked:" + wanted);
  }

  // The manager lives on for as long as it takes to see every tenant move.
  void quiet() {
    const std::int64_t from = testing::monotonicNs();
    quietAt_ = kills_ + kQuietEvery;
    tenants_.awaitProgress();
    quietAtNs_ = testing::monotonicNs();
    quietNsMax_ = std::max(quietNsMax_, testing::monotonicNs() - from);
    tenants_.checkToken(tokens_++);
    if (kills_ >= programQuotaAt_) {
      programQuotaAt_ = kills_ + kProgramQuotaEvery;
      tenants_.checkProgramQuota(kills_);
    }
    churn_->check();
    checkBindings(daemon_, bindings_);
  }

  void end() {
    churn_->stop();
    churn_->check();
    count_ = tenants_.count();
    programs_ = tenants_.programs();
    launches_ = tenants_.launches();
    refusals_ = tenants_.quotaRefusals();
    node_.close();
  }

  std::int64_t percentileMs(std::size_t percent) {
    std::sort(restartsNs_.begin(), restartsNs_.end());
    const std::size_t last = restartsNs_.size() - 1;
    return restartsNs_[std::min(last, restartsNs_.size() * percent / 100)] / 1'000'000;
  }

  void tell(std::int64_t from) {
    toldAt_ = kills_ + kToldEvery;
    std::fprintf(stderr, "kills: %llu of %llu, %zu acknowledged, %.1f s\n",
                 static_cast<unsigned long long>(kills_),
                 static_cast<unsigned long long>(options_.count), bindings_.acknowledged(),
                 static_cast<double>(testing::monotonicNs() - from) / 1e9);
  }

  std::string verdict(std::int64_t from) {
    const Json line = {{"part", "kills"},
                       {"cards", options_.cards},
                       {"seed", options_.seed},
                       {"kills", kills_},
                       {"clean_stops", stops_},
                       {"acknowledged", bindings_.acknowledged()},
                       {"lost", 0},
                       {"repeated_requests", churn_->repeats()},
                       {"tenants", count_},
                       {"programs", programs_},
                       {"harmed", 0},
                       {"tokens_tried", tokens_},
                       {"launches", launches_},
                       {"kernels_checked", tenants_.kernelsChecked()},
                       {"over_quota_refused", refusals_},
                       {"incarnation", incarnation_},
                       {"restart_p50_ms", percentileMs(50)},
                       {"restart_p99_ms", percentileMs(99)},
                       {"longest_standstill_ms", tenants_.longestStandstillNs() / 1'000'000},
                       {"slowest_quiet_ms", quietNsMax_ / 1'000'000},
                       {"seconds", (testing::monotonicNs() - from) / 1'000'000'000}};
    return line.dump();
  }

  const KillOptions options_;
  std::mt19937_64 prng_;
  BusyNode node_;
  Daemon& daemon_ = node_.daemon();
  Bindings& bindings_ = node_.bindings();
  Tenants& tenants_ = node_.tenants();
  std::unique_ptr<Churn> churn_;
  std::vector<std::int64_t> restartsNs_;
  std::uint64_t kills_ = 0;
  std::uint64_t stops_ = 0;
  std::uint64_t quietAt_ = kQuietEvery;
  std::int64_t quietAtNs_ = testing::monotonicNs();
  std::uint64_t programQuotaAt_ = kProgramQuotaEvery;
  std::uint64_t toldAt_ = kToldEvery;
  std::uint64_t incarnation_ = 0;
  std::uint64_t tokens_ = 0;
  std::uint64_t launches_ = 0;
  std::uint64_t refusals_ = 0;
  std::size_t count_ = 0;
  std::size_t programs_ = 0;
  std::int64_t quietNsMax_ = 0;
};

}  // namespace

std::string runKills(const KillOptions& options) {
  return Storm(options).run();
}

}  // namespace qgpu::crash
