#include "actors/base/tenant_variables.h"

#include <algorithm>
#include <array>
#include <cctype>

namespace qgpu {
namespace {

constexpr std::string_view kUuid = "GPU-";  // how ids of NVIDIA's cards, and of AMD's, begin
constexpr std::size_t kAmdDigits = 16;      // that follow, where NVIDIA's have 32 and four dashes
constexpr std::size_t kValueMax = 4096;

// Which devices there are and how big; none that names a file, a compiler's flag or a tool.
constexpr std::array<std::string_view, 6> kOfNodes = {
    "POCL_DEVICES",      "POCL_MAX_PTHREAD_COUNT",   "POCL_CPU_MAX_CU_COUNT",
    "POCL_MEMORY_LIMIT", "POCL_MAX_WORK_GROUP_SIZE", "POCL_AFFINITY"};
constexpr std::array<std::string_view, 4> kOfTasks = {
    "QGPU_TOKEN", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"};

bool isPlain(std::string_view value) {
  return value.size() <= kValueMax && std::all_of(value.begin(), value.end(), [](char c) {
           return std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.' ||
                  c == ',' || c == ' ';
         });
}

template <typename Names>
bool isOneOf(const Names& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

bool nodeMayGive(std::string_view name, std::string_view value) {
  return isOneOf(kOfNodes, name) && isPlain(value);
}

bool taskMayCarry(std::string_view name, std::string_view value) {
  return nodeMayGive(name, value) || (isOneOf(kOfTasks, name) && isPlain(value));
}

Variables cardVariables(const std::vector<std::string>& cardIds) {
  std::string uuids;
  std::size_t ofAmd = 0;
  for (const std::string& id : cardIds) {
    if (!id.starts_with(kUuid)) return {};
    if (id.size() == kUuid.size() + kAmdDigits) ofAmd++;
    uuids += (uuids.empty() ? "" : ",") + id;
  }
  if (uuids.empty() || !isPlain(uuids)) return {};
  if (ofAmd == cardIds.size()) return {{"ROCR_VISIBLE_DEVICES", uuids}};
  return {{"CUDA_VISIBLE_DEVICES", uuids}, {"NVIDIA_VISIBLE_DEVICES", uuids}};
}

std::vector<std::string> assignments(const Variables& variables) {
  std::vector<std::string> list;
  for (const auto& [name, value] : variables) list.push_back(name + "=" + value);
  return list;
}

}  // namespace qgpu
