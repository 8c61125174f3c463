#pragma once
// Which cards this node has. Their kinds (backend.h) are `nvidia` (by NVML), `amd` (by the kernel's
// compute driver), `opencl` (any OpenCL device; PoCL makes a card of a CPU) and `sim` (imaginary
// cards, for scale); `auto` takes NVIDIA's cards where there are any and else what OpenCL offers.
//
// Drivers are asked in a short-lived child process, so the daemon never maps a driver and its
// compiler. A card's id is stable over restarts: a card's UUID where it has one; else platform and
// index in the platform's list of all devices (HAZARDS 14). What is found does not change while the
// manager lives; whether a card is still well is health.h.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "actors/base/card_facts.h"
#include "runtime/config.h"
#include "runtime/log.h"
#include "runtime/result.h"
#include "runtime/units.h"
#include "services/cards/health.h"
#include "services/cards/memory_limiter.h"
#include "services/cards/suspend/channel_suspender.h"

namespace qgpu {

inline constexpr std::size_t kCardsMax = kSimCardsMax;  // of one node

struct Card : CardFacts {
  // NVIDIA: what takes work off it takes.
  int minor = -1;                                // of its file /dev/nvidiaN; -1: not known
  std::optional<suspend::SuspendMethod> method;  // set where `suspend` is RM
  // Of a driver that is newer than all that qgpu knows: the first part of the version whose layout
  // it was seen to have (nvidia/layout_trial.h); 0: none.
  std::uint32_t layoutSeen = 0;

  // A version of the driver's layout: its own, or that of the one above.
  std::string layoutVersion() const {
    return layoutSeen != 0 ? std::to_string(layoutSeen) + ".0" : driver;
  }
};

// How a hold is made real: Auto is freeze where the kernels run on the tenant's own threads that
// can be identified (PoCL's threaded CPU device), rm where an NVIDIA card proves to take it
// (nvidia/suspend_trial.h), else gate. Rm is Auto, where at least one card must take it.
enum class SuspendChoice : std::uint8_t { Auto, Gate, Freeze, Rm };

inline constexpr std::string_view kAutoCards = "auto";
bool isCardBackend(std::string_view name);  // kAutoCards is one

struct CardsOptions {
  std::string backend = std::string(kAutoCards);  // or the name of a kind
  SimCards sim;                                   // how many and how large, where that is `sim`
  SuspendChoice suspend = SuspendChoice::Auto;
  Nanos probeTimeout = seconds(60);                 // for the child that asks a driver
  std::string pciDevices = "/sys/bus/pci/devices";  // where the kernel lists what is plugged in
  std::string kfdNodes;                             // and of AMD's driver; empty: the usual place
  HealthTimes health;
};

struct CardsFound {
  std::vector<Card> cards;               // never empty
  std::optional<HealthWatch> health;     // of those whose kind can be asked
  std::optional<MemoryLimiter> limiter;  // of NVIDIA's, whose driver limits a cgroup's memory
  std::string noLimiter;                 // why there is none; empty: nothing to say
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

struct SuspendTrial {
  SuspendChoice choice = SuspendChoice::Auto;
  std::string probe;             // qgpu-suspend-probe
  std::string kept;              // the file of the answers, in a folder that is ours
  std::string layouts;           // and of those about layouts (nvidia/layout_trial.h)
  std::string version;           // of qgpu
  Nanos timeout = seconds(60);   // of one card's test
  Nanos patience = seconds(20);  // for the probe to begin and to end
};

// Tries on each card what takes work off it, where its kind knows such a trial, and before that how
// a driver is spoken to that is newer than qgpu. Blocks for about a second a card, and forks: for a
// process with one thread, after it claimed the run dir and before it serves. Unsupported: `rm` is
// asked for by name, and no card can; each says why.
Status chooseSuspends(std::vector<Card>& cards, const SuspendTrial& trial, Log& log);

}  // namespace qgpu
