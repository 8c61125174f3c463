#include "services/cards/nvidia_probe.h"

#include <cstdio>
#include <cstdlib>
#include <sstream>

#include "services/cards/child_probe.h"
#include "services/cards/nvml.h"

namespace qgpu {
namespace {

void listDevices(int out) {
  const auto nvml = Nvml::open();
  if (!nvml) return;
  for (std::uint32_t i = 0; i < nvml->count(); i++) {
    cuda::NvmlDevice device = nullptr;
    if (nvml->byIndex(i, device) != Nvml::kSuccess) continue;
    std::string name = nvml->name(device);
    const std::string uuid = nvml->uuid(device);
    const std::uint64_t bytes = nvml->bytes(device);
    if (uuid.empty() || bytes == 0) continue;  // it fell off the bus between two questions
    cleanField(name.data());
    std::string driver = nvml->driverVersion();
    cleanField(driver.data());
    ::dprintf(out, "%s\t%u\t%llu\t%d\t%d\t%s\t%s\n", uuid.c_str(), i,
              static_cast<unsigned long long>(bytes), nvml->mig(device) ? 1 : 0,
              nvml->minor(device), driver.c_str(), name.c_str());
  }
}

std::vector<NvidiaDevice> parseAnswer(const std::string& text) {
  std::vector<NvidiaDevice> devices;
  std::istringstream lines(text);
  std::string line;
  while (std::getline(lines, line)) {
    NvidiaDevice device;
    std::istringstream fields(line);
    std::string index, mem, mig, minor;
    if (!std::getline(fields, device.uuid, '\t') || !std::getline(fields, index, '\t') ||
        !std::getline(fields, mem, '\t') || !std::getline(fields, mig, '\t') ||
        !std::getline(fields, minor, '\t') || !std::getline(fields, device.driver, '\t') ||
        !std::getline(fields, device.name)) {
      continue;
    }
    device.index = static_cast<std::uint32_t>(std::strtoul(index.c_str(), nullptr, 10));
    device.mem = Bytes(std::strtoll(mem.c_str(), nullptr, 10));
    device.mig = mig == "1";
    device.minor = static_cast<int>(std::strtol(minor.c_str(), nullptr, 10));
    devices.push_back(std::move(device));
  }
  return devices;
}

}  // namespace

Result<std::vector<NvidiaDevice>> probeNvidia(Nanos timeout) {
  const auto answer = askInChild("NVIDIA's driver", "nvidia-smi -L", timeout, listDevices);
  if (!answer) return answer.error();
  return parseAnswer(*answer);
}

}  // namespace qgpu
