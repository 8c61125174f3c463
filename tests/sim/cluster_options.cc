#include "tests/sim/cluster_options.h"

#include <charconv>
#include <functional>

#include "tests/sim/host.h"

namespace qgpu::sim {
namespace {

struct Field {
  const char* name;
  std::function<std::int64_t(const ClusterOptions&)> get;
  std::function<void(ClusterOptions&, std::int64_t)> set;
};

template <typename T>
Field number(const char* name, T ClusterOptions::*member) {
  return {name, [member](const ClusterOptions& o) { return static_cast<std::int64_t>(o.*member); },
          [member](ClusterOptions& o, std::int64_t v) { o.*member = static_cast<T>(v); }};
}

Field inMillis(const char* name, Nanos ClusterOptions::*member) {
  return {name, [member](const ClusterOptions& o) { return (o.*member) / millis(1); },
          [member](ClusterOptions& o, std::int64_t v) { o.*member = millis(v); }};
}

const std::vector<Field>& fields() {
  static const std::vector<Field> all = {
      number("nodes", &ClusterOptions::nodes),
      number("cards", &ClusterOptions::cards),
      number("card_gib", &ClusterOptions::cardGib),
      number("mixed", &ClusterOptions::mixedPercent),
      number("slots", &ClusterOptions::slots),
      number("mailbox", &ClusterOptions::mailboxMax),
      number("snapshot_rows", &ClusterOptions::snapshotRows),
      number("tasks", &ClusterOptions::tasks),
      inMillis("life_min_ms", &ClusterOptions::lifeMin),
      inMillis("life_max_ms", &ClusterOptions::lifeMax),
      number("pinned", &ClusterOptions::pinnedPercent),
      inMillis("think_ms", &ClusterOptions::think),
      inMillis("delay_max_ms", &ClusterOptions::delayMax),
      inMillis("fault_every_ms", &ClusterOptions::faultEvery),
      number("events", &ClusterOptions::events),
      inMillis("length_ms", &ClusterOptions::length),
  };
  return all;
}

Status setFaults(ClusterOptions& options, const std::string& list) {
  options.faults = 0;
  for (std::size_t from = 0; list != "none" && from <= list.size();) {
    const std::size_t to = std::min(list.find(',', from), list.size());
    const std::string word = list.substr(from, to - from);
    std::uint32_t bit = 0;
    std::string known;
    for (const ClusterFaultName& entry : clusterFaultNames()) {
      if (word == entry.name) bit = static_cast<std::uint32_t>(entry.fault);
      known += (known.empty() ? "" : ", ") + std::string(entry.name);
    }
    if (bit == 0) {
      return fail(ErrorCode::InvalidArgument, "no fault '" + word + "'; there are: " + known);
    }
    options.faults |= bit;
    from = to + 1;
  }
  return ok();
}

}  // namespace

const std::vector<ClusterFaultName>& clusterFaultNames() {
  static const std::vector<ClusterFaultName> all = {
      {ClusterFault::NodeCrash, "node-crash"},
      {ClusterFault::SchedulerCrash, "scheduler-crash"},
      {ClusterFault::PowerLoss, "power-loss"},
      {ClusterFault::NodeLoss, "node-loss"},
      {ClusterFault::DiskFull, "disk-full"},
      {ClusterFault::DiskErrors, "disk-errors"},
      {ClusterFault::SyncFails, "sync-fails"},
      {ClusterFault::SlowDisk, "slow-disk"},
      {ClusterFault::Stalls, "stalls"},
      {ClusterFault::Cuts, "cuts"},
      {ClusterFault::Partitions, "partitions"},
      {ClusterFault::OneWay, "one-way"},
      {ClusterFault::Delays, "delays"},
      {ClusterFault::Duplicates, "duplicates"},
      {ClusterFault::Operators, "operators"},
      {ClusterFault::Forwards, "forwards"},
      {ClusterFault::Endings, "endings"},
      {ClusterFault::SmallMailboxes, "small-mailboxes"},
  };
  return all;
}

// A tenth of the seeds has no faults at all, the others each class by a coin whose weight is the
// seed's own.
ClusterOptions ClusterOptions::draw(std::uint64_t seed) {
  Dice dice(seed ^ 0x636c7573746572ULL);
  ClusterOptions o;
  o.seed = seed;
  const std::uint64_t weight =
      dice.percent(10) ? 0 : dice.pick(std::vector<std::uint64_t>{20, 40, 60});
  for (const ClusterFaultName& entry : clusterFaultNames()) {
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
  return o;
}

std::string ClusterOptions::text() const {
  std::string text;
  for (const ClusterFaultName& entry : clusterFaultNames()) {
    if (has(entry.fault)) text += (text.empty() ? "" : ",") + std::string(entry.name);
  }
  text = "faults=" + (text.empty() ? "none" : text);
  for (const Field& field : fields()) {
    text += " " + std::string(field.name) + "=" + std::to_string(field.get(*this));
  }
  return text;
}

Status ClusterOptions::set(const std::string& assignment) {
  const std::size_t equals = assignment.find('=');
  const std::string name = assignment.substr(0, equals);
  const std::string value = equals == std::string::npos ? "" : assignment.substr(equals + 1);
  if (name == "faults") return setFaults(*this, value);
  if (name == "judge") return judge = value, ok();
  std::string known = "faults, judge";
  for (const Field& field : fields()) {
    known += ", " + std::string(field.name);
    if (name != field.name) continue;
    std::int64_t parsed = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), parsed);
    if (error != std::errc() || end != value.data() + value.size() || parsed < 0) {
      return fail(ErrorCode::InvalidArgument, "'" + assignment + "': a number from 0 is wanted");
    }
    field.set(*this, parsed);
    return ok();
  }
  return fail(ErrorCode::InvalidArgument, "no option '" + name + "'; there are: " + known);
}

}  // namespace qgpu::sim
