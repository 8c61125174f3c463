#pragma once
// The devices that kubelet counts: qgpu-core has 100 of each card, qgpu-memory one for each unit of
// its memory, qgpu-core-greedy 100. An id says which card and which of its devices it is, so that
// it is the same after every restart and kubelet's picture of a card is ours. And which of them it
// should take, so that a container's devices are of as few cards as can be: its picture then breaks
// no card that ours keeps whole.
//
//   sim-0_c17    GPU-fef8089b-4820-abfc-e83e-94318197576e_m3 opencl-portable~0123456789abcdef_g99

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/result.h"
#include "runtime/units.h"
#include "services/kubernetes/pods/pod_rules.h"

namespace qgpu {

enum class Resource : std::uint8_t { Core, Memory, Greedy };
inline constexpr Resource kResources[] = {Resource::Core, Resource::Memory, Resource::Greedy};

inline constexpr std::uint32_t kCoresPerCard = 100;  // percent
inline constexpr std::size_t kDeviceIdMax = 63;      // bytes, kubelet's limit
inline constexpr std::size_t kDevicesMax = 4000;     // ids of one resource on a node: a list of
                                                     // more grows near gRPC's 4 MiB

// "qgpu-core", "qgpu-memory", "qgpu-core-greedy"; after the prefix and '/' kubelet's name of it.
const char* resourceName(Resource resource);
std::optional<Resource> resourceFromName(std::string_view name);
// One word, for files and ids: "core", "memory", "greedy".
const char* resourceWord(Resource resource);

struct PluginCard {
  std::string id;
  Bytes mem{0};
  bool healthy = true;
  bool operator==(const PluginCard&) const = default;
};

struct Device {
  std::string id;
  bool healthy = true;
  bool operator==(const Device&) const = default;
};

// What stands for a card in its devices' ids: its id, shortened by a hash where that is long.
std::string cardWord(std::string_view cardId);
std::string deviceId(std::string_view cardId, Resource resource, std::uint32_t index);
// The card's word in a device id of ours; empty where it is none.
std::string_view cardOfDevice(std::string_view deviceId);

// All devices of `resource`, in the order of the cards. InvalidArgument where they would be more
// than kDevicesMax.
Result<std::vector<Device>> devicesOf(const std::vector<PluginCard>& cards, Resource resource,
                                      MemoryUnit unit);

// `size` ids out of `available`, all of `mustInclude` among them. Cards of `mustInclude` come
// first; then the card with the fewest free devices that suffices; where none does, the fullest
// ones. Ties: as `available` has them. InvalidArgument where there are not enough.
Result<std::vector<std::string>> preferredDevices(const std::vector<std::string>& available,
                                                  const std::vector<std::string>& mustInclude,
                                                  std::size_t size);

}  // namespace qgpu
