#include "services/kubernetes/claim_plugin/claim_server.h"

#include <chrono>
#include <unistd.h>
#include <utility>

#include "services/kubernetes/claim_plugin/protos/dra_health.grpc.pb.h"
#include "services/kubernetes/claim_plugin/protos/dra_v1.grpc.pb.h"
#include "services/kubernetes/claim_plugin/protos/plugin_registration.grpc.pb.h"
#include "services/kubernetes/grpc/host.h"
#include "services/kubernetes/grpc/watches.h"

namespace qgpu {
namespace {

namespace dra = k8s::io::kubelet::pkg::apis::dra::v1;

constexpr const char* kPluginType = "DRAPlugin";
constexpr const char* kVersions[] = {"v1.DRAPlugin", "v1alpha1.DRAResourceHealth"};
constexpr int kClaimsMax = 256;  // of one call

ClaimName nameOf(const dra::Claim& claim) {
  return {claim.namespace_(), claim.name(), claim.uid()};
}

class Server final : public ClaimServer {
 public:
  Server(Loop& loop, ClaimPreparer& preparer, ClaimSockets sockets, std::string pool)
      : loop_(loop),
        preparer_(preparer),
        sockets_(std::move(sockets)),
        pool_(std::move(pool)),
        registration_(*this),
        driver_(*this),
        watches_(loop),
        health_(*this),
        host_(loop) {}
  ~Server() noexcept override = default;

  bool listen() {
    ::unlink(sockets_.registration.c_str());
    ::unlink(sockets_.driver.c_str());
    return host_.serve({sockets_.driver, sockets_.registration},
                       {&driver_, &registration_, &health_});
  }

 private:
  using Context = grpc::CallbackServerContext;

  struct Registration final : pluginregistration::Registration::CallbackService {
    explicit Registration(Server& s) : server(s) {}
    grpc::ServerUnaryReactor* GetInfo(Context* context, const pluginregistration::InfoRequest*,
                                      pluginregistration::PluginInfo* out) override {
      out->set_type(kPluginType);
      out->set_name(kClaimDriver);
      out->set_endpoint(server.sockets_.driver);
      for (const char* version : kVersions) out->add_supported_versions(version);
      return GrpcHost::answerNow(context);
    }
    grpc::ServerUnaryReactor* NotifyRegistrationStatus(
        Context* context, const pluginregistration::RegistrationStatus* status,
        pluginregistration::RegistrationStatusResponse*) override {
      server.loop_.post([this, known = status->plugin_registered(), why = status->error()] {
        if (!server.host_.refusing()) server.preparer_.onRegistered(known, why);
      });
      return GrpcHost::answerNow(context);
    }
    Server& server;
  };

  struct Driver final : dra::DRAPlugin::CallbackService {
    explicit Driver(Server& s) : server(s) {}
    grpc::ServerUnaryReactor* NodePrepareResources(
        Context* context, const dra::NodePrepareResourcesRequest* request,
        dra::NodePrepareResourcesResponse* out) override {
      return server.onLoop(context, *request, [this, out](ClaimName claim) {
        return server.preparer_.prepare(claim).then(
            [this, out, uid = claim.uid](Result<ClaimPreparer::Devices> devices) {
              server.write(devices, (*out->mutable_claims())[uid]);
            });
      });
    }
    grpc::ServerUnaryReactor* NodeUnprepareResources(
        Context* context, const dra::NodeUnprepareResourcesRequest* request,
        dra::NodeUnprepareResourcesResponse* out) override {
      return server.onLoop(context, *request, [this, out](ClaimName claim) {
        return server.preparer_.unprepare(claim).then([out, uid = claim.uid](Status done) {
          auto& answer = (*out->mutable_claims())[uid];
          if (!done) answer.set_error(done.error().message);
        });
      });
    }
    Server& server;
  };

  struct Health final : v1alpha1::DRAResourceHealth::CallbackService {
    explicit Health(Server& s) : server(s) {}
    grpc::ServerWriteReactor<v1alpha1::NodeWatchResourcesResponse>* NodeWatchResources(
        Context*, const v1alpha1::NodeWatchResourcesRequest*) override {
      return server.watches_.add();
    }
    Server& server;
  };

  void publish(const std::vector<DeviceHealth>& devices) override {
    const auto now = std::chrono::duration_cast<std::chrono::seconds>(
        std::chrono::system_clock::now().time_since_epoch());
    v1alpha1::NodeWatchResourcesResponse list;
    for (const DeviceHealth& one : devices) {
      auto* written = list.add_devices();
      written->mutable_device()->set_pool_name(pool_);
      written->mutable_device()->set_device_name(one.device);
      written->set_health(one.healthy ? v1alpha1::HEALTHY : v1alpha1::UNHEALTHY);
      written->set_last_updated_time(now.count());
      written->set_health_check_timeout_seconds(kHealthTold / seconds(1));
    }
    watches_.publish(std::move(list));
  }

  // `each` of the claims, one after the other; the answer lives until then.
  template <typename Request, typename Each>
  grpc::ServerUnaryReactor* onLoop(Context* context, const Request& request, Each each) {
    if (request.claims_size() > kClaimsMax) {
      return GrpcHost::answerNow(
          context, {grpc::StatusCode::INVALID_ARGUMENT, "too many claims in one call"});
    }
    return host_.answer(context, [&request, each] {
      kj::Promise<void> all = kj::READY_NOW;
      for (const dra::Claim& claim : request.claims()) {
        all = all.then([each, name = nameOf(claim)] { return each(name); });
      }
      return all.then([] { return grpc::Status(); });
    });
  }

  void write(const Result<ClaimPreparer::Devices>& devices,
             dra::NodePrepareResourceResponse& out) const {
    if (!devices) return out.set_error(devices.error().message);
    for (const PreparedDevice& device : *devices) {
      auto* written = out.add_devices();
      written->add_request_names(device.request);
      written->set_pool_name(pool_);
      written->set_device_name(device.device.device);
      for (const std::string& id : device.cdiDevices) written->add_cdi_device_ids(id);
      if (!device.device.share.empty()) written->set_share_id(device.device.share);
    }
  }

  void refuseAll() override {
    host_.refuseAll();
    watches_.refuseAll();
  }
  void shutDown() override { host_.shutDown(); }

  Loop& loop_;
  ClaimPreparer& preparer_;
  const ClaimSockets sockets_;
  const std::string pool_;
  Registration registration_;
  Driver driver_;
  GrpcWatches<v1alpha1::NodeWatchResourcesResponse> watches_;
  Health health_;
  GrpcHost host_;  // last
};

}  // namespace

Result<std::unique_ptr<ClaimServer>> ClaimServer::open(Loop& loop, ClaimPreparer& preparer,
                                                       ClaimSockets sockets, std::string pool) {
  const std::string places = sockets.driver + " and " + sockets.registration;
  auto server = std::make_unique<Server>(loop, preparer, std::move(sockets), std::move(pool));
  if (!server->listen()) {
    return fail(ErrorCode::Unavailable, "can't listen on " + places +
                                            ": are their folders there, and may we write to them?");
  }
  return std::unique_ptr<ClaimServer>(std::move(server));
}

}  // namespace qgpu
