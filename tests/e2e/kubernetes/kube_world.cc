#include "tests/e2e/kubernetes/kube_world.h"

#include <algorithm>
#include <fcntl.h>
#include <fstream>
#include <sys/mman.h>
#include <unistd.h>

#include "services/kubernetes/pods/assigned_annotation.h"
#include "services/kubernetes/pods/pod_rules.h"

namespace qgpu::e2e {
namespace {

using testing::ApiStandIn;

// What is over is over soon.
constexpr const char* kPluginConfig =
    R"((reconcile = "50ms", goneAfter = "200ms", settle = "100ms"))";
// Of a pod that restarts nothing, and in which no container shares the room of an init container.
bool hasEnded(const Json& object, const std::string& container) {
  for (const char* part : {"containerStatuses", "initContainerStatuses"}) {
    for (const Json& status : object["status"].value(part, Json::array())) {
      if (status["name"] == container && status["state"].contains("terminated")) return true;
    }
  }
  return false;
}

constexpr auto kPatience = std::chrono::seconds(30);

}  // namespace

// --- the tenant ---

PlainTenant::PlainTenant(const std::string& file) : file_(file) {
  const int fd = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  const bool sized = fd >= 0 && ::ftruncate(fd, sizeof(crash::TenantRecord)) == 0;
  void* map = sized ? ::mmap(nullptr, sizeof(crash::TenantRecord), PROT_READ | PROT_WRITE,
                             MAP_SHARED, fd, 0)
                    : MAP_FAILED;
  ::close(fd);
  if (map == MAP_FAILED) throw std::runtime_error(file + " can't be mapped");
  record_ = static_cast<crash::TenantRecord*>(map);
}

PlainTenant::~PlainTenant() {
  ::munmap(record_, sizeof(crash::TenantRecord));
}

std::vector<std::string> PlainTenant::command() const {
  return {binary("qgpu-crash-tenant"), file_, "200", "1000", "1048576"};
}

bool PlainTenant::launchesOn() {
  const std::uint64_t before = record_->launches.load();
  return eventually([&] { return record_->launches.load() > before; });
}

// --- the world ---

KubeWorld::KubeWorld() : kubelet(api, dir.path() + "/kubelet", kPrefix, kNode) {
  api.put("nodes", ApiStandIn::node(kNode));
}

KubeWorld::~KubeWorld() noexcept {
  if (!HasFailure()) return;
  for (const Json& object : api.all("pods")) fprintf(stderr, "pod %s\n", object.dump().c_str());
  for (const Json& event : api.all("events")) {
    fprintf(stderr, "event %s: %s\n", event["reason"].dump().c_str(),
            event["message"].dump().c_str());
  }
}

void KubeWorld::startAll(const std::string& cards, std::vector<std::string> more) {
  std::ofstream(dir.path() + "/plugin.conf") << kPluginConfig;
  const auto as = [this](const std::string& account) {
    return api.kubeconfig(dir.path() + "/" + account, account);
  };
  schedulerEnvironment["KUBECONFIG"] = as(kSchedulerAccount);
  std::vector<std::string> flags = {"--cards=" + cards, std::string("--nodename=") + kNode,
                                    "--kubelet-dir=" + dir.path() + "/kubelet",
                                    "--kubelet-config=" + dir.path() + "/plugin.conf"};
  flags.insert(flags.end(), more.begin(), more.end());
  kubelet.start();
  manager = std::make_unique<Manager>(flags, Environment{{"KUBECONFIG", as(kManagerAccount)}});
  scheduler = std::make_unique<Scheduler>(schedulerFlags, schedulerEnvironment);
  ASSERT_TRUE(eventually([&] { return served(); }, kPatience)) << manager->log();
  Json answer;
  ASSERT_TRUE(eventually(
      [&] {
        answer = scheduler->post("filter", {{"Pod", ApiStandIn::pod(kSpace, "probe", "probe")},
                                            {"Nodes", nullptr},
                                            {"NodeNames", {kNode}}});
        return answer.is_object() && answer["NodeNames"] == Json{kNode};
      },
      kPatience))
      << answer;
}

Json KubeWorld::container(const std::string& name, const Asks& asks,
                          const std::vector<std::string>& command) {
  const std::string prefix(kPrefix);
  Json limits = Json::object();
  if (asks.gib > 0) limits[prefix + "/qgpu-memory"] = std::to_string(asks.gib);
  const char* core = asks.taskClass == "offline" ? "/qgpu-core-greedy" : "/qgpu-core";
  if (asks.percent > 0) limits[prefix + core] = std::to_string(asks.percent);
  return {{"name", name}, {"command", command}, {"resources", {{"limits", limits}}}};
}

void KubeWorld::createPod(const std::string& name, const std::vector<Json>& containers,
                          const std::vector<Json>& inits, const std::string& taskClass,
                          const Json& annotations) {
  Json object = ApiStandIn::pod(kSpace, name, "uid-" + std::to_string(++uids_));
  object["spec"]["containers"] = containers;
  if (!inits.empty()) object["spec"]["initContainers"] = inits;
  object["spec"]["restartPolicy"] = "Never";
  if (!annotations.empty()) object["metadata"]["annotations"] = annotations;
  if (!taskClass.empty()) {
    object["metadata"]["annotations"][std::string(kPrefix) + "/app-class"] = taskClass;
  }
  api.put("pods", object);
}

void KubeWorld::create(const std::string& name, const Asks& asks,
                       const std::vector<std::string>& command) {
  createPod(name, {container("main", asks, command)}, {}, asks.taskClass);
}

void KubeWorld::erase(const std::string& name) {
  api.change("pods", kSpace, name, [](Json& object) {
    object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z";
  });
}

std::string KubeWorld::phase(const std::string& name) {
  const Json object = pod(name);
  return object.is_null() ? "" : object["status"].value("phase", "");
}

bool KubeWorld::reaches(const std::string& name, const std::string& wanted) {
  return eventually([&] { return phase(name) == wanted; }, kPatience);
}

bool KubeWorld::vanishes(const std::string& name) {
  return eventually([&] { return pod(name).is_null(); }, kPatience);
}

// --- kube-scheduler ---

SmallKubeScheduler::Tried KubeWorld::tryPod(const std::string& name) {
  const Json object = pod(name);
  const Json args{{"Pod", object}, {"Nodes", nullptr}, {"NodeNames", {kNode}}};
  const Json filtered = scheduler->post("filter", args);
  if (!filtered.is_object() || filtered["NodeNames"] != Json{kNode}) return {filtered, nullptr};
  const Json scores = scheduler->post("priorities", args);
  if (!scores.is_array()) return {scores, nullptr};
  const Json bind{{"PodName", name},
                  {"PodNamespace", kSpace},
                  {"PodUID", object["metadata"]["uid"]},
                  {"Node", kNode}};
  return {scores, [this, bind] { return scheduler->post("bind", bind); }};
}

Json KubeWorld::cycle(const std::string& name) {
  const SmallKubeScheduler::Tried tried = tryPod(name);
  return tried.bind ? tried.bind() : tried.answer;
}

::testing::AssertionResult KubeWorld::schedule(const std::string& name) {
  Json answer;
  const bool bound = eventually(
      [&] {
        if (pod(name)["spec"].contains("nodeName")) return true;
        answer = cycle(name);
        return answer == Json{{"Error", ""}};
      },
      kPatience);
  if (bound) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "the last cycle was answered: " << answer;
}

// --- what is so ---

pid_t KubeWorld::pluginPid() const {
  const std::string pid = std::to_string(manager->pid());
  std::ifstream children("/proc/" + pid + "/task/" + pid + "/children");
  pid_t first = 0;
  children >> first;
  return first;
}

bool KubeWorld::served() {
  for (const char* resource : {"qgpu-core", "qgpu-memory"}) {
    const auto devices = kubelet.devices().devices(resource);
    const auto healthy = [](const auto& device) { return device.second; };
    if (std::none_of(devices.begin(), devices.end(), healthy)) return false;
  }
  return true;
}

Json KubeWorld::viewOf(const std::vector<Json>& cards) const {
  Json view = Json::object();
  for (const Json& card : cards) {
    const std::uint64_t gib = card["mem_bound_bytes"].get<std::uint64_t>() >> 30;
    const std::int64_t share = card["share_bound_permille"].get<std::int64_t>() +
                               card["greedy_bound_permille"].get<std::int64_t>();
    if (gib != 0 || share != 0) view[card["id"].get<std::string>()] = {gib, share};
  }
  return view;
}

Json KubeWorld::viewOfPods() {
  std::map<std::string, std::pair<std::int64_t, std::int64_t>> sums;
  for (const Json& object : api.all("pods")) {
    const std::string is = object["status"].value("phase", "");
    if (!object["spec"].contains("nodeName") || is == "Succeeded" || is == "Failed") continue;
    const auto demands = readPod(object.dump(), PodRules());
    const auto assigned = readAssignedAnnotation(demands->assigned);
    for (const ContainerDemand& demand : demands->containers) {
      if (demand.sharesWith || hasEnded(object, demand.name)) continue;
      for (const std::string& card : assigned->at(demand.name)) {
        sums[card].first += demand.ask.mem / gibibytes(1);
        sums[card].second += demand.ask.share.value;
      }
    }
  }
  Json view = Json::object();
  for (const auto& [card, sum] : sums) view[card] = {sum.first, sum.second};
  return view;
}

::testing::AssertionResult KubeWorld::agrees() {
  Json pods, ours, nodes;
  const bool same = eventually(
      [&] {
        pods = viewOfPods();
        ours = viewOf(scheduler->cards());
        nodes = viewOf(manager->cards());
        return pods == ours && pods == nodes;
      },
      kPatience);
  if (same) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << "on the cards, as [GiB, permille]: by annotations " << pods << ", by the scheduler "
         << ours << ", by the manager " << nodes;
}

std::uint64_t KubeWorld::boundGib() {
  std::uint64_t bytes = 0;
  for (const Json& card : manager->cards()) bytes += card["mem_bound_bytes"].get<std::uint64_t>();
  return bytes >> 30;
}

}  // namespace qgpu::e2e
