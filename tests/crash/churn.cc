#include "tests/crash/churn.h"

#include <algorithm>

#include "tests/crash/violation.h"

namespace qgpu::crash {
namespace {

constexpr milliseconds kAnswerWithin = std::chrono::seconds(15);
constexpr std::uint64_t kHeldMsMax = 80;
constexpr std::uint64_t kRestMsMax = 20;

milliseconds upTo(std::mt19937_64& prng, std::uint64_t most) {
  return milliseconds(static_cast<int>(prng() % (most + 1)));
}

// Codes that mean "again later": the manager has just started, or its queues are full.
bool isRetry(const Json& answer) {
  return answer["code"] == "unavailable" || answer["code"] == "overloaded";
}

}  // namespace

Churn::Churn(const Daemon& daemon, Bindings& bindings, Plan plan)
    : daemon_(daemon), bindings_(bindings), plan_(std::move(plan)) {
  for (std::size_t i = 0; i < plan_.clients; i++) {
    threads_.emplace_back([this, i] {
      try {
        client(i);
      } catch (const Violation& violation) {
        complain(violation.what());
      }
    });
  }
}

void Churn::stop() {
  stopping_ = true;
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void Churn::check() const {
  const std::lock_guard lock(mutex_);
  if (wrong_) throw Violation(*wrong_);
}

void Churn::complain(const std::string& what) {
  const std::lock_guard lock(mutex_);
  if (!wrong_) wrong_ = what;
}

std::set<std::string> Churn::policies() const {
  const std::lock_guard lock(mutex_);
  return policies_;
}

void Churn::client(std::size_t number) {
  Prng prng(plan_.seed * 1'000 + number);
  for (std::uint64_t n = 0; !stopping_; n++) {
    Wish wish;
    wish.name = plan_.label + std::to_string(number) + "-" + std::to_string(n);
    wish.card = plan_.card;
    wish.corePercent = 5 + static_cast<std::uint32_t>(prng() % 5);
    life(wish, prng);
    if (number == 0 && n % 4 == 0) choosePolicy(prng);
    pause(upTo(prng, kRestMsMax));
  }
}

void Churn::life(const Wish& wish, Prng& prng) {
  bool resent = false;
  bindings_.asked(wish);
  const std::string line = bindLine(wish);
  const Json bound = persist(line, resent);
  if (bound.is_null()) return;
  if (bound["ok"] != true) return complain("'" + line + "' was refused: " + bound.dump());
  bindings_.bound(wish.name, bound["task"], bound["token"]);
  pause(upTo(prng, kHeldMsMax));
  if (prng() % 3 == 0) {
    const Json again = persist(line, resent);
    if (again.is_null()) return;
    if (again["task"] != bound["task"] || again["token"] != bound["token"]) {
      return complain("'" + line + "' was answered " + bound.dump() + ", again: " + again.dump());
    }
    repeats_++;
  }
  bindings_.endAsked(wish.name);
  resent = false;
  const std::string end = "end " + std::to_string(bound["task"].get<std::uint64_t>());
  const Json ended = persist(end, resent);
  if (ended.is_null()) return;
  const bool gone = ended["ok"] == true || (resent && ended["code"] == "not-found");
  if (!gone) return complain("'" + end + "' (" + wish.name + "): " + ended.dump());
  bindings_.ended(wish.name);
}

void Churn::choosePolicy(Prng& prng) {
  constexpr const char* kPolicies[] = {"best-effort", "fixed-share", "burst-share"};
  const std::string policy = kPolicies[prng() % std::size(kPolicies)];
  {
    const std::lock_guard lock(mutex_);
    policies_.insert(policy);
  }
  bool resent = false;
  const Json done = persist("policy " + plan_.card + " " + policy, resent);
  if (done.is_null()) return;
  if (done["ok"] != true) return complain("policy " + policy + ": " + done.dump());
  const std::lock_guard lock(mutex_);
  policies_ = {policy};
}

Json Churn::persist(const std::string& line, bool& resent) {
  for (;;) {
    const std::int64_t from = testing::monotonicNs();
    Json answer = daemon_.tryAsk(line, kAnswerWithin);
    if (!answer.is_null() && (answer["ok"] == true || !isRetry(answer))) return answer;
    if (testing::monotonicNs() - from >= kAnswerWithin.count() * 1'000'000) {
      complain("'" + line + "' was not answered within " + std::to_string(kAnswerWithin.count()) +
               " ms");
      return nullptr;
    }
    if (stopping_) return nullptr;
    if (answer.is_null()) resent = true;
    pause(milliseconds(2));
  }
}

}  // namespace qgpu::crash
