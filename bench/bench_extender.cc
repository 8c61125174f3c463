// Claim: the extender answers filter and priorities for 5,000 names in 2 ms (p50) and 5 ms (p99)
// each, and 500 pod cycles (filter, priorities, bind) a second. Prints one JSON line.
//
// The scheduler actor, its store on disk, the HTTP server and its client share one thread, so that
// the client's work and the commits count too; nodes and API server are doubles that answer at
// once. Cycles ask for --sample=N names, as many as kube-scheduler passes to extenders of that many
// nodes by itself. In `refused` every node is out, and why is said of each card; in `refused_new`
// each pod asks what none before it did. `several` asks for two containers that sit together.
// Names come in no order, as kube-scheduler's do. `burst` is 1,000 pods that come to 100 empty
// nodes at once, each with a cycle of its own: the time until the last one is bound.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <sys/resource.h>
#include <vector>

#include "bench/read_option.h"
#include "services/api/commands/schema_names.h"
#include "tests/unit/services/kubernetes/extender/extender_world.h"

namespace qgpu::bench {
namespace {

using testing::ExtenderWorld;
using testing::NodeShape;
using Clock = std::chrono::steady_clock;

struct Options {
  std::int64_t nodes = 5'000;
  std::int64_t cards = 8;
  std::int64_t sample = 500;
  std::int64_t rounds = 300;
  std::int64_t pods = 1'100;
};

[[noreturn]] void die(const std::string& why) {
  std::fprintf(stderr, "bench_extender: %s\n", why.c_str());
  std::exit(1);
}

// A connection that is kept, as kube-scheduler's are.
class Client {
 public:
  explicit Client(ExtenderWorld& world) : world_(world) {
    stream_ = world.kj.io()
                  .getNetwork()
                  .parseAddress(ptr(world.http->address()))
                  .wait(world.kj.waitScope())
                  ->connect()
                  .wait(world.kj.waitScope());
  }

  // The body of the answer.
  std::string post(const char* verb, const std::string& body) {
    const std::string request = std::string("POST /scheduler/") + verb +
                                " HTTP/1.1\r\nContent-Length: " + std::to_string(body.size()) +
                                "\r\n\r\n" + body;
    auto written = stream_->write(request.data(), request.size());
    std::string text = read(0, 1);
    written.wait(world_.kj.waitScope());
    std::size_t split;
    while ((split = text.find("\r\n\r\n")) == std::string::npos) text += read(0, 1);
    if (!text.starts_with("HTTP/1.1 200 ")) die("an answer that is not 200: " + text);
    const std::size_t at = text.find("Content-Length: ");
    const std::size_t length = std::strtoull(text.c_str() + at + 16, nullptr, 10);
    text.erase(0, split + 4);
    if (text.size() < length) text += read(length - text.size(), length - text.size());
    return text;
  }

 private:
  std::string read(std::size_t room, std::size_t least) {
    std::string text(std::max<std::size_t>(room, 65'536), '\0');
    const std::size_t got = stream_->tryRead(text.data(), least, room == 0 ? text.size() : room)
                                .wait(world_.kj.waitScope());
    if (got < least) die("the connection was closed");
    text.resize(got);
    return text;
  }

  ExtenderWorld& world_;
  kj::Own<kj::AsyncIoStream> stream_;
};

double cpuMs() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
}

struct Times {
  std::vector<double> ms;
  std::vector<double> cpu;  // of this thread, where others have the machine too
  template <typename Work>
  void measure(Work work) {
    const auto begin = Clock::now();
    const double cpuBegin = cpuMs();
    work();
    cpu.push_back(cpuMs() - cpuBegin);
    ms.push_back(std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
  }
  static double quantile(std::vector<double>& of, double q) {
    std::sort(of.begin(), of.end());
    return of[static_cast<std::size_t>(q * static_cast<double>(of.size() - 1))];
  }
  void print(const char* name) {
    std::printf(",\"%s_ms\":{\"p50\":%.2f,\"p99\":%.2f,\"cpu_p50\":%.2f,\"cpu_p99\":%.2f}", name,
                quantile(ms, 0.5), quantile(ms, 0.99), quantile(cpu, 0.5), quantile(cpu, 0.99));
  }
};

std::size_t count(const std::string& text, std::string_view what) {
  std::size_t n = 0;
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += what.size()) ++n;
  return n;
}

std::string winnerOf(const std::string& priorities) {
  if (count(priorities, "\"Score\":10}") != 1) die("not exactly one winner");
  const std::size_t end = priorities.find("\",\"Score\":10}");
  const std::size_t begin = priorities.rfind("\"Host\":\"", end) + 8;
  return priorities.substr(begin, end - begin);
}

struct Bench {
  using Asks = std::map<std::string, std::string>;  // of the containers
  const Asks small = {{"main", "memory=2 core=20"}};

  explicit Bench(const Options& o) : options(o), world(shapes(o)), client(world) {
    for (const NodeShape& shape : world.nodes.shapes) names.push_back(shape.name);
    std::uint64_t state = 1;
    for (std::size_t i = names.size(); i > 1; --i) {
      state = state * 6364136223846793005ULL + 1442695040888963407ULL;
      std::swap(names[i - 1], names[(state >> 33) % i]);
    }
  }
  static std::vector<NodeShape> shapes(const Options& o) {
    std::vector<NodeShape> all;
    for (std::int64_t i = 0; i < o.nodes; ++i) {
      char name[48];
      std::snprintf(name, sizeof name, "gpu-node-%05lld.example.org", static_cast<long long>(i));
      all.push_back({name, static_cast<std::size_t>(o.cards), 32, true, 16});
    }
    return all;
  }

  std::string args(const std::string& uid, const Asks& asks,
                   const std::vector<std::string>& among) {
    const ExtenderWorld::PodSpec pod{uid, asks, "", "", "rs-1"};
    return ExtenderWorld::args(world.pod(pod), among);
  }

  // Rooms change between two questions, as they do where pods come and go.
  void ask(const std::string& kind, const Asks& asks, Times& filter, Times& priorities) {
    for (std::int64_t i = 0; i < options.rounds; ++i) {
      const std::string uid = kind + "-" + std::to_string(i);
      const std::string body = args(uid, asks, names);
      std::string answer;
      filter.measure([&] { answer = client.post("filter", body); });
      if (count(answer, "gpu-node-") != names.size()) die("filter lost names");
      priorities.measure([&] { answer = client.post("priorities", body); });
      const std::string winner = winnerOf(answer);
      if (client.post("bind", ExtenderWorld::bindingArgs(uid, winner)) != R"({"Error":""})") {
        die("a bind failed");
      }
    }
  }

  void askInVain(Times& refused, std::int64_t growth) {
    for (std::int64_t i = 0; i < options.rounds; ++i) {
      const std::string memory = std::to_string(33 + i * growth);
      const std::string body = args("large", {{"main", "memory=" + memory + " core=20"}}, names);
      std::string answer;
      refused.measure([&] { answer = client.post("filter", body); });
      // Twice each: kube-schedulers before 1.21 read FailedNodes alone.
      if (count(answer, "\"CardTooSmall: ") != 2 * names.size()) die("a name without its reason");
    }
  }

  // Binds are under way while the next pods are filtered; what a bind is refused, because others
  // took the room meanwhile, goes through another cycle, as with kube-scheduler.
  double cycles() {
    const auto begin = Clock::now();
    std::vector<std::string> waiting;
    for (std::int64_t i = 0; i < options.pods; ++i) waiting.push_back("pod-" + std::to_string(i));
    for (std::size_t from = 0; !waiting.empty();) {
      std::vector<std::pair<std::string, kj::Promise<std::string>>> binds;
      for (const std::string& uid : waiting) binds.emplace_back(uid, cycle(uid, from));
      waiting.clear();
      for (auto& [uid, bind] : binds) {
        if (bind.wait(world.kj.waitScope()) != R"({"Error":""})") waiting.push_back(uid);
      }
      again += static_cast<std::int64_t>(waiting.size());
      if (again > options.pods) die("binds are refused again and again");
    }
    const std::chrono::duration<double> took = Clock::now() - begin;
    for (const auto& [uid, pod] : world.api.pods) {
      if (pod.node.empty()) die("a pod without its node: " + uid);
    }
    return static_cast<double>(options.pods) / took.count();
  }

  kj::Promise<std::string> cycle(const std::string& uid, std::size_t& from) {
    std::vector<std::string> sample;
    const std::size_t each = std::min(names.size(), static_cast<std::size_t>(options.sample));
    for (std::size_t n = 0; n < each; ++n) sample.push_back(names[(from + n) % names.size()]);
    from += each;
    const std::string body = args(uid, small, sample);
    client.post("filter", body);
    const std::string winner = winnerOf(client.post("priorities", body));
    return world.posted("bind", ExtenderWorld::bindingArgs(uid, winner));
  }

  std::int64_t again = 0;  // cycles after a bind that was refused
  const Options options;
  ExtenderWorld world;
  Client client;
  std::vector<std::string> names;
};

// Each in a cluster of its own. Returns how many binds went through another cycle, in all.
std::int64_t bursts(Times& times) {
  constexpr int kBursts = 9;
  Options options;
  options.nodes = options.sample = 100;
  options.cards = 4;
  options.pods = 1'000;
  std::int64_t again = 0;
  for (int i = 0; i < kBursts; ++i) {
    Bench bench(options);
    times.measure([&] { bench.cycles(); });
    again += bench.again;
  }
  return again;
}

}  // namespace
}  // namespace qgpu::bench

int main(int argc, char** argv) {
  using namespace qgpu::bench;
  Options options;
  for (int i = 1; i < argc; ++i) {
    const bool known = readOption(argv[i], "--nodes=", options.nodes) ||
                       readOption(argv[i], "--cards=", options.cards) ||
                       readOption(argv[i], "--sample=", options.sample) ||
                       readOption(argv[i], "--rounds=", options.rounds) ||
                       readOption(argv[i], "--pods=", options.pods);
    if (!known) die(std::string(argv[i]) + ": --nodes= --cards= --sample= --rounds= --pods=");
  }
  rlimit descriptors{};  // both ends of every connection are here
  ::getrlimit(RLIMIT_NOFILE, &descriptors);
  descriptors.rlim_cur = descriptors.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &descriptors);
  Times filter, priorities, several, severalPriorities, refused, refusedNew, burst;
  const std::int64_t burstAgain = bursts(burst);
  Bench bench(options);
  const double cycles = bench.cycles();  // warms up, too
  bench.ask("warm", bench.small, filter, priorities);
  bench.ask("two", {{"main", "memory=2 core=20"}, {"side", "memory=1 core=10"}}, several,
            severalPriorities);
  bench.askInVain(refused, 0);
  bench.askInVain(refusedNew, 1);
  std::printf("{\"bench\":\"extender\",\"nodes\":%lld,\"cards\":%lld",
              static_cast<long long>(options.nodes), static_cast<long long>(options.cards));
  filter.print("filter");
  priorities.print("priorities");
  several.print("several");
  severalPriorities.print("several_priorities");
  refused.print("refused");
  refusedNew.print("refused_new");
  burst.print("burst");
  std::printf(
      ",\"cycle_names\":%lld,\"cycles_per_s\":%.0f,\"again\":%lld,"
      "\"burst_again\":%lld}\n",
      static_cast<long long>(options.sample), cycles, static_cast<long long>(bench.again),
      static_cast<long long>(burstAgain));
  return 0;
}
