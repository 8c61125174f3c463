#include "services/kubernetes/device_plugin/resource_server.h"

#include <chrono>
#include <grpcpp/grpcpp.h>
#include <optional>
#include <utility>

#include "services/kubernetes/device_plugin/protos/device_plugin.grpc.pb.h"
#include "services/kubernetes/grpc/replies.h"
#include "services/kubernetes/grpc/watches.h"

namespace qgpu {
namespace {

constexpr auto kGoodbye = std::chrono::milliseconds(200);

PluginHandler::Ids idsOf(const google::protobuf::RepeatedPtrField<std::string>& ids) {
  return {ids.begin(), ids.end()};
}

void write(const ContainerSetup& setup, v1beta1::ContainerAllocateResponse& out) {
  for (const auto& [name, value] : setup.environment) (*out.mutable_envs())[name] = value;
  for (const ContainerSetup::Mount& mount : setup.mounts) {
    auto* written = out.add_mounts();
    written->set_container_path(mount.container);
    written->set_host_path(mount.host);
    written->set_read_only(true);
  }
  const auto addDevices = [&out](const std::string& inside, const std::string& host) {
    auto* written = out.add_devices();
    written->set_container_path(inside);
    written->set_host_path(host);
    written->set_permissions("rw");
  };
  for (const std::string& node : setup.deviceNodes) addDevices(node, node);
  for (const auto& folder : setup.deviceFolders) addDevices(folder.container, folder.host);
  for (const std::string& name : setup.cdiDevices) out.add_cdi_devices()->set_name(name);
}

class Server final : public ResourceServer,
                     private v1beta1::DevicePlugin::CallbackService,
                     private kj::TaskSet::ErrorHandler {
 public:
  Server(Loop& loop, PluginHandler& handler, Resource resource, std::string socket)
      : loop_(loop),
        handler_(handler),
        resource_(resource),
        socket_(std::move(socket)),
        watches_(loop) {}
  ~Server() noexcept override = default;

  bool listen() {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("unix:" + socket_, grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(this);
    builder.SetResourceQuota(grpc::ResourceQuota("qgpu").SetMaxThreads(kGrpcThreadsMax));
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    server_ = builder.BuildAndStart();
    return server_ != nullptr && port != 0;
  }

  const std::string& socket() const override { return socket_; }
  void publish(const std::vector<Device>& devices) override {
    v1beta1::ListAndWatchResponse list;
    for (const Device& device : devices) {
      auto* written = list.add_devices();
      written->set_id(device.id);
      written->set_health(device.healthy ? "Healthy" : "Unhealthy");
    }
    watches_.publish(std::move(list));
  }

 private:
  using Context = grpc::CallbackServerContext;

  void refuseAll() override {
    refusing_ = true;
    tasks_.reset();
    watches_.refuseAll();
  }
  void shutDown() override {
    server_->Shutdown(std::chrono::system_clock::now() + kGoodbye);
    server_->Wait();
  }
  void taskFailed(kj::Exception&&) override {}  // its GrpcReply said so when it was dropped

  // Answers with what `work` returns, on the loop. Request and response live until then.
  template <typename Work>
  grpc::ServerUnaryReactor* onLoop(Context* context, Work work) {
    auto* reactor = context->DefaultReactor();
    loop_.post([this, reactor, work] {
      GrpcReply reply(reactor);
      if (!refusing_) reply.finish(work());
    });
    return reactor;
  }

  grpc::ServerUnaryReactor* GetDevicePluginOptions(Context* context, const v1beta1::Empty*,
                                                   v1beta1::DevicePluginOptions* out) override {
    out->set_pre_start_required(true);
    out->set_get_preferred_allocation_available(true);
    auto* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

  grpc::ServerWriteReactor<v1beta1::ListAndWatchResponse>* ListAndWatch(
      Context*, const v1beta1::Empty*) override {
    return watches_.add();
  }

  grpc::ServerUnaryReactor* GetPreferredAllocation(
      Context* context, const v1beta1::PreferredAllocationRequest* request,
      v1beta1::PreferredAllocationResponse* out) override {
    return onLoop(context, [this, request, out]() -> grpc::Status {
      for (const auto& one : request->container_requests()) {
        if (one.size() < 0) return {grpc::StatusCode::INVALID_ARGUMENT, "the size is negative"};
        const auto chosen =
            handler_.prefer(resource_, idsOf(one.available()), idsOf(one.must_include()),
                            static_cast<std::size_t>(one.size()));
        if (!chosen) return grpcStatusOf(chosen.error());
        auto* answer = out->add_container_responses();
        for (const std::string& id : *chosen) answer->add_device_ids(id);
      }
      return grpc::Status::OK;
    });
  }

  grpc::ServerUnaryReactor* Allocate(Context* context, const v1beta1::AllocateRequest* request,
                                     v1beta1::AllocateResponse* out) override {
    return onLoop(context, [this, request, out]() -> grpc::Status {
      for (const auto& one : request->container_requests()) {
        const auto setup = handler_.allocate(resource_, idsOf(one.device_ids()));
        if (!setup) return grpcStatusOf(setup.error());
        write(*setup, *out->add_container_responses());
      }
      return grpc::Status::OK;
    });
  }

  grpc::ServerUnaryReactor* PreStartContainer(Context* context,
                                              const v1beta1::PreStartContainerRequest* request,
                                              v1beta1::PreStartContainerResponse*) override {
    auto* reactor = context->DefaultReactor();
    loop_.post([this, reactor, request] {
      GrpcReply reply(reactor);
      if (refusing_) return;
      tasks_->add(handler_.preStart(resource_, idsOf(request->device_ids()))
                      .then([reply = kj::mv(reply)](Status status) mutable {
                        reply.finish(status ? grpc::Status::OK : grpcStatusOf(status.error()));
                      }));
    });
    return reactor;
  }

  Loop& loop_;
  PluginHandler& handler_;
  const Resource resource_;
  const std::string socket_;
  GrpcWatches<v1beta1::ListAndWatchResponse> watches_;
  bool refusing_ = false;
  std::optional<kj::TaskSet> tasks_{std::in_place, static_cast<kj::TaskSet::ErrorHandler&>(*this)};
  std::unique_ptr<grpc::Server> server_;  // last: its threads use everything above
};

}  // namespace

Result<std::unique_ptr<ResourceServer>> ResourceServer::open(Loop& loop, PluginHandler& handler,
                                                             Resource resource,
                                                             std::string socket) {
  auto server = std::make_unique<Server>(loop, handler, resource, std::move(socket));
  if (!server->listen()) {
    return fail(ErrorCode::Unavailable, "can't listen on " + server->socket() +
                                            ": is its folder there, and may we write to it?");
  }
  return std::unique_ptr<ResourceServer>(std::move(server));
}

}  // namespace qgpu
