#pragma once
// A kubelet for tests, as far as device plugins meet it: real gRPC on real sockets. It wipes the
// folder of sockets when it starts, watches the lists of who registers, chooses free devices with
// the plugin's preference, never gives one to two pods, and lists its containers through
// PodResources. Devices of an init container are used again by the containers of its pod after it,
// and PodResources does not list it, unless it is a sidecar: as kubelet does.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "services/kubernetes/device_plugin/pod_devices.h"

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

  // While it counts none, it has not looked yet at the devices that it was told of: it has none
  // that are healthy, and fails each pod that asks for one.
  void setCounts(bool counts);

  // Resources that registered since the last start(), without prefix.
  std::vector<std::string> registered() const;
  std::size_t registrations() const;  // in all
  // Devices as last told: id -> healthy. Empty where nobody tells of this resource.
  std::map<std::string, bool> devices(const std::string& resource) const;

  struct Setup {  // one answer to Allocate
    std::map<std::string, std::string> environment;
    std::map<std::string, std::string> mounts;   // by the path in the container
    std::map<std::string, std::string> devices;  // the host's nodes, or folders of them, so too
    std::vector<std::string> cdiDevices;         // by their full names
  };
  struct Answer {
    std::string error;                    // of the first call that failed; empty: none
    std::map<std::string, Setup> setups;  // by resource
    bool ok() const { return error.empty(); }
    // Of a process that has no mounts: what lies at a path in the container is named as it lies on
    // the host.
    std::map<std::string, std::string> environmentOnHost() const;
  };
  using Counts = std::map<std::string, int>;  // by resource, without prefix
  enum class Kind { Main, Init, Sidecar };
  struct Asking {
    std::string container;
    Kind kind = Kind::Main;
    Counts counts;
  };

  // Admission of a pod: devices are chosen and allocated for each container, init containers
  // first. By container, in this order; after a failure nothing of the pod is left.
  std::map<std::string, Answer> admitPod(const std::string& nameSpace, const std::string& pod,
                                         const std::vector<Asking>& containers);
  // Of one container, whose pod has no init container.
  Answer admit(const ContainerName& container, const Counts& counts);
  // Before it starts: PreStartContainer of each of its resources.
  Answer startContainer(const ContainerName& container);
  // Nothing of it is left: its devices are free, PodResources lists it no more.
  void forget(const ContainerName& container);
  void forgetPod(const std::string& nameSpace, const std::string& pod);

  std::vector<std::string> idsOf(const ContainerName& container, const std::string& resource) const;
  // PreStartContainer with devices of the test's choice.
  std::string preStart(const std::string& resource, const std::vector<std::string>& ids);
  // GetPreferredAllocation of devices of the test's choice; empty where it was refused.
  std::vector<std::string> prefer(const std::string& resource,
                                  const std::vector<std::string>& available,
                                  const std::vector<std::string>& mustInclude, int size);

 private:
  using Ids = std::vector<std::string>;

  Ids choose(const std::string& resource, int count, const Ids& reusable, std::string& error);
  std::string allocate(const std::string& resource, const Ids& ids, Setup& setup);

  struct Parts;
  std::unique_ptr<Parts> parts_;  // keeps gRPC out of tests
};

}  // namespace qgpu::testing
