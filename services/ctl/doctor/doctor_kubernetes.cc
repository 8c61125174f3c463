// What of Kubernetes lies on this machine: kubelet's device plugins, and kube-scheduler's
// configuration.

#include <algorithm>
#include <simdjson.h>

#include "services/base/yaml.h"
#include "services/ctl/doctor/doctor.h"
#include "services/ctl/doctor/doctor_look.h"
#include "services/kubernetes/device_plugin/device_folder.h"
#include "services/kubernetes/pods/kube_names.h"
#include "services/kubernetes/pods/pod_rules.h"

namespace qgpu::ctl {
namespace {

using simdjson::dom::element;

constexpr const char* kPlugins = "/var/lib/kubelet/device-plugins";
constexpr const char* kManifest = "/etc/kubernetes/manifests/kube-scheduler.yaml";
constexpr const char* kRegister =
    "run deploy/kubernetes/kube-scheduler/register.sh here, or put the extender of the "
    "config-*.yaml beside it into kube-scheduler's configuration";

std::string textAt(element root, std::string_view pointer) {
  std::string_view text;
  if (root.at_pointer(pointer).get(text) != simdjson::SUCCESS) return {};
  return std::string(text);
}

std::vector<element> listAt(element root, std::string_view pointer) {
  simdjson::dom::array list;
  if (root.at_pointer(pointer).get(list) != simdjson::SUCCESS) return {};
  return {list.begin(), list.end()};
}

// --- kubelet ---

// How many devices kubelet knows of a resource, by the file that it keeps for itself: good enough
// for a look. Nothing where there is none.
std::optional<std::size_t> registered(DoctorContext& context, const std::string& resource) {
  const auto text = readWhole(context.path(std::string(kPlugins) + "/kubelet_internal_checkpoint"));
  simdjson::dom::parser parser;
  element root;
  simdjson::dom::object all;
  if (!text || parser.parse(*text).get(root) != simdjson::SUCCESS ||
      root.at_pointer("/Data/RegisteredDevices").get(all) != simdjson::SUCCESS) {
    return std::nullopt;
  }
  simdjson::dom::array devices;
  if (all.at_key(resource).get(devices) != simdjson::SUCCESS) return 0;
  return devices.size();
}

void checkSecondPlugin(DoctorContext& context) {
  std::string by;
  for (const std::string& name : namesIn(context.path(kPlugins), "nvidia", ".sock")) {
    const std::string socket = std::string(kPlugins) + "/" + name;
    if (socketState(context.path(socket)) == SocketState::Alive) by = socket;
  }
  for (const std::string_view name : kWholeCards) {
    const std::size_t devices = registered(context, std::string(name)).value_or(0);
    if (devices > 0) by = "kubelet knows " + std::to_string(devices) + " " + std::string(name);
  }
  if (by.empty()) return;
  context.finding(
      "second-plugin", "another device plugin gives out this node's cards: " + by,
      "keep device plugins of NVIDIA and AMD off nodes with the label qgpu-device-enable; qgpu "
      "refuses a node that serves both");
}

void checkOwnPlugin(DoctorContext& context) {
  bool alive = false;
  for (const std::string& name : namesIn(context.path(kPlugins), "qgpu", ".sock")) {
    const std::string socket = std::string(kPlugins) + "/" + name;
    if (socketState(context.path(socket)) == SocketState::Alive) {
      alive = true;
      continue;
    }
    context.finding("plugin-socket-stale", "nobody listens on " + socket,
                    "restart qgpu-manager; kubelet wipes the folder when it starts");
  }
  const bool manager =
      socketState(context.path(context.options.runDir + "/manager.sock")) == SocketState::Alive;
  if (manager && !alive) {
    context.finding("plugin-missing",
                    "qgpu-manager runs beside a kubelet, and no device plugin of "
                    "qgpu is in " +
                        std::string(kPlugins),
                    "look for \"kubelet\" in the manager's "
                    "log; it serves one with --kubelet=on, or where KUBECONFIG or a service "
                    "account is at hand");
  }
  const std::string memory = std::string(kResourcePrefix) + "/qgpu-memory";
  const auto known = registered(context, memory);
  if (alive && known && *known == 0) {
    context.finding("plugin-not-registered", "kubelet knows no " + memory,
                    "look at the manager's log and kubelet's; restart kubelet");
  }
}

// --- kube-scheduler ---

// A file as documents; a finding where it is there and can't be read.
std::vector<std::string> documentsOf(DoctorContext& context, const std::string& file) {
  const auto text = readWhole(context.path(file));
  if (!text) {
    context.finding("scheduler-file", file + " can't be read", "run doctor as root");
    return {};
  }
  auto documents = yamlToJson(*text);
  if (documents) return std::move(*documents);
  context.finding("scheduler-file", file + ": " + documents.error().message, "mend the file");
  return {};
}

// Where a file of the container lies on the machine.
std::string onHost(element pod, const std::string& file) {
  for (const element mount : listAt(pod, "/spec/containers/0/volumeMounts")) {
    const std::string folder = textAt(mount, "/mountPath");
    if (file != folder && !file.starts_with(folder + "/")) continue;
    for (const element volume : listAt(pod, "/spec/volumes")) {
      const std::string host = textAt(volume, "/hostPath/path");
      if (textAt(volume, "/name") != textAt(mount, "/name") || host.empty()) continue;
      return host + file.substr(folder.size());
    }
  }
  return file;
}

std::string argumentOf(element pod, const std::string& flag) {
  for (const char* list : {"/spec/containers/0/command", "/spec/containers/0/args"}) {
    for (const element word : listAt(pod, list)) {
      std::string_view text;
      if (word.get(text) == simdjson::SUCCESS && text.starts_with(flag + "=")) {
        return std::string(text.substr(flag.size() + 1));
      }
    }
  }
  return "";
}

// First and last minor version of kube-scheduler that reads a configuration of this kind.
struct Generation {
  const char* version;
  unsigned first;
  unsigned last;
};
constexpr Generation kGenerations[] = {
    {"v1", 0, 22},  // of a Policy
    {"kubescheduler.config.k8s.io/v1beta1", 19, 22},
    {"kubescheduler.config.k8s.io/v1beta2", 22, 24},
    {"kubescheduler.config.k8s.io/v1beta3", 23, 28},
    {"kubescheduler.config.k8s.io/v1", 25, 10'000},
};

void checkGeneration(DoctorContext& context, element config, const std::string& file,
                     unsigned minor) {
  const std::string version = textAt(config, "/apiVersion");
  for (const Generation& generation : kGenerations) {
    if (version != generation.version || minor == 0) continue;
    if (minor >= generation.first && minor <= generation.last) return;
    context.finding("extender-generation",
                    file + " is of " + version + ", which kube-scheduler 1." +
                        std::to_string(minor) + " does not read",
                    "run register.sh --remove and then "
                    "register.sh, which take the one for that version");
  }
}

bool isOurs(element extender) {
  const std::string prefix = std::string(kResourcePrefix) + "/qgpu-";
  for (const element resource : listAt(extender, "/managedResources")) {
    if (textAt(resource, "/name").starts_with(prefix)) return true;
  }
  return textAt(extender, "/urlPrefix").ends_with(":12345/scheduler");
}

void checkExtender(DoctorContext& context, element extender, const std::string& file) {
  std::string missing;
  for (const char* verb : {"filterVerb", "prioritizeVerb", "bindVerb", "preemptVerb"}) {
    if (textAt(extender, std::string("/") + verb).empty()) missing += " " + std::string(verb);
  }
  std::vector<std::string> names;
  for (const element one : listAt(extender, "/managedResources")) {
    names.push_back(textAt(one, "/name"));
  }
  for (const char* resource : {"qgpu-core", "qgpu-memory", "qgpu-core-greedy"}) {
    const std::string name = std::string(kResourcePrefix) + "/" + resource;
    // No list at all: it is asked about every pod.
    if (!names.empty() && std::find(names.begin(), names.end(), name) == names.end()) {
      missing += " " + name;
    }
  }
  if (!missing.empty()) {
    context.finding("extender-incomplete", "the extender in " + file + " lacks" + missing,
                    kRegister);
  }
  const std::string url = textAt(extender, "/urlPrefix");
  const std::size_t host = url.find("://");
  const std::string address =
      host == std::string::npos ? "" : url.substr(host + 3, url.find('/', host + 3) - host - 3);
  const std::size_t colon = address.rfind(':');
  context.fact("extender", url);
  if (colon == std::string::npos || !address.starts_with("127.")) return;
  if (listensAt(address.substr(0, colon), address.substr(colon + 1))) return;
  context.finding("extender-unreachable",
                  "kube-scheduler asks " + url +
                      ", and nobody listens "
                      "there",
                  "start qgpu-scheduler on this machine, or run register.sh --remote, which writes "
                  "the address of its Service into " +
                      file);
}

void checkConfig(DoctorContext& context, element config, const std::string& file, unsigned minor) {
  checkGeneration(context, config, file, minor);
  bool found = false;
  for (const element extender : listAt(config, "/extenders")) {
    if (!isOurs(extender)) continue;
    found = true;
    checkExtender(context, extender, file);
  }
  if (!found) {
    context.finding("extender-not-registered",
                    "kube-scheduler's configuration " + file + " has no extender of qgpu",
                    kRegister);
  }
}

void checkFile(DoctorContext& context, const std::string& file, unsigned minor);

void checkPod(DoctorContext& context, element pod, const std::string& file) {
  const std::string image = textAt(pod, "/spec/containers/0/image");
  const std::size_t tag = image.find(':', image.rfind('/'));
  std::string version = tag == std::string::npos ? "" : image.substr(tag + 1);
  if (version.starts_with('v')) version.erase(0, 1);
  context.fact("kube-scheduler", version);
  std::string config = argumentOf(pod, "--config");
  if (config.empty()) config = argumentOf(pod, "--policy-config-file");
  if (config.empty()) {
    context.finding(
        "extender-not-registered",
        "kube-scheduler is started in " + file +
            " with neither --config nor --policy-config-file, so without an extender (an "
            "upgrade of the control plane writes that file anew)",
        kRegister);
    return;
  }
  checkFile(context, onHost(pod, config), versionNumbers(version, 2)[1]);
}

void checkFile(DoctorContext& context, const std::string& file, unsigned minor) {
  for (const std::string& json : documentsOf(context, file)) {
    simdjson::dom::parser parser;
    element root;
    if (parser.parse(json).get(root) != simdjson::SUCCESS) continue;
    const std::string kind = textAt(root, "/kind");
    if (kind == "Pod" && minor == 0) {
      checkPod(context, root, file);
    } else if (kind == "KubeSchedulerConfiguration" || kind == "Policy") {
      checkConfig(context, root, file, minor);
    } else {
      context.finding("scheduler-file",
                      file + " is a " + kind +
                          ", and no configuration of "
                          "kube-scheduler",
                      "name its static pod, KubeSchedulerConfiguration or "
                      "Policy by --kube-scheduler");
    }
  }
}

}  // namespace

void examineKubelet(DoctorContext& context) {
  if (!exists(context.path(kPlugins))) return;
  const SocketState kubelet = socketState(context.path(std::string(kPlugins) + "/kubelet.sock"));
  context.fact("kubelet", kubelet == SocketState::Alive ? "serves" : "does not serve");
  if (kubelet != SocketState::Alive && kubelet != SocketState::Closed) {
    context.finding("kubelet-down",
                    "kubelet takes no device plugins on " + std::string(kPlugins) + "/kubelet.sock",
                    "systemctl start kubelet, and see its log");
  }
  checkSecondPlugin(context);
  checkOwnPlugin(context);
}

void examineKubeScheduler(DoctorContext& context) {
  const std::string& given = context.options.kubeScheduler;
  if (given.empty() && !exists(context.path(kManifest))) return;
  checkFile(context, given.empty() ? kManifest : given, 0);
}

}  // namespace qgpu::ctl
