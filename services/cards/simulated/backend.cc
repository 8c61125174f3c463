// Imaginary cards, which run nothing: for tests of scale, and to try qgpu without a card.

#include "services/cards/backend.h"

namespace qgpu {
namespace {

Result<CardsFound> simulatedCards(const CardsOptions& options) {
  const SimCards& sim = options.sim;
  CardsFound found;
  for (std::uint32_t i = 0; i < sim.count; i++) {
    Card card;
    card.id = "sim-" + std::to_string(i);
    card.index = i;
    card.model = "simulated " + std::to_string(sim.memory / gibibytes(1)) + " GiB";
    card.backend = "sim";
    card.mem = sim.memory;
    card.suspend = freezeOrGate(options.suspend, false);
    found.cards.push_back(std::move(card));
  }
  return found;
}

}  // namespace

const CardBackend kSimulatedCards = {.name = "sim", .find = simulatedCards};

}  // namespace qgpu
