#pragma once
// What one seed decides before its world begins, of a card whose tasks have pageable memory: the
// card, its load, and which classes of faults there are at all. Drawn from the seed, printed with
// every run; a person or --shrink may override single ones. The kin of options.h.

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/result.h"
#include "runtime/units.h"
#include "tests/sim/fault_options.h"

namespace qgpu::sim {

enum class PagingFault : std::uint32_t {
  Kills = 1u << 0,        // of processes, at any step
  Restarts = 1u << 1,     // of the manager, away for up to twice the grace
  HostFull = 1u << 2,     // copies that find no place on the host
  LongKernels = 1u << 3,  // longer than a drain lasts
  SlowCopies = 1u << 4,
  Stalls = 1u << 5,           // of the manager: it looks late at what happened
  Strangers = 1u << 6,        // who take memory of the card that nobody knows of
  SlowDeaths = 1u << 7,       // whose memory the driver is late to free
  DriverErrors = 1u << 8,     // memory that is not released, copies that fail
  Stops = 1u << 9,            // processes that do nothing for up to many seconds, and live
  LateOrders = 1u << 10,      // what the manager orders takes effect a moment later
  EndlessKernels = 1u << 11,  // that outlast every bound
};
using PagingFaultName = NamedFault<PagingFault>;
const std::vector<PagingFaultName>& pagingFaultNames();

struct PagingOptions : FaultOptions<PagingFault> {
  std::int64_t cardMib = 4096;
  std::uint32_t tasks = 3;        // with pageable memory
  std::uint32_t processes = 2;    // of one, at most
  std::uint32_t tenants = 2;      // without
  std::int64_t chunkMib = 128;    // at most
  std::int64_t firmPercent = 20;  // of the card: quotas of memory that never leaves
  std::uint32_t mibPerMs = 20;    // of a copy
  Nanos kernelMax = millis(20);
  Nanos stayMax = seconds(3);
  Nanos faultEvery = seconds(1);  // on average

  std::uint64_t events = 60'000;  // of the safety phase; ...
  Nanos length = seconds(30);     // ... which ends then at the latest

  static PagingOptions draw(std::uint64_t seed);
  std::string text() const;  // as set() takes it
  Status set(const std::string& assignment);
};

}  // namespace qgpu::sim
