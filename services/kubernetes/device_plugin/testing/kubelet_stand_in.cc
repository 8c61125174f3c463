#include "services/kubernetes/device_plugin/testing/kubelet_stand_in.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <grpcpp/grpcpp.h>
#include <mutex>
#include <set>
#include <thread>

#include "services/kubernetes/device_plugin/protos/device_plugin.grpc.pb.h"
#include "services/kubernetes/device_plugin/protos/pod_resources_v1.grpc.pb.h"
#include "services/kubernetes/device_plugin/protos/pod_resources_v1alpha1.grpc.pb.h"

namespace qgpu::testing {
namespace {

namespace fs = std::filesystem;
using Ids = std::vector<std::string>;

constexpr auto kPreStartLimit = std::chrono::seconds(30);  // kubelet's own

// One plugin that registered: its stream of lists, on a thread.
class Endpoint {
 public:
  explicit Endpoint(const std::string& socket) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    stub_ = v1beta1::DevicePlugin::NewStub(
        grpc::CreateCustomChannel("unix:" + socket, grpc::InsecureChannelCredentials(), arguments));
    watcher_ = std::thread([this] { watch(); });
  }
  ~Endpoint() {
    context_.TryCancel();
    watcher_.join();
  }

  v1beta1::DevicePlugin::Stub& stub() { return *stub_; }
  std::map<std::string, bool> devices() const {
    const std::lock_guard lock(mutex_);
    return devices_;
  }

 private:
  void watch() {
    const auto stream = stub_->ListAndWatch(&context_, v1beta1::Empty());
    v1beta1::ListAndWatchResponse list;
    while (stream->Read(&list)) {
      const std::lock_guard lock(mutex_);
      devices_.clear();
      for (const auto& device : list.devices()) {
        devices_[device.id()] = device.health() == "Healthy";
      }
    }
    stream->Finish();
    const std::lock_guard lock(mutex_);
    for (auto& [id, healthy] : devices_) healthy = false;  // as kubelet does
  }

  std::unique_ptr<v1beta1::DevicePlugin::Stub> stub_;
  grpc::ClientContext context_;
  mutable std::mutex mutex_;
  std::map<std::string, bool> devices_;
  std::thread watcher_;  // last
};

struct Given {
  KubeletStandIn::Kind kind = KubeletStandIn::Kind::Main;
  std::map<std::string, Ids> ids;  // by full resource name
};
using Allocations = std::map<ContainerName, Given>;

template <typename Response>
void write(const Allocations& all, bool inParts, Response& out) {
  for (const auto& [name, given] : all) {
    if (given.kind == KubeletStandIn::Kind::Init) continue;
    auto* pod = out.add_pod_resources();
    pod->set_name(name.pod);
    pod->set_namespace_(name.nameSpace);
    auto* container = pod->add_containers();
    container->set_name(name.container);
    for (const auto& [resource, ids] : given.ids) {
      auto* part = container->add_devices();
      part->set_resource_name(resource);
      for (std::size_t i = 0; i < ids.size(); ++i) {
        if (inParts && i == ids.size() / 2 && i > 0) {  // another NUMA node
          part = container->add_devices();
          part->set_resource_name(resource);
        }
        part->add_device_ids(ids[i]);
      }
    }
  }
}

std::string textOf(const grpc::Status& status) {
  return status.ok() ? "" : status.error_message().empty() ? "?" : status.error_message();
}

}  // namespace

struct KubeletStandIn::Parts final : v1beta1::Registration::Service {
  struct PodsV1 final : v1::PodResourcesLister::Service {
    Parts& parts;
    explicit PodsV1(Parts& p) : parts(p) {}
    grpc::Status List(grpc::ServerContext*, const v1::ListPodResourcesRequest*,
                      v1::ListPodResourcesResponse* out) override {
      write(parts.allocations(), true, *out);
      return grpc::Status::OK;
    }
    grpc::Status GetAllocatableResources(grpc::ServerContext*,
                                         const v1::AllocatableResourcesRequest*,
                                         v1::AllocatableResourcesResponse* out) override {
      parts.writeCounted(*out);
      return grpc::Status::OK;
    }
  };
  struct PodsV1Alpha1 final : v1alpha1::PodResourcesLister::Service {
    Parts& parts;
    explicit PodsV1Alpha1(Parts& p) : parts(p) {}
    grpc::Status List(grpc::ServerContext*, const v1alpha1::ListPodResourcesRequest*,
                      v1alpha1::ListPodResourcesResponse* out) override {
      write(parts.allocations(), false, *out);
      return grpc::Status::OK;
    }
  };

  Parts(std::string d, std::string p, PodApi a)
      : dir(std::move(d)), prefix(std::move(p)), api(a), podsV1(*this), podsV1Alpha1(*this) {}

  Allocations allocations() const {
    const std::lock_guard lock(mutex);
    return allocated;
  }
  grpc::Status Register(grpc::ServerContext*, const v1beta1::RegisterRequest* request,
                        v1beta1::Empty*) override {
    if (request->version() != "v1beta1") {
      return {grpc::StatusCode::INVALID_ARGUMENT, "version " + request->version()};
    }
    if (!request->options().pre_start_required()) {
      return {grpc::StatusCode::INVALID_ARGUMENT, "PreStartContainer is needed"};
    }
    auto endpoint = std::make_unique<Endpoint>(dir + "/device-plugins/" + request->endpoint());
    const std::lock_guard lock(mutex);
    ++registrations;
    endpoints[request->resource_name()].swap(endpoint);
    retired.push_back(std::move(endpoint));  // joins its thread: not under this lock
    return grpc::Status::OK;
  }
  Endpoint* endpoint(const std::string& resource) const {
    const std::lock_guard lock(mutex);
    const auto found = endpoints.find(prefix + "/" + resource);
    return found == endpoints.end() ? nullptr : found->second.get();
  }
  void writeCounted(v1::AllocatableResourcesResponse& out) const {
    const std::lock_guard lock(mutex);
    if (!counts) return;
    for (const auto& [name, endpoint] : endpoints) {
      auto* part = out.add_devices();
      part->set_resource_name(name);
      for (const auto& [id, healthy] : endpoint->devices()) {
        if (healthy) part->add_device_ids(id);
      }
    }
  }
  Ids freeOf(const std::string& resource, const std::map<std::string, bool>& devices) const {
    std::set<std::string> taken;
    for (const auto& [name, given] : allocations()) {
      const auto has = given.ids.find(prefix + "/" + resource);
      if (has != given.ids.end()) taken.insert(has->second.begin(), has->second.end());
    }
    Ids free;
    for (const auto& [id, healthy] : devices) {
      if (healthy && !taken.contains(id)) free.push_back(id);
    }
    return free;
  }

  const std::string dir;
  const std::string prefix;
  const PodApi api;
  PodsV1 podsV1;
  PodsV1Alpha1 podsV1Alpha1;
  mutable std::mutex mutex;
  std::size_t registrations = 0;
  bool counts = true;
  Allocations allocated;
  std::map<std::string, std::unique_ptr<Endpoint>> endpoints;
  std::vector<std::unique_ptr<Endpoint>> retired;
  std::unique_ptr<grpc::Server> plugins;
  std::unique_ptr<grpc::Server> pods;
};

KubeletStandIn::KubeletStandIn(std::string dir, std::string prefix, PodApi api)
    : parts_(std::make_unique<Parts>(std::move(dir), std::move(prefix), api)) {
  fs::create_directories(parts_->dir + "/device-plugins");
  fs::create_directories(parts_->dir + "/pod-resources");
}

KubeletStandIn::~KubeletStandIn() {
  stop();
}

void KubeletStandIn::start() {
  for (const auto& entry : fs::directory_iterator(parts_->dir + "/device-plugins")) {
    fs::remove_all(entry.path());
  }
  grpc::ServerBuilder pods;
  pods.AddListeningPort("unix:" + parts_->dir + "/pod-resources/kubelet.sock",
                        grpc::InsecureServerCredentials());
  if (parts_->api == PodApi::V1)
    pods.RegisterService(&parts_->podsV1);
  else
    pods.RegisterService(&parts_->podsV1Alpha1);
  parts_->pods = pods.BuildAndStart();
  grpc::ServerBuilder plugins;
  plugins.AddListeningPort("unix:" + parts_->dir + "/device-plugins/kubelet.sock",
                           grpc::InsecureServerCredentials());
  plugins.RegisterService(parts_.get());
  parts_->plugins = plugins.BuildAndStart();
}

void KubeletStandIn::stop() {
  for (auto* server : {&parts_->plugins, &parts_->pods}) {
    if (!*server) continue;
    (*server)->Shutdown(std::chrono::system_clock::now());
    server->reset();
  }
  std::map<std::string, std::unique_ptr<Endpoint>> ended;
  {
    const std::lock_guard lock(parts_->mutex);
    ended.swap(parts_->endpoints);
  }
  parts_->retired.clear();
}

void KubeletStandIn::setCounts(bool counts) {
  const std::lock_guard lock(parts_->mutex);
  parts_->counts = counts;
}

std::vector<std::string> KubeletStandIn::registered() const {
  const std::lock_guard lock(parts_->mutex);
  std::vector<std::string> names;
  for (const auto& [name, endpoint] : parts_->endpoints) {
    names.push_back(name.substr(parts_->prefix.size() + 1));
  }
  return names;
}

std::size_t KubeletStandIn::registrations() const {
  const std::lock_guard lock(parts_->mutex);
  return parts_->registrations;
}

std::map<std::string, bool> KubeletStandIn::devices(const std::string& resource) const {
  Endpoint* endpoint = parts_->endpoint(resource);
  return endpoint == nullptr ? std::map<std::string, bool>() : endpoint->devices();
}

std::vector<std::string> KubeletStandIn::prefer(const std::string& resource, const Ids& available,
                                                const Ids& mustInclude, int size) {
  Endpoint* endpoint = parts_->endpoint(resource);
  if (endpoint == nullptr) return {};
  v1beta1::PreferredAllocationRequest request;
  auto* one = request.add_container_requests();
  for (const std::string& id : available) one->add_available(id);
  for (const std::string& id : mustInclude) one->add_must_include(id);
  one->set_size(size);
  v1beta1::PreferredAllocationResponse response;
  grpc::ClientContext context;
  const auto status = endpoint->stub().GetPreferredAllocation(&context, request, &response);
  if (!status.ok() || response.container_responses_size() != 1) return {};
  const auto& ids = response.container_responses(0).device_ids();
  return {ids.begin(), ids.end()};
}

std::map<std::string, std::string> KubeletStandIn::Answer::environmentOnHost() const {
  std::map<std::string, std::string> environment;
  for (const auto& [resource, setup] : setups) {
    environment.insert(setup.environment.begin(), setup.environment.end());
  }
  for (auto& [name, value] : environment) {
    for (const auto& [resource, setup] : setups) {
      for (const auto& [inside, outside] : setup.mounts) {
        const std::size_t at = value.find(inside);
        if (at != std::string::npos) value.replace(at, inside.size(), outside);
      }
    }
  }
  return environment;
}

// The reusable ones first, whichever; the plugin says which others.
KubeletStandIn::Ids KubeletStandIn::choose(const std::string& resource, int count,
                                           const Ids& reusable, std::string& error) {
  const auto wanted = static_cast<std::size_t>(count);
  Ids ids(reusable.begin(),
          reusable.begin() + static_cast<std::ptrdiff_t>(std::min(wanted, reusable.size())));
  if (ids.size() == wanted) return ids;
  Endpoint* endpoint = parts_->endpoint(resource);
  if (endpoint == nullptr) {
    error = "nobody serves " + resource;
    return {};
  }
  {
    const std::lock_guard lock(parts_->mutex);
    if (!parts_->counts) {
      error = "no healthy devices present; cannot allocate unhealthy devices " + resource;
      return {};
    }
  }
  Ids available = parts_->freeOf(resource, endpoint->devices());
  available.insert(available.end(), ids.begin(), ids.end());
  if (available.size() < wanted) {
    error = "too few of " + resource;
    return {};
  }
  const Ids chosen = prefer(resource, available, ids, count);
  if (chosen.size() != wanted) error = "nothing is preferred";
  return chosen;
}

std::string KubeletStandIn::allocate(const std::string& resource, const Ids& ids, Setup& setup) {
  Endpoint* endpoint = parts_->endpoint(resource);
  if (endpoint == nullptr) return "nobody serves " + resource;
  v1beta1::AllocateRequest request;
  auto* one = request.add_container_requests();
  for (const std::string& id : ids) one->add_device_ids(id);
  v1beta1::AllocateResponse response;
  grpc::ClientContext context;
  const auto status = endpoint->stub().Allocate(&context, request, &response);
  if (!status.ok()) return textOf(status);
  const auto& given = response.container_responses(0);
  setup.environment = {given.envs().begin(), given.envs().end()};
  for (const auto& mount : given.mounts()) {
    setup.mounts[mount.container_path()] = mount.host_path();
  }
  for (const auto& device : given.devices()) {
    setup.devices[device.container_path()] = device.host_path();
  }
  for (const auto& device : given.cdi_devices()) setup.cdiDevices.push_back(device.name());
  return "";
}

std::map<std::string, KubeletStandIn::Answer> KubeletStandIn::admitPod(
    const std::string& nameSpace, const std::string& pod, const std::vector<Asking>& containers) {
  std::map<std::string, Answer> answers;
  std::map<std::string, Ids> reusable;  // by resource
  for (const Asking& asking : containers) {
    Answer& answer = answers[asking.container];
    for (const auto& [resource, count] : asking.counts) {
      Ids& again = reusable[resource];
      const Ids ids = choose(resource, count, again, answer.error);
      if (answer.ok()) answer.error = allocate(resource, ids, answer.setups[resource]);
      if (!answer.ok()) {
        forgetPod(nameSpace, pod);
        return answers;
      }
      std::erase_if(again, [&ids](const std::string& id) {
        return std::find(ids.begin(), ids.end(), id) != ids.end();
      });
      if (asking.kind == Kind::Init) again.insert(again.end(), ids.begin(), ids.end());
      const std::lock_guard lock(parts_->mutex);
      Given& given = parts_->allocated[{nameSpace, pod, asking.container}];
      given.kind = asking.kind;
      given.ids[parts_->prefix + "/" + resource] = ids;
    }
  }
  return answers;
}

KubeletStandIn::Answer KubeletStandIn::admit(const ContainerName& container, const Counts& counts) {
  return admitPod(container.nameSpace, container.pod, {{container.container, Kind::Main, counts}})
      .at(container.container);
}

std::string KubeletStandIn::preStart(const std::string& resource, const Ids& ids) {
  Endpoint* endpoint = parts_->endpoint(resource);
  if (endpoint == nullptr) return "nobody serves " + resource;
  v1beta1::PreStartContainerRequest request;
  for (const std::string& id : ids) request.add_device_ids(id);
  v1beta1::PreStartContainerResponse response;
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kPreStartLimit);
  return textOf(endpoint->stub().PreStartContainer(&context, request, &response));
}

KubeletStandIn::Answer KubeletStandIn::startContainer(const ContainerName& container) {
  const Allocations all = parts_->allocations();
  const auto found = all.find(container);
  if (found == all.end()) return {container.text() + " was not admitted", {}};
  for (const auto& [name, ids] : found->second.ids) {
    const std::string error = preStart(name.substr(parts_->prefix.size() + 1), ids);
    if (!error.empty()) return {error, {}};
  }
  return {};
}

void KubeletStandIn::forget(const ContainerName& container) {
  const std::lock_guard lock(parts_->mutex);
  parts_->allocated.erase(container);
}

void KubeletStandIn::forgetPod(const std::string& nameSpace, const std::string& pod) {
  const std::lock_guard lock(parts_->mutex);
  std::erase_if(parts_->allocated, [&](const auto& entry) {
    return entry.first.nameSpace == nameSpace && entry.first.pod == pod;
  });
}

std::vector<std::string> KubeletStandIn::idsOf(const ContainerName& container,
                                               const std::string& resource) const {
  const Allocations all = parts_->allocations();
  const auto found = all.find(container);
  if (found == all.end()) return {};
  const auto ids = found->second.ids.find(parts_->prefix + "/" + resource);
  return ids == found->second.ids.end() ? Ids() : ids->second;
}

}  // namespace qgpu::testing
