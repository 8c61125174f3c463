// AMD's cards, by the kernel's compute driver. Nobody has tried this on one: --cards=auto does not
// ask for them (docs/internals/other_cards.md).

#include "services/cards/backend.h"

#include "services/cards/amd/nodes.h"
#include "services/cards/amd/topology.h"
#include "services/cards/pci_place.h"

namespace qgpu {
namespace {

constexpr std::string_view kRocm = "AMD Accelerated Parallel Processing";  // its OpenCL's platform

std::string left(const AmdDevice& device, const char* why) {
  return device.bus + " (" + device.name + ") " + why;
}

// Kernels run on the card, where no thread of the tenant can be frozen.
Result<CardsFound> amdCards(const CardsOptions& options) {
  CardsFound found;
  for (const AmdDevice& device :
       amdDevices(options.kfdNodes.empty() ? kKfdNodes : options.kfdNodes)) {
    if (device.uuid.empty()) {
      found.leftAlone.push_back(left(device,
                                     "has no unique id, by which a program would be given "
                                     "it: cards of before Vega have none"));
      continue;
    }
    if (device.mem == Bytes(0)) {
      found.leftAlone.push_back(left(device, "has no memory of its own"));
      continue;
    }
    if (found.cards.size() == kCardsMax) break;
    Card card;
    card.id = device.uuid;
    card.index = static_cast<std::uint32_t>(found.cards.size());
    card.model = device.name;  // as OpenCL's devices and compilers are called
    card.backend = "amd";
    card.mem = device.mem;
    card.suspend = freezeOrGate(options.suspend, false);
    card.suspendWhy = "nothing here takes work off AMD's cards: what runs ends by itself";
    card.platform = kRocm;
    card.device = device.index;
    card.memoryCounted = "at HIP's and OpenCL's calls";
    if (const auto numa = numaNodeOf(options.pciDevices, device.bus)) {
      card.place.numa = static_cast<std::int32_t>(*numa);
    }
    found.cards.push_back(std::move(card));
  }
  if (!found.cards.empty()) return found;
  if (found.leftAlone.empty()) {
    return fail(ErrorCode::NotFound,
                "no AMD card on this machine, or its driver is not loaded; is "
                "there a /dev/kfd?");
  }
  return fail(ErrorCode::Unavailable, "no AMD card to share: " + found.leftAlone.front());
}

}  // namespace

const CardBackend kAmdCards = {.name = "amd", .find = amdCards, .nodes = amdCardNodes};

}  // namespace qgpu
