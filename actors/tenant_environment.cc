#include "actors/tenant_environment.h"

namespace qgpu {
namespace {

constexpr const char* kUuid = "GPU-";  // how ids of NVIDIA's cards begin

}  // namespace

Variables nodeVariables(const TenantEnvironment& node) {
  Variables all;
  if (!node.library.empty()) {
    all.emplace_back("LD_PRELOAD", node.library);
    all.emplace_back("OPENCL_LAYERS", node.library);
  }
  all.insert(all.end(), node.extras.begin(), node.extras.end());
  return all;
}

Variables doorVariables(const std::string& attachSocket, const std::string& token) {
  return {{"QGPU_SOCKET", attachSocket}, {"QGPU_TOKEN", token}};
}

Variables cardVariables(const std::vector<std::string>& cardIds) {
  std::string uuids;
  for (const std::string& id : cardIds) {
    if (!id.starts_with(kUuid)) return {};
    uuids += (uuids.empty() ? "" : ",") + id;
  }
  if (uuids.empty()) return {};
  return {{"CUDA_VISIBLE_DEVICES", uuids}, {"NVIDIA_VISIBLE_DEVICES", uuids}};
}

std::vector<std::string> assignments(const Variables& variables) {
  std::vector<std::string> list;
  for (const auto& [name, value] : variables) list.push_back(name + "=" + value);
  return list;
}

}  // namespace qgpu
