#pragma once
// A kubelet for tests, as far as device plugins meet it: real gRPC on real sockets. It wipes the
// folder of sockets when it starts, watches the lists of who registers, chooses free devices with
// the plugin's preference, never gives one twice, and lists its containers through PodResources.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "services/kubelet_plugin/pod_devices.h"

namespace qgpu::testing {

class KubeletStandIn {
 public:
  enum class PodApi { V1, V1Alpha1 };

  // `dir`: what --kubelet-dir names; made here.
  KubeletStandIn(std::string dir, std::string prefix, PodApi api);
  ~KubeletStandIn();
  KubeletStandIn(const KubeletStandIn&) = delete;
  KubeletStandIn& operator=(const KubeletStandIn&) = delete;

  void start();  // kubelet's start: sockets of plugins go, kubelet.sock is made anew
  void stop();   // its containers are remembered, as in its checkpoint

  // Resources that registered since the last start(), without prefix.
  std::vector<std::string> registered() const;
  std::size_t registrations() const;  // in all
  // Devices as last told: id -> healthy. Empty where nobody tells of this resource.
  std::map<std::string, bool> devices(const std::string& resource) const;

  struct Setup {  // one answer to Allocate
    std::map<std::string, std::string> environment;
    std::map<std::string, std::string> mounts;  // by the path in the container
  };
  struct Answer {
    std::string error;                    // of the first call that failed; empty: none
    std::map<std::string, Setup> setups;  // by resource
    bool ok() const { return error.empty(); }
  };
  using Counts = std::map<std::string, int>;  // by resource, without prefix

  // Admission of a container: its devices are chosen and allocated.
  Answer admit(const ContainerName& container, const Counts& counts);
  // Before it starts: PreStartContainer of each of its resources.
  Answer startContainer(const ContainerName& container);
  // Nothing of it is left: its devices are free, PodResources lists it no more.
  void forget(const ContainerName& container);

  std::vector<std::string> idsOf(const ContainerName& container, const std::string& resource) const;
  // PreStartContainer with devices of the test's choice.
  std::string preStart(const std::string& resource, const std::vector<std::string>& ids);
  // GetPreferredAllocation likewise; empty where it was refused.
  std::vector<std::string> prefer(const std::string& resource,
                                  const std::vector<std::string>& available,
                                  const std::vector<std::string>& mustInclude, int size);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;  // keeps gRPC out of tests
};

}  // namespace qgpu::testing
