#include "services/cards/amd/topology.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>

namespace qgpu {
namespace {

namespace fs = std::filesystem;

using Values = std::map<std::string, std::uint64_t>;

// "name value" a line.
Values readValues(const fs::path& file) {
  Values values;
  std::ifstream in(file);
  std::string name;
  for (std::uint64_t value = 0; in >> name >> value;) values[name] = value;
  return values;
}

std::uint64_t valueOf(const Values& values, const char* name) {
  const auto at = values.find(name);
  return at == values.end() ? 0 : at->second;
}

// Folders whose names are numbers, in their order.
std::vector<fs::path> numbered(const fs::path& folder) {
  std::vector<std::pair<unsigned long, fs::path>> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    const bool number = !name.empty() && name.size() <= 9 &&
                        std::ranges::all_of(name, [](char c) { return c >= '0' && c <= '9'; });
    if (number) found.emplace_back(std::stoul(name), entry.path());
  }
  std::ranges::sort(found);
  std::vector<fs::path> folders;
  for (auto& [number, path] : found) folders.push_back(std::move(path));
  return folders;
}

constexpr std::uint64_t kFrameBufferPublic = 1, kFrameBufferPrivate = 2;

std::int64_t ownMemory(const fs::path& node) {
  std::uint64_t bytes = 0;
  for (const fs::path& bank : numbered(node / "mem_banks")) {
    const Values values = readValues(bank / "properties");
    const std::uint64_t heap = valueOf(values, "heap_type");
    if (heap == kFrameBufferPublic || heap == kFrameBufferPrivate) {
      bytes += valueOf(values, "size_in_bytes");
    }
  }
  return static_cast<std::int64_t>(bytes);
}

std::string busOf(const Values& values) {
  const auto domain = static_cast<unsigned>(valueOf(values, "domain"));
  const auto location = static_cast<unsigned>(valueOf(values, "location_id"));
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%04x:%02x:%02x.%x", domain & 0xffff,
                location >> 8 & 0xff, location >> 3 & 0x1f, location & 7);
  return text.data();
}

std::string uuidOf(std::uint64_t unique) {
  if (unique == 0) return "";
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "GPU-%016llx", static_cast<unsigned long long>(unique));
  return text.data();
}

}  // namespace

std::string gfxName(std::uint64_t version) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "gfx%llu%llx%llx",
                static_cast<unsigned long long>(version / 10'000),
                static_cast<unsigned long long>(version / 100 % 100),
                static_cast<unsigned long long>(version % 100));
  return text.data();
}

std::vector<AmdDevice> amdDevices(const std::string& nodes) {
  std::vector<AmdDevice> devices;
  for (const fs::path& node : numbered(nodes)) {
    std::uint64_t gpu = 0;
    std::ifstream(node / "gpu_id") >> gpu;
    if (gpu == 0) continue;  // a CPU
    const Values values = readValues(node / "properties");
    AmdDevice device;
    device.uuid = uuidOf(valueOf(values, "unique_id"));
    device.name = gfxName(valueOf(values, "gfx_target_version"));
    device.mem = Bytes(ownMemory(node));
    device.bus = busOf(values);
    device.renderMinor = static_cast<unsigned>(valueOf(values, "drm_render_minor"));
    device.index = static_cast<std::uint32_t>(devices.size());
    devices.push_back(std::move(device));
  }
  return devices;
}

}  // namespace qgpu
