#pragma once
// Which cards this node has. Backends: `nvidia` (by NVML), `opencl` (any OpenCL device; PoCL makes
// a card of a CPU), `sim` (imaginary cards, for scale), and `auto`, which takes NVIDIA's cards
// where there are any and else what OpenCL offers.
//
// Drivers are asked in a short-lived child process, so the daemon never maps a driver and its
// compiler. A card's id is stable over restarts: an NVIDIA card's UUID; else platform and index in
// the platform's list of all devices (HAZARDS 14). What is found does not change while the manager
// lives; whether an NVIDIA card is still well is services/cards/nvidia_health.h.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "actors/base/card_facts.h"
#include "runtime/config.h"
#include "runtime/result.h"
#include "runtime/units.h"
#include "services/cards/nvidia_health.h"
#include "services/cards/suspend/channel_suspender.h"

namespace qgpu {

inline constexpr std::size_t kCardsMax = kSimCardsMax;  // of one node

struct Card : CardFacts {
  // NVIDIA: what takes work off it takes.
  std::string driverVersion;          // empty: it does not say
  int minor = -1;                     // of its file /dev/nvidiaN; -1: not known
  std::optional<suspend::SuspendMethod> method;  // set where `suspend` is RM
};

enum class CardBackend : std::uint8_t { Auto, Nvidia, Opencl, Sim };

// How a hold is made real: Auto is freeze where the kernels run on the tenant's own threads that
// can be identified (PoCL's threaded CPU device), rm where an NVIDIA card proves to take it
// (services/cards/nvidia_suspend.h), else gate. Rm is Auto, where at least one card must take it.
enum class SuspendChoice : std::uint8_t { Auto, Gate, Freeze, Rm };

struct CardsOptions {
  CardBackend backend = CardBackend::Auto;
  SimCards sim;  // how many and how large, where backend is Sim
  SuspendChoice suspend = SuspendChoice::Auto;
  Nanos probeTimeout = seconds(60);                 // for the child that asks a driver
  std::string pciDevices = "/sys/bus/pci/devices";  // where the kernel lists what is plugged in
  HealthTimes health;
};

struct CardsFound {
  std::vector<Card> cards;            // never empty
  std::optional<HealthWatch> health;  // of NVIDIA's cards
  // What was seen and not taken, and why: for the log.
  std::vector<std::string> leftAlone;
  // What a tenant's environment must carry so that it sees the same devices (HAZARDS 14): POCL_*
  // of those that a node may give.
  std::vector<std::pair<std::string, std::string>> tenantEnv;
};

// Blocks for as long as drivers take to load. It forks, so it belongs at the start of a daemon,
// before there is a second thread. Errors: NotFound (no such card on this machine), Unsupported,
// Unavailable (the child failed); each names the fix.
Result<CardsFound> findCards(const CardsOptions& options);

// "opencl-<platform in lower case, other characters as '-'>-<index>".
std::string openclCardId(const std::string& platform, std::uint32_t device);

}  // namespace qgpu
