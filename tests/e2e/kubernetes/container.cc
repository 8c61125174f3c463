#include "tests/e2e/kubernetes/container.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace qgpu::e2e {
namespace {

void addOnce(std::vector<std::string>& list, const std::string& text) {
  if (std::find(list.begin(), list.end(), text) == list.end()) list.push_back(text);
}

}  // namespace

std::string contentOf(const std::string& path) {
  std::ifstream in(path);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

Container::Container(const testing::KubeletStandIn::Answer& admitted) {
  for (const auto& [resource, setup] : admitted.setups) {
    for (const auto& [name, value] : setup.environment) environment[name] = value;
    mounts.insert(setup.mounts.begin(), setup.mounts.end());
    devices.insert(setup.devices.begin(), setup.devices.end());
    for (const std::string& name : setup.cdiDevices) addOnce(cdiDevices, name);
  }
}

void Container::addCdi(const Json& spec) {
  for (const Json& device : spec["devices"]) {
    const std::string name =
        spec["kind"].get<std::string>() + "=" + device["name"].get<std::string>();
    if (std::find(cdiDevices.begin(), cdiDevices.end(), name) == cdiDevices.end()) continue;
    const Json& edits = device["containerEdits"];
    for (const std::string variable : edits.value("env", Json::array())) {
      const std::size_t equals = variable.find('=');
      environment[variable.substr(0, equals)] = variable.substr(equals + 1);
    }
    for (const Json& mount : edits.value("mounts", Json::array())) {
      mounts[mount["containerPath"]] = mount["hostPath"];
    }
    for (const Json& node : edits.value("deviceNodes", Json::array())) {
      devices[node["path"]] = node["path"];
    }
  }
}

std::map<std::string, std::string> Container::deviceFiles(const std::string& hostRoot) const {
  std::map<std::string, std::string> files;
  for (const auto& [inside, outside] : devices) {
    if (!std::filesystem::is_directory(outside)) {
      files[inside] = hostRoot + outside;
      continue;
    }
    for (const auto& entry : std::filesystem::directory_iterator(outside)) {
      const auto path = std::filesystem::path(inside) / entry.path().filename();
      if (entry.is_character_file()) files[path.lexically_normal()] = entry.path();
    }
  }
  return files;
}

std::string Container::token() const {
  const auto files = environment.find("QGPU_TOKEN_FILE");
  if (files == environment.end()) return "";
  const std::string& list = files->second;
  for (std::size_t from = 0; from <= list.size();) {
    const std::size_t colon = std::min(list.find(':', from), list.size());
    const std::filesystem::path file = list.substr(from, colon - from);
    const auto mount = mounts.find(file.parent_path());
    if (mount != mounts.end()) {
      const std::string token = contentOf(mount->second + "/" + file.filename().string());
      if (!token.empty()) return token.substr(0, token.find('\n'));
    }
    from = colon + 1;
  }
  return "";
}

}  // namespace qgpu::e2e
