#include "services/kubernetes/device_plugin/resource_server.h"

#include <utility>

#include "services/kubernetes/device_plugin/protos/device_plugin.grpc.pb.h"
#include "services/kubernetes/grpc/host.h"
#include "services/kubernetes/grpc/watches.h"

namespace qgpu {
namespace {

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

class Server final : public ResourceServer, private v1beta1::DevicePlugin::CallbackService {
 public:
  Server(Loop& loop, PluginHandler& handler, Resource resource, std::string socket)
      : handler_(handler),
        resource_(resource),
        socket_(std::move(socket)),
        watches_(loop),
        host_(loop) {}
  ~Server() noexcept override = default;

  bool listen() { return host_.serve({socket_}, {this}); }

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
    host_.refuseAll();
    watches_.refuseAll();
  }
  void shutDown() override { host_.shutDown(); }

  grpc::ServerUnaryReactor* GetDevicePluginOptions(Context* context, const v1beta1::Empty*,
                                                   v1beta1::DevicePluginOptions* out) override {
    out->set_pre_start_required(true);
    out->set_get_preferred_allocation_available(true);
    return GrpcHost::answerNow(context);
  }

  grpc::ServerWriteReactor<v1beta1::ListAndWatchResponse>* ListAndWatch(
      Context*, const v1beta1::Empty*) override {
    return watches_.add();
  }

  grpc::ServerUnaryReactor* GetPreferredAllocation(
      Context* context, const v1beta1::PreferredAllocationRequest* request,
      v1beta1::PreferredAllocationResponse* out) override {
    return host_.answer(context, [this, request, out]() -> kj::Promise<grpc::Status> {
      for (const auto& one : request->container_requests()) {
        if (one.size() < 0) {
          return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "the size is negative");
        }
        const auto chosen =
            handler_.prefer(resource_, idsOf(one.available()), idsOf(one.must_include()),
                            static_cast<std::size_t>(one.size()));
        if (!chosen) return grpcStatusOf(chosen.error());
        auto* answer = out->add_container_responses();
        for (const std::string& id : *chosen) answer->add_device_ids(id);
      }
      return grpc::Status(grpc::Status::OK);
    });
  }

  grpc::ServerUnaryReactor* Allocate(Context* context, const v1beta1::AllocateRequest* request,
                                     v1beta1::AllocateResponse* out) override {
    return host_.answer(context, [this, request, out]() -> kj::Promise<grpc::Status> {
      for (const auto& one : request->container_requests()) {
        const auto setup = handler_.allocate(resource_, idsOf(one.device_ids()));
        if (!setup) return grpcStatusOf(setup.error());
        write(*setup, *out->add_container_responses());
      }
      return grpc::Status(grpc::Status::OK);
    });
  }

  grpc::ServerUnaryReactor* PreStartContainer(Context* context,
                                              const v1beta1::PreStartContainerRequest* request,
                                              v1beta1::PreStartContainerResponse*) override {
    return host_.answer(context, [this, request] {
      return handler_.preStart(resource_, idsOf(request->device_ids())).then([](Status status) {
        return status ? grpc::Status() : grpcStatusOf(status.error());
      });
    });
  }

  PluginHandler& handler_;
  const Resource resource_;
  const std::string socket_;
  GrpcWatches<v1beta1::ListAndWatchResponse> watches_;
  GrpcHost host_;  // last
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
