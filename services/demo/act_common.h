#pragma once
// Steps that several acts share.

#include <map>
#include <memory>
#include <string>

#include "runtime/result.h"
#include "services/demo/acts.h"
#include "services/demo/tenant_group.h"

namespace qgpu::demo {

// Waits until the tasks of the act before are gone, then sets the policy of every card.
Status setScene(const ActSetting& setting, const std::string& title, const std::string& policy);

// A tenant that wants the card all the time with kernels of `kernelMs` ("2..8").
TenantSpec busyTenant(const std::string& name, int corePercent, const std::string& kernelMs);

// What a tenant's program does without qgpu, on the same machine in the same minutes: a second one
// that has the device to itself, before the tenants are started and after they have ended. The
// manager is asked as often meanwhile as for the tenants (TenantGroup::watch).
class BareRun {
 public:
  static constexpr std::int64_t kMeasureNs = 1'500'000'000;

  BareRun(PrivateNode& node, const TenantSpec& spec);
  // While nobody else uses the device.
  Status measure(std::int64_t everyNs = TenantGroup::kSampleNs);
  // Loops for each second, over all that was measured. Ends it.
  Result<double> finish();

 private:
  PrivateNode& node_;
  std::unique_ptr<Child> child_;
  std::size_t measured_ = 0;
};

// The permille of the bare rate that a tenant did between two of its marks.
std::int64_t workPermille(const WorkReport& report, std::size_t first, std::size_t last,
                          double bareRate);

// The task's figures over the window, as the manager counted it, without a wanted share.
TaskFigure figureOf(const TenantGroup& tenants, const TenantSpec& spec, Interval window);

using Reports = std::map<std::string, WorkReport>;

// Completes an act whose tenants have ended: checksums go into its tasks, wrong ones into failures.
void closeAct(const ActSetting& setting, const Reports& reports, ActResult act);

}  // namespace qgpu::demo
