#pragma once
// Whether this manager has a guard (services/guard), where it lies, and which cards are behind it.

#include <memory>
#include <string>
#include <vector>

#include "runtime/log.h"
#include "runtime/result.h"
#include "services/daemons/options.h"
#include "services/guard/guard.h"

namespace qgpu {

// Of a manager with this run dir, which no other manager has.
std::string guardFolder(const std::string& runDir);

// The guard as --guard says, with the nodes of `cards`, whose `isolation` it sets; null: there is
// none, and one that lay there is gone where it is switched off. An error: it was asked for by
// name, and can't be.
Result<std::unique_ptr<Guard>> openGuard(const ManagerOptions& options, const std::string& runDir,
                                         std::vector<Card>& cards, Log& log);

// qgpu_guard_refusals_total.
std::string guardMetrics(const Guard& guard, const std::vector<Card>& cards);

}  // namespace qgpu
