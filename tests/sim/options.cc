#include "tests/sim/options.h"

#include <algorithm>

#include "tests/sim/host.h"
#include "tests/sim/option_fields.h"

namespace qgpu::sim {
namespace {

const OptionTable<Options, FaultName>& words() {
  static const OptionTable<Options, FaultName> all(
      {
          number("cards", &Options::cards),
          number("card_gib", &Options::cardGib),
          number("freeze", &Options::freeze),
          number("rm", &Options::rm),
          number("refusals", &Options::refusals),
          number("busy", &Options::busy),
          number("undoes", &Options::undoes),
          number("mixed", &Options::mixed),
          number("tasks_per_card", &Options::maxTasksPerCard),
          number("policy", &Options::policy),
          number("slots", &Options::slots),
          number("mailbox", &Options::mailboxMax),
          number("snapshot_rows", &Options::snapshotRows),
          inUnits(micros(1), "online_idle_us", &Options::onlineIdle),
          inUnits(micros(1), "slice_min_us", &Options::sliceMin),
          inUnits(micros(1), "slice_max_us", &Options::sliceMax),
          number("tasks", &Options::tasks),
          inUnits(micros(1), "life_min_us", &Options::lifeMin),
          inUnits(micros(1), "life_max_us", &Options::lifeMax),
          number("online", &Options::onlinePercent),
          number("offline", &Options::offlinePercent),
          number("whole", &Options::wholePercent),
          inUnits(micros(1), "kernel_min_us", &Options::kernelMin),
          inUnits(micros(1), "kernel_max_us", &Options::kernelMax),
          inUnits(micros(1), "fault_every_us", &Options::faultEvery),
          number("events", &Options::events),
          inUnits(micros(1), "length_us", &Options::length),
      },
      faultNames());
  return all;
}

void drawNode(Options& o, Dice& dice) {
  o.cards = static_cast<std::uint32_t>(dice.percent(50) ? 1 : dice.between(2, 4));
  o.cardGib = dice.pick(std::vector<std::int64_t>{4, 8, 16, 16, 32, 80});
  const std::uint64_t how = dice.below(100);
  o.freeze = how < 50;
  o.rm = how >= 75;
  o.refusals = how >= 92 ? 200 : 0;
  o.busy = how >= 96 ? 200 : how >= 80 && how < 84 ? 100 : 0;
  o.undoes = how >= 84 && how < 92 ? 300 : 0;
  o.mixed = dice.percent(85);
  o.maxTasksPerCard = dice.percent(60) ? 0 : static_cast<std::uint32_t>(dice.between(1, 12));
  o.policy = static_cast<Policy>(dice.below(3));
  o.slots = static_cast<std::uint32_t>(dice.percent(80) ? 32 : dice.between(2, 8));
  if (dice.percent(25)) o.onlineIdle = dice.magnitude(millis(1), millis(400));
  if (dice.percent(40)) {
    // Long kernels in short slices would be nothing but switching.
    const Nanos least = o.has(Fault::LongKernels) ? millis(2) : micros(200);
    o.sliceMin = dice.magnitude(least, millis(10));
    o.sliceMax = o.sliceMin * dice.between(1, 15);
  }
}

void drawLoad(Options& o, Dice& dice) {
  o.tasks = static_cast<std::uint32_t>(dice.between(1, 4 * o.cards));
  o.lifeMax = dice.magnitude(millis(200), seconds(10));
  o.lifeMin = dice.percent(30) ? millis(1) : o.lifeMax / 10;
  o.onlinePercent = static_cast<std::uint32_t>(dice.percent(30) ? 0 : dice.between(5, 60));
  const auto others = static_cast<std::int64_t>(100 - o.onlinePercent);
  o.offlinePercent = static_cast<std::uint32_t>(dice.percent(25) ? 0 : dice.between(0, others));
  o.wholePercent = static_cast<std::uint32_t>(dice.percent(60) ? 0 : dice.between(1, 40));
  o.kernelMin = dice.magnitude(micros(10), micros(500));
  o.kernelMax = std::max(o.kernelMin, dice.magnitude(micros(50), millis(40)));
  if (o.has(Fault::LongKernels)) o.kernelMax = dice.magnitude(millis(50), seconds(2));
}

}  // namespace

const std::vector<FaultName>& faultNames() {
  static const std::vector<FaultName> all = {
      {Fault::Crash, "crash"},
      {Fault::PowerLoss, "power-loss"},
      {Fault::DiskFull, "disk-full"},
      {Fault::DiskErrors, "disk-errors"},
      {Fault::SyncFails, "sync-fails"},
      {Fault::SlowDisk, "slow-disk"},
      {Fault::SmallMailboxes, "small-mailboxes"},
      {Fault::Stalls, "stalls"},
      {Fault::Ignorers, "ignorers"},
      {Fault::Deaths, "deaths"},
      {Fault::Liars, "liars"},
      {Fault::Silence, "silence"},
      {Fault::Storms, "storms"},
      {Fault::LongKernels, "long-kernels"},
      {Fault::Policies, "policies"},
      {Fault::Operators, "operators"},
      {Fault::Nonsense, "nonsense"},
      {Fault::Owners, "owners"},
      {Fault::LostDatabase, "lost-database"},
  };
  return all;
}

// A quarter of the seeds has no faults of the world at all, the others each class by a coin whose
// weight is the seed's own.
Options Options::draw(std::uint64_t seed) {
  Dice dice(seed ^ 0x6f7074696f6e73ULL);
  Options o;
  o.seed = seed;
  const std::uint64_t weight = dice.percent(25) ? 0 : dice.pick(std::vector<std::uint64_t>{15, 40});
  for (const FaultName& entry : faultNames()) {
    if (dice.percent(weight)) o.faults |= static_cast<std::uint32_t>(entry.fault);
  }
  drawNode(o, dice);
  drawLoad(o, dice);
  if (o.has(Fault::SmallMailboxes)) {
    o.mailboxMax = dice.pick(std::vector<std::uint32_t>{2, 4, 16, 64});
  }
  if (dice.percent(60)) o.snapshotRows = static_cast<std::uint64_t>(dice.between(2, 60));
  o.faultEvery = dice.magnitude(millis(20), seconds(2));
  o.events = static_cast<std::uint64_t>(dice.between(5'000, 30'000));
  o.length = dice.magnitude(seconds(1), seconds(30));
  return o;
}

std::string Options::text() const {
  return words().text(*this);
}

Status Options::set(const std::string& assignment) {
  return words().set(*this, assignment);
}

}  // namespace qgpu::sim
