// Claims: a manager with 8 simulated cards idles under 1 % of a core and 30 MB; under load it
// gives thousands of tenants' launches their slices cheaply, and an online submit shuts the other
// gates of its card in about 100 us. Prints one JSON line.
//
// Half of the cards hold ordinary tasks, the other half one online task that comes in bursts and
// offline tasks that always want more. Also a tool: --seconds=0 runs until a signal, --socket=PATH
// uses a manager that is there already (its --manager-pid gives the cost figures).

#include <signal.h>
#include <simdjson.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "bench/load_manager.h"
#include "bench/load_tenant.h"
#include "runtime/loop.h"
#include "services/attach/testing/guest_client.h"
#include "services/ctl/client.h"
#include "services/ctl/run.h"

namespace qgpu::bench {
namespace {

constexpr std::uint32_t kTenantsMax = 1'024;
constexpr Nanos kHoldSeenAfter = millis(3);   // after a burst began every gate was stored

struct LoadOptions {
  std::int64_t runSeconds = 5;
  std::int64_t kernelUs = 500;
  std::int64_t gapUs = 0;
  std::int64_t cards = 8;
  std::int64_t perCard = 3;
  std::string socket;
  std::string manager;
  std::int64_t managerPid = 0;
};

struct Tenant {
  std::uint64_t task = 0;
  std::uint32_t card = 0;
  std::string taskClass;
  TenantPlan plan;
  TenantRecord* record = nullptr;
  pid_t pid = -1;
  std::unique_ptr<GuestClient> view;   // of an offline task's gate page
  std::uint64_t burstsSeen = 0;
};

volatile sig_atomic_t stopAsked = 0;

bool readOption(const char* argument, const char* name, std::int64_t& value) {
  const std::size_t n = std::strlen(name);
  if (std::strncmp(argument, name, n) != 0) return false;
  value = std::strtoll(argument + n, nullptr, 10);
  return true;
}

bool readOption(const char* argument, const char* name, std::string& value) {
  const std::size_t n = std::strlen(name);
  if (std::strncmp(argument, name, n) != 0) return false;
  value = argument + n;
  return true;
}

bool parse(int argc, char** argv, LoadOptions& options) {
  for (int i = 1; i < argc; i++) {
    const char* a = argv[i];
    const bool known =
        readOption(a, "--seconds=", options.runSeconds) ||
        readOption(a, "--kernel-us=", options.kernelUs) ||
        readOption(a, "--gap-us=", options.gapUs) || readOption(a, "--cards=", options.cards) ||
        readOption(a, "--per-card=", options.perCard) ||
        readOption(a, "--socket=", options.socket) ||
        readOption(a, "--manager=", options.manager) ||
        readOption(a, "--manager-pid=", options.managerPid);
    if (!known) return false;
  }
  return options.cards > 0 && options.perCard > 0 &&
         options.cards * options.perCard <= static_cast<std::int64_t>(kTenantsMax);
}

Result<Tenant> bindTenant(ctl::Client& client, std::uint32_t card, const char* taskClass,
                          const LoadOptions& options) {
  ctl::RunOptions run;
  run.name = std::string(taskClass) + "-" + std::to_string(card);
  run.taskClass = taskClass;
  run.memoryGib = 1;
  const bool online = run.taskClass == "online";
  if (!online) {
    run.corePercent = static_cast<std::uint64_t>(std::max<std::int64_t>(90 / options.perCard, 1));
  }
  run.card = "sim-" + std::to_string(card);
  const Result<std::string> answer = client.ask(ctl::runLine(run));
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

Result<std::vector<Tenant>> bindAll(ctl::Client& client, const LoadOptions& options) {
  std::vector<Tenant> tenants;
  for (std::uint32_t card = 0; card < options.cards; card++) {
    const bool hybrid = card >= options.cards / 2;
    for (std::int64_t i = 0; i < options.perCard; i++) {
      const char* taskClass = !hybrid ? "ordinary" : i == 0 ? "online" : "offline";
      Result<Tenant> tenant = bindTenant(client, card, taskClass, options);
      if (!tenant) return tenant.error();
      tenants.push_back(std::move(*tenant));
    }
  }
  return tenants;
}

void startAll(std::vector<Tenant>& tenants, TenantRecord* records) {
  for (std::size_t i = 0; i < tenants.size(); i++) {
    Tenant& tenant = tenants[i];
    tenant.record = new (&records[i]) TenantRecord();
    tenant.pid = ::fork();
    if (tenant.pid != 0) continue;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::_exit(runTenant(tenant.plan, *tenant.record));
  }
  for (Tenant& tenant : tenants) {
    while (tenant.record->attached.load() == 0 && ::waitpid(tenant.pid, nullptr, WNOHANG) == 0) {
      ::usleep(1'000);
    }
    if (tenant.taskClass != "offline") continue;
    Result<GuestClient> view = GuestClient::attach(tenant.plan.socket, tenant.plan.token);
    if (view) tenant.view = std::make_unique<GuestClient>(std::move(*view));
  }
}

// From the clock read before an online task's first submit to the last store that shut a gate of
// its card (HAZARDS 17). A burst that found every gate shut says nothing.
void lookForPreemptions(std::vector<Tenant>& tenants, std::vector<Nanos>& preemptions) {
  const Nanos now = monotonicNow();
  for (Tenant& online : tenants) {
    if (online.taskClass != "online") continue;
    const std::uint64_t bursts = online.record->bursts.load();
    const Nanos at(online.record->burstAt.load());
    if (bursts == online.burstsSeen || now - at < kHoldSeenAfter) continue;
    online.burstsSeen = bursts;
    Nanos last{-1};
    for (const Tenant& other : tenants) {
      if (other.card != online.card || !other.view) continue;
      const Nanos stored(static_cast<std::int64_t>(other.view->gatePage().gate_stored_ns));
      const bool shut = (other.view->gateWord() & QGPU_GATE_OPEN) == 0;
      if (shut && stored >= at) last = std::max(last, stored - at);
    }
    if (last >= Nanos(0)) preemptions.push_back(last);
  }
}

std::uint64_t turnsOf(ctl::Client& client) {
  const Result<std::string> answer = client.ask("tasks");
  if (!answer) return 0;
  simdjson::dom::parser parser;
  simdjson::dom::element root;
  simdjson::dom::array tasks;
  if (parser.parse(*answer).get(root) != simdjson::SUCCESS ||
      root["tasks"].get(tasks) != simdjson::SUCCESS) {
    return 0;
  }
  std::uint64_t turns = 0;
  for (const simdjson::dom::element task : tasks) {
    std::uint64_t n = 0;
    if (task["turns"].get(n) == simdjson::SUCCESS) turns += n;
  }
  return turns;
}

std::uint64_t launchesOf(const std::vector<Tenant>& tenants) {
  std::uint64_t sum = 0;
  for (const Tenant& tenant : tenants) sum += tenant.record->launches.load();
  return sum;
}

double percent(Nanos used, Nanos elapsed) {
  return 100.0 * static_cast<double>(used.value) / static_cast<double>(elapsed.value);
}

// Its CPU over `seconds` in which nobody is bound.
double idlePercent(pid_t manager) {
  const Nanos used = cpuTimeOf(manager), from = monotonicNow();
  ::sleep(3);
  return percent(cpuTimeOf(manager) - used, monotonicNow() - from);
}

struct Report {
  double idleCpu = 0, loadCpu = 0;
  std::uint64_t idleRss = 0, loadRss = 0;
};

void print(const std::vector<Tenant>& tenants, std::vector<Nanos>& preemptions, double elapsed,
           std::uint64_t turns, std::uint64_t launches, const Report& report) {
  std::sort(preemptions.begin(), preemptions.end());
  const auto at = [&](std::size_t permille) {
    if (preemptions.empty()) return 0.0;
    const std::size_t i = std::min(preemptions.size() - 1, preemptions.size() * permille / 1000);
    return static_cast<double>(preemptions[i].value) / 1000.0;
  };
  std::printf(
      "{\"bench\":\"load\",\"tasks\":%zu,\"seconds\":%.1f,\"slices_per_s\":%.0f,"
      "\"launches_per_s\":%.0f,\"preempt_us\":{\"p50\":%.1f,\"p99\":%.1f,\"n\":%zu},"
      "\"idle_cpu_percent\":%.2f,\"idle_rss_kib\":%llu,\"load_cpu_percent\":%.2f,"
      "\"load_rss_kib\":%llu}\n",
      tenants.size(), elapsed, static_cast<double>(turns) / elapsed,
      static_cast<double>(launches) / elapsed, at(500), at(990), preemptions.size(),
      report.idleCpu, static_cast<unsigned long long>(report.idleRss), report.loadCpu,
      static_cast<unsigned long long>(report.loadRss));
}

int measure(const LoadOptions& options, const std::string& socket, pid_t manager) {
  Report report;
  ctl::Client client(socket);
  if (manager > 0) {
    report.idleCpu = idlePercent(manager);
    report.idleRss = residentKib(manager);
  }
  Result<std::vector<Tenant>> tenants = bindAll(client, options);
  if (!tenants) {
    std::fprintf(stderr, "bench_load: %s\n", tenants.error().message.c_str());
    return 1;
  }
  auto* records = static_cast<TenantRecord*>(
      ::mmap(nullptr, sizeof(TenantRecord) * kTenantsMax, PROT_READ | PROT_WRITE,
             MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  if (records == MAP_FAILED) return 1;
  startAll(*tenants, records);
  std::vector<Nanos> preemptions;
  const std::uint64_t turns = turnsOf(client), launches = launchesOf(*tenants);
  const Nanos from = monotonicNow(), cpu = cpuTimeOf(manager);
  while (stopAsked == 0 &&
         (options.runSeconds == 0 || monotonicNow() - from < seconds(options.runSeconds))) {
    lookForPreemptions(*tenants, preemptions);
    ::usleep(1'000);
  }
  const Nanos elapsed = monotonicNow() - from;
  report.loadCpu = percent(cpuTimeOf(manager) - cpu, elapsed);
  report.loadRss = residentKib(manager);
  print(*tenants, preemptions, static_cast<double>(elapsed.value) / 1e9, turnsOf(client) - turns,
        launchesOf(*tenants) - launches, report);
  for (const Tenant& tenant : *tenants) ::kill(tenant.pid, SIGKILL);
  for (const Tenant& tenant : *tenants) ::waitpid(tenant.pid, nullptr, 0);
  for (const Tenant& tenant : *tenants) (void)client.ask("end " + std::to_string(tenant.task));
  ::munmap(records, sizeof(TenantRecord) * kTenantsMax);
  return 0;
}

int run(int argc, char** argv) {
  LoadOptions options;
  if (!parse(argc, argv, options)) {
    std::fprintf(stderr,
                 "usage: bench_load [--seconds=N] [--kernel-us=N] [--gap-us=N] [--cards=N] "
                 "[--per-card=N] [--manager=BINARY | --socket=ADMIN_SOCKET [--manager-pid=N]]\n");
    return 2;
  }
  ::signal(SIGINT, [](int) { stopAsked = 1; });
  ::signal(SIGTERM, [](int) { stopAsked = 1; });
  if (!options.socket.empty()) {
    return measure(options, options.socket, static_cast<pid_t>(options.managerPid));
  }
  if (options.manager.empty()) options.manager = ctl::binaryFolder() + "/qgpu-manager";
  Result<OwnManager> manager =
      OwnManager::start(options.manager, "sim:" + std::to_string(options.cards) + "x32");
  if (!manager) {
    std::fprintf(stderr, "bench_load: %s\n", manager.error().message.c_str());
    return 1;
  }
  return measure(options, manager->adminSocket(), manager->pid());
}

}  // namespace
}  // namespace qgpu::bench

int main(int argc, char** argv) { return qgpu::bench::run(argc, argv); }
