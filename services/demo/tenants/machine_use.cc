#include "services/demo/tenants/machine_use.h"

#include <algorithm>
#include <sstream>
#include <sys/times.h>
#include <vector>

#include "services/demo/tenants/children.h"

namespace qgpu::demo {

// The first line of /proc/stat: "cpu  user nice system idle iowait irq softirq steal ...".
MachineUse::Counters MachineUse::parse(const std::string& procStat) {
  constexpr std::size_t kIdle = 3, kWait = 4, kSteal = 7, kColumns = 8;  // guests are in user
  std::istringstream line(procStat.substr(0, procStat.find('\n')));
  std::string name;
  line >> name;
  Counters counters;
  std::int64_t ticks = 0;
  for (std::size_t i = 0; i < kColumns && line >> ticks; i++) {
    counters.all += ticks;
    if (i == kSteal) counters.stolen = ticks;
    if (i != kIdle && i != kWait && i != kSteal) counters.busy += ticks;
  }
  return counters;
}

MachineUse::Counters MachineUse::count() {
  Counters counters = parse(readWhole("/proc/stat"));
  tms own{};
  times(&own);
  counters.own = own.tms_utime + own.tms_stime + own.tms_cutime + own.tms_cstime;
  return counters;
}

MachineUse MachineUse::between(const Counters& before, const Counters& after) {
  const std::int64_t all = std::max<std::int64_t>(after.all - before.all, 1);
  const std::int64_t others = (after.busy - before.busy) - (after.own - before.own);
  return {std::max<std::int64_t>(others, 0) * 1000 / all,
          (after.stolen - before.stolen) * 1000 / all};
}

}  // namespace qgpu::demo
