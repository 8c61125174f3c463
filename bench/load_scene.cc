#include "bench/load_scene.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/loop.h"
#include "services/base/json.h"
#include "services/ctl/run.h"

namespace qgpu::bench {
namespace {

constexpr Nanos kHoldSeenAfter = millis(3);  // after a burst began every gate was stored
constexpr std::size_t kRecordsBytes = sizeof(TenantRecord) * Scene::kTenantsMax;

}  // namespace

Result<std::unique_ptr<Scene>> Scene::open(ctl::Client& client, const SceneOptions& options) {
  std::unique_ptr<Scene> scene(new Scene(client));
  if (Status bound = scene->bindAll(options); !bound) return bound.error();
  if (Status started = scene->startAll(); !started) return started.error();
  return scene;
}

Scene::~Scene() {
  for (const Tenant& tenant : tenants_) {
    if (tenant.pid > 0) ::kill(tenant.pid, SIGKILL);
  }
  for (const Tenant& tenant : tenants_) {
    if (tenant.pid > 0) ::waitpid(tenant.pid, nullptr, 0);
  }
  for (const Tenant& tenant : tenants_) (void)client_.askLine("end " + std::to_string(tenant.task));
  if (records_ != nullptr) ::munmap(records_, kRecordsBytes);
}

Result<Scene::Tenant> Scene::bindTenant(std::uint32_t card, const char* taskClass,
                                        const SceneOptions& options) {
  const bool online = std::string_view(taskClass) == "online";
  JsonWriter spec;
  spec.beginObject().field("name", std::string(taskClass) + "-" + std::to_string(card));
  spec.field("class", taskClass).count("memory_gib", 1);
  if (!online) {
    spec.count("core_percent",
               static_cast<std::uint64_t>(std::max<std::int64_t>(90 / options.perCard, 1)));
  }
  spec.field("card", "sim-" + std::to_string(card)).endObject();
  const Result<ctl::Answer> answer = client_.askLine("run " + spec.take());
  if (!answer) return answer.error();
  Result<ctl::BoundTask> bound = ctl::parseBound(*answer);
  if (!bound) return bound.error();
  Tenant tenant;
  tenant.task = bound->id;
  tenant.card = card;
  tenant.taskClass = taskClass;
  for (const auto& [name, value] : bound->environment) {
    if (name == "QGPU_SOCKET") tenant.plan.socket = value;
    if (name == "QGPU_TOKEN") tenant.plan.token = value;
  }
  tenant.plan.kernel = micros(online ? 200 : options.kernelUs);
  tenant.plan.gap = micros(options.gapUs);
  if (online) {
    tenant.plan.burst = 20;
    tenant.plan.pause = millis(250);
  }
  return tenant;
}

Status Scene::bindAll(const SceneOptions& options) {
  for (std::uint32_t card = 0; card < options.cards; card++) {
    const bool hybrid = card >= options.cards / 2;
    for (std::int64_t i = 0; i < options.perCard; i++) {
      const char* taskClass = !hybrid ? "ordinary" : i == 0 ? "online" : "offline";
      Result<Tenant> tenant = bindTenant(card, taskClass, options);
      if (!tenant) return tenant.error();
      tenants_.push_back(std::move(*tenant));
    }
  }
  return ok();
}

Status Scene::startAll() {
  void* map =
      ::mmap(nullptr, kRecordsBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (map == MAP_FAILED) return fail(ErrorCode::Unavailable, std::strerror(errno));
  records_ = static_cast<TenantRecord*>(map);
  for (std::size_t i = 0; i < tenants_.size(); i++) {
    Tenant& tenant = tenants_[i];
    tenant.record = new (&records_[i]) TenantRecord();
    tenant.pid = ::fork();
    if (tenant.pid != 0) continue;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::_exit(runTenant(tenant.plan, *tenant.record));
  }
  for (Tenant& tenant : tenants_) {
    while (tenant.record->attached.load() == 0 && ::waitpid(tenant.pid, nullptr, WNOHANG) == 0) {
      ::usleep(1'000);
    }
    if (tenant.taskClass != "offline") continue;
    Result<GuestClient> view = GuestClient::attach(tenant.plan.socket, tenant.plan.token);
    if (view) tenant.view = std::make_unique<GuestClient>(std::move(*view));
  }
  return ok();
}

void Scene::lookForPreemptions(std::vector<Nanos>& preemptions) {
  const Nanos now = monotonicNow();
  for (Tenant& online : tenants_) {
    if (online.taskClass != "online") continue;
    const std::uint64_t bursts = online.record->bursts.load();
    const Nanos at(online.record->burstAt.load());
    if (bursts == online.burstsSeen || now - at < kHoldSeenAfter) continue;
    online.burstsSeen = bursts;
    Nanos last{-1};
    for (const Tenant& other : tenants_) {
      if (other.card != online.card || !other.view) continue;
      const Nanos stored(static_cast<std::int64_t>(other.view->gatePage().gate_stored_ns));
      const bool shut = (other.view->gateWord() & QGPU_GATE_OPEN) == 0;
      if (shut && stored >= at) last = std::max(last, stored - at);
    }
    if (last >= Nanos(0)) preemptions.push_back(last);
  }
}

std::uint64_t Scene::launches() const {
  std::uint64_t sum = 0;
  for (const Tenant& tenant : tenants_) sum += tenant.record->launches.load();
  return sum;
}

std::size_t Scene::alive() {
  std::size_t count = 0;
  for (Tenant& tenant : tenants_) {
    if (tenant.pid > 0 && ::waitpid(tenant.pid, nullptr, WNOHANG) != 0) tenant.pid = -1;
    if (tenant.pid > 0) count++;
  }
  return count;
}

std::uint64_t turnsOf(ctl::Client& client) {
  const Result<ctl::Answer> answer = client.askLine("tasks");
  if (!answer) return 0;
  std::uint64_t turns = 0;
  for (const ctl::Value task : ctl::listOf(answer->root(), "tasks")) {
    turns += ctl::numberOf(task, "turns");
  }
  return turns;
}

}  // namespace qgpu::bench
