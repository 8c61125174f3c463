#include "tests/chaos/fault_plan.h"

#include <algorithm>
#include <map>
#include <utility>

namespace qgpu::chaos {
namespace {

constexpr std::int64_t kEveryMs = 1'500;  // a fault begins, on average
constexpr std::int64_t kLeastMs = 1'000, kMostMs = 12'000;
constexpr std::int64_t kKiB = 1'024;

// Those that end or stop a process come more often than each way to cut a wire.
constexpr std::array kDrawn = {
    Fault::Kill,        Fault::Kill,     Fault::Kill,     Fault::Kill,
    Fault::Pause,       Fault::Pause,    Fault::Pause,    Fault::CutHost,
    Fault::CutFrom,     Fault::CutTo,    Fault::CutPair,  Fault::CutOneWay,
    Fault::TakeAddress, Fault::FillDisk, Fault::SlowSync, Fault::StepClock};

// Modulo, so that a seed means the same with every library.
std::int64_t draw(std::mt19937_64& random, std::int64_t least, std::int64_t most) {
  const auto count = static_cast<std::uint64_t>(most - least + 1);
  return least + static_cast<std::int64_t>(random() % count);
}
std::size_t drawBelow(std::mt19937_64& random, std::size_t count) {
  return static_cast<std::size_t>(random() % count);
}

// What a fault takes for itself: processes are stopped once, wires cut once.
enum class Thing : std::uint8_t { Process, Wire, Disk, Clock };

Thing thingOf(Fault fault) {
  switch (fault) {
    case Fault::Kill:
    case Fault::Pause:
      return Thing::Process;
    case Fault::FillDisk:
    case Fault::SlowSync:
      return Thing::Disk;
    case Fault::StepClock:
      return Thing::Clock;
    default:
      return Thing::Wire;
  }
}

bool isPair(Fault fault) {
  return fault == Fault::CutPair || fault == Fault::CutOneWay;
}

// etcds and managers, which keep something on a disk of their own.
std::size_t drawKeeper(std::mt19937_64& random) {
  const std::size_t at = drawBelow(random, kGroup + kManagers);
  return at < kGroup ? at : at - kGroup + kFirstManager;
}

void drawTarget(std::mt19937_64& random, Planned& planned) {
  switch (thingOf(planned.fault)) {
    case Thing::Process:
      planned.target = drawBelow(random, kProcesses);
      return;
    case Thing::Disk:
      planned.target = drawKeeper(random);
      return;
    case Thing::Clock:
      planned.target = kFirstScheduler + drawBelow(random, kGroup + kManagers);
      return;
    case Thing::Wire:
      break;
  }
  planned.target = drawBelow(random, kHosts);
  planned.other = (planned.target + 1 + drawBelow(random, kHosts - 1)) % kHosts;
}

}  // namespace

std::vector<Planned> planStorm(std::mt19937_64& random, std::int64_t lengthMs) {
  std::vector<Planned> all;
  std::map<std::pair<Thing, std::size_t>, std::int64_t> busyUntil;
  for (std::int64_t now = 0; now < lengthMs - kLeastMs; now += draw(random, 0, 2 * kEveryMs)) {
    Planned planned;
    planned.fault = kDrawn[drawBelow(random, kDrawn.size())];
    drawTarget(random, planned);
    planned.fromMs = now;
    planned.untilMs = std::min(lengthMs, now + draw(random, kLeastMs, kMostMs));
    if (planned.fault == Fault::FillDisk) planned.amount = draw(random, 0, 64) * kKiB;
    if (planned.fault == Fault::SlowSync) planned.amount = draw(random, 50, 1'500);
    if (planned.fault == Fault::StepClock) planned.amount = draw(random, 1, 12 * 3'600);
    const Thing thing = thingOf(planned.fault);
    std::int64_t& busy = busyUntil[{thing, planned.target}];
    std::int64_t& others = isPair(planned.fault) ? busyUntil[{thing, planned.other}] : busy;
    if (busy > now || others > now) continue;
    busy = others = planned.untilMs;
    all.push_back(planned);
  }
  return all;
}

std::string describe(const Planned& planned) {
  static constexpr std::array kKinds = {"etcd", "scheduler", "manager"};
  std::string text = kFaultNames[static_cast<std::size_t>(planned.fault)];
  const std::size_t at = planned.target;
  if (thingOf(planned.fault) == Thing::Wire) {
    text += " host " + std::to_string(at);
    if (isPair(planned.fault)) text += " to " + std::to_string(planned.other);
  } else {
    const std::size_t kind = at < kFirstScheduler ? 0 : at < kFirstManager ? 1 : 2;
    text += std::string(" ") + kKinds[kind] + " " + std::to_string(at - kind * kGroup);
  }
  if (planned.amount != 0) text += " amount " + std::to_string(planned.amount);
  return text + " from " + std::to_string(planned.fromMs) + " until " +
         std::to_string(planned.untilMs) + " ms";
}

}  // namespace qgpu::chaos
