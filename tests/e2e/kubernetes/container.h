#pragma once
// A container as the answers to Allocate describe it: what its environment says, what is mounted
// where, which device nodes it has.

#include <map>
#include <string>
#include <vector>

#include "services/kubernetes/device_plugin/testing/kubelet_stand_in.h"
#include "tests/e2e/testing_names.h"

namespace qgpu::e2e {

struct Container {
  Container() = default;
  // All resources of one container together, as kubelet merges them.
  explicit Container(const testing::KubeletStandIn::Answer& admitted);

  // The token that it finds through the files that its environment names; empty: none yet.
  std::string token() const;

  // What a runtime adds for the CDI devices that it is asked for, by the spec that names them.
  void addCdi(const Json& spec);

  // Its device nodes when a runtime creates it now: of a folder those that lie in it. By the path
  // in it; `hostRoot` is where the host's /dev is.
  std::map<std::string, std::string> deviceFiles(const std::string& hostRoot) const;

  Environment environment;
  std::map<std::string, std::string> mounts;   // by the path in it
  std::map<std::string, std::string> devices;  // nodes and folders of nodes, by the path in it
  std::vector<std::string> cdiDevices;         // full names
};

// Of a file; empty where there is none.
std::string contentOf(const std::string& path);

}  // namespace qgpu::e2e
