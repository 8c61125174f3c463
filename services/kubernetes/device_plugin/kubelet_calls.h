#pragma once
// What we ask of kubelet: to know a resource of ours, which container got which devices, and which
// devices it counts. Calls run on gRPC's threads; their ends come back to the loop, on which
// everything here is called.

#include <cstddef>
#include <kj/async.h>
#include <map>
#include <string>
#include <vector>

#include "runtime/loop.h"
#include "runtime/result.h"
#include "services/kubernetes/device_plugin/pod_devices.h"

namespace qgpu {

inline constexpr std::size_t kPodResourcesBytesMax = 16 << 20;  // as kubelet's own clients

struct KubeletCall;  // keeps gRPC out of this header

class KubeletCalls {
 public:
  explicit KubeletCalls(Loop& loop) : loop_(loop) {}
  KubeletCalls(const KubeletCalls&) = delete;
  KubeletCalls& operator=(const KubeletCalls&) = delete;
  // Nothing is under way any more.
  ~KubeletCalls();

  // Registers `endpoint`, a socket beside `kubeletSocket`. Kubelet calls that socket before it
  // answers.
  kj::Promise<Status> announce(const std::string& kubeletSocket, const std::string& endpoint,
                               const std::string& resourceName);

  // Every container's devices of the resources "PREFIX/...". Asks for v1, and for v1alpha1 where
  // kubelet knows no v1.
  kj::Promise<Result<std::vector<ContainerDevices>>> podDevices(const std::string& socket,
                                                                const std::string& prefix);

  // The devices of the resources "PREFIX/..." that kubelet would give to a container; ids sorted.
  // Unsupported: this kubelet can't say, as before 1.23.
  kj::Promise<Result<CountedDevices>> countedDevices(const std::string& socket,
                                                     const std::string& prefix);

  // Calls under way. Before the loop ends: cancel(), then run the loop until there is none.
  std::size_t underWay() const { return calls_.size(); }
  void cancel();

 private:
  using Listed = Result<std::vector<ContainerDevices>>;
  template <typename Api>
  kj::Promise<Listed> list(const std::string& socket, const std::string& prefix);

  Loop& loop_;
  std::vector<KubeletCall*> calls_;  // each owns itself until it is over
};

}  // namespace qgpu
