#include "services/kubernetes/device_plugin/plugin_flags.h"

#include <algorithm>
#include <cctype>

#include "services/kubernetes/device_plugin/cdi_spec.h"

namespace qgpu {
namespace {

constexpr std::size_t kPrefixMax = 253;

}  // namespace

const char* memoryUnitName(MemoryUnit unit) {
  return unit == MemoryUnit::GiB ? "GiB" : "MiB";
}

Result<MemoryUnit> parseMemoryUnit(const std::string& text) {
  for (const MemoryUnit unit : {MemoryUnit::GiB, MemoryUnit::MiB}) {
    if (text == memoryUnitName(unit)) return unit;
  }
  return fail(ErrorCode::InvalidArgument, "'" + text + "' is not valid; use GiB or MiB");
}

Result<std::string> parseResourcePrefix(const std::string& text) {
  const auto fits = [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return std::islower(byte) != 0 || std::isdigit(byte) != 0 || c == '-' || c == '.';
  };
  const bool good = !text.empty() && text.size() <= kPrefixMax &&
                    std::all_of(text.begin(), text.end(), fits) &&
                    std::isalnum(static_cast<unsigned char>(text.front())) != 0 &&
                    std::isalnum(static_cast<unsigned char>(text.back())) != 0;
  if (good) return text;
  return fail(ErrorCode::InvalidArgument,
              "'" + text + "' is not valid; use a DNS name, as in tke.cloud.tencent.com");
}

Result<std::string> parseCdi(const std::string& text) {
  if (text == "off") return std::string();
  if (text == "on") return std::string(kCdiFolder);
  if (text.starts_with('/')) return text;
  return fail(ErrorCode::InvalidArgument, "'" + text + "': on, off or a folder, /etc/cdi");
}

}  // namespace qgpu
