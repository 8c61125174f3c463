#include "tests/sim/paging/paging_options.h"

#include "tests/sim/host.h"
#include "tests/sim/option_fields.h"

namespace qgpu::sim {
namespace {

const OptionTable<PagingOptions, PagingFaultName>& words() {
  static const OptionTable<PagingOptions, PagingFaultName> all(
      {
          number("card_mib", &PagingOptions::cardMib),
          number("tasks", &PagingOptions::tasks),
          number("processes", &PagingOptions::processes),
          number("tenants", &PagingOptions::tenants),
          number("chunk_mib", &PagingOptions::chunkMib),
          number("firm", &PagingOptions::firmPercent),
          number("mib_per_ms", &PagingOptions::mibPerMs),
          inUnits(micros(1), "kernel_max_us", &PagingOptions::kernelMax),
          inUnits(millis(1), "stay_max_ms", &PagingOptions::stayMax),
          inUnits(millis(1), "fault_every_ms", &PagingOptions::faultEvery),
          number("events", &PagingOptions::events),
          inUnits(millis(1), "length_ms", &PagingOptions::length),
      },
      pagingFaultNames());
  return all;
}

}  // namespace

const std::vector<PagingFaultName>& pagingFaultNames() {
  static const std::vector<PagingFaultName> all = {
      {PagingFault::Kills, "kills"},
      {PagingFault::Restarts, "restarts"},
      {PagingFault::HostFull, "host-full"},
      {PagingFault::LongKernels, "long-kernels"},
      {PagingFault::SlowCopies, "slow-copies"},
      {PagingFault::Stalls, "stalls"},
      {PagingFault::Strangers, "strangers"},
      {PagingFault::SlowDeaths, "slow-deaths"},
      {PagingFault::DriverErrors, "driver-errors"},
      {PagingFault::Stops, "stops"},
      {PagingFault::LateOrders, "late-orders"},
      {PagingFault::EndlessKernels, "endless-kernels"},
  };
  return all;
}

PagingOptions PagingOptions::draw(std::uint64_t seed) {
  Dice dice(seed ^ 0x706167696e67ULL);
  PagingOptions o;
  o.seed = seed;
  const std::uint64_t weight =
      dice.percent(10) ? 0 : dice.pick(std::vector<std::uint64_t>{20, 40, 60});
  for (const PagingFaultName& entry : pagingFaultNames()) {
    if (dice.percent(weight)) o.faults |= static_cast<std::uint32_t>(entry.fault);
  }
  o.cardMib = dice.pick(std::vector<std::int64_t>{1024, 4096, 16384});
  o.tasks = static_cast<std::uint32_t>(dice.between(1, 4));
  o.processes = static_cast<std::uint32_t>(dice.between(1, 3));
  o.tenants = static_cast<std::uint32_t>(dice.between(0, 3));
  o.chunkMib = o.cardMib / dice.between(8, 40);
  o.firmPercent = dice.between(0, 80);
  o.mibPerMs = static_cast<std::uint32_t>(dice.between(5, 30));
  if (o.has(PagingFault::SlowCopies)) o.mibPerMs = 1;
  o.kernelMax =
      o.has(PagingFault::LongKernels) ? millis(600) : dice.magnitude(micros(50), millis(40));
  o.stayMax = dice.magnitude(seconds(1), seconds(10));
  o.faultEvery = dice.magnitude(millis(100), seconds(4));
  o.length = dice.between(seconds(10), seconds(40));
  return o;
}

std::string PagingOptions::text() const {
  return words().text(*this);
}

Status PagingOptions::set(const std::string& assignment) {
  return words().set(*this, assignment);
}

}  // namespace qgpu::sim
