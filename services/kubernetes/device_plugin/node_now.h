#pragma once
// What the manager says that the node has, as the device plugin works with it.

#include <map>
#include <string>
#include <vector>

#include "services/kubernetes/device_plugin/device_ids.h"

namespace qgpu {

struct NodeNow {
  std::vector<PluginCard> cards;
  std::string backend;  // of its cards: "nvidia", "amd", "opencl", "sim"
  bool mixed = false;
  bool claims = false;  // its cards are given by claims, and not as devices
  std::map<std::string, std::string> environment;  // of every tenant
  std::string runtime;  // of containers, "containerd://1.7.2"; empty: not known
  bool operator==(const NodeNow&) const = default;
};

}  // namespace qgpu
