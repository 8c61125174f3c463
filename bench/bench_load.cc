// Claims: a manager with 8 simulated cards idles under 1 % of a core and 30 MB; under load it
// gives thousands of tenants' launches their slices cheaply, and an online submit shuts the other
// gates of its card in about 100 us. Prints one JSON line.
//
// Half of the cards hold ordinary tasks, the other half one online task that comes in bursts and
// offline tasks that always want more. Also a tool: --seconds=0 runs until a signal, --socket=PATH
// uses a manager that is there already (its --manager-pid gives the cost figures).

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <signal.h>
#include <string>
#include <unistd.h>
#include <vector>

#include "bench/load_manager.h"
#include "bench/load_scene.h"
#include "runtime/loop.h"
#include "services/ctl/answers/client.h"

namespace qgpu::bench {
namespace {

struct LoadOptions {
  std::int64_t runSeconds = 5;
  SceneOptions scene;
  std::string socket;
  std::string manager;
  std::int64_t managerPid = 0;
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
    const bool known = readOption(a, "--seconds=", options.runSeconds) ||
                       readOption(a, "--kernel-us=", options.scene.kernelUs) ||
                       readOption(a, "--gap-us=", options.scene.gapUs) ||
                       readOption(a, "--cards=", options.scene.cards) ||
                       readOption(a, "--per-card=", options.scene.perCard) ||
                       readOption(a, "--socket=", options.socket) ||
                       readOption(a, "--manager=", options.manager) ||
                       readOption(a, "--manager-pid=", options.managerPid);
    if (!known) return false;
  }
  return options.scene.cards > 0 && options.scene.perCard > 0 &&
         options.scene.cards * options.scene.perCard <= Scene::kTenantsMax;
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

void print(std::size_t tenants, std::vector<Nanos>& preemptions, double elapsed,
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
      tenants, elapsed, static_cast<double>(turns) / elapsed,
      static_cast<double>(launches) / elapsed, at(500), at(990), preemptions.size(), report.idleCpu,
      static_cast<unsigned long long>(report.idleRss), report.loadCpu,
      static_cast<unsigned long long>(report.loadRss));
}

int measure(const LoadOptions& options, const std::string& socket, pid_t manager) {
  Report report;
  ctl::Client client(socket);
  if (manager > 0) {
    report.idleCpu = idlePercent(manager);
    report.idleRss = residentKib(manager);
  }
  Result<std::unique_ptr<Scene>> scene = Scene::open(client, options.scene);
  if (!scene) {
    std::fprintf(stderr, "bench_load: %s\n", scene.error().message.c_str());
    return 1;
  }
  std::vector<Nanos> preemptions;
  const std::uint64_t turns = turnsOf(client), launches = (*scene)->launches();
  const Nanos from = monotonicNow(), cpu = cpuTimeOf(manager);
  while (stopAsked == 0 &&
         (options.runSeconds == 0 || monotonicNow() - from < seconds(options.runSeconds))) {
    (*scene)->lookForPreemptions(preemptions);
    ::usleep(1'000);
  }
  const Nanos elapsed = monotonicNow() - from;
  report.loadCpu = percent(cpuTimeOf(manager) - cpu, elapsed);
  report.loadRss = residentKib(manager);
  print((*scene)->tenants(), preemptions, static_cast<double>(elapsed.value) / 1e9,
        turnsOf(client) - turns, (*scene)->launches() - launches, report);
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
  const auto manager =
      startManager(options.manager, "sim:" + std::to_string(options.scene.cards) + "x32");
  if (!manager) {
    std::fprintf(stderr, "bench_load: %s\n", manager.error().message.c_str());
    return 1;
  }
  const int status = measure(options, (*manager)->socket(), (*manager)->pid());
  (*manager)->stop();
  return status;
}

}  // namespace
}  // namespace qgpu::bench

int main(int argc, char** argv) {
  return qgpu::bench::run(argc, argv);
}
