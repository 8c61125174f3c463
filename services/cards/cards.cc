#include "services/cards/cards.h"

#include <unistd.h>

#include <cctype>
#include <cstring>
#include <string_view>

#include "services/cards/opencl_probe.h"

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

schema::Suspend chooseSuspend(SuspendChoice choice, bool able) {
  if (choice == SuspendChoice::Freeze) return schema::Suspend::FREEZE;
  if (choice == SuspendChoice::Auto && able) return schema::Suspend::FREEZE;
  return schema::Suspend::GATE;
}

std::vector<std::pair<std::string, std::string>> poclEnvironment() {
  std::vector<std::pair<std::string, std::string>> pairs;
  for (char** entry = ::environ; entry != nullptr && *entry != nullptr; entry++) {
    const char* equals = std::strchr(*entry, '=');
    if (equals == nullptr || std::strncmp(*entry, "POCL_", 5) != 0) continue;
    pairs.emplace_back(std::string(static_cast<const char*>(*entry), equals), equals + 1);
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

void Card::write(schema::CardInfo::Builder out) const {
  out.setId(id);
  out.setIndex(index);
  out.setModel(model);
  out.setBackend(backend);
  out.setMemBytes(static_cast<std::uint64_t>(mem.value));
  out.setSuspend(suspend);
  out.setPlatform(platform);
  out.setDevice(device);
}

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
    case CardBackend::Opencl:
      return openclCards(options);
    case CardBackend::Sim:
      return simCards(options.sim, options.suspend);
    case CardBackend::Nvidia:
      break;
  }
  return fail(ErrorCode::Unsupported,
              "--cards=nvidia: this build has no NVIDIA backend; use opencl, or sim:NxM");
}

}  // namespace qgpu
