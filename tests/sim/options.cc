#include "tests/sim/options.h"

#include <charconv>
#include <functional>

#include "tests/sim/host.h"

namespace qgpu::sim {
namespace {

// One number of the options by name, in the unit that its name says.
struct Field {
  const char* name;
  std::function<std::int64_t(const Options&)> get;
  std::function<void(Options&, std::int64_t)> set;
};

template <typename T>
Field number(const char* name, T Options::*member) {
  return {name, [member](const Options& o) { return static_cast<std::int64_t>(o.*member); },
          [member](Options& o, std::int64_t v) { o.*member = static_cast<T>(v); }};
}

Field inMicros(const char* name, Nanos Options::*member) {
  return {name, [member](const Options& o) { return (o.*member) / micros(1); },
          [member](Options& o, std::int64_t v) { o.*member = micros(v); }};
}

const std::vector<Field>& fields() {
  static const std::vector<Field> all = {
      number("cards", &Options::cards),
      number("card_gib", &Options::cardGib),
      number("freeze", &Options::freeze),
      number("mixed", &Options::mixed),
      number("tasks_per_card", &Options::maxTasksPerCard),
      number("policy", &Options::policy),
      number("slots", &Options::slots),
      number("mailbox", &Options::mailboxMax),
      number("snapshot_rows", &Options::snapshotRows),
      inMicros("online_idle_us", &Options::onlineIdle),
      inMicros("slice_min_us", &Options::sliceMin),
      inMicros("slice_max_us", &Options::sliceMax),
      number("tasks", &Options::tasks),
      inMicros("life_min_us", &Options::lifeMin),
      inMicros("life_max_us", &Options::lifeMax),
      number("online", &Options::onlinePercent),
      number("offline", &Options::offlinePercent),
      number("whole", &Options::wholePercent),
      inMicros("kernel_min_us", &Options::kernelMin),
      inMicros("kernel_max_us", &Options::kernelMax),
      inMicros("fault_every_us", &Options::faultEvery),
      number("events", &Options::events),
      inMicros("length_us", &Options::length),
  };
  return all;
}

std::string faultText(const Options& options) {
  std::string text;
  for (const FaultName& entry : faultNames()) {
    if (!options.has(entry.fault)) continue;
    text += (text.empty() ? "" : ",") + std::string(entry.name);
  }
  return text.empty() ? "none" : text;
}

Status setFaults(Options& options, const std::string& list) {
  options.faults = 0;
  for (std::size_t from = 0; list != "none" && from <= list.size();) {
    const std::size_t to = std::min(list.find(',', from), list.size());
    const std::string word = list.substr(from, to - from);
    std::uint32_t bit = 0;
    std::string known;
    for (const FaultName& entry : faultNames()) {
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

void drawNode(Options& o, Dice& dice) {
  o.cards = static_cast<std::uint32_t>(dice.percent(50) ? 1 : dice.between(2, 4));
  o.cardGib = dice.pick(std::vector<std::int64_t>{4, 8, 16, 16, 32, 80});
  o.freeze = dice.percent(50);
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
  std::string text = "faults=" + faultText(*this);
  for (const Field& field : fields()) {
    text += " " + std::string(field.name) + "=" + std::to_string(field.get(*this));
  }
  return text;
}

Status Options::set(const std::string& assignment) {
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
