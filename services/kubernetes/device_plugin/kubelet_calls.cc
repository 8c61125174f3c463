#include "services/kubernetes/device_plugin/kubelet_calls.h"

#include <algorithm>
#include <chrono>
#include <grpcpp/grpcpp.h>
#include <map>
#include <memory>
#include <type_traits>
#include <utility>

#include "services/kubernetes/device_plugin/protos/device_plugin.grpc.pb.h"
#include "services/kubernetes/device_plugin/protos/pod_resources_v1.grpc.pb.h"
#include "services/kubernetes/device_plugin/protos/pod_resources_v1alpha1.grpc.pb.h"

namespace qgpu {
namespace {

constexpr auto kDeadline = std::chrono::seconds(10);

// A channel of its own, which remembers no failure of an earlier kubelet.
std::shared_ptr<grpc::Channel> channelTo(const std::string& socket) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetMaxReceiveMessageSize(static_cast<int>(kPodResourcesBytesMax));
  return grpc::CreateCustomChannel("unix:" + socket, grpc::InsecureChannelCredentials(), arguments);
}

struct V1 {
  using Lister = v1::PodResourcesLister;
  using Request = v1::ListPodResourcesRequest;
  using Reply = v1::ListPodResourcesResponse;
};
struct V1Alpha1 {
  using Lister = v1alpha1::PodResourcesLister;
  using Request = v1alpha1::ListPodResourcesRequest;
  using Reply = v1alpha1::ListPodResourcesResponse;
};

// Of a list of kubelet's ContainerDevices.
template <typename Parts>
std::map<Resource, std::vector<std::string>> oursOf(const Parts& parts, const std::string& prefix) {
  std::map<Resource, std::vector<std::string>> all;
  for (const auto& part : parts) {
    const std::string& name = part.resource_name();
    if (!name.starts_with(prefix + "/")) continue;
    const auto resource = resourceFromName(std::string_view(name).substr(prefix.size() + 1));
    if (!resource) continue;
    auto& ids = all[*resource];
    ids.insert(ids.end(), part.device_ids().begin(), part.device_ids().end());
  }
  for (auto& [resource, ids] : all) ids = sortedIds(std::move(ids));
  return all;
}

template <typename Reply>
std::vector<ContainerDevices> ours(const Reply& reply, const std::string& prefix) {
  std::vector<ContainerDevices> found;
  for (const auto& pod : reply.pod_resources()) {
    for (const auto& container : pod.containers()) {
      ContainerDevices devices{{pod.namespace_(), pod.name(), container.name()},
                               oursOf(container.devices(), prefix)};
      if (!devices.ids.empty()) found.push_back(std::move(devices));
    }
  }
  return found;
}

// UNIMPLEMENTED is what a kubelet without this version says.
Error errorOf(const grpc::Status& status) {
  const bool unknown = status.error_code() == grpc::StatusCode::UNIMPLEMENTED;
  return fail(unknown ? ErrorCode::Unsupported : ErrorCode::Unavailable,
              "kubelet: " + status.error_message());
}

}  // namespace

struct KubeletCall {
  virtual ~KubeletCall() noexcept(false) = default;
  grpc::ClientContext context;
};

namespace {

template <typename Service, typename Request, typename Reply>
struct Call final : KubeletCall {
  using Done = kj::Function<void(const grpc::Status&, const Reply&)>;
  // `async` is a class and a function there, and clang takes the name for the latter.
  using Async = std::remove_pointer_t<decltype(std::declval<typename Service::Stub&>().async())>;
  using Method = void (Async::*)(grpc::ClientContext*, const Request*, Reply*,
                                 std::function<void(grpc::Status)>);
  std::unique_ptr<typename Service::Stub> stub;
  Request request;
  Reply reply;
  Done done;

  // `done` runs on the loop, where the call ends as well: until then gRPC has it.
  static void start(Loop& loop, std::vector<KubeletCall*>& calls, const std::string& socket,
                    Method method, Request request, Done done) {
    auto* call = std::make_unique<Call>().release();
    calls.push_back(call);
    call->stub = Service::NewStub(channelTo(socket));
    call->request = std::move(request);
    call->done = kj::mv(done);
    call->context.set_deadline(std::chrono::system_clock::now() + kDeadline);
    (call->stub->async()->*method)(&call->context, &call->request, &call->reply,
                                   [call, &loop, &calls](grpc::Status status) {
                                     loop.post([call, &calls, status = std::move(status)] {
                                       const std::unique_ptr<Call> owned(call);
                                       std::erase(calls, call);
                                       owned->done(status, owned->reply);
                                     });
                                   });
  }
};

}  // namespace

KubeletCalls::~KubeletCalls() {
  QGPU_CHECK(calls_.empty(), "whoever ends the loop waits for the calls to end");
}

void KubeletCalls::cancel() {
  for (KubeletCall* call : calls_) call->context.TryCancel();
}

kj::Promise<Status> KubeletCalls::announce(const std::string& kubeletSocket,
                                           const std::string& endpoint,
                                           const std::string& resourceName) {
  using Register = Call<v1beta1::Registration, v1beta1::RegisterRequest, v1beta1::Empty>;
  v1beta1::RegisterRequest request;
  request.set_version("v1beta1");
  request.set_endpoint(endpoint);
  request.set_resource_name(resourceName);
  request.mutable_options()->set_pre_start_required(true);
  request.mutable_options()->set_get_preferred_allocation_available(true);
  auto paf = kj::newPromiseAndFulfiller<Status>();
  Register::start(loop_, calls_, kubeletSocket, &v1beta1::Registration::Stub::async::Register,
                  std::move(request),
                  [done = kj::mv(paf.fulfiller)](const grpc::Status& status, const auto&) mutable {
                    done->fulfill(status.ok() ? qgpu::ok() : Status(errorOf(status)));
                  });
  return kj::mv(paf.promise);
}

template <typename Api>
kj::Promise<KubeletCalls::Listed> KubeletCalls::list(const std::string& socket,
                                                     const std::string& prefix) {
  using List = Call<typename Api::Lister, typename Api::Request, typename Api::Reply>;
  auto paf = kj::newPromiseAndFulfiller<Listed>();
  List::start(loop_, calls_, socket, &Api::Lister::Stub::async::List, typename Api::Request(),
              [prefix, done = kj::mv(paf.fulfiller)](const grpc::Status& status,
                                                     const auto& reply) mutable {
                if (status.ok())
                  done->fulfill(ours(reply, prefix));
                else
                  done->fulfill(errorOf(status));
              });
  return kj::mv(paf.promise);
}

// Where the gate is shut, its server says so without a code.
kj::Promise<Result<CountedDevices>> KubeletCalls::countedDevices(const std::string& socket,
                                                                 const std::string& prefix) {
  using Count = Call<v1::PodResourcesLister, v1::AllocatableResourcesRequest,
                     v1::AllocatableResourcesResponse>;
  auto paf = kj::newPromiseAndFulfiller<Result<CountedDevices>>();
  Count::start(loop_, calls_, socket, &v1::PodResourcesLister::Stub::async::GetAllocatableResources,
               {},
               [prefix, done = kj::mv(paf.fulfiller)](const grpc::Status& status,
                                                      const auto& reply) mutable {
                 if (status.ok()) return done->fulfill(oursOf(reply.devices(), prefix));
                 const bool shut = status.error_code() == grpc::StatusCode::UNKNOWN;
                 done->fulfill(shut ? fail(ErrorCode::Unsupported, status.error_message())
                                    : errorOf(status));
               });
  return kj::mv(paf.promise);
}

kj::Promise<KubeletCalls::Listed> KubeletCalls::podDevices(const std::string& socket,
                                                           const std::string& prefix) {
  return list<V1>(socket, prefix)
      .then([this, socket, prefix](Listed listed) -> kj::Promise<Listed> {
        if (listed || listed.error().code != ErrorCode::Unsupported) return kj::mv(listed);
        return list<V1Alpha1>(socket, prefix);
      });
}

}  // namespace qgpu
