#include "services/kubernetes/device_plugin/device_ids.h"

#include <algorithm>
#include <set>

#include "runtime/text_hash.h"

namespace qgpu {
namespace {

constexpr std::size_t kSuffixMax = sizeof("_m2097151");  // of the largest index, MiB of a card

char letterOf(Resource resource) {
  return resourceWord(resource)[0];
}

std::uint64_t countOf(const PluginCard& card, Resource resource, MemoryUnit unit) {
  if (resource != Resource::Memory) return kCoresPerCard;
  const Bytes each = unit == MemoryUnit::GiB ? gibibytes(1) : mebibytes(1);
  return static_cast<std::uint64_t>(std::max<std::int64_t>(card.mem.value, 0) / each.value);
}

}  // namespace

const char* resourceName(Resource resource) {
  switch (resource) {
    case Resource::Core:
      return "qgpu-core";
    case Resource::Memory:
      return "qgpu-memory";
    case Resource::Greedy:
      return "qgpu-core-greedy";
  }
  return "";
}

const char* resourceWord(Resource resource) {
  switch (resource) {
    case Resource::Core:
      return "core";
    case Resource::Memory:
      return "memory";
    case Resource::Greedy:
      return "greedy";
  }
  return "";
}

std::optional<Resource> resourceFromName(std::string_view name) {
  for (const Resource resource : kResources) {
    if (name == resourceName(resource)) return resource;
  }
  return std::nullopt;
}

std::string cardWord(std::string_view cardId) {
  constexpr std::size_t kWhole = kDeviceIdMax - kSuffixMax;
  if (cardId.size() <= kWhole) return std::string(cardId);
  return std::string(cardId.substr(0, kWhole - kTextHashDigits - 1)) + "~" + textHashHex(cardId);
}

std::string deviceId(std::string_view cardId, Resource resource, std::uint32_t index) {
  return cardWord(cardId) + "_" + letterOf(resource) + std::to_string(index);
}

std::string_view cardOfDevice(std::string_view deviceId) {
  const std::size_t at = deviceId.rfind('_');
  if (at == std::string_view::npos || at + 2 >= deviceId.size()) return {};
  const std::string_view digits = deviceId.substr(at + 2);
  const bool numbered =
      std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; });
  const bool ours = std::any_of(std::begin(kResources), std::end(kResources),
                                [&](Resource r) { return deviceId[at + 1] == letterOf(r); });
  return numbered && ours ? deviceId.substr(0, at) : std::string_view();
}

Result<std::vector<Device>> devicesOf(const std::vector<PluginCard>& cards, Resource resource,
                                      MemoryUnit unit) {
  std::uint64_t all = 0;
  for (const PluginCard& card : cards) all += countOf(card, resource, unit);
  if (all > kDevicesMax) {
    const bool finer = resource == Resource::Memory && unit == MemoryUnit::MiB;
    return fail(ErrorCode::InvalidArgument,
                std::string(resourceName(resource)) + " would have " + std::to_string(all) +
                    " devices on this node, more than the " + std::to_string(kDevicesMax) +
                    " that kubelet can be told of" + (finer ? "; use --memory-unit=GiB" : ""));
  }
  std::vector<Device> devices;
  devices.reserve(all);
  for (const PluginCard& card : cards) {
    for (std::uint32_t i = 0; i < countOf(card, resource, unit); ++i) {
      devices.push_back({deviceId(card.id, resource, i), card.healthy});
    }
  }
  return devices;
}

// --- which of them kubelet should take ---

namespace {

struct FreeCard {
  std::string_view card;
  std::vector<std::string_view> devices;
  bool included = false;  // a device of it must be taken
};

FreeCard& cardNamed(std::vector<FreeCard>& cards, std::string_view name) {
  for (FreeCard& card : cards) {
    if (card.card == name) return card;
  }
  cards.push_back({name, {}, false});
  return cards.back();
}

// The card to take `left` more devices from; nullptr: there is none with a free device.
FreeCard* nextCard(std::vector<FreeCard>& cards, std::size_t left) {
  const auto better = [left](const FreeCard& a, const FreeCard& b) {
    if (a.included != b.included) return a.included;
    const bool aSuffices = a.devices.size() >= left;
    const bool bSuffices = b.devices.size() >= left;
    if (aSuffices != bSuffices) return aSuffices;
    return aSuffices ? a.devices.size() < b.devices.size() : a.devices.size() > b.devices.size();
  };
  FreeCard* best = nullptr;
  for (FreeCard& card : cards) {
    if (card.devices.empty()) continue;
    if (best == nullptr || better(card, *best)) best = &card;
  }
  return best;
}

}  // namespace

Result<std::vector<std::string>> preferredDevices(const std::vector<std::string>& available,
                                                  const std::vector<std::string>& mustInclude,
                                                  std::size_t size) {
  std::vector<std::string> chosen = mustInclude;
  const std::set<std::string_view> taken(mustInclude.begin(), mustInclude.end());
  if (taken.size() > size) {
    return fail(ErrorCode::InvalidArgument,
                std::to_string(taken.size()) + " devices must be among " + std::to_string(size));
  }
  std::vector<FreeCard> cards;
  for (const std::string& device : mustInclude) {
    cardNamed(cards, cardOfDevice(device)).included = true;
  }
  for (const std::string& device : available) {
    if (!taken.contains(device)) cardNamed(cards, cardOfDevice(device)).devices.push_back(device);
  }
  while (chosen.size() < size) {
    FreeCard* card = nextCard(cards, size - chosen.size());
    if (card == nullptr) {
      return fail(ErrorCode::InvalidArgument, std::to_string(size) + " devices are wanted and " +
                                                  std::to_string(chosen.size()) + " are free");
    }
    const std::size_t count = std::min(size - chosen.size(), card->devices.size());
    chosen.insert(chosen.end(), card->devices.begin(),
                  card->devices.begin() + static_cast<std::ptrdiff_t>(count));
    card->devices.clear();
  }
  return chosen;
}

}  // namespace qgpu
