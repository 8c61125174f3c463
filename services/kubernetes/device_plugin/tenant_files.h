#pragma once
// What every container of ours gets beside its token: the library, the socket of the manager,
// device nodes and the node's own driver with nvidia-smi; where the installer found no driver to
// copy, the wish that a container runtime of NVIDIA's brings it. Paths here are of three kinds: as
// we see them, as the host does (kubelet mounts those), and as the container will.
//
// The library is loaded by the loader's own file, so that a pod or an image with variables of its
// own is contained all the same; the variables stay for loaders that read no such file. Where it
// finds no card's driver it does nothing.
//
// The library is copied to a name that says what is in it and never overwritten: a process that has
// mapped the old one keeps it when a new version comes.

#include <map>
#include <string>
#include <vector>

#include "runtime/result.h"
#include "services/kubernetes/device_plugin/container_setup.h"
#include "services/kubernetes/device_plugin/device_ids.h"
#include "services/kubernetes/device_plugin/node_now.h"

namespace qgpu {

struct TenantFilesConfig {
  std::string runDir;      // the same for us and the host
  std::string filesDir;    // for copies of the library; the host can map programs from there
  std::string hostPrefix;  // of filesDir and /dev, where the host's root lies below it for us
  std::string library;     // libqgpu.so; empty: none is given to containers
  std::string cdiDir;      // for a spec that Allocate names; empty: Allocate says all itself
};

class TenantFiles {
 public:
  explicit TenantFiles(TenantFilesConfig config) : config_(std::move(config)) {}

  // Copies the library where this version of it is not there yet; before the first setup().
  Status publish();

  // For a container on this node, whose placeholder of `resource` is at `placeholder`. Every
  // resource of one container says the same under the same name, since kubelet takes the first that
  // it hears. Unavailable: the CDI spec can't be written.
  Result<ContainerSetup> setup(Resource resource, const std::string& placeholder,
                               const NodeNow& node) const;
  // For a container with a claim: all that it gets, its own cards' nodes alone. `folder` holds its
  // grant. NotFound: the driver does not say which nodes are a card's.
  Result<ContainerSetup> claimSetup(const std::string& folder, const NodeNow& node,
                                    const std::vector<std::string>& cards) const;
  // For one that looks at cards and has no task: their nodes and their driver. May be nothing.
  Result<ContainerSetup> adminSetup(const NodeNow& node,
                                    const std::vector<std::string>& cards) const;
  // Before it starts: the nodes of its cards, where it takes them from its placeholder.
  Status giveCards(const std::string& placeholder, const std::string& backend,
                   const std::vector<std::string>& cards) const;
  // Takes back what lies outside our own folders: the CDI spec.
  void withdraw() const;

  // Folder of placeholders.
  std::string placeholders() const { return config_.runDir + "/kubelet"; }
  // Folder of claims' grants.
  std::string claims() const { return config_.runDir + "/claims"; }

 private:
  std::string onHost(const std::string& path) const;
  std::string preload() const { return config_.filesDir + "/ld.so.preload"; }
  ContainerSetup shared(const NodeNow& node) const;
  Status openFolder(const std::string& folder, const NodeNow& node) const;
  std::vector<ContainerSetup::Mount> driver() const;
  void addNvidia(ContainerSetup& setup, const std::vector<PluginCard>& cards) const;
  void addLibrary(ContainerSetup& setup) const;
  void addTenant(ContainerSetup& setup, const NodeNow& node) const;
  Status offer(const ContainerSetup& shared) const;

  TenantFilesConfig config_;
  std::string published_;  // as we see it
};

}  // namespace qgpu
