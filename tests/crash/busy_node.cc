#include "tests/crash/busy_node.h"

#include <algorithm>

#include "tests/crash/violation.h"

namespace qgpu::crash {
namespace {

constexpr char kOpenclCards[] = "pthread pthread pthread";  // three of one CPU
constexpr std::size_t kPlainOnOpenclMax = 6;
constexpr std::size_t kPlainOnSim = 24;
constexpr milliseconds kRaisedWithin = std::chrono::seconds(60);  // programs measure the device

}  // namespace

BusyNode::BusyNode(std::string cards)
    : kind_(std::move(cards)),
      daemon_(
          {"--cards=" + kind_, "--mixed", "--max-tasks-per-card=32", "--log-level=error"},
          isSim() ? testing::Environment{} : testing::Environment{{"POCL_DEVICES", kOpenclCards}}),
      tenants_(daemon_, bindings_, daemon_.folder().path()) {}

void BusyNode::raise() {
  daemon_.start();
  addTenants();
  tenants_.awaitProgress(kRaisedWithin);
}

void BusyNode::addTenants() {
  std::uint64_t gib = 0;
  const Json found = daemon_.ask("cards")["cards"];
  for (const Json& card : found) {
    cards_.push_back(card["id"]);
    gib = card["mem_bytes"].get<std::uint64_t>() >> 30;
  }
  if (cards_.size() < 2) throw Violation("a node needs two cards or more");
  // The clients' card has two plain tenants as well.
  if (gib < kBusyNodeClients + 2) {
    throw Skipped("a card of " + std::to_string(gib) + " GiB is too small, wanted " +
                  std::to_string(kBusyNodeClients + 2));
  }
  const std::size_t hybrid = cards_.size() - 2;
  if (!isSim()) {
    const std::vector<std::string> work = {"--json", "--seconds", "0", "--kernel-ms",
                                           "2..4",   "--gap-ms",  "6", "--progress"};
    tenants_.addProgram({"program-a", "ordinary", 1, 30, cards_.front()}, work);
    tenants_.addProgram({"program-b", "offline", 1, 30, cards_[hybrid]}, work);
  }
  const std::size_t plain = isSim() ? kPlainOnSim : kPlainOnOpenclMax;
  for (std::size_t i = 0; i < plain; i++) addPlain(i, hybrid);
}

void BusyNode::addPlain(std::size_t number, std::size_t hybrid) {
  const std::string name = "plain-" + std::to_string(number);
  const std::size_t card = number % cards_.size();
  if (number == hybrid) {
    tenants_.addPlain({name, "online", 1, 0, cards_[card]}, Pace{300, 230'000});
  } else {
    const char* taskClass = card == hybrid ? "offline" : "ordinary";
    tenants_.addPlain({name, taskClass, 1, 5, cards_[card]}, Pace{300 + 100 * number, 3'000});
  }
}

void BusyNode::close() {
  tenants_.awaitProgress();
  checkBindings(daemon_, bindings_);
  tenants_.finish();
  if (const int status = daemon_.stop(); status != 0) {
    throw Violation("the manager ended with " + std::to_string(status) + ": " + daemon_.log());
  }
  daemon_.start();
  checkBindings(daemon_, bindings_);
  daemon_.stop();
}

}  // namespace qgpu::crash
