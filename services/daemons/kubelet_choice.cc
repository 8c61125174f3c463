#include "services/daemons/kubelet_choice.h"

#include <cstdlib>
#include <filesystem>

#include "services/base/host.h"
#include "services/daemons/log_format.h"
#include "services/kubernetes/device_plugin/plugin_flags.h"

namespace qgpu {
namespace {

namespace fs = std::filesystem;

constexpr const char* kHostRoot = "/host";  // where the host's folders lie in our own pod

bool isSet(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0';
}

}  // namespace

bool servesKubelet(const ManagerOptions& options) {
  if (options.kubelet != KubeletChoice::Auto) return options.kubelet == KubeletChoice::On;
  std::error_code error;
  return fs::is_socket(options.kubeletDir + "/device-plugins/kubelet.sock", error) &&
         (isSet("KUBECONFIG") || isSet("KUBERNETES_SERVICE_HOST"));
}

Status checkMemoryUnit(const ManagerOptions& options, const CardsFound& found) {
  if (!servesKubelet(options)) return ok();
  std::vector<PluginCard> cards;
  for (const Card& card : found.cards) cards.push_back({card.id, card.mem, true});
  const auto devices = devicesOf(cards, Resource::Memory, options.pods.unit);
  return devices ? ok() : Status(devices.error());
}

std::vector<std::string> pluginCommand(const ManagerOptions& options, const std::string& runDir,
                                       const std::string& library) {
  std::error_code error;
  const fs::path database = fs::absolute(options.dbfile, error);
  std::vector<std::string> command = {
      (folderOfBinaries() / "qgpu-kubelet-plugin").string(),
      "--manager=" + runDir + "/manager.rpc",
      "--run-dir=" + runDir,
      "--nodename=" + options.nodename,
      "--kubelet-dir=" + options.kubeletDir,
      "--files-dir=" + (database.parent_path() / "kubelet").string(),
      "--resource-prefix=" + options.pods.prefix,
      std::string("--memory-unit=") + memoryUnitName(options.pods.unit),
      std::string("--log-level=") + logLevelName(options.logLevel),
      std::string("--log-format=") + logFormatName(options.logFormat),
  };
  if (options.cdi != "off") command.push_back("--cdi=" + options.cdi);
  if (!options.kubeletConfig.empty()) command.push_back("--config=" + options.kubeletConfig);
  if (!library.empty()) command.push_back("--library=" + library);
  if (database.string().starts_with(std::string(kHostRoot) + "/")) {
    command.push_back(std::string("--host-prefix=") + kHostRoot);
  }
  return command;
}

}  // namespace qgpu
