#include "services/kubelet_plugin/tenant_files.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sys/stat.h>

#include "runtime/text_hash.h"
#include "services/kubelet_plugin/placeholders.h"

namespace qgpu {
namespace {

namespace fs = std::filesystem;

// In a container.
constexpr const char* kLibrary = "/opt/qgpu/libqgpu.so";
constexpr const char* kDoor = "/run/qgpu/tenant";
constexpr const char* kTask = "/run/qgpu/task/";
// Where programs of the two families of distributions look for a driver.
constexpr const char* kDriverHomes[] = {"/usr/lib/x86_64-linux-gnu/", "/usr/lib64/"};

constexpr std::uintmax_t kLibraryMax = 64 << 20;
constexpr std::size_t kDriverFilesMax = 64;

std::string tokenFiles() {
  std::string list;
  for (const Resource resource : kResources) {
    list += (list.empty() ? "" : ":") + std::string(kTask) + resourceWord(resource) + "/token";
  }
  return list;
}

// nvidia0, nvidia1, ...; and those that belong to none of the cards.
bool isNvidiaNode(const std::string& name) {
  constexpr std::string_view kShared[] = {"nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"};
  if (std::find(std::begin(kShared), std::end(kShared), name) != std::end(kShared)) return true;
  constexpr std::string_view kCard = "nvidia";
  return name.starts_with(kCard) && name.size() > kCard.size() &&
         std::all_of(name.begin() + kCard.size(), name.end(),
                     [](char c) { return c >= '0' && c <= '9'; });
}

std::vector<std::string> namesIn(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

Status TenantFiles::publish() {
  if (config_.library.empty()) return ok();
  std::error_code error;
  const std::uintmax_t size = fs::file_size(config_.library, error);
  if (error || size == 0 || size > kLibraryMax) {
    return fail(ErrorCode::NotFound, config_.library + " is no library: " + error.message());
  }
  std::ifstream in(config_.library, std::ios::binary);
  const std::string content((std::istreambuf_iterator<char>(in)), {});
  fs::create_directories(config_.filesDir, error);
  const std::string name = config_.filesDir + "/libqgpu-" + textHashHex(content) + ".so";
  if (!fs::exists(name, error)) {
    if (Status written = writeAnew(name, content, 0755); !written) return written;
  }
  published_ = name;
  return ok();
}

std::string TenantFiles::onHost(const std::string& path) const {
  const std::string& prefix = config_.hostPrefix;
  const bool below = !prefix.empty() && path.starts_with(prefix + "/");
  return below ? path.substr(prefix.size()) : path;
}

ContainerSetup TenantFiles::setup(Resource resource, const std::string& placeholder,
                                  const std::string& backend,
                                  const std::map<std::string, std::string>& environment) const {
  ContainerSetup setup;
  setup.environment = environment;
  setup.environment["QGPU_SOCKET"] = std::string(kDoor) + "/attach.sock";
  setup.environment["QGPU_TOKEN_FILE"] = tokenFiles();
  setup.mounts.push_back({kDoor, config_.runDir + "/tenant"});
  setup.mounts.push_back({std::string(kTask) + resourceWord(resource), placeholder});
  if (!published_.empty()) {
    setup.environment["LD_PRELOAD"] = kLibrary;
    setup.environment["OPENCL_LAYERS"] = kLibrary;
    setup.mounts.push_back({kLibrary, onHost(published_)});
  }
  if (backend == "nvidia") addNvidia(setup);
  return setup;
}

// Allocate does not know the card yet, so all of them; libqgpu shows a tenant its own.
void TenantFiles::addNvidia(ContainerSetup& setup) const {
  for (const std::string& name : namesIn(config_.hostPrefix + "/dev")) {
    if (isNvidiaNode(name)) setup.deviceNodes.push_back("/dev/" + name);
  }
  const std::string folder = config_.filesDir + "/driver";
  std::vector<std::string> driver = namesIn(folder);
  driver.resize(std::min(driver.size(), kDriverFilesMax));
  for (const std::string& name : driver) {
    for (const char* home : kDriverHomes) {
      setup.mounts.push_back({home + name, onHost(folder + "/" + name)});
    }
  }
}

}  // namespace qgpu
