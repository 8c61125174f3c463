#include "services/extender/pod_names.h"

#include <cstdint>

namespace qgpu {
namespace {

// FNV-1a, 64 bits: stable over builds and machines, for names alone.
std::uint64_t hashOf(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : text) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  }
  return hash;
}

std::string shortened(std::string whole) {
  if (whole.size() <= kPodTaskNameMax) return whole;
  constexpr char kHex[] = "0123456789abcdef";
  std::uint64_t hash = hashOf(whole);
  std::string tail(17, '~');
  for (std::size_t i = tail.size(); i-- > 1; hash >>= 4) tail[i] = kHex[hash & 15];
  whole.resize(kPodTaskNameMax - tail.size());
  return whole + tail;
}

}  // namespace

std::string podTaskName(std::string_view nameSpace, std::string_view pod,
                        std::string_view container) {
  std::string whole(nameSpace);
  whole.append("/").append(pod).append("/").append(container);
  return shortened(std::move(whole));
}

std::string podRequestId(std::string_view uid, std::string_view container,
                         std::string_view attempt) {
  std::string whole(uid);
  whole.append("/").append(container).append("#").append(attempt);
  return shortened(std::move(whole));
}

std::string_view podUidOf(std::string_view requestId) {
  const std::size_t slash = requestId.find('/');
  return slash == std::string_view::npos ? std::string_view() : requestId.substr(0, slash);
}

}  // namespace qgpu
