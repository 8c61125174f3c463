// NVIDIA's cards, by NVML.

#include "services/cards/backend.h"

#include <string_view>

#include "services/cards/nvidia/health.h"
#include "services/cards/nvidia/layout_trial.h"
#include "services/cards/nvidia/memory_limits.h"
#include "services/cards/nvidia/nodes.h"
#include "services/cards/nvidia/probe.h"
#include "services/cards/nvidia/suspend_trial.h"
#include "services/cards/pci_place.h"
#include "services/nvidia_abi/rm_abi.h"

namespace qgpu {
namespace {

constexpr std::string_view kNvidia = "NVIDIA CUDA";  // what its OpenCL calls its platform

Result<CardsFound> watched(CardsFound found, const HealthTimes& times) {
  std::vector<std::string> uuids;
  for (const Card& card : found.cards) uuids.push_back(card.id);
  Result<HealthWatch> watch = watchNvidiaCards(uuids, times);
  if (!watch) return watch.error();
  found.health = std::move(*watch);
  if (!found.noLimiter.empty()) return found;
  Result<MemoryLimiter> limiter = limitNvidiaMemory();
  if (!limiter) return limiter.error();
  found.limiter = std::move(*limiter);
  return found;
}

// As libqgpu.so decides it in each process (rm_ioctl.h), by the same table.
void sayWhereMemoryCounts(Card& card) {
  const std::string& driver = card.driver;
  if (rm::layoutOf(driver.c_str(), driver.size() + 1) != rm::Layout::kUnknown) {
    card.counting = schema::Counting::DRIVER;
    card.memoryCounted = "where driver " + driver + " is asked for it";
    return;
  }
  card.counting = schema::Counting::DRIVER_UNKNOWN;
  card.memoryCounted = "at CUDA's calls, without contexts and what pools keep: driver " +
                       (driver.empty() ? "of no version" : driver) + " is not known to qgpu (" +
                       std::to_string(rm::kOldestKnown) + " to " +
                       std::to_string(rm::kNewestKnown) + " are)";
}

// Kernels run on the card, where no thread of the tenant can be frozen.
Result<CardsFound> nvidiaCards(const CardsOptions& options) {
  Result<NvidiaFound> nvidia = probeNvidia(options.probeTimeout, options.pciDevices);
  if (!nvidia) return nvidia.error();
  CardsFound found;
  found.leftAlone = std::move(nvidia->silent);
  const std::vector<std::uint32_t> links = linkGroups(nvidia->devices);
  for (std::size_t i = 0; i < nvidia->devices.size(); i++) {
    const NvidiaDevice& device = nvidia->devices[i];
    if (device.mig) {
      found.leftAlone.push_back(device.uuid + " (" + device.name +
                                ") is split into MIG instances; `nvidia-smi -mig 0` undoes that");
      continue;
    }
    if (found.cards.size() == kCardsMax) break;
    Card card;
    card.id = device.uuid;
    card.index = static_cast<std::uint32_t>(found.cards.size());
    card.model = device.name;
    card.backend = "nvidia";
    card.mem = device.mem;
    card.platform = kNvidia;
    card.device = device.index;
    card.driver = device.driver;
    card.place.links = links[i];
    if (const auto numa = numaNodeOf(options.pciDevices, device.bus)) {
      card.place.numa = static_cast<std::int32_t>(*numa);
    }
    card.minor = device.minor;
    sayWhereMemoryCounts(card);
    if (device.noLimits.empty()) card.memoryCounted += "; pods are limited by the driver itself";
    found.noLimiter = device.noLimits;  // of one driver, which they share
    found.cards.push_back(std::move(card));
  }
  if (!found.cards.empty()) return watched(std::move(found), options.health);
  if (found.leftAlone.empty()) {
    return fail(ErrorCode::NotFound,
                "no NVIDIA card on this machine, or its driver is not loaded; does "
                "`nvidia-smi -L` list one?");
  }
  return fail(ErrorCode::Unavailable, "no NVIDIA card to share: " + found.leftAlone.front() +
                                          "; --cards=opencl shares what OpenCL offers instead");
}

// What takes work off a card is asked of its driver in a layout.
void tryCards(std::vector<Card>& cards, const SuspendTrial& trial, Log& log) {
  tryNvidiaLayouts(cards, trial, log);
  tryNvidiaSuspends(cards, trial, log);
}

}  // namespace

const CardBackend kNvidiaCards = {.name = "nvidia",
                                  .find = nvidiaCards,
                                  .trySuspends = tryCards,
                                  .nodes = nvidiaCardNodes,
                                  .automatic = true};

}  // namespace qgpu
