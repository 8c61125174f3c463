#include "tests/crash/absence.h"

#include <signal.h>

#include <algorithm>
#include <iterator>

#include "tests/crash/stage.h"
#include "tests/crash/violation.h"

namespace qgpu::crash {
namespace {

constexpr int kLoopUpMs[] = {20, 60, 130, 220};   // from serving to the next death
constexpr std::uint64_t kHoldsAgain = 3;   // of offline tasks, by the online one

// Online tasks have held offline ones this often since the manager started.
std::uint64_t preemptions(const Daemon& daemon) {
  std::uint64_t sum = 0;
  const Json cards = daemon.ask("cards")["cards"];
  for (const Json& card : cards) sum += card["preempt_us"]["n"].get<std::uint64_t>();
  return sum;
}

void awaitPreemptions(const Daemon& daemon) {
  const std::uint64_t before = preemptions(daemon);
  if (e2e::eventually([&] { return preemptions(daemon) >= before + kHoldsAgain; })) return;
  throw Violation("the online tenant holds nobody; cards: " + daemon.ask("cards").dump());
}

enum class Kind : std::uint8_t { Dead, Hanging, Looping };

// Until every plain tenant has launched something since the beginning.
void awaitProgressInALoop(Stage& stage) {
  const std::vector<std::uint64_t> before = stage.tenants().plainLaunches();
  std::size_t deaths = 0;
  const auto diesAgain = [&] {
    stage.daemon().start();
    pause(milliseconds(kLoopUpMs[deaths++ % std::size(kLoopUpMs)]));
    stage.daemon().kill();
    stage.tenants().checkUnharmed();
    return stage.tenants().plainThatWaits(before).empty();
  };
  if (e2e::eventually(diesAgain, kProgressWithin)) return;
  throw Violation("while the manager dies again and again, tenant " +
                  stage.tenants().plainThatWaits(before) + " waits for more than " +
                  std::to_string(kProgressWithin.count()) + " ms");
}

void goAway(Stage& stage, Kind kind) {
  if (kind == Kind::Looping) {
    stage.daemon().kill();
    awaitProgressInALoop(stage);
    awaitProgressInALoop(stage);
    return;
  }
  kind == Kind::Dead ? stage.daemon().kill() : stage.daemon().signal(SIGSTOP);
  stage.tenants().awaitPlainProgress();
  stage.tenants().awaitPlainProgress();   // and they go on going on
}

}  // namespace

std::string runAbsence(const AbsenceOptions& options) {
  Stage stage(options.cards);
  Daemon& daemon = stage.daemon();
  const std::int64_t from = e2e::monotonicNs();
  stage.raise();
  awaitPreemptions(daemon);
  std::int64_t slowestNs = 0;
  for (std::uint64_t round = 0; round < options.rounds; round++) {
    const auto kind = static_cast<Kind>(round % 3);
    const std::int64_t gone = e2e::monotonicNs();
    goAway(stage, kind);
    slowestNs = std::max(slowestNs, e2e::monotonicNs() - gone);
    kind == Kind::Hanging ? daemon.signal(SIGCONT) : daemon.start();
    checkBindings(daemon, stage.bindings());
    stage.tenants().awaitProgress();
    stage.tenants().checkToken(round);
    stage.tenants().checkProgramQuota(round);
    awaitPreemptions(daemon);
  }
  const std::size_t tenants = stage.tenants().count();
  stage.close();
  const Json line = {{"part", "absence"},
                     {"cards", options.cards},
                     {"rounds", options.rounds},
                     {"tenants", tenants},
                     {"harmed", 0},
                     {"lost", 0},
                     {"slowest_to_go_on_ms", slowestNs / 1'000'000},
                     {"longest_standstill_ms", stage.tenants().longestStandstillNs() / 1'000'000},
                     {"seconds", (e2e::monotonicNs() - from) / 1'000'000'000}};
  return line.dump();
}

}  // namespace qgpu::crash
