#include "services/kubernetes/device_plugin/device_ids.h"

#include <algorithm>

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

}  // namespace qgpu
