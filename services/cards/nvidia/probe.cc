#include "services/cards/nvidia/probe.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>

#include "services/base/child_probe.h"
#include "services/cards/nvidia/nvml.h"

namespace qgpu {
namespace {

namespace fs = std::filesystem;

// What a line of the answer is, by its first field.
constexpr std::string_view kCard = "card", kSilent = "silent", kRefused = "refused";

// In the kernel's list of devices: the vendor, and how the classes of displays begin.
constexpr std::string_view kNvidiaVendor = "0x10de", kDisplayClass = "0x03";

constexpr const char* kCgroups = "/sys/fs/cgroup";

void tell(int out, std::string_view what, std::string text) {
  if (what != kCard) cleanField(text.data());
  ::dprintf(out, "%s\t%s\n", what.data(), text.c_str());
}

// Why the driver limits no cgroup's memory; empty: it can, as far as a question tells.
std::string noLimits(const Nvml& nvml, cuda::NvmlDevice device) {
  std::uint64_t hard = 0;
  const int rc = nvml.memoryLimit(device, kCgroups, hard);
  if (rc == Nvml::kFunctionNotFound) return "drivers limit a cgroup's memory from 615 on";
  return rc == Nvml::kNotSupported ? nvml.describe(rc) : "";
}

// Empty; or why nothing can be said of it.
std::string listDevice(int out, const Nvml& nvml, std::uint32_t index) {
  cuda::NvmlDevice device = nullptr;
  const int rc = nvml.byIndex(index, device);
  if (rc != Nvml::kSuccess) return nvml.describe(rc);
  const std::string uuid = nvml.uuid(device);
  if (uuid.empty()) return "it tells no UUID";
  const std::uint64_t bytes = nvml.bytes(device);
  if (bytes == 0) return uuid + " does not tell how much memory it has";
  std::string name = nvml.name(device);
  cleanField(name.data());
  std::string driver = nvml.driverVersion();
  cleanField(driver.data());
  std::string unlimited = noLimits(nvml, device);
  cleanField(unlimited.data());
  std::ostringstream line;
  line << uuid << '\t' << index << '\t' << bytes << '\t' << (nvml.mig(device) ? 1 : 0) << '\t'
       << nvml.minor(device) << '\t' << driver << '\t' << nvml.bus(device) << '\t' << unlimited
       << '\t';
  for (const std::string& end : nvml.linked(device)) line << end << ' ';
  line << '\t' << name;
  tell(out, kCard, line.str());
  return "";
}

// By what the kernel lists, whoever drives it.
bool hasCard(const std::string& pciDevices) {
  const auto reads = [](const fs::path& file, std::string_view start) {
    std::string word;
    std::ifstream(file) >> word;
    return word.starts_with(start);
  };
  std::error_code error;
  for (const auto& device : fs::directory_iterator(pciDevices, error)) {
    if (reads(device.path() / "vendor", kNvidiaVendor) &&
        reads(device.path() / "class", kDisplayClass)) {
      return true;
    }
  }
  return false;
}

void listDevices(int out, const std::string& pciDevices) {
  const auto nvml = Nvml::open();
  if (!nvml) {
    const bool unloaded = nvml.error().code == ErrorCode::Unsupported;
    if (nvml.error().code == ErrorCode::NotFound || (unloaded && !hasCard(pciDevices))) return;
    return tell(out, kRefused,
                nvml.error().message +
                    (unloaded ? "; --cards=opencl shares what OpenCL offers instead" : ""));
  }
  std::uint32_t count = 0;
  const int rc = nvml->count(count);
  if (rc != Nvml::kSuccess) {
    return tell(out, kRefused,
                "NVIDIA's driver does not count its cards: " + nvml->describe(rc) +
                    "; `nvidia-smi` and `dmesg` may say more");
  }
  for (std::uint32_t i = 0; i < count; i++) {
    const std::string why = listDevice(out, *nvml, i);
    if (why.empty()) continue;
    tell(out, kSilent,
         "NVIDIA's card " + std::to_string(i) + " does not answer: " + why +
             "; `dmesg` may say why, a reset or a reboot may bring it back");
  }
}

Result<NvidiaFound> parseAnswer(const std::string& text) {
  NvidiaFound found;
  std::istringstream lines(text);
  std::string line;
  while (std::getline(lines, line)) {
    NvidiaDevice device;
    std::istringstream fields(line);
    std::string what;
    std::getline(fields, what, '\t');
    const std::string words = line.substr(std::min(line.size(), what.size() + 1));
    if (what == kRefused) return fail(ErrorCode::Unavailable, words);
    if (what == kSilent) found.silent.push_back(words);
    if (what != kCard) continue;
    std::string index, mem, mig, minor, links;
    if (!std::getline(fields, device.uuid, '\t') || !std::getline(fields, index, '\t') ||
        !std::getline(fields, mem, '\t') || !std::getline(fields, mig, '\t') ||
        !std::getline(fields, minor, '\t') || !std::getline(fields, device.driver, '\t') ||
        !std::getline(fields, device.bus, '\t') || !std::getline(fields, device.noLimits, '\t') ||
        !std::getline(fields, links, '\t') || !std::getline(fields, device.name)) {
      continue;
    }
    std::istringstream ends(links);
    for (std::string end; ends >> end;) device.linked.push_back(end);
    device.index = static_cast<std::uint32_t>(std::strtoul(index.c_str(), nullptr, 10));
    device.mem = Bytes(std::strtoll(mem.c_str(), nullptr, 10));
    device.mig = mig == "1";
    device.minor = static_cast<int>(std::strtol(minor.c_str(), nullptr, 10));
    found.devices.push_back(std::move(device));
  }
  return found;
}

}  // namespace

std::vector<std::uint32_t> linkGroups(const std::vector<NvidiaDevice>& devices) {
  std::vector<std::uint32_t> groups(devices.size());
  std::uint32_t last = 0;
  for (std::size_t first = 0; first < devices.size(); first++) {
    if (groups[first] != 0 || devices[first].linked.empty()) continue;
    groups[first] = ++last;
    std::set<std::string> ends(devices[first].linked.begin(), devices[first].linked.end());
    ends.insert(devices[first].bus);
    // Whoever leads to one of these belongs to them, and so does where else it leads.
    for (bool grew = true; std::exchange(grew, false);) {
      for (std::size_t i = 0; i < devices.size(); i++) {
        const auto& linked = devices[i].linked;
        const bool joins = std::any_of(linked.begin(), linked.end(),
                                       [&](const std::string& end) { return ends.contains(end); });
        if (groups[i] != 0 || !joins) continue;
        groups[i] = last;
        ends.insert(linked.begin(), linked.end());
        ends.insert(devices[i].bus);
        grew = true;
      }
    }
  }
  return groups;
}

Result<NvidiaFound> probeNvidia(Nanos timeout, const std::string& pciDevices) {
  const auto list = [&](int out) { listDevices(out, pciDevices); };
  const auto answer = askInChild("NVIDIA's driver", "nvidia-smi -L", timeout, list);
  if (!answer) return answer.error();
  return parseAnswer(*answer);
}

}  // namespace qgpu
