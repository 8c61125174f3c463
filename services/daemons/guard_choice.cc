#include "services/daemons/guard_choice.h"

#include <algorithm>

#include "services/base/metrics_text.h"

namespace qgpu {
namespace {

constexpr const char* kBpfFolder = "/sys/fs/bpf/qgpu/";

// NotFound: no card has a node; Unsupported: a card's index is over what the guard can tell apart.
Result<std::vector<GuardNode>> guardNodes(const ManagerOptions& options,
                                          const std::vector<Card>& cards) {
  std::vector<DeviceNode> nodes = deviceNodes(cards, "");
  nodes.insert(nodes.end(), options.guardNodes.begin(), options.guardNodes.end());
  std::vector<GuardNode> told;
  for (const DeviceNode& node : nodes) {
    if (node.card && *node.card >= cards.size()) {
      return fail(ErrorCode::InvalidArgument,
                  "--guard-nodes: there is no card " + std::to_string(*node.card));
    }
    if (node.card && *node.card >= kGuardCardsMax) {
      return fail(ErrorCode::Unsupported,
                  "the guard knows no more than " + std::to_string(kGuardCardsMax) + " cards");
    }
    told.push_back({node.device, node.card.value_or(kGuardShared)});
  }
  if (told.empty()) {
    return fail(ErrorCode::NotFound, "no card here has a device node; --guard-nodes names some");
  }
  return told;
}

Result<std::unique_ptr<Guard>> openNow(const ManagerOptions& options, const std::string& runDir,
                                       std::vector<Card>& cards) {
  const auto nodes = guardNodes(options, cards);
  if (!nodes) return nodes.error();
  auto guard = Guard::open(guardFolder(runDir));
  if (!guard) return guard.error();
  if (const Status told = (*guard)->setNodes(*nodes); !told) return told.error();
  const auto rung = (*guard)->caps() ? schema::Isolation::CAPPED : schema::Isolation::GUARDED;
  for (const GuardNode& node : *nodes) {
    if (node.card != kGuardShared) cards[node.card].isolation = rung;
  }
  return guard;
}

}  // namespace

// bpffs takes no name with a dot.
std::string guardFolder(const std::string& runDir) {
  std::string name = runDir.substr(std::min(runDir.find_first_not_of('/'), runDir.size()));
  std::ranges::replace(name, '/', '_');
  std::ranges::replace(name, '.', '_');
  return kBpfFolder + name;
}

Result<std::unique_ptr<Guard>> openGuard(const ManagerOptions& options, const std::string& runDir,
                                         std::vector<Card>& cards, Log& log) {
  using None = std::unique_ptr<Guard>;
  if (options.guard == GuardChoice::Off) {
    const Status removed = Guard::remove(guardFolder(runDir));
    if (!removed) log.warn("guard-left", {{"why", removed.error().message}});
    return None();
  }
  auto guard = openNow(options, runDir, cards);
  if (guard) {
    log.info("guard", {{"folder", guardFolder(runDir)}});
    if (!(*guard)->caps()) log.info("no-cap", {{"why", (*guard)->whyNoCap()}});
    return guard;
  }
  if (options.guard == GuardChoice::On) {
    return fail(guard.error().code, "--guard=on: " + guard.error().message);
  }
  log.info("no-guard", {{"why", guard.error().message}});
  return None();
}

std::string guardMetrics(const Guard& guard, const std::vector<Card>& cards) {
  MetricsText page;
  page.family("qgpu_guard_refusals_total", "counter",
              "Times that the kernel kept a task's process from a card.");
  for (const Card& card : cards) {
    if (card.isolation == schema::Isolation::LIBRARY) continue;
    page.sample({{"card", card.id}}, countText(guard.tally(card.index)));
  }
  page.sample({{"card", "shared"}}, countText(guard.tally(kGuardShared)));
  return page.take();
}

}  // namespace qgpu
