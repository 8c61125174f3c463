// Claim: following 5,000 nodes and 100,000 pods of a Kubernetes cluster takes at most 400 MB, and
// listing them again at most 5 s. Prints one JSON line.
//
// The API server is the stand-in of the tests in a process of its own, with objects as large as
// real ones: a node has its images, a pod its last applied configuration and managed fields; every
// pod asks for a card, so that none is skipped. The default is a fifth of the claim's size:
// --nodes=5000 --pods=100000 is the claim.

#include <cstdio>
#include <cstring>
#include <fstream>
#include <stdlib.h>
#include <string>
#include <sys/resource.h>
#include <unistd.h>

#include "runtime/kj/bridge.h"
#include "services/kubernetes/client/reflector.h"
#include "services/kubernetes/client/testing/api_stand_in.h"
#include "services/kubernetes/pods/cards_annotation.h"
#include "tests/testing/child_process.h"
#include "tests/testing/eventually.h"

namespace qgpu {
namespace {

using testing::ApiStandIn;
using testing::Json;

struct Options {
  std::int64_t nodes = 1'000;
  std::int64_t pods = 20'000;
  bool serve = false;
};

bool parse(int argc, char** argv, Options& options) {
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.starts_with("--nodes=")) {
      options.nodes = std::strtoll(argument.c_str() + 8, nullptr, 10);
    } else if (argument.starts_with("--pods=")) {
      options.pods = std::strtoll(argument.c_str() + 7, nullptr, 10);
    } else if (argument == "--serve") {
      options.serve = true;
    } else {
      return false;
    }
  }
  return options.nodes > 0 && options.pods > 0;
}

[[noreturn]] void die(const std::string& why) {
  std::fprintf(stderr, "bench_kube_watch: %s\n", why.c_str());
  std::exit(1);
}

// --- the server's process ---

Json largeNode(std::int64_t number) {
  const std::string name = "node-" + std::to_string(number);
  CardsAnnotation told;
  told.version = "0.1.0";
  for (std::uint32_t i = 0; i < 8; ++i) {
    AnnotatedCard& card = told.cards.emplace_back();
    card.id = "GPU-" + std::to_string(number) + "-" + std::to_string(i);
    card.index = i;
    card.model = "T4";
    card.backend = "nvidia";
    card.mem = gibibytes(16);
    card.nominalGib = 16;
  }
  Json node = ApiStandIn::node(name);
  node["metadata"]["annotations"][kCardsAnnotation] = writeCardsAnnotation(told);
  for (int i = 0; i < 50; ++i) {
    node["status"]["images"].push_back({{"names",
                                         {"registry.example.org/team/image-" + std::to_string(i) +
                                          "@sha256:" + std::string(64, 'a')}},
                                        {"sizeBytes", 123456789}});
  }
  return node;
}

Json largePod(std::int64_t number, std::int64_t nodes) {
  const std::string text = std::to_string(number);
  const std::string node = std::to_string(number % nodes);
  Json pod =
      ApiStandIn::pod("team-" + std::to_string(number % 50), "worker-" + text,
                      "0f6a3c1e-0000-4000-8000-" + std::string(12 - text.size(), '0') + text);
  pod["spec"]["nodeName"] = "node-" + node;
  auto& annotations = pod["metadata"]["annotations"];
  annotations["qgpu.io/assigned"] = R"({"main":["GPU-)" + node + R"(-0"]})";
  annotations["kubectl.kubernetes.io/last-applied-configuration"] = std::string(1'200, 'c');
  for (int i = 0; i < 3; ++i) {
    pod["metadata"]["managedFields"].push_back(
        {{"manager", "kube-controller-manager"}, {"fieldsV1", {{"f", std::string(400, 'f')}}}});
  }
  for (int i = 0; i < 12; ++i) {
    pod["spec"]["containers"][0]["env"].push_back(
        {{"name", "VARIABLE_" + std::to_string(i)}, {"value", "some value of it"}});
  }
  pod["status"]["phase"] = "Running";
  for (const char* type : {"Initialized", "Ready", "ContainersReady", "PodScheduled"}) {
    pod["status"]["conditions"].push_back(
        {{"type", type}, {"status", "True"}, {"lastTransitionTime", "2026-01-01T00:00:00Z"}});
  }
  return pod;
}

int serve(const Options& options) {
  Loop loop;
  KjBridge kj(loop);
  ApiStandIn server(kj.io().getNetwork(), kj.timer(), nullptr, kj.waitScope());
  for (std::int64_t i = 0; i < options.nodes; ++i) server.put("nodes", largeNode(i));
  for (std::int64_t i = 0; i < options.pods; ++i) server.put("pods", largePod(i, options.nodes));
  // Asked by the other process: its watches end, and go on from nowhere.
  server.onRequest = [&] {
    if (server.heard.back().find("/forget") == std::string::npos) return;
    server.forget();
    server.sayToWatches(R"({"type":"ERROR","object":{"code":410,"message":"too old"}})");
  };
  std::printf("%u\n", server.port());
  std::fflush(stdout);
  kj::Promise<void>(kj::NEVER_DONE).wait(kj.waitScope());
  return 0;
}

// --- the client's process ---

class ServerProcess {
 public:
  explicit ServerProcess(const Options& options)
      : server_({"/proc/self/exe", "--serve", "--nodes=" + std::to_string(options.nodes),
                 "--pods=" + std::to_string(options.pods)}) {
    testing::eventually([&] { return server_.output().ends_with('\n') || !server_.alive(); },
                        std::chrono::minutes(5));
    port_ = std::to_string(std::atoi(server_.output().c_str()));
    if (port_ == "0") die("the server says no port");
  }
  const std::string& port() const { return port_; }

 private:
  testing::Child server_;
  std::string port_;
};

template <typename Object>
struct Count final : KubeListener<Object> {
  std::uint64_t lists = 0;
  void onUpsert(const Object&) override {}
  void onGone(const Object&) override {}
  void onSynced() override { ++lists; }
};

double megabytesNow() {
  std::ifstream in("/proc/self/statm");
  std::uint64_t all = 0, resident = 0;
  in >> all >> resident;
  return static_cast<double>(resident) * static_cast<double>(::sysconf(_SC_PAGESIZE)) / 1e6;
}
double megabytesPeak() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024 / 1e6;
}
double cpuSeconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

int follow(const Options& options) {
  ServerProcess server(options);
  Loop loop;
  KjBridge kj(loop);
  Log log(LogLevel::Error);
  KubeCredentials credentials;
  credentials.source = "bench";
  credentials.host = "127.0.0.1";
  credentials.port = server.port();
  credentials.tls = false;
  ApiClient api(credentials, kj.io().getNetwork(), kj.timer(), 1);
  Count<KubeNode> nodes;
  Count<KubePod> pods;
  const auto until = [&](std::uint64_t lists) {
    const Nanos begin = monotonicNow();
    while (nodes.lists < lists || pods.lists < lists) {
      kj.timer().afterDelay(1 * kj::MILLISECONDS).wait(kj.waitScope());
      if (monotonicNow() - begin > seconds(300)) die("the lists do not end");
    }
    return static_cast<double>((monotonicNow() - begin).value) / 1e9;
  };
  Reflector<KubeNode> nodeWatch(api, "/api/v1/nodes", nodes, log);
  Reflector<KubePod> podWatch(api, "/api/v1/pods", pods, log);
  const double first = until(1);
  const double firstCpu = cpuSeconds();
  kj.timer().afterDelay(200 * kj::MILLISECONDS).wait(kj.waitScope());  // both watches stand
  const auto asked = api.get("/forget").wait(kj.waitScope());
  const double again = until(2);
  std::printf(
      "{\"bench\":\"kube_watch\",\"nodes\":%zu,\"pods\":%zu,\"list_s\":%.2f,"
      "\"list_cpu_s\":%.2f,\"relist_s\":%.2f,\"relist_cpu_s\":%.2f,\"rss_mb\":%.0f,"
      "\"peak_mb\":%.0f}\n",
      nodeWatch.size(), podWatch.size(), first, firstCpu, again, cpuSeconds() - firstCpu,
      megabytesNow(), megabytesPeak());
  return 0;
}

}  // namespace
}  // namespace qgpu

int main(int argc, char** argv) {
  qgpu::Options options;
  if (!qgpu::parse(argc, argv, options)) {
    std::fprintf(stderr, "usage: bench_kube_watch [--nodes=N] [--pods=N]\n");
    return 2;
  }
  return options.serve ? qgpu::serve(options) : qgpu::follow(options);
}
