#pragma once
// One resource as kubelet sees it: a gRPC server on a socket of its own beside kubelet's. Calls
// come in on gRPC's threads and are answered on the loop, by a PluginHandler; nothing is decided
// here.

#include <kj/async.h>
#include <memory>
#include <string>
#include <vector>

#include "runtime/loop.h"
#include "runtime/result.h"
#include "services/kubernetes/device_plugin/container_setup.h"
#include "services/kubernetes/device_plugin/device_ids.h"
#include "services/kubernetes/grpc/retired_servers.h"

namespace qgpu {

// Answers, on the loop.
class PluginHandler {
 public:
  using Ids = std::vector<std::string>;
  virtual Result<Ids> prefer(Resource resource, const Ids& available, const Ids& mustInclude,
                             std::size_t size) = 0;
  virtual Result<ContainerSetup> allocate(Resource resource, const Ids& ids) = 0;
  // May take as long as it needs: kubelet waits for 30 s.
  virtual kj::Promise<Status> preStart(Resource resource, Ids ids) = 0;

 protected:
  ~PluginHandler() = default;
};

class ResourceServer : public LoopServer {
 public:
  // Serves at `socket` from now on, which nobody else uses. `loop` and `handler` outlive it.
  // Unavailable: nobody can listen there.
  static Result<std::unique_ptr<ResourceServer>> open(Loop& loop, PluginHandler& handler,
                                                      Resource resource, std::string socket);
  virtual const std::string& socket() const = 0;
  // The devices from now on, to every kubelet that watches.
  virtual void publish(const std::vector<Device>& devices) = 0;
};

}  // namespace qgpu
