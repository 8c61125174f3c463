#include "services/kubernetes/claim_plugin/testing/claims_kubelet.h"

#include <chrono>
#include <filesystem>
#include <grpcpp/grpcpp.h>

#include "services/kubernetes/claim_plugin/protos/dra_health.grpc.pb.h"
#include "services/kubernetes/claim_plugin/protos/dra_v1.grpc.pb.h"
#include "services/kubernetes/claim_plugin/protos/plugin_registration.grpc.pb.h"

namespace qgpu::testing {
namespace {

namespace dra = k8s::io::kubelet::pkg::apis::dra::v1;

constexpr auto kDeadline = std::chrono::seconds(20);

// Each call by a channel of its own: a driver may be another one by then.
template <typename Service>
std::unique_ptr<typename Service::Stub> stubOf(const std::string& socket) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return Service::NewStub(
      grpc::CreateCustomChannel("unix:" + socket, grpc::InsecureChannelCredentials(), arguments));
}

void limit(grpc::ClientContext& context) {
  context.set_deadline(std::chrono::system_clock::now() + kDeadline);
}

void name(dra::Claim& claim, const std::string& nameSpace, const std::string& claimName,
          const std::string& uid) {
  claim.set_namespace_(nameSpace);
  claim.set_name(claimName);
  claim.set_uid(uid);
}

}  // namespace

ClaimsKubelet::ClaimsKubelet(std::string dir) : dir_(std::move(dir)) {
  std::filesystem::create_directories(dir_ + "/plugins_registry");
}

ClaimsKubelet::~ClaimsKubelet() = default;

bool ClaimsKubelet::find(const std::string& name, Info& info) {
  const std::string socket = dir_ + "/plugins_registry/" + name + "-reg.sock";
  if (!std::filesystem::exists(socket)) return false;
  const auto stub = stubOf<pluginregistration::Registration>(socket);
  pluginregistration::PluginInfo answer;
  grpc::ClientContext asking;
  limit(asking);
  if (!stub->GetInfo(&asking, {}, &answer).ok()) return false;
  info = {answer.type(),
          answer.name(),
          answer.endpoint(),
          {answer.supported_versions().begin(), answer.supported_versions().end()}};
  endpoint_ = info.endpoint;
  pluginregistration::RegistrationStatus status;
  status.set_plugin_registered(true);
  pluginregistration::RegistrationStatusResponse heard;
  grpc::ClientContext telling;
  limit(telling);
  return stub->NotifyRegistrationStatus(&telling, status, &heard).ok();
}

std::map<std::string, bool> ClaimsKubelet::health() {
  const auto stub = stubOf<v1alpha1::DRAResourceHealth>(endpoint_);
  grpc::ClientContext context;
  limit(context);
  const auto reader = stub->NodeWatchResources(&context, {});
  v1alpha1::NodeWatchResourcesResponse list;
  std::map<std::string, bool> health;
  if (reader->Read(&list)) {
    for (const auto& one : list.devices()) {
      health[one.device().device_name()] = one.health() == v1alpha1::HEALTHY;
    }
  }
  context.TryCancel();
  reader->Finish();
  return health;
}

ClaimsKubelet::Prepared ClaimsKubelet::prepare(const std::string& nameSpace,
                                               const std::string& claimName,
                                               const std::string& uid) {
  dra::NodePrepareResourcesRequest request;
  name(*request.add_claims(), nameSpace, claimName, uid);
  dra::NodePrepareResourcesResponse answer;
  grpc::ClientContext context;
  limit(context);
  const grpc::Status status =
      stubOf<dra::DRAPlugin>(endpoint_)->NodePrepareResources(&context, request, &answer);
  if (!status.ok()) return {status.error_message(), {}, {}};
  if (!answer.claims().contains(uid)) return {"the answer has no such claim", {}, {}};
  const auto& claim = answer.claims().at(uid);
  Prepared prepared{claim.error(), {}, {}};
  for (const auto& device : claim.devices()) {
    prepared.devices.push_back({device.request_names_size() > 0 ? device.request_names(0) : "",
                                device.pool_name(), device.device_name(), device.share_id()});
    for (const std::string& id : device.cdi_device_ids()) prepared.cdiDevices.push_back(id);
  }
  return prepared;
}

std::string ClaimsKubelet::unprepare(const std::string& nameSpace, const std::string& claimName,
                                     const std::string& uid) {
  dra::NodeUnprepareResourcesRequest request;
  name(*request.add_claims(), nameSpace, claimName, uid);
  dra::NodeUnprepareResourcesResponse answer;
  grpc::ClientContext context;
  limit(context);
  const grpc::Status status =
      stubOf<dra::DRAPlugin>(endpoint_)->NodeUnprepareResources(&context, request, &answer);
  if (!status.ok()) return status.error_message();
  if (!answer.claims().contains(uid)) return "the answer has no such claim";
  return answer.claims().at(uid).error();
}

}  // namespace qgpu::testing
