#include "services/kubernetes/agent/namespace_use.h"

#include <algorithm>

#include "services/base/metrics_text.h"

namespace qgpu {
namespace {

constexpr std::uint64_t kPerGibSecond = std::uint64_t{1'024} * 1'000;
constexpr std::uint64_t kNsPerSecond = 1'000'000'000;

// `mibMs` in GiB times seconds, which secondsText() writes.
std::string gibSeconds(std::uint64_t mibMs) {
  return secondsText(mibMs / kPerGibSecond * kNsPerSecond +
                     mibMs % kPerGibSecond * kNsPerSecond / kPerGibSecond);
}

// A task's figures begin anew where its manager did.
std::uint64_t more(std::uint64_t now, std::uint64_t before) {
  return now - std::min(now, before);
}

}  // namespace

void NamespaceUse::count(std::string_view nameSpace, Seen& before, const Seen& now, Bytes mem) {
  auto sums = sums_.find(nameSpace);
  if (sums == sums_.end()) {
    const bool full = sums_.size() >= kNamespacesMax;
    sums = sums_.try_emplace(full ? "" : std::string(nameSpace)).first;
  }
  sums->second.usedNs += more(now.usedNs, before.usedNs);
  sums->second.gpuNs += more(now.gpuNs, before.gpuNs);
  const auto passed = static_cast<std::uint64_t>((now.at - before.at) / millis(1));
  sums->second.mibMs += static_cast<std::uint64_t>(mem / mebibytes(1)) * passed;
  before = {now.usedNs, now.gpuNs, before.at + millis(static_cast<std::int64_t>(passed))};
}

std::string NamespaceUse::metrics() const {
  MetricsText page;
  const auto family = [&](const char* name, const char* help, auto value) {
    page.family(name, "counter", help);
    for (const auto& [space, sums] : sums_) page.sample({{"namespace", space}}, value(sums));
  };
  family("qgpu_namespace_used_seconds_total", "Card time charged to the pods of the namespace.",
         [](const Sums& sums) { return secondsText(sums.usedNs); });
  family("qgpu_namespace_gpu_seconds_total", "Time of their kernels as profiling measured it.",
         [](const Sums& sums) { return secondsText(sums.gpuNs); });
  family("qgpu_namespace_memory_gib_seconds_total",
         "GiB of memory promised to them, times the seconds that they held it.",
         [](const Sums& sums) { return gibSeconds(sums.mibMs); });
  return page.take();
}

}  // namespace qgpu
