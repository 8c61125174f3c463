#include "services/kubernetes/pods/pod_names.h"

#include "runtime/text_hash.h"

namespace qgpu {
namespace {

std::string shortened(std::string whole) {
  if (whole.size() <= kPodTaskNameMax) return whole;
  const std::string hash = textHashHex(whole);
  whole.resize(kPodTaskNameMax - 1 - kTextHashDigits);
  return whole + "~" + hash;
}

}  // namespace

std::string podTaskName(std::string_view nameSpace, std::string_view pod,
                        std::string_view container) {
  std::string whole(nameSpace);
  whole.append("/").append(pod).append("/").append(container);
  return shortened(std::move(whole));
}

std::optional<PodTaskParts> podTaskParts(std::string_view name) {
  const std::size_t first = name.find('/');
  if (first == std::string_view::npos || name.find('~') != std::string_view::npos) {
    return std::nullopt;
  }
  const std::size_t second = name.find('/', first + 1);
  if (second == std::string_view::npos) return std::nullopt;
  return PodTaskParts{name.substr(0, first), name.substr(first + 1, second - first - 1),
                      name.substr(second + 1)};
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
