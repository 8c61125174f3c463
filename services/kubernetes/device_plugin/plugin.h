#pragma once
// The device plugin as a whole: keeps kubelet told of this node's cards, prepares what a container
// gets, resolves whose container it is when kubelet starts it, and has its task ended when kubelet
// knows the container no more. Runs on one loop; nothing of it outlives a restart but what lies in
// the run dir, and tasks are the manager's.
//
//   Allocate            a placeholder, named after the devices: nobody says yet whose they are
//   PreStartContainer   PodResources says whose; the manager binds its task, or gives the one that
//                       is bound; token, settings and its cards' nodes go into the placeholder
//   reconcile           containers that kubelet lists no more: their tasks end, placeholders go
//   count               cards whose devices kubelet counts: the manager lets nothing go elsewhere
//
// qgpu-core and qgpu-memory of one container come here one after the other; both get its one task.

#include <functional>
#include <kj/async-io.h>
#include <kj/timer.h>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "runtime/log.h"
#include "runtime/loop.h"
#include "services/kubernetes/device_plugin/kubelet_calls.h"
#include "services/kubernetes/device_plugin/manager_link.h"
#include "services/kubernetes/device_plugin/placeholders.h"
#include "services/kubernetes/device_plugin/reconciler.h"
#include "services/kubernetes/device_plugin/resource_server.h"
#include "services/kubernetes/device_plugin/tenant_files.h"

namespace qgpu {

struct PluginConfig {
  std::string manager;     // path of the manager's RPC socket
  std::string kubeletDir;  // holds device-plugins/ and pod-resources/
  std::string resourcePrefix;
  MemoryUnit memoryUnit = MemoryUnit::GiB;
  TenantFilesConfig files;
  ReconcileTimes times;
  Nanos reconcile = seconds(2);
  Nanos startDeadline = seconds(25);  // of PreStartContainer; kubelet gives up after 30 s
};

class Plugin final : private PluginHandler, private kj::TaskSet::ErrorHandler {
 public:
  Plugin(Loop& loop, kj::Network& network, kj::Timer& timer, Log& log, PluginConfig config);
  Plugin(const Plugin&) = delete;
  Plugin& operator=(const Plugin&) = delete;
  ~Plugin() noexcept;

  void start();
  // Ends everything and calls `over` when nothing is under way any more; the loop runs until then.
  void stop(std::function<void()> over);

 private:
  using Listed = Result<std::vector<ContainerDevices>>;
  // A socket file, so that one that was made again is another one.
  struct SocketId {
    std::uint64_t device = 0;
    std::uint64_t inode = 0;
    std::int64_t changedNs = 0;
    bool operator==(const SocketId&) const = default;
  };
  struct Served {
    std::unique_ptr<ResourceServer> server;
    std::optional<SocketId> toldTo;  // the kubelet that knows us
    kj::TimePoint toldAt = kj::origin<kj::TimePoint>();
    bool telling = false;
    std::string failure;  // the last one, so that it is said once
  };
  struct Starting;

  static std::optional<SocketId> socketAt(const std::string& path);
  std::string pluginsDir() const { return config_.kubeletDir + "/device-plugins"; }
  std::string podResources() const { return config_.kubeletDir + "/pod-resources/kubelet.sock"; }

  void onNode(const NodeNow& node);
  bool wanted(Resource resource) const;
  void watchFolder();
  void look();
  void serve(Resource resource, Served& served);
  void announce(Resource resource, Served& served, const SocketId& kubelet);
  kj::Promise<void> lookAgain();

  Result<Ids> prefer(Resource resource, const Ids& available, const Ids& mustInclude,
                     std::size_t size) override;
  Result<ContainerSetup> allocate(Resource resource, const Ids& ids) override;
  kj::Promise<Status> preStart(Resource resource, Ids ids) override;
  kj::Promise<Status> tryStart(kj::Own<Starting> starting);
  kj::Promise<Status> startOnce(const Starting& starting);
  Status give(const Starting& starting, const Grant& grant);
  void tellWide(const std::string& why);

  kj::Promise<void> countForEver();
  kj::Promise<bool> count();
  std::vector<Resource> wantedResources() const;
  std::vector<std::string> believed() const;

  kj::Promise<void> reconcileForEver();
  kj::Promise<void> reconcile();
  kj::Promise<void> carryOut(ReconcilePlan plan);
  void taskFailed(kj::Exception&& exception) override;
  void waitForEnd();

  Loop& loop_;
  kj::Timer& timer_;
  Log& log_;
  const PluginConfig config_;
  TenantFiles files_;
  Placeholders placeholders_;
  Reconciler reconciler_;
  KubeletCalls calls_;
  RetiredServers retired_;
  ManagerLink link_;

  std::optional<NodeNow> node_;
  std::string wide_;  // why containers get the nodes of all shared cards, as last told
  std::map<Resource, Served> served_;
  std::optional<SocketId> kubelet_;  // as last seen
  kj::Own<kj::PromiseFulfiller<void>> countNow_;
  std::uint64_t sockets_ = 0;  // made so far
  std::uint64_t starts_ = 0;   // containers that were started so far
  std::uint64_t startsUnderWay_ = 0;
  int folder_ = -1;  // inotify
  bool folderWatched_ = false;
  FdWatch folderWatch_;
  std::function<void()> over_;
  std::optional<kj::TaskSet> tasks_;  // last
};

}  // namespace qgpu
