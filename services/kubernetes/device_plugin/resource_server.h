#pragma once
// One resource as kubelet sees it: a gRPC server on a socket of its own beside kubelet's. Calls
// come in on gRPC's threads and are answered on the loop, by a PluginHandler; nothing is decided
// here.
//
// A server that is not wanted any more ends in the background: gRPC waits for the last word of the
// loop to each call, so a thread waits for gRPC, and the loop runs until RetiredServers is empty.

#include <kj/async.h>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "runtime/loop.h"
#include "runtime/result.h"
#include "services/kubernetes/device_plugin/container_setup.h"
#include "services/kubernetes/device_plugin/device_ids.h"

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

class ResourceServer {
 public:
  // Serves at `socket` from now on, which nobody else uses. `loop` and `handler` outlive it.
  // Unavailable: nobody can listen there.
  static Result<std::unique_ptr<ResourceServer>> open(Loop& loop, PluginHandler& handler,
                                                      Resource resource, std::string socket);
  virtual ~ResourceServer() = default;

  virtual const std::string& socket() const = 0;
  // The devices from now on, to every kubelet that watches.
  virtual void publish(const std::vector<Device>& devices) = 0;

 private:
  friend class RetiredServers;
  // On the loop: whatever is not answered yet is refused now.
  virtual void refuseAll() = 0;
  // On another thread: returns when gRPC has let go of every call.
  virtual void shutDown() = 0;
};

class RetiredServers {
 public:
  explicit RetiredServers(Loop& loop) : loop_(loop) {}
  RetiredServers(const RetiredServers&) = delete;
  RetiredServers& operator=(const RetiredServers&) = delete;
  ~RetiredServers();  // empty by then

  void add(std::unique_ptr<ResourceServer> server);
  std::size_t size() const { return ending_.size(); }

 private:
  struct Ending {
    std::unique_ptr<ResourceServer> server;
    std::thread thread;
  };
  Loop& loop_;
  std::map<std::uint64_t, Ending> ending_;
  std::uint64_t last_ = 0;
};

}  // namespace qgpu
