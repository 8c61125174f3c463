#include "services/cards/cards.h"

#include <cctype>
#include <cstring>
#include <string_view>
#include <unistd.h>

#include "actors/base/tenant_variables.h"
#include "services/cards/nvidia_probe.h"
#include "services/cards/opencl_probe.h"
#include "services/nvidia_abi/rm_abi.h"

namespace qgpu {
namespace {

constexpr std::string_view kPocl = "Portable Computing Language";
constexpr std::string_view kNvidia = "NVIDIA CUDA";  // what its OpenCL calls its platform

// PoCL's threaded CPU device runs kernels on threads of the tenant that can be told from its own:
// "pthread-..." up to PoCL 3, "cpu-..." later. "basic" and "cpu-minimal" use the caller's thread.
bool canFreeze(const OpenclDevice& device) {
  if (device.platform != kPocl) return false;
  return device.name.starts_with("pthread") ||
         (device.name.starts_with("cpu") && !device.name.starts_with("cpu-minimal"));
}

schema::Suspend chooseSuspend(SuspendChoice choice, bool able) {
  if (choice == SuspendChoice::Freeze) return schema::Suspend::FREEZE;
  if (choice != SuspendChoice::Gate && able) return schema::Suspend::FREEZE;
  return schema::Suspend::GATE;
}

std::vector<std::pair<std::string, std::string>> poclEnvironment() {
  std::vector<std::pair<std::string, std::string>> pairs;
  for (char** entry = ::environ; entry != nullptr && *entry != nullptr; entry++) {
    const char* equals = std::strchr(*entry, '=');
    if (equals == nullptr) continue;
    const std::string name(static_cast<const char*>(*entry), equals);
    if (nodeMayGive(name, equals + 1)) pairs.emplace_back(name, equals + 1);
  }
  return pairs;
}

Result<CardsFound> openclCards(const CardsOptions& options) {
  Result<std::vector<OpenclDevice>> devices = probeOpencl(options.probeTimeout);
  if (!devices) return devices.error();
  if (devices->empty()) {
    return fail(ErrorCode::NotFound,
                "no OpenCL device on this machine; install a driver (Debian: pocl-opencl-icd makes "
                "a card of the CPU), or use --cards=sim:8x32");
  }
  CardsFound found;
  found.tenantEnv = poclEnvironment();
  for (const OpenclDevice& device : *devices) {
    if (found.cards.size() == kCardsMax) break;
    Card card;
    card.id = openclCardId(device.platform, device.index);
    card.index = static_cast<std::uint32_t>(found.cards.size());
    card.model = device.name;
    card.backend = "opencl";
    card.mem = device.mem;
    card.suspend = chooseSuspend(options.suspend, canFreeze(device));
    card.platform = device.platform;
    card.device = device.index;
    found.cards.push_back(std::move(card));
  }
  return found;
}

Result<CardsFound> watched(CardsFound found, const HealthTimes& times) {
  std::vector<std::string> uuids;
  for (const Card& card : found.cards) uuids.push_back(card.id);
  Result<HealthWatch> watch = HealthWatch::start(uuids, times);
  if (!watch) return watch.error();
  found.health = std::move(*watch);
  return found;
}

// As libqgpu.so decides it in each process (rm_ioctl.h), by the same table.
std::string whereMemoryCounts(const std::string& driver) {
  const bool known = rm::layoutOf(driver.c_str(), driver.size() + 1) != rm::Layout::kUnknown;
  if (known) return "where driver " + driver + " is asked for it";
  return "at CUDA's calls, without contexts and what pools keep: driver " +
         (driver.empty() ? "of no version" : driver) + " is not known to qgpu";
}

// Kernels run on the card, where no thread of the tenant can be frozen.
Result<CardsFound> nvidiaCards(const CardsOptions& options) {
  Result<NvidiaFound> nvidia = probeNvidia(options.probeTimeout, options.pciDevices);
  if (!nvidia) return nvidia.error();
  CardsFound found;
  found.leftAlone = std::move(nvidia->silent);
  for (const NvidiaDevice& device : nvidia->devices) {
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
    card.driverVersion = device.driver;
    card.minor = device.minor;
    card.memoryCounted = whereMemoryCounts(device.driver);
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

// NVIDIA's where there are any. Neither a driver that does not answer nor cards that can't be
// shared hide behind the CPU.
Result<CardsFound> anyCards(const CardsOptions& options) {
  Result<CardsFound> nvidia = nvidiaCards(options);
  if (nvidia || nvidia.error().code != ErrorCode::NotFound) return nvidia;
  return openclCards(options);
}

CardsFound simCards(const SimCards& sim, SuspendChoice suspend) {
  CardsFound found;
  for (std::uint32_t i = 0; i < sim.count; i++) {
    Card card;
    card.id = "sim-" + std::to_string(i);
    card.index = i;
    card.model = "simulated " + std::to_string(sim.memory / gibibytes(1)) + " GiB";
    card.backend = "sim";
    card.mem = sim.memory;
    card.suspend = chooseSuspend(suspend, false);
    found.cards.push_back(std::move(card));
  }
  return found;
}

}  // namespace

std::string openclCardId(const std::string& platform, std::uint32_t device) {
  std::string slug;
  for (const char c : platform) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0 && byte < 0x80) {
      slug += static_cast<char>(std::tolower(byte));
    } else if (!slug.empty() && slug.back() != '-') {
      slug += '-';
    }
  }
  while (!slug.empty() && slug.back() == '-') slug.pop_back();
  return "opencl-" + (slug.empty() ? std::string("unnamed") : slug) + "-" + std::to_string(device);
}

Result<CardsFound> findCards(const CardsOptions& options) {
  switch (options.backend) {
    case CardBackend::Auto:
      return anyCards(options);
    case CardBackend::Opencl:
      return openclCards(options);
    case CardBackend::Sim:
      return simCards(options.sim, options.suspend);
    case CardBackend::Nvidia:
      break;
  }
  return nvidiaCards(options);
}

}  // namespace qgpu
