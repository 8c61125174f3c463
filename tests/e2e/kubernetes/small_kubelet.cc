#include "tests/e2e/kubernetes/small_kubelet.h"

#include <algorithm>
#include <signal.h>
#include <utility>

namespace qgpu::e2e {
namespace {

using testing::KubeletStandIn;
using Kind = KubeletStandIn::Kind;

constexpr auto kKubeletTurn = std::chrono::milliseconds(10);
constexpr auto kGrace = std::chrono::milliseconds(500);  // from SIGTERM to SIGKILL, if not said

bool isSidecar(const Json& container) {
  return container.value("restartPolicy", "") == "Always";
}

Json listOf(const Json& spec, const char* part) {
  return spec.value(part, Json::array());
}

}  // namespace

struct SmallKubelet::Pod {
  std::string nameSpace;
  std::string name;
  std::string uid;
  Json spec;
  std::map<std::string, KubeletStandIn::Answer> admitted;  // by container
  std::atomic<bool> ending{false};                         // it is deleted, or all is over
  std::atomic<std::int64_t> graceMs{kGrace.count()};
  std::atomic<bool> gone{false};
  std::mutex mutex;  // of the rest
  std::map<std::string, std::unique_ptr<Child>> processes;
  std::string trouble;
  std::thread worker;  // last
};

SmallKubelet::SmallKubelet(ServedApi& api, std::string dir, std::string prefix, std::string node)
    : api_(api),
      prefix_(std::move(prefix)),
      node_(std::move(node)),
      devices_(std::move(dir), prefix_, KubeletStandIn::PodApi::V1),
      thread_([this] { watch(); }) {}

SmallKubelet::~SmallKubelet() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  ended_.notify_all();
  thread_.join();
  for (auto& [uid, pod] : pods_) pod->ending = true;
  for (auto& [uid, pod] : pods_) pod->worker.join();
}

void SmallKubelet::start() {
  devices_.start();
  const std::lock_guard lock(mutex_);
  runs_ = true;
}

void SmallKubelet::stop() {
  {
    const std::lock_guard lock(mutex_);
    runs_ = false;
  }
  devices_.stop();
}

std::string SmallKubelet::trouble(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [uid, pod] : pods_) {
    const std::lock_guard inner(pod->mutex);
    if (pod->name == name && !pod->gone) return pod->trouble;
  }
  return "";
}

std::size_t SmallKubelet::processes(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  std::size_t count = 0;
  for (const auto& [uid, pod] : pods_) {
    if (pod->name != name) continue;
    const std::lock_guard inner(pod->mutex);
    for (const auto& [container, child] : pod->processes) count += child->alive() ? 1 : 0;
  }
  return count;
}

void SmallKubelet::pause() {
  std::unique_lock lock(mutex_);
  ended_.wait_for(lock, kKubeletTurn, [this] { return over_.load(); });
}

void SmallKubelet::tell(Step step, const Pod& pod) {
  if (hook_) hook_(step, pod.name);
}

// --- the sync loop ---

void SmallKubelet::watch() {
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      if (over_) return;
    }
    look();
    pause();
  }
}

// While the API server is away its pods are those that it saw last.
void SmallKubelet::look() {
  {
    const std::lock_guard lock(mutex_);
    if (!runs_) return;
  }
  std::vector<Json> all;
  bool up = false;
  api_.with([&](testing::ApiStandIn& api) {
    up = api.up();
    if (up) all = api.all("pods");
  });
  if (!up) return;
  std::map<std::string, const Json*> mine;
  for (const Json& object : all) {
    if (object["spec"].value("nodeName", "") == node_) mine[object["metadata"]["uid"]] = &object;
  }
  for (const auto& [uid, object] : mine) {
    const bool deleted = (*object)["metadata"].contains("deletionTimestamp");
    const auto known = pods_.find(uid);
    if (known != pods_.end()) {
      const Json grace = (*object)["spec"].value("terminationGracePeriodSeconds", Json());
      if (grace.is_number()) known->second->graceMs = grace.get<std::int64_t>() * 1000;
      if (deleted) known->second->ending = true;
    } else if (!isOver(*object)) {
      begin(*object);
    }
  }
  for (auto& [uid, pod] : pods_) {
    if (!mine.contains(uid)) pod->ending = true;
  }
}

std::vector<KubeletStandIn::Asking> SmallKubelet::askingOf(const Json& spec) const {
  std::vector<KubeletStandIn::Asking> asking;
  for (const char* part : {"initContainers", "containers"}) {
    const bool init = std::string(part) == "initContainers";
    for (const Json& container : listOf(spec, part)) {
      KubeletStandIn::Asking one;
      one.container = container["name"];
      one.kind = !init ? Kind::Main : isSidecar(container) ? Kind::Sidecar : Kind::Init;
      const Json limits =
          container.value("resources", Json::object()).value("limits", Json::object());
      for (const auto& [name, count] : limits.items()) {
        if (!name.starts_with(prefix_ + "/")) continue;
        one.counts[name.substr(prefix_.size() + 1)] = std::stoi(count.get<std::string>());
      }
      asking.push_back(std::move(one));
    }
  }
  return asking;
}

void SmallKubelet::begin(const Json& object) {
  auto pod = std::make_unique<Pod>();
  pod->nameSpace = object["metadata"]["namespace"];
  pod->name = object["metadata"]["name"];
  pod->uid = object["metadata"]["uid"];
  pod->spec = object["spec"];
  pod->admitted = devices_.admitPod(pod->nameSpace, pod->name, askingOf(pod->spec));
  for (const auto& [container, answer] : pod->admitted) {
    if (!answer.ok()) pod->trouble = "UnexpectedAdmissionError: " + answer.error;
  }
  Pod& started = *pod;
  {
    const std::lock_guard lock(mutex_);
    pods_[started.uid] = std::move(pod);
  }
  if (!started.trouble.empty()) {
    started.worker = std::thread([this, &started] { over(started, false); });
    return;
  }
  tell(Step::Allocated, started);
  started.worker = std::thread([this, &started] { live(started); });
}

// --- one pod's worker ---

// False: the pod is to end.
bool SmallKubelet::wait(Pod& pod, const std::function<bool()>& until) {
  while (!pod.ending) {
    {
      const std::lock_guard lock(pod.mutex);
      if (until()) return true;
    }
    pause();
  }
  return false;
}

void SmallKubelet::live(Pod& pod) {
  bool succeeded = runInits(pod);
  std::vector<std::string> mains;  // that have not ended
  if (succeeded) {
    for (const Json& container : pod.spec["containers"]) {
      succeeded = succeeded && startContainer(pod, container);
      mains.push_back(container["name"]);
    }
  }
  if (succeeded) setPhase(pod, "Running", "");
  while (succeeded && !mains.empty()) {
    std::string ended;
    succeeded = wait(pod, [&] {
      for (const std::string& name : mains) {
        if (!pod.processes.at(name)->alive()) ended = name;
      }
      return !ended.empty();
    });
    if (!succeeded) break;
    tellEnded(pod, "containerStatuses", ended);
    std::erase(mains, ended);
    const std::lock_guard lock(pod.mutex);
    succeeded = pod.processes.at(ended)->wait().value_or(-1) == 0;
  }
  endProcesses(pod);
  over(pod, succeeded);
}

bool SmallKubelet::runInits(Pod& pod) {
  for (const Json& container : listOf(pod.spec, "initContainers")) {
    if (!startContainer(pod, container)) return false;
    if (isSidecar(container)) continue;
    Child& child = *pod.processes.at(container["name"]);
    if (!wait(pod, [&] { return !child.alive(); })) return false;
    if (child.wait().value_or(-1) != 0) return false;
    tellEnded(pod, "initContainerStatuses", container["name"]);
  }
  return true;
}

// Tried again for as long as the pod is wanted.
bool SmallKubelet::startContainer(Pod& pod, const Json& container) {
  const std::string name = container["name"];
  const ContainerName full{pod.nameSpace, pod.name, name};
  bool told = false;
  for (bool started = false; !started; pause()) {
    if (pod.ending) return false;
    started = true;
    for (const auto& [resource, setup] : pod.admitted.at(name).setups) {
      const std::string error = devices_.preStart(resource, devices_.idsOf(full, resource));
      const std::lock_guard lock(pod.mutex);
      pod.trouble = error;
      started = error.empty();
      if (!started) break;
      if (!std::exchange(told, true)) tell(Step::Prestarted, pod);
    }
  }
  auto child = std::make_unique<Child>(container["command"].get<std::vector<std::string>>(),
                                       pod.admitted.at(name).environmentOnHost());
  const std::lock_guard lock(pod.mutex);
  pod.processes[name] = std::move(child);
  return true;
}

void SmallKubelet::endProcesses(Pod& pod) {
  const auto all = [&](const std::function<void(Child&)>& what) {
    const std::lock_guard lock(pod.mutex);
    for (auto& [name, child] : pod.processes) what(*child);
  };
  const std::int64_t since = monotonicNs();
  all([](Child& child) { child.signal(SIGTERM); });
  for (bool alive = true; alive; pause()) {
    const bool late = over_ || monotonicNs() - since > pod.graceMs * 1'000'000;
    alive = false;
    all([&](Child& child) {
      if (late) child.signal(SIGKILL);
      alive = alive || child.alive();
    });
  }
}

// Devices first: they are free when nobody waits for the API server.
void SmallKubelet::over(Pod& pod, bool succeeded) {
  devices_.forgetPod(pod.nameSpace, pod.name);
  tell(Step::Released, pod);
  setPhase(pod, succeeded ? "Succeeded" : "Failed", pod.trouble);
  for (bool left = true; left; pause()) {  // what is deleted goes, now that nothing of it is left
    api_.with([&](testing::ApiStandIn& api) {
      if (!api.up()) return;
      const Json object = api.find("pods", pod.nameSpace, pod.name);
      left = !object.is_null() && object["metadata"]["uid"] == pod.uid;
      if (!left || !object["metadata"].contains("deletionTimestamp")) return;
      api.remove("pods", pod.nameSpace, pod.name);
      left = false;
    });
    const std::lock_guard lock(mutex_);
    if (over_) break;
  }
  pod.gone = true;
}

// Waits while the API server is away; containers run on meanwhile.
void SmallKubelet::change(Pod& pod, const std::function<void(Json&)>& how) {
  for (bool told = false; !told; pause()) {
    api_.with([&](testing::ApiStandIn& api) {
      told = api.up();
      Json object = api.find("pods", pod.nameSpace, pod.name);
      if (!told || object.is_null() || object["metadata"]["uid"] != pod.uid) return;
      how(object);
      api.put("pods", object);
    });
    if (over_) return;
  }
}

void SmallKubelet::setPhase(Pod& pod, const std::string& phase, const std::string& why) {
  change(pod, [&](Json& object) {
    object["status"]["phase"] = phase;
    if (!why.empty()) object["status"]["message"] = why;
  });
}

void SmallKubelet::tellEnded(Pod& pod, const char* part, const std::string& container) {
  change(pod, [&](Json& object) {
    object["status"][part].push_back(
        {{"name", container}, {"state", {{"terminated", Json::object()}}}});
  });
}

}  // namespace qgpu::e2e
