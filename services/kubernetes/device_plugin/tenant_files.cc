#include "services/kubernetes/device_plugin/tenant_files.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sys/stat.h>

#include "runtime/text_hash.h"
#include "runtime/whole_file.h"
#include "services/api/commands/tenant_environment.h"
#include "services/cards/paths/node_paths.h"
#include "services/cards/paths/nvidia_paths.h"
#include "services/kubernetes/device_plugin/cdi_spec.h"
#include "services/kubernetes/device_plugin/device_folder.h"
#include "services/kubernetes/device_plugin/placeholders.h"
#include "services/kubernetes/pods/container_runtime.h"
#include "services/wire/places.h"

namespace qgpu {
namespace {

namespace fs = std::filesystem;

// In a container.
constexpr const char* kLibrary = "/opt/qgpu/libqgpu.so";
// The loader of glibc reads it before any variable, which a pod's own can't undo. It hides the one
// of an image, which Allocate can't know: what that names is not loaded. The loader of musl reads
// none, and programs that are linked statically have no loader.
constexpr const char* kPreload = "/etc/ld.so.preload";
// Where programs of the two families of distributions look for a driver's libraries, and all of
// them for its tool.
#if defined(__aarch64__)
constexpr const char* kDriverHomes[] = {"/usr/lib/aarch64-linux-gnu/", "/usr/lib64/"};
#else
constexpr const char* kDriverHomes[] = {"/usr/lib/x86_64-linux-gnu/", "/usr/lib64/"};
#endif
constexpr const char* kDriver = "libcuda.so.1";
constexpr const char* kTool = "nvidia-smi";
constexpr const char* kToolHome = "/usr/bin/";

// In a placeholder: device nodes.
constexpr const char* kNodes = "/dev";

constexpr std::uintmax_t kLibraryMax = 64 << 20;
constexpr std::size_t kDriverFilesMax = 64;

std::vector<std::string> namesIn(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// Where the nodes of a placeholder come in the container: /dev, each resource by a spelling of its
// own. Of the placeholders of one container one may have no card's node (KubeletHandler.start:
// another resource says which), and under one name kubelet takes the folder of whichever it likes.
std::string devFor(Resource resource) {
  return "/dev" + std::string(static_cast<std::size_t>(resource), '/');
}

std::vector<std::string> idsOf(const std::vector<PluginCard>& cards) {
  std::vector<std::string> ids;
  for (const PluginCard& card : cards) ids.push_back(card.id);
  return ids;
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
  const std::string line = std::string(kLibrary) + "\n";
  if (Status written = writeAnew(preload(), line, 0644); !written) return written;
  published_ = name;
  return ok();
}

std::string TenantFiles::onHost(const std::string& path) const {
  const std::string& prefix = config_.hostPrefix;
  const bool below = !prefix.empty() && path.starts_with(prefix + "/");
  return below ? path.substr(prefix.size()) : path;
}

Result<ContainerSetup> TenantFiles::setup(Resource resource, const std::string& placeholder,
                                          const NodeNow& node) const {
  ContainerSetup setup;
  addTenant(setup, node);
  setup.mounts.push_back({std::string(kTenantTask) + "/" + resourceWord(resource), placeholder});
  ContainerSetup common = shared(node);
  const std::string folder = placeholder + kNodes;
  std::error_code error;
  if (common.deviceNodes.empty()) {
    fs::remove_all(folder, error);
  } else if (const Status opened = openFolder(folder, node); opened) {
    setup.deviceFolders.push_back({devFor(resource), folder});
    common.deviceNodes.clear();
  } else {
    fs::remove_all(folder, error);
    common.wide = opened.error().message;
  }
  setup.wide = common.wide;
  if (!config_.cdiDir.empty() && cdiOffers(common)) {
    if (Status offered = offer(common); !offered) return offered.error();
    setup.cdiDevices.push_back(cdiDeviceName());
    return setup;
  }
  setup.environment.merge(common.environment);
  setup.mounts.insert(setup.mounts.end(), common.mounts.begin(), common.mounts.end());
  setup.deviceNodes = std::move(common.deviceNodes);
  return setup;
}

// Where its nodes will be: until it starts, and is known, those that belong to no card.
Status TenantFiles::openFolder(const std::string& folder, const NodeNow& node) const {
  if (!takesDeviceFolders(node.runtime)) {
    return fail(ErrorCode::Unsupported,
                node.runtime + " takes no folders of device nodes; containerd 1.5 and later does");
  }
  // Of a card of AMD's alone its own containers must know (giveCards).
  if (node.backend == "nvidia") {
    const auto known = cardNodes(node.backend, config_.hostPrefix, idsOf(node.cards));
    if (!known) return known.error();
  }
  const auto nodes = cardNodes(node.backend, config_.hostPrefix, {});
  return nodes ? fillDeviceFolder(folder, config_.hostPrefix, *nodes) : Status(nodes.error());
}

Status TenantFiles::giveCards(const std::string& placeholder, const std::string& backend,
                              const std::vector<std::string>& cards) const {
  if (!needsNodes(backend)) return ok();
  const std::string folder = placeholder + kNodes;
  std::error_code error;
  const bool promised = fs::exists(folder, error);
  const auto nodes = cardNodes(backend, config_.hostPrefix, cards);
  const Status filled =
      nodes ? fillDeviceFolder(folder, config_.hostPrefix, *nodes) : Status(nodes.error());
  if (filled || promised) return filled;
  fs::remove_all(folder, error);  // nor could Allocate: it named all nodes one by one
  return ok();
}

// The manager's attach socket, and the token to attach by.
void TenantFiles::addTenant(ContainerSetup& setup, const NodeNow& node) const {
  for (const auto& [name, value] : node.environment) setup.environment[name] = value;
  setup.environment["QGPU_SOCKET"] = kTenantSocket;
  setup.environment["QGPU_TOKEN_FILE"] = kTenantTokens;
  setup.mounts.push_back({kTenantFolder, config_.runDir + "/tenant"});
}

void TenantFiles::addLibrary(ContainerSetup& setup) const {
  if (published_.empty()) return;
  for (const auto& [name, value] : nodeVariables({kLibrary, {}})) setup.environment[name] = value;
  setup.mounts.push_back({kLibrary, onHost(published_)});
  setup.mounts.push_back({kPreload, onHost(preload())});
}

Result<ContainerSetup> TenantFiles::adminSetup(const NodeNow& node,
                                               const std::vector<std::string>& cards) const {
  ContainerSetup setup;
  auto nodes = cardNodes(node.backend, config_.hostPrefix, cards);
  if (!nodes) return nodes.error();
  if (node.backend != "nvidia") {
    setup.deviceNodes = std::move(*nodes);
    return setup;
  }
  std::vector<PluginCard> own;
  for (const std::string& card : cards) own.push_back({card, Bytes(0), true});
  addNvidia(setup, own);
  return setup;
}

Result<ContainerSetup> TenantFiles::claimSetup(const std::string& folder, const NodeNow& node,
                                               const std::vector<std::string>& cards) const {
  Result<ContainerSetup> setup = adminSetup(node, cards);
  if (!setup) return setup;
  addTenant(*setup, node);
  setup->mounts.push_back({std::string(kTenantTask) + "/" + kTenantClaim, folder});
  addLibrary(*setup);
  return setup;
}

// What is the same for every container on the node's cards.
ContainerSetup TenantFiles::shared(const NodeNow& node) const {
  ContainerSetup setup;
  addLibrary(setup);
  if (node.backend == "nvidia") addNvidia(setup, node.cards);
  if (node.backend == "amd") {
    setup.deviceNodes = knownAmdNodes(config_.hostPrefix, idsOf(node.cards));
  }
  return setup;
}

// The node's own driver, as the installer copied it, where a program's loader looks by itself:
// LD_LIBRARY_PATH is the image's own. Empty where there is none.
std::vector<ContainerSetup::Mount> TenantFiles::driver() const {
  const std::string folder = config_.filesDir + "/driver";
  std::vector<std::string> names = namesIn(folder);
  if (std::find(names.begin(), names.end(), kDriver) == names.end()) return {};
  names.resize(std::min(names.size(), kDriverFilesMax));
  std::vector<ContainerSetup::Mount> mounts;
  for (const std::string& name : names) {
    const std::string host = onHost(folder + "/" + name);
    if (name == kTool) {
      mounts.push_back({kToolHome + name, host});
      continue;
    }
    for (const char* home : kDriverHomes) mounts.push_back({home + name, host});
  }
  return mounts;
}

// Nodes are those of all cards; libqgpu shows a tenant its own. Libraries and device nodes come
// from us both, or from a container runtime of NVIDIA's both: it is told to stay away, which it
// does also where it is not the one that the container gets, or to bring them.
void TenantFiles::addNvidia(ContainerSetup& setup, const std::vector<PluginCard>& cards) const {
  const auto nodes = nvidiaNodes(config_.hostPrefix, idsOf(cards));
  setup.deviceNodes = nodes ? *nodes : allNvidiaNodes(config_.hostPrefix);
  std::vector<ContainerSetup::Mount> driver = this->driver();
  if (driver.empty() || setup.deviceNodes.empty()) {
    setup.environment["NVIDIA_VISIBLE_DEVICES"] = "all";
    setup.environment["NVIDIA_DRIVER_CAPABILITIES"] = "compute,utility,video";
    setup.wide =
        "no driver and device nodes are here to give, so NVIDIA's container runtime is "
        "asked for them, and brings every card";
    return;
  }
  setup.environment["NVIDIA_VISIBLE_DEVICES"] = "void";
  setup.mounts.insert(setup.mounts.end(), driver.begin(), driver.end());
}

// Written again where it differs, or somebody took it away.
Status TenantFiles::offer(const ContainerSetup& shared) const {
  const CdiFile file(config_.cdiDir);
  const std::string spec = cdiSpec(shared, QGPU_VERSION);
  std::ifstream in(file.path(), std::ios::binary);
  const std::string there((std::istreambuf_iterator<char>(in)), {});
  return there == spec ? ok() : file.write(spec);
}

void TenantFiles::withdraw() const {
  if (!config_.cdiDir.empty()) CdiFile(config_.cdiDir).remove();
}

}  // namespace qgpu
