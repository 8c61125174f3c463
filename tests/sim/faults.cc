#include "tests/sim/faults.h"

#include <utility>

namespace qgpu::sim {
namespace {

constexpr Fault kHere[] = {Fault::Crash,      Fault::PowerLoss,   Fault::DiskFull,
                           Fault::DiskErrors, Fault::SyncFails,   Fault::SlowDisk,
                           Fault::Stalls,     Fault::LostDatabase};
constexpr Nanos kStallMax = millis(30);
constexpr Nanos kWhileMin = millis(5);
constexpr Nanos kWhileMax = seconds(4);

}  // namespace

Faults::Faults(Host& host, const Options& options, Dice dice, FaultActions actions)
    : host_(host), options_(options), dice_(dice), actions_(std::move(actions)) {
  for (const Fault fault : kHere) {
    if (options.has(fault)) mine_.push_back(fault);
  }
  if (!mine_.empty()) schedule();
}

void Faults::schedule() {
  const Nanos delay = dice_.magnitude(options_.faultEvery / 8, options_.faultEvery * 4);
  host_.after(Scope::World, delay, [this] {
    if (stopped_) return;
    strike();
    schedule();
  });
}

void Faults::strike() {
  switch (dice_.pick(mine_)) {
    case Fault::Crash:
      return actions_.end(Ending::Crash);
    case Fault::PowerLoss:
      return actions_.end(Ending::PowerLoss);
    case Fault::DiskFull:
      return forAWhile(actions_.fillDisk);
    case Fault::DiskErrors:
      return actions_.breakDisk(static_cast<std::uint64_t>(dice_.between(1, 20)));
    case Fault::SyncFails:
      return actions_.failSync();
    case Fault::SlowDisk:
      return forAWhile(actions_.slowDisk);
    case Fault::LostDatabase:
      return actions_.loseDatabase();
    default:
      break;
  }
  const Home home = dice_.percent(70) ? Home::Main : Home::Card;
  host_.stall(home, host_.now() + dice_.magnitude(micros(50), kStallMax));
}

void Faults::forAWhile(const std::function<void(bool)>& fault) {
  fault(true);
  host_.after(Scope::World, dice_.magnitude(kWhileMin, kWhileMax), [this, fault] {
    if (!stopped_) fault(false);
  });
}

}  // namespace qgpu::sim
