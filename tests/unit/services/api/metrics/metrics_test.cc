#include <arpa/inet.h>
#include <future>
#include <map>
#include <random>
#include <regex>
#include <set>
#include <sstream>
#include <thread>

#include "services/api/commands/schema_names.h"
#include "services/api/metrics/cluster_metrics.h"
#include "services/api/metrics/pages.h"
#include "services/api/metrics/prometheus.h"
#include "services/base/json.h"
#include "tests/unit/services/api/actor_client_fixture.h"
#include "tests/unit/services/api/scripted_cluster.h"

namespace qgpu::metrics_test {
namespace {

using testing::ApiFixture;

struct Fetched {
  int status = 0;
  std::string headers;
  std::string body;
};

struct Metrics : ApiFixture {
  Metrics() {
    HttpLimits limits;
    limits.connectionsMax = 3;
    auto listener = TcpListener::open("127.0.0.1:0", "--http");
    server = std::make_unique<HttpServer>(routesOf(pages, health), limits, *io.lowLevelProvider,
                                          bridge.timer(), std::move(*listener));
  }
  ~Metrics() noexcept override = default;

  kj::Own<kj::AsyncIoStream> connect() {
    return io.provider->getNetwork()
        .parseAddress(kj::StringPtr(server->address().c_str()))
        .wait(io.waitScope)
        ->connect()
        .wait(io.waitScope);
  }
  // Everything that comes back for these bytes, until the server closes.
  std::string exchange(const std::string& bytes) {
    auto stream = connect();
    std::string answer;
    kj::evalNow([&]() { return stream->write(bytes.data(), bytes.size()); })
        .then([&]() {
          stream->shutdownWrite();
          return stream->readAllText();
        })
        .then([&](kj::String text) { answer = std::string(view(text)); }, [](kj::Exception&&) {})
        .wait(io.waitScope);
    return answer;
  }
  Fetched fetch(const std::string& path, const std::string& method = "GET") {
    const std::string text =
        exchange(method + " " + path + " HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n");
    Fetched fetched;
    const std::size_t split = text.find("\r\n\r\n");
    if (split == std::string::npos) return fetched;
    fetched.status = std::stoi(text.substr(9, 3));
    fetched.headers = text.substr(0, split);
    fetched.body = text.substr(split + 4);
    return fetched;
  }

  // What a look finds is told soon.
  int healthSoon() {
    const std::uint64_t before = looks + 1;  // one may be under way
    waitUntil([&] { return looks > before; });
    return fetch("/healthz").status;
  }

  NodePages pages{actor};
  std::uint64_t looks = 0;
  Health health{[this] {
                  ++looks;
                  return pages.storage();
                },
                {},
                bridge.timer(),
                nullptr,
                {millis(1), seconds(600)}};
  std::unique_ptr<HttpServer> server;
};

TEST_F(Metrics, TellsEveryCardAndTaskInPrometheusText) {
  const Fetched page = fetch("/metrics");
  EXPECT_EQ(page.status, 200);
  EXPECT_NE(page.headers.find("text/plain; version=0.0.4"), std::string::npos) << page.headers;
  for (const char* line : {
           "qgpu_card_memory_bytes{node=\"here\",card=\"sim-0\"} 17179869184\n",
           "qgpu_card_memory_counted_by_driver{node=\"here\",card=\"sim-0\"} 1\n",
           "qgpu_card_memory_counted_by_driver{node=\"here\",card=\"sim-1\"} 0\n",
           "qgpu_card_memory_bound_bytes{node=\"here\",card=\"sim-1\"} 0\n",
           "qgpu_card_used_seconds_total{node=\"here\",card=\"sim-0\"} 1.500000000\n",
           "qgpu_card_settle_seconds{node=\"here\",card=\"sim-0\",quantile=\"0.99\"} "
           "0.000090000\n",
           "qgpu_card_preempt_seconds_bucket{node=\"here\",card=\"sim-0\",le=\"0.00005\"} 150\n",
           "qgpu_card_preempt_seconds_bucket{node=\"here\",card=\"sim-0\",le=\"0.001\"} 199\n",
           "qgpu_card_preempt_seconds_bucket{node=\"here\",card=\"sim-0\",le=\"1\"} 199\n",
           "qgpu_card_preempt_seconds_bucket{node=\"here\",card=\"sim-0\",le=\"+Inf\"} 200\n",
           "qgpu_card_preempt_seconds_sum{node=\"here\",card=\"sim-0\"} 2.010000000\n",
           "qgpu_card_preempt_seconds_count{node=\"here\",card=\"sim-0\"} 200\n",
           "qgpu_card_release_seconds_bucket{node=\"here\",card=\"sim-1\",le=\"0.105\"} 0\n",
           "qgpu_task_gpu_seconds_total{node=\"here\",task=\"7\",name=\"train\",class=\"ordinary\","
           "card=\"sim-0\"} 9007199.254740993\n",
           "qgpu_node_storage_ok 1\n",
           "model=\"sim \\\"16\\\"\"",
       }) {
    EXPECT_NE(page.body.find(line), std::string::npos) << line << "\n" << page.body;
  }
}

// An empty label is none to Prometheus, and keeps it from taking the one of the scraped pod.
TEST_F(Metrics, NameTheContainerOfATaskWherePodsAre) {
  std::map<std::uint64_t, PodLabels> pods = {{7, {"ml", "train-0", "main"}}};
  NodePages onKubernetes(actor, nullptr, [&](std::uint64_t task) { return pods[task]; });
  const auto asked = [&] { return onKubernetes.metrics().wait(io.waitScope).text; };
  const std::string known = asked();
  constexpr const char* kTask =
      "qgpu_task_launches_total{node=\"here\",task=\"7\",name=\"train\",class=\"ordinary\","
      "card=\"sim-0\"";
  const std::string named = ",namespace=\"ml\",pod=\"train-0\",container=\"main\"} ";
  EXPECT_NE(known.find(kTask + named), std::string::npos) << known;
  pods.clear();
  const std::string unknown = asked();
  const std::string none = ",namespace=\"\",pod=\"\",container=\"\"} ";
  EXPECT_NE(unknown.find(kTask + none), std::string::npos) << unknown;
}

// Every line is a sample of a family that was described just before, with HELP, then TYPE.
TEST_F(Metrics, EveryLineIsWellFormed) {
  node.taskName = "a\"b\\c\nd\xFF";
  const Fetched page = fetch("/metrics");
  const std::regex help(R"(# HELP ([a-z_]+) .+\.)");
  const std::regex type(R"(# TYPE ([a-z_]+) (gauge|counter|summary|histogram))");
  const std::regex sample(
      R"re(([a-z_]+)(\{[a-z]+="([^"\\]|\\["\\n])*"(,[a-z]+="([^"\\]|\\["\\n])*")*\})? [0-9.]+)re");
  std::istringstream lines(page.body);
  std::string family;
  std::string kind;
  std::set<std::string> families;
  std::set<std::string> samples;
  for (std::string line; std::getline(lines, line);) {
    std::smatch match;
    if (std::regex_match(line, match, help)) {
      EXPECT_TRUE(families.insert(match[1]).second) << "described twice: " << line;
      family = match[1];
    } else if (std::regex_match(line, match, type)) {
      EXPECT_EQ(match[1], family);
      kind = match[2];
      EXPECT_EQ(kind == "counter", family.ends_with("_total")) << line;
    } else {
      ASSERT_TRUE(std::regex_match(line, match, sample)) << line;
      const std::string name = match[1];
      const std::string part = name.substr(std::min(name.size(), family.size()));
      const bool ofHistogram = part == "_bucket" || part == "_sum" || part == "_count";
      EXPECT_TRUE(name.starts_with(family)) << line;
      EXPECT_TRUE(kind == "histogram" ? ofHistogram
                                      : part.empty() || (kind == "summary" && part == "_count"))
          << line;
      EXPECT_TRUE(samples.insert(line.substr(0, line.rfind(' '))).second) << "twice: " << line;
    }
  }
  EXPECT_GT(families.size(), 25u);
  EXPECT_TRUE(isUtf8(page.body));
  EXPECT_NE(page.body.find(R"(name="a\"b\\c\nd)"), std::string::npos);
}

TEST_F(Metrics, HealthzSaysOkOrWhyNot) {
  const Fetched good = fetch("/healthz");
  EXPECT_EQ(good.status, 200);
  EXPECT_EQ(good.body, "ok\n");
  node.storage = "disk full: no new tasks";
  EXPECT_EQ(healthSoon(), 503);
  EXPECT_EQ(fetch("/healthz").body, "storage: disk full: no new tasks\n");
  node.storage = "ok";
  EXPECT_EQ(healthSoon(), 200);
  sink.full = true;
  EXPECT_EQ(healthSoon(), 200) << "much to do is no death";
  EXPECT_EQ(fetch("/metrics").status, 503);
}

TEST_F(Metrics, HealthzAsksNobody) {
  waitUntil([&] { return looks > 0; });
  const std::size_t asked = node.asked.size();
  const std::uint64_t before = looks;
  for (int i = 0; i < 40; ++i) EXPECT_EQ(fetch("/healthz").status, 200);
  EXPECT_LE(node.asked.size() - asked, looks - before + 1);
}

// A loop on a thread of its own, which a test holds up.
struct HeldLoop {
  HeldLoop() : thread([this] { loop.run(); }) {}
  ~HeldLoop() {
    loop.stop();
    thread.join();
  }
  Loop loop;
  LoopBeat beat{loop, millis(1)};
  std::thread thread;
};

TEST_F(Metrics, HealthNamesTheLoopThatIsSilentAndFeedsNoWatchdogMeanwhile) {
  HeldLoop cards;
  std::uint64_t fed = 0;
  std::uint64_t looked = 0;
  Health both(
      [&] {
        ++looked;
        return pages.storage();
      },
      {{"card loop", cards.beat}}, bridge.timer(), [&] { ++fed; }, {millis(1), millis(500)});
  waitUntil([&] { return fed > 0; });
  std::promise<void> go;
  cards.loop.post([&] { go.get_future().wait(); });
  waitUntil([&] { return both.trouble() == "card loop: silent for 0 s\n"; });
  const std::uint64_t before = fed;
  const std::uint64_t lookedBefore = looked;
  waitUntil([&] { return looked > lookedBefore + 2; });
  EXPECT_EQ(fed, before);
  go.set_value();
  waitUntil([&] { return both.trouble().empty() && fed > before; });
}

TEST_F(Metrics, HealthTellsOfActorsThatDoNotAnswer) {
  scripted.silent = true;
  NodeActorClient::Limits soon;
  soon.deadline = millis(1);
  NodeActorClient impatient(sink, bridge.timer(), soon);
  NodePages asks(impatient);
  Health alone([&] { return asks.storage(); }, {}, bridge.timer(), nullptr,
               {millis(1), millis(20)});
  waitUntil([&] { return alone.trouble().starts_with("main loop: silent for "); });
}

TEST_F(Metrics, OtherPathsAndMethodsAreRefused) {
  EXPECT_EQ(fetch("/").status, 404);
  EXPECT_EQ(fetch("/metrics/x").status, 404);
  EXPECT_EQ(fetch("/metrics?x=1").status, 200);
  const Fetched posted = fetch("/metrics", "POST");
  EXPECT_EQ(posted.status, 405);
  EXPECT_NE(posted.headers.find("Allow: GET, HEAD"), std::string::npos);
  const Fetched head = fetch("/metrics", "HEAD");
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.body, "");
}

TEST_F(Metrics, C7_GarbageAndHugeHeadersAreHarmless) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 20; ++round) {
    std::string bytes(1 + random() % 4096, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    exchange(bytes);
  }
  exchange("GET /metrics HTTP/1.1\r\nX: " + std::string(1 << 20, 'x') + "\r\n\r\n");
  EXPECT_LE(node.asked.size(), looks) << "nobody else asked; one look may wait for its answer";
  EXPECT_EQ(fetch("/healthz").status, 200);
}

TEST_F(Metrics, C7_HealthIsToldHoweverManyConnectionsAreIdle) {
  std::vector<kj::Own<kj::AsyncIoStream>> slow;
  for (int i = 0; i < 2; ++i) {
    slow.push_back(connect());
    slow.back()->write("GET /met", 8).wait(io.waitScope);
  }
  EXPECT_EQ(fetch("/healthz").status, 200);
  slow.push_back(connect());
  waitUntil([&] { return server->connections() == 3; });
  EXPECT_EQ(fetch("/healthz").status, 200);
  EXPECT_EQ(slow.front()->readAllText().wait(io.waitScope).size(), 0u) << "it gave way";
  slow.clear();
  waitUntil([&] { return server->connections() == 0; });
  EXPECT_EQ(fetch("/healthz").status, 200);
}

TEST(ClusterMetrics, CountsNodesByStateAndEveryNodeOnce) {
  capnp::MallocMessageBuilder message;
  auto info = message.initRoot<schema::ClusterInfo>();
  info.setTerm(3);
  info.setStorage("ok");
  auto pending = info.initPending(1)[0];
  pending.setClass(schema::TaskClass::OFFLINE);
  pending.setReason("GreedyShort");
  pending.setTasks(12);
  auto decided = info.initDecided(1)[0];
  decided.setResult(schema::ClusterInfo::Result::REFUSED);
  decided.setReason("CardTooSmall");
  decided.setCount(5);
  capnp::MallocMessageBuilder list;
  auto nodes = list.initRoot<schema::ClusterReply>().initNodes(2);
  nodes[0].setName("a");
  nodes[0].setState(schema::ClusterNode::State::ALIVE);
  nodes[1].setName("b\"");
  nodes[1].setState(schema::ClusterNode::State::LOST);
  const std::string page =
      renderClusterMetrics(info.asReader(), nodes.asReader(), ActorClientCounts{1, 2, 3, 4});
  for (const char* line :
       {"qgpu_cluster_term 3", "qgpu_cluster_storage_ok 1",
        "qgpu_pending_tasks{class=\"offline\",reason=\"GreedyShort\"} 12",
        "qgpu_schedule_decisions_total{result=\"refused\","
        "reason=\"CardTooSmall\"} 5",
        "qgpu_cluster_nodes{state=\"alive\"} 1", "qgpu_cluster_nodes{state=\"lost\"} 1",
        "qgpu_cluster_node_alive{node=\"a\"} 1", "qgpu_cluster_node_alive{node=\"b\\\"\"} 0",
        "qgpu_door_requests_refused_total 3"}) {
    EXPECT_NE(page.find(std::string("\n") + line + "\n"), std::string::npos) << line << page;
  }
}

TEST(ClusterPages, WhoStandsByTellsNothingOfTheClusterItself) {
  Loop loop;
  KjBridge bridge(loop);
  testing::ScriptedCluster cluster;
  ClusterActorClient actor(cluster, bridge.timer());
  cluster.actor = &actor;
  bool acts = false;
  ClusterPages pages(
      actor, [] { return std::string("more 1\n"); }, [&] { return acts; });
  const auto has = [&](const char* part) {
    return pages.metrics().wait(bridge.waitScope()).text.find(part) != std::string::npos;
  };
  EXPECT_TRUE(has("\nqgpu_cluster_acting 0\n"));
  EXPECT_TRUE(has("more 1\n"));
  EXPECT_FALSE(has("qgpu_cluster_tasks"));
  acts = true;
  EXPECT_TRUE(has("\nqgpu_cluster_acting 1\n"));
  EXPECT_TRUE(has("more 1\n"));
  EXPECT_TRUE(has("qgpu_cluster_tasks"));
}

TEST(ClusterPages, StorageIsThatOfTheStore) {
  Loop loop;
  KjBridge bridge(loop);
  testing::ScriptedCluster cluster;
  ClusterActorClient actor(cluster, bridge.timer());
  cluster.actor = &actor;
  ClusterPages pages(actor);
  EXPECT_EQ(pages.metrics().wait(bridge.waitScope()).status, 200u);
  cluster.storage = "disk full";
  EXPECT_EQ(*pages.storage().wait(bridge.waitScope()), "disk full");
}

}  // namespace
}  // namespace qgpu::metrics_test
