#pragma once
// Steps that several acts share.

#include <string>

#include "runtime/result.h"
#include "services/demo/acts.h"
#include "services/demo/cast.h"

namespace qgpu::demo {

// Waits until the tasks of the act before are gone, then sets the policy of every card.
Status setScene(const ActSetting& setting, const std::string& title, const std::string& policy);

// A tenant that wants the card all the time with kernels of `kernelMs` ("2..8").
TenantSpec busyTenant(const std::string& name, int corePercent, const std::string& kernelMs);

// The task's figures over the window, without a wanted share.
TaskFigure figureOf(const Cast& cast, const TenantSpec& spec, Interval window);

// Ends the tenants and completes the act: checksums go into its tasks, wrong ones into failures.
Result<std::map<std::string, WorkReport>> closeAct(const ActSetting& setting, Cast& cast,
                                                   ActResult act);

}  // namespace qgpu::demo
