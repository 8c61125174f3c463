// OpenCL devices as cards. PoCL makes a card of a CPU.

#include "services/cards/backend.h"

#include <cstring>
#include <string_view>
#include <unistd.h>

#include "actors/base/tenant_variables.h"
#include "services/cards/opencl/probe.h"

namespace qgpu {
namespace {

constexpr std::string_view kPocl = "Portable Computing Language";

// PoCL's threaded CPU device runs kernels on threads of the tenant that can be told from its own:
// "pthread-..." up to PoCL 3, "cpu-..." later. "basic" and "cpu-minimal" use the caller's thread.
bool canFreeze(const OpenclDevice& device) {
  if (device.platform != kPocl) return false;
  return device.name.starts_with("pthread") ||
         (device.name.starts_with("cpu") && !device.name.starts_with("cpu-minimal"));
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
    card.suspend = freezeOrGate(options.suspend, canFreeze(device));
    card.platform = device.platform;
    card.device = device.index;
    card.driver = device.driver;
    found.cards.push_back(std::move(card));
  }
  return found;
}

}  // namespace

const CardBackend kOpenclCards = {.name = "opencl", .find = openclCards, .automatic = true};

}  // namespace qgpu
