#include "tests/crash/kills.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <random>
#include <vector>

#include "tests/crash/churn.h"
#include "tests/crash/folder.h"
#include "tests/crash/tenants.h"
#include "tests/crash/violation.h"

namespace qgpu::crash {
namespace {

constexpr std::uint64_t kUpMsMin = 3;
constexpr std::uint64_t kUpMsMax = 300;
constexpr std::uint64_t kStartingMsMax = 40;    // for kills before it serves
constexpr std::uint64_t kStartingOneIn = 8;
constexpr std::uint64_t kQuietEvery = 10;       // kills between looks at progress and tokens
constexpr std::uint64_t kProgramQuotaEvery = 50;
constexpr std::uint64_t kToldEvery = 50;
constexpr std::size_t kClients = 4;
constexpr std::size_t kOpenclCards = 3;
constexpr std::size_t kPlainOnOpenclMax = 6;
constexpr std::size_t kPlainOnSim = 24;

class Storm {
 public:
  explicit Storm(const KillOptions& options)
      : options_(options),
        prng_(options.seed),
        daemon_({folder_.file("run"), folder_.file("meta.db"), arguments(), environment()}),
        tenants_(daemon_, bindings_, folder_.path()) {}

  std::string run() {
    daemon_.start();
    addTenants();
    tenants_.awaitProgress(std::chrono::seconds(60));   // programs measure the device first
    churn_ = std::make_unique<Churn>(daemon_, bindings_,
                                     Churn::Plan{kClients, cards_.back(), options_.seed, "c"});
    const std::int64_t from = e2e::monotonicNs();
    for (kills_ = 0; kills_ < options_.count;) {
      oneKill();
      if (kills_ >= quietAt_) quiet();
      if (kills_ >= toldAt_) tell(from);
    }
    end();
    return verdict(from);
  }

 private:
  bool isSim() const { return options_.cards.rfind("sim", 0) == 0; }

  std::vector<std::string> arguments() const {
    return {"--cards=" + options_.cards, "--mixed", "--max-tasks-per-card=32",
            "--log-level=error"};
  }

  e2e::Environment environment() const {
    std::string devices;
    for (std::size_t i = 0; i < kOpenclCards; i++) devices += i == 0 ? "pthread" : " pthread";
    if (isSim()) return {};
    return {{"POCL_DEVICES", devices}};
  }

  // The last card is the clients', the one before it is shared by online and offline tasks.
  void addTenants() {
    std::uint64_t gib = 0;
    const Json found = daemon_.ask("cards")["cards"];
    for (const Json& card : found) {
      cards_.push_back(card["id"]);
      gib = card["mem_bytes"].get<std::uint64_t>() >> 30;
    }
    if (cards_.size() < 2) throw Violation("the storm needs two cards or more");
    if (gib < kClients + 1) throw Skipped("a card of " + std::to_string(gib) + " GiB is too small");
    const std::size_t hybrid = cards_.size() - 2;
    const std::size_t plain =
        isSim() ? kPlainOnSim : std::min<std::size_t>(kPlainOnOpenclMax, gib - 2);
    if (!isSim()) {
      const std::vector<std::string> work = {"--json",   "--seconds", "0",   "--kernel-ms", "2..4",
                                             "--gap-ms", "6",         "--progress"};
      tenants_.addProgram({"program-a", "ordinary", 1, 30, cards_.front()}, work);
      tenants_.addProgram({"program-b", "offline", 1, 30, cards_[hybrid]}, work);
    }
    for (std::size_t i = 0; i < plain; i++) addPlain(i, hybrid);
  }

  void addPlain(std::size_t i, std::size_t hybrid) {
    const std::string name = "plain-" + std::to_string(i);
    const std::size_t card = i % cards_.size();
    if (i == hybrid) {   // comes and goes, so that offline tasks are held and released
      tenants_.addPlain({name, "online", 1, 0, cards_[card]}, Pace{300, 230'000});
    } else {
      const char* taskClass = card == hybrid ? "offline" : "ordinary";
      tenants_.addPlain({name, taskClass, 1, 5, cards_[card]}, Pace{300 + 100 * i, 3'000});
    }
  }

  std::uint64_t draw(std::uint64_t low, std::uint64_t high) {
    return low + prng_() % (high - low + 1);
  }

  // Lives for a while, dies, comes back; then everything that is cheap to check.
  void oneKill() {
    awaitItsTime(milliseconds(draw(kUpMsMin, kUpMsMax)));
    const std::set<std::string> policies = churn_->policies();
    killNow();
    while (kills_ < options_.count && draw(1, kStartingOneIn) == 1) {
      daemon_.launch();
      pause(milliseconds(draw(0, kStartingMsMax)));
      killNow();
    }
    const std::int64_t from = e2e::monotonicNs();
    daemon_.start();
    restartsNs_.push_back(e2e::monotonicNs() - from);
    checkIncarnation();
    checkPolicy(policies);
    checkBindings(daemon_, bindings_);
    tenants_.checkUnharmed();
    churn_->check();
  }

  void killNow() {
    daemon_.kill();
    kills_++;
    const std::string said = daemon_.said();
    if (!said.empty()) throw Violation("the manager complained: " + said);
  }

  void awaitItsTime(milliseconds up) {
    const std::int64_t end = e2e::monotonicNs() + up.count() * 1'000'000;
    while (e2e::monotonicNs() < end) {
      pause(std::min<milliseconds>(up, milliseconds(10)));
      if (!daemon_.alive()) {
        throw Violation("the manager ended by itself with status " +
                        std::to_string(daemon_.wait(milliseconds(100)).value_or(-1)) + ": " +
                        daemon_.said());
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
    throw Violation("card " + cards_.back() + " has policy " + policy + ", acknowledged or asked:" +
                    wanted);
  }

  // The manager lives on for as long as it takes to see every tenant move.
  void quiet() {
    const std::int64_t from = e2e::monotonicNs();
    quietAt_ = kills_ + kQuietEvery;
    tenants_.awaitProgress();
    quietNsMax_ = std::max(quietNsMax_, e2e::monotonicNs() - from);
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
    tenants_.awaitProgress();
    checkBindings(daemon_, bindings_);
    count_ = tenants_.count();
    programs_ = tenants_.programs();
    launches_ = tenants_.launches();
    refusals_ = tenants_.quotaRefusals();
    tenants_.finish();
    if (const int status = daemon_.stop(); status != 0) {
      throw Violation("the manager ended with " + std::to_string(status) + ": " + daemon_.said());
    }
    daemon_.start();
    checkBindings(daemon_, bindings_);
    daemon_.stop();
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
                 static_cast<double>(e2e::monotonicNs() - from) / 1e9);
  }

  std::string verdict(std::int64_t from) {
    const Json line = {{"part", "kills"},
                       {"cards", options_.cards},
                       {"seed", options_.seed},
                       {"kills", kills_},
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
                       {"seconds", (e2e::monotonicNs() - from) / 1'000'000'000}};
    return line.dump();
  }

  const KillOptions options_;
  std::mt19937_64 prng_;
  Folder folder_;
  Bindings bindings_;
  Daemon daemon_;
  Tenants tenants_;
  std::unique_ptr<Churn> churn_;
  std::vector<std::string> cards_;
  std::vector<std::int64_t> restartsNs_;
  std::uint64_t kills_ = 0;
  std::uint64_t quietAt_ = kQuietEvery;
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

std::string runKills(const KillOptions& options) { return Storm(options).run(); }

}  // namespace qgpu::crash
