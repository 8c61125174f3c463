#include "tests/sim/cluster/cluster_options.h"

#include "tests/sim/host.h"
#include "tests/sim/option_fields.h"

namespace qgpu::sim {
namespace {

const OptionTable<ClusterOptions, ClusterFaultName>& words() {
  static const OptionTable<ClusterOptions, ClusterFaultName> all(
      {
          number("schedulers", &ClusterOptions::schedulers),
          number("etcd", &ClusterOptions::etcd),
          number("nodes", &ClusterOptions::nodes),
          number("cards", &ClusterOptions::cards),
          number("card_gib", &ClusterOptions::cardGib),
          number("mixed", &ClusterOptions::mixedPercent),
          number("slots", &ClusterOptions::slots),
          number("mailbox", &ClusterOptions::mailboxMax),
          number("snapshot_rows", &ClusterOptions::snapshotRows),
          number("tasks", &ClusterOptions::tasks),
          inUnits(millis(1), "life_min_ms", &ClusterOptions::lifeMin),
          inUnits(millis(1), "life_max_ms", &ClusterOptions::lifeMax),
          number("pinned", &ClusterOptions::pinnedPercent),
          number("groups", &ClusterOptions::groupsPercent),
          inUnits(millis(1), "think_ms", &ClusterOptions::think),
          inUnits(millis(1), "delay_max_ms", &ClusterOptions::delayMax),
          inUnits(millis(1), "fault_every_ms", &ClusterOptions::faultEvery),
          number("events", &ClusterOptions::events),
          inUnits(millis(1), "length_ms", &ClusterOptions::length),
      },
      clusterFaultNames());
  return all;
}

}  // namespace

const std::vector<ClusterFaultName>& clusterFaultNames() {
  static const std::vector<ClusterFaultName> all = {
      {ClusterFault::NodeCrash, "node-crash"},  {ClusterFault::SchedulerCrash, "scheduler-crash"},
      {ClusterFault::PowerLoss, "power-loss"},  {ClusterFault::NodeLoss, "node-loss"},
      {ClusterFault::DiskFull, "disk-full"},    {ClusterFault::DiskErrors, "disk-errors"},
      {ClusterFault::SyncFails, "sync-fails"},  {ClusterFault::SlowDisk, "slow-disk"},
      {ClusterFault::Stalls, "stalls"},         {ClusterFault::Cuts, "cuts"},
      {ClusterFault::Partitions, "partitions"}, {ClusterFault::OneWay, "one-way"},
      {ClusterFault::Delays, "delays"},         {ClusterFault::Duplicates, "duplicates"},
      {ClusterFault::Operators, "operators"},   {ClusterFault::Forwards, "forwards"},
      {ClusterFault::Endings, "endings"},       {ClusterFault::SmallMailboxes, "small-mailboxes"},
      {ClusterFault::Pauses, "pauses"},         {ClusterFault::EtcdCuts, "etcd-cuts"},
      {ClusterFault::EtcdCalls, "etcd-calls"},  {ClusterFault::EtcdDown, "etcd-down"},
      {ClusterFault::EtcdFull, "etcd-full"},    {ClusterFault::EtcdSlow, "etcd-slow"},
  };
  return all;
}

// A tenth of the seeds has no faults at all, the others each class by a coin whose weight is the
// seed's own. Who schedules is drawn by other dice, so that a seed's cluster is the same with one
// scheduler and a file (schedulers=1 etcd=0) as before there were several; and so are groups
// (groups=0).
ClusterOptions ClusterOptions::draw(std::uint64_t seed) {
  Dice dice(seed ^ 0x636c7573746572ULL);
  ClusterOptions o;
  o.seed = seed;
  const std::uint64_t weight =
      dice.percent(10) ? 0 : dice.pick(std::vector<std::uint64_t>{20, 40, 60});
  for (const ClusterFaultName& entry : clusterFaultNames()) {
    if (entry.fault >= ClusterFault::Pauses) continue;
    if (dice.percent(weight)) o.faults |= static_cast<std::uint32_t>(entry.fault);
  }
  o.nodes = static_cast<std::uint32_t>(dice.between(1, 4));
  o.cards = static_cast<std::uint32_t>(dice.between(1, 3));
  o.cardGib = dice.pick(std::vector<std::int64_t>{4, 8, 16, 16, 32});
  o.mixedPercent = dice.pick(std::vector<std::uint32_t>{0, 50, 80, 100});
  if (o.has(ClusterFault::SmallMailboxes)) {
    o.mailboxMax = dice.pick(std::vector<std::uint32_t>{4, 16, 64});
  }
  if (dice.percent(50)) o.snapshotRows = static_cast<std::uint64_t>(dice.between(5, 100));
  o.tasks = static_cast<std::uint32_t>(dice.between(1, 3 * o.nodes * o.cards));
  o.lifeMax = dice.magnitude(seconds(5), seconds(200));
  o.lifeMin = o.lifeMax / 10;
  o.pinnedPercent = dice.pick(std::vector<std::uint32_t>{0, 5, 20, 50});
  o.think = dice.magnitude(millis(400), seconds(4));
  o.delayMax = dice.magnitude(micros(200), o.has(ClusterFault::Delays) ? seconds(4) : millis(20));
  o.faultEvery = dice.magnitude(seconds(2), seconds(30));
  o.length = dice.between(seconds(40), seconds(200));
  Dice together(seed ^ 0x67726f7570ULL);
  o.groupsPercent = together.pick(std::vector<std::uint32_t>{0, 0, 10, 30});
  Dice several(seed ^ 0x65746364ULL);
  o.etcd = several.percent(70);
  if (!o.etcd) return o;
  o.schedulers = several.pick(std::vector<std::uint32_t>{1, 2, 2, 3});
  for (const ClusterFaultName& entry : clusterFaultNames()) {
    if (entry.fault < ClusterFault::Pauses || !several.percent(weight)) continue;
    o.faults |= static_cast<std::uint32_t>(entry.fault);
  }
  return o;
}

std::string ClusterOptions::text() const {
  return words().text(*this);
}

Status ClusterOptions::set(const std::string& assignment) {
  return words().set(*this, assignment);
}

}  // namespace qgpu::sim
