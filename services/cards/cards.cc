#include "services/cards/cards.h"

#include <algorithm>
#include <iterator>

#include "runtime/check.h"
#include "services/cards/backend.h"

namespace qgpu {
namespace {

// In the order in which --cards=auto asks.
constexpr const CardBackend* kBackends[] = {&kNvidiaCards, &kAmdCards, &kOpenclCards,
                                            &kSimulatedCards};

const CardBackend* backendOf(std::string_view name) {
  const auto* const at = std::ranges::find(kBackends, name, &CardBackend::name);
  return at == std::end(kBackends) ? nullptr : *at;
}

// The first kind of which there are any. Neither a driver that does not answer nor cards that can't
// be shared hide behind the CPU.
Result<CardsFound> anyCards(const CardsOptions& options) {
  Result<CardsFound> found = fail(ErrorCode::NotFound, "no card on this machine");
  for (const CardBackend* backend : kBackends) {
    if (!backend->automatic) continue;
    found = backend->find(options);
    if (found || found.error().code != ErrorCode::NotFound) break;
  }
  return found;
}

Error noCardCan(const std::vector<Card>& cards) {
  std::string why;
  for (const Card& card : cards) {
    if (card.suspendWhy.empty()) continue;
    why += (why.empty() ? "" : "; ") + card.id + ": " + card.suspendWhy;
  }
  if (why.empty()) why = "there is none of NVIDIA's";
  return fail(ErrorCode::Unsupported,
              "--suspend=rm, and work can be taken off no card of this node (" + why +
                  "); --suspend=auto takes what there is");
}

}  // namespace

schema::Suspend freezeOrGate(SuspendChoice choice, bool canFreeze) {
  if (choice == SuspendChoice::Freeze) return schema::Suspend::FREEZE;
  if (choice != SuspendChoice::Gate && canFreeze) return schema::Suspend::FREEZE;
  return schema::Suspend::GATE;
}

bool isCardBackend(std::string_view name) {
  return name == kAutoCards || backendOf(name) != nullptr;
}

Result<CardsFound> findCards(const CardsOptions& options) {
  if (options.backend == kAutoCards) return anyCards(options);
  const CardBackend* backend = backendOf(options.backend);
  QGPU_CHECK(backend != nullptr, "options are checked where they are read");
  return backend->find(options);
}

std::vector<DeviceNode> deviceNodes(const std::vector<Card>& cards, const std::string& root) {
  std::vector<DeviceNode> all;
  for (const CardBackend* backend : kBackends) {
    if (backend->nodes == nullptr) continue;
    std::vector<Card> its;
    std::ranges::copy_if(cards, std::back_inserter(its),
                         [&](const Card& card) { return card.backend == backend->name; });
    const std::vector<DeviceNode> nodes = backend->nodes(its, root);
    all.insert(all.end(), nodes.begin(), nodes.end());
  }
  return all;
}

Status chooseSuspends(std::vector<Card>& cards, const SuspendTrial& trial, Log& log) {
  for (const CardBackend* backend : kBackends) {
    const bool has = std::ranges::count(cards, backend->name, &Card::backend) != 0;
    if (has && backend->trySuspends != nullptr) backend->trySuspends(cards, trial, log);
  }
  const auto isRm = [](const Card& card) { return card.method.has_value(); };
  if (trial.choice == SuspendChoice::Rm && std::ranges::none_of(cards, isRm)) {
    return noCardCan(cards);
  }
  return ok();
}

}  // namespace qgpu
