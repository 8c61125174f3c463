#include "tests/crash/absence.h"

#include <algorithm>
#include <iterator>
#include <signal.h>

#include "tests/crash/busy_node.h"
#include "tests/crash/violation.h"

namespace qgpu::crash {
namespace {

constexpr int kLoopUpMs[] = {20, 60, 130, 220};  // from serving to the next death
constexpr std::uint64_t kHoldsAgain = 3;         // of offline tasks, by the online one

// Online tasks have held offline ones this often since the manager started.
std::uint64_t preemptions(const Daemon& daemon) {
  std::uint64_t sum = 0;
  const Json cards = daemon.ask("cards")["cards"];
  for (const Json& card : cards) sum += card["preempt_us"]["n"].get<std::uint64_t>();
  return sum;
}

void awaitPreemptions(const Daemon& daemon) {
  const std::uint64_t before = preemptions(daemon);
  if (testing::eventually([&] { return preemptions(daemon) >= before + kHoldsAgain; })) return;
  throw Violation("the online tenant holds nobody; cards: " + daemon.ask("cards").dump());
}

enum class Kind : std::uint8_t { Dead, Hanging, Looping };

// Until every plain tenant has launched something since the beginning.
void awaitProgressInALoop(BusyNode& node) {
  const std::vector<std::uint64_t> before = node.tenants().plainLaunches();
  std::size_t deaths = 0;
  const auto diesAgain = [&] {
    node.daemon().start();
    pause(milliseconds(kLoopUpMs[deaths++ % std::size(kLoopUpMs)]));
    node.daemon().kill();
    node.tenants().checkUnharmed();
    return node.tenants().plainThatWaits(before).empty();
  };
  if (testing::eventually(diesAgain, kProgressWithin)) return;
  throw Violation("while the manager dies again and again, tenant " +
                  node.tenants().plainThatWaits(before) + " waits for more than " +
                  std::to_string(kProgressWithin.count()) + " ms");
}

void goAway(BusyNode& node, Kind kind) {
  if (kind == Kind::Looping) {
    node.daemon().kill();
    awaitProgressInALoop(node);
    awaitProgressInALoop(node);
    return;
  }
  kind == Kind::Dead ? node.daemon().kill() : node.daemon().signal(SIGSTOP);
  node.tenants().awaitPlainProgress();
  node.tenants().awaitPlainProgress();  // and they go on going on
}

}  // namespace

std::string runAbsence(const AbsenceOptions& options) {
  BusyNode node(options.cards);
  Daemon& daemon = node.daemon();
  const std::int64_t from = testing::monotonicNs();
  node.raise();
  awaitPreemptions(daemon);
  std::int64_t slowestNs = 0;
  for (std::uint64_t round = 0; round < options.rounds; round++) {
    const auto kind = static_cast<Kind>(round % 3);
    const std::int64_t gone = testing::monotonicNs();
    goAway(node, kind);
    slowestNs = std::max(slowestNs, testing::monotonicNs() - gone);
    kind == Kind::Hanging ? daemon.signal(SIGCONT) : daemon.start();
    checkBindings(daemon, node.bindings());
    node.tenants().awaitProgress();
    node.tenants().checkToken(round);
    node.tenants().checkProgramQuota(round);
    awaitPreemptions(daemon);
  }
  const std::size_t tenants = node.tenants().count();
  node.close();
  const Json line = {{"part", "absence"},
                     {"cards", options.cards},
                     {"rounds", options.rounds},
                     {"tenants", tenants},
                     {"harmed", 0},
                     {"lost", 0},
                     {"slowest_to_go_on_ms", slowestNs / 1'000'000},
                     {"longest_standstill_ms", node.tenants().longestStandstillNs() / 1'000'000},
                     {"seconds", (testing::monotonicNs() - from) / 1'000'000'000}};
  return line.dump();
}

}  // namespace qgpu::crash
