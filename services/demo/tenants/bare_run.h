#pragma once
// What a program does without qgpu, which each share is judged by.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/result.h"
#include "services/demo/tenants/tenant_group.h"

namespace qgpu::demo {

// How fast a program was without qgpu, in loops for each second.
struct BareRates {
  std::vector<double> around;      // of each round: the mean of the measures before and after it
  std::int64_t apartPermille = 0;  // by how much the fastest measure was faster than the slowest
};
BareRates bareRatesOf(const std::vector<double>& measured);

// What a tenant's program does without qgpu, on the same machine in the same seconds: a second one
// that has the device to itself while the tenants pause. A shared machine's speed may move by ten
// percent within a minute, so each round of the tenants stands between two measures of this, and is
// judged by these two alone. The manager is asked as often meanwhile as for the tenants
// (TenantGroup::watch).
class BareRun {
 public:
  static constexpr std::int64_t kMeasureNs = 1'500'000'000;
  static constexpr std::int64_t kSettleNs = kSecond / 4;  // after a "go", before a round counts

  BareRun(TenantHost& node, const TenantSpec& spec);
  // While nobody else uses the device.
  Status measure(std::int64_t everyNs = TenantGroup::kSampleNs);
  // Ends it.
  Result<BareRates> finish();

 private:
  TenantHost& node_;
  std::unique_ptr<Child> child_;
  std::size_t measured_ = 0;
};

// Rounds of tenants that are busy, each between two measures of the bare program, with a mark of
// each tenant at its begin and its end.
struct RoundsPlayed {
  std::map<std::string, WorkReport> reports;  // by tenant
  BareRates rates;
  std::vector<Interval> windows;  // of the rounds, for what the manager counted
};
// Ends all of them.
Result<RoundsPlayed> playRounds(TenantGroup& tenants, BareRun& bare, std::int64_t rounds,
                                std::int64_t roundNs);

// What a tenant did in its rounds [first, end), in permille of what it does without qgpu around
// them. Round i lies between its marks 2 * i and 2 * i + 1.
std::int64_t workPermille(const WorkReport& report, const std::vector<double>& bareRates,
                          std::size_t first = 0, std::size_t end = SIZE_MAX);

}  // namespace qgpu::demo
