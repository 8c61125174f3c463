#include "services/cards/nvidia/memory_limits.h"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string_view>
#include <vector>

#include "runtime/loop.h"
#include "services/base/child_probe.h"
#include "services/cards/nvidia/nvml.h"

namespace qgpu {
namespace {

namespace fs = std::filesystem;

bool hasWord(const fs::path& file, std::string_view wanted) {
  std::ifstream in(file);
  for (std::string word; in >> word;) {
    if (word == wanted) return true;
  }
  return false;
}

// --- the child that asks ---

std::string setLimit(const Nvml& nvml, const LimitOrder& order, const std::string& card,
                     std::optional<Bytes> limit) {
  cuda::NvmlDevice device = nullptr;
  int rc = nvml.byUuid(card, device);
  const auto hard = limit ? static_cast<std::uint64_t>(limit->value) : Nvml::kNoLimit;
  if (rc == Nvml::kSuccess) rc = nvml.setMemoryLimit(device, order.cgroup, hard);
  return rc == Nvml::kSuccess ? "" : "card " + card + ": " + nvml.describe(rc);
}

// Empty; or what went wrong first. A cgroup that is gone took its limits along.
std::string setLimits(const LimitOrder& order) {
  const auto nvml = Nvml::open();
  if (!nvml) return nvml.error().message;
  giveDeviceMemoryController(order.cgroup);
  std::string why;
  for (const auto& [card, limit] : order.cards) {
    const std::string wrong = setLimit(*nvml, order, card, limit);
    if (why.empty()) why = wrong;
  }
  std::error_code error;
  return fs::is_directory(order.cgroup, error) ? why : "";
}

// --- the process that takes orders ---

class OrderTaker {
 public:
  explicit OrderTaker(const LimiterTimes& times) : times_(times) {}

  std::string carryOut(const LimitOrder& order) {
    if (monotonicNow() < quietUntil_) return trouble_;
    const auto ask = [&](int out) {
      std::string why = setLimits(order);
      cleanField(why.data());
      ::dprintf(out, "%s", why.c_str());
    };
    const auto answer = askInChild("NVIDIA's driver", "nvidia-smi", times_.patience, ask);
    if (answer) return *answer;
    trouble_ = answer.error().message;
    quietUntil_ = monotonicNow() + times_.quiet;
    return trouble_;
  }

 private:
  const LimiterTimes times_;
  Nanos quietUntil_{0};
  std::string trouble_;
};

}  // namespace

void giveDeviceMemoryController(const std::string& cgroup) {
  constexpr std::string_view kController = "dmem";
  std::vector<fs::path> above;
  std::error_code error;
  for (fs::path folder = fs::path(cgroup).parent_path();
       fs::exists(folder / "cgroup.subtree_control", error); folder = folder.parent_path()) {
    above.push_back(folder);
  }
  for (auto folder = above.rbegin(); folder != above.rend(); ++folder) {
    if (!hasWord(*folder / "cgroup.controllers", kController)) return;
    if (hasWord(*folder / "cgroup.subtree_control", kController)) continue;
    std::ofstream(*folder / "cgroup.subtree_control") << "+" << kController << std::flush;
  }
}

Result<MemoryLimiter> limitNvidiaMemory(const LimiterTimes& times) {
  OrderTaker taker(times);
  return MemoryLimiter::start([&](const LimitOrder& order) { return taker.carryOut(order); });
}

}  // namespace qgpu
