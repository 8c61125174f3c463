#pragma once
// Steps that several acts share: the scene, and what is made of its end.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "runtime/result.h"
#include "services/demo/acts.h"
#include "services/demo/tenants/bare_run.h"
#include "services/demo/tenants/tenant_group.h"

namespace qgpu::demo {

// Waits until the tasks of the act before are gone, then sets the policy of every card.
Status setScene(const ActSetting& setting, const std::string& title, const std::string& policy);

// How many rounds an act of `ns` has, so that each is about `roundNs` long; one at least.
std::int64_t roundsOf(std::int64_t ns, std::int64_t roundNs);

// The task's figures over these windows, as the manager counted it, without a wanted share.
TaskFigure figureOf(const TenantGroup& tenants, const TenantSpec& spec,
                    const std::vector<Interval>& windows);

using Reports = std::map<std::string, WorkReport>;

// Completes an act whose tenants have ended: checksums go into its tasks, wrong ones into failures.
void closeAct(const ActSetting& setting, const Reports& reports, ActResult act);

}  // namespace qgpu::demo
