// The bridge between a stand-in of the API server and the real scheduler actor: what both believe
// after anything that may happen to nodes, pods and the server.
#include <optional>
#include <set>

#include "actors/scheduler/scheduler_actor.h"
#include "runtime/dispatcher.h"
#include "services/api/commands/node_link.h"
#include "services/api/commands/schema_names.h"
#include "services/kubernetes/bridge/cluster_bridge.h"
#include "services/kubernetes/pods/pod_names.h"
#include "tests/unit/services/kubernetes/client/kube_fixture.h"

namespace qgpu::kube_bridge_test {
namespace {

using testing::ApiStandIn;
using testing::Json;
using testing::KubeFixture;

// Commits each batch in a turn of the loop, unless it is held, and keeps what a restart would load.
class LoopJournal final : public Journal {
 public:
  explicit LoopJournal(Loop& loop) : loop_(loop) {}
  void append(std::vector<StoredRow> rows, Committed done) override {
    for (StoredRow& row : rows) rows_[row.key] = std::move(row.words);
    if (holds_) return held_.push_back(std::move(done));
    loop_.post([done = std::move(done)] { done(ok()); });
  }
  void hold() { holds_ = true; }
  bool holdsSome() const { return !held_.empty(); }
  void letGo() {
    holds_ = false;
    for (Committed& done : held_) loop_.post([done = std::move(done)] { done(ok()); });
    held_.clear();
  }
  std::vector<StoredRow> stored() const {
    std::vector<StoredRow> out;
    for (const auto& [key, words] : rows_) {
      if (words.size() > 1) out.push_back({key, words});
    }
    return out;
  }

 private:
  Loop& loop_;
  std::map<RowKey, Words> rows_;
  bool holds_ = false;
  std::vector<Committed> held_;
};

struct KubeBridge : KubeFixture {
  // A scheduler in one of its lives, with its bridge.
  struct Life {
    Life(KubeBridge& f, const std::vector<StoredRow>& rows)
        : system(7),
          actors(system, f.loop),
          log(LogLevel::Warn, [&f](LogLevel, const auto& line) { f.lines.push_back(line); }) {
      const ActorId schedulerId = actors.reserve();
      const ActorId clientId = actors.reserve();
      const ActorId linksId = actors.reserve();
      actors.setJournal(f.journal);
      SchedulerOptions options;
      options.times = {millis(20), millis(200), millis(300)};
      options.lookEvery = millis(10);
      scheduler.emplace(options, SchedulerPeers{linksId}, rows);
      actors.attach(schedulerId, *scheduler);
      fromClient.emplace(actors, clientId, schedulerId);
      actor.emplace(*fromClient, f.kj.timer());
      actors.attach(clientId, *actor);
      fromLinks.emplace(actors, linksId, schedulerId);
      links.emplace(*fromLinks, f.kj.timer());
      actors.attach(linksId, *links);
      Outlet(actors, clientId).sendUrgent(schedulerId, [](auto message) { message.initStart(); });
      writer.emplace(f.api, "qgpu-scheduler", "here");
      bridge.emplace(*fromLinks, *actor, f.api, *writer, log, f.options());
      links->setLocal(&*bridge);
      bridge->start();
    }
    ~Life() {
      system.stop();
      links->setLocal(nullptr);
      bridge.reset();
      links.reset();
      actor.reset();
    }

    ActorSystem system;
    Dispatcher actors;
    Log log;
    std::optional<SchedulerActor> scheduler;
    std::optional<NodeLink> fromClient, fromLinks;
    std::optional<ClusterActorClient> actor;
    std::optional<Links> links;
    std::optional<PodWriter> writer;
    std::optional<ClusterBridge> bridge;
  };

  KubeBridge() { server->put("nodes", node("n1")); }
  ~KubeBridge() noexcept override = default;

  BridgeOptions options() {
    BridgeOptions out;
    out.follow.retryFirst = millis(1);
    out.follow.retryMost = millis(4);
    out.tick = millis(2);
    out.retryAfter = millis(5);
    out.evictEvery = millis(5);
    out.assumeMax = assumeMax;
    out.awayMax = millis(5);
    out.onReady = [this] { ++ready; };
    out.mayBind = [this] { return mayBind; };
    out.onWaits = [this](const KubePod& pod) { waiting.insert(pod.demands.uid); };
    out.onBound = [this](const KubePod& pod) { waiting.erase(pod.demands.uid); };
    out.onNeither = [this](const std::string& uid) { waiting.erase(uid); };
    out.settleEvery = out.markEvery = millis(5);
    out.bindOf = [this](std::string_view uid) -> std::optional<BindUnderWay> {
      const auto found = binds.find(uid);
      if (found == binds.end()) return std::nullopt;
      return found->second;
    };
    return out;
  }
  void begin() {
    live = std::make_unique<Life>(*this, journal.stored());
    ASSERT_TRUE(served([&] { return live->bridge->figures().synced; }));
  }
  void beginWithNode() {
    begin();
    ASSERT_TRUE(served([&] { return nodeState("n1") == "alive"; }));
  }

  static Json node(const std::string& name) {
    CardsAnnotation told;
    told.version = "0.1.0";
    AnnotatedCard& card = told.cards.emplace_back();
    card.id = name + "-gpu";
    card.model = "T4";
    card.backend = "nvidia";
    card.mem = gibibytes(16);
    card.nominalGib = 16;
    Json out = ApiStandIn::node(name);
    out["metadata"]["annotations"][kCardsAnnotation] = writeCardsAnnotation(told);
    return out;
  }
  // Its card is not counted by kubelet yet.
  static Json startingNode(const std::string& name) {
    Json out = node(name);
    std::string cards = out["metadata"]["annotations"][kCardsAnnotation];
    cards.replace(cards.find("\"ready\""), 7, "\"starting\"");
    out["metadata"]["annotations"][kCardsAnnotation] = cards;
    return out;
  }
  static Json bound(const std::string& name, const std::string& uid,
                    const std::string& where = "n1") {
    Json pod = ApiStandIn::pod("web", name, uid);
    pod["spec"]["nodeName"] = where;
    pod["metadata"]["annotations"][kAssignedAnnotation] = R"({"main":[")" + where + R"(-gpu"]})";
    return pod;
  }

  // --- what the scheduler says ---
  ClusterAnswer ask(std::function<void(schema::ClusterRequest::Builder)> fill) {
    auto answer = wait(live->actor->ask(Peer{::geteuid(), 1, true, ""}, fill));
    EXPECT_TRUE(answer.ok()) << answer.error().message;
    return std::move(*answer);
  }
  std::string nodeState(const std::string& name) {
    const auto answer = ask([](auto request) { request.setNodes(); });
    for (const auto one : answer.reply().getNodes()) {
      if (view(one.getName()) == name) return std::string(nodeStateName(one.getState()));
    }
    return "unknown";
  }
  struct Seen {
    std::uint64_t id = 0;
    std::uint32_t epoch = 0;
    std::string state;
    std::string node;
    std::string request;
    std::string cards;
  };
  std::vector<Seen> tasks() {
    const auto answer = ask([](auto request) { request.initTasks(0); });
    std::vector<Seen> out;
    for (const auto one : answer.reply().getTasks()) {
      Seen seen{one.getId(),
                one.getEpoch(),
                std::string(placeStateName(one.getState())),
                text(one.getNode()),
                text(one.getSpec().getTask().getRequestId()),
                ""};
      for (const auto card : one.getCards()) seen.cards += text(card);
      out.push_back(std::move(seen));
    }
    return out;
  }
  bool isBound(const std::string& request) {
    const auto all = tasks();
    return all.size() == 1 && all[0].request.starts_with(request + "#") && all[0].state == "bound";
  }
  // What the extender's bind does before it writes to the API server.
  kj::Promise<Result<ClusterAnswer>> submit(const std::string& uid, const std::string& pod,
                                            const std::string& where = "n1",
                                            const std::string& attempt = "1") {
    TaskSpec spec;
    spec.name = podTaskName("web", pod, "main");
    spec.requestId = podRequestId(uid, "main", attempt);
    spec.mem = gibibytes(5);
    spec.share = Permille(300);
    spec.ownerUid = ::geteuid();
    return live->actor->ask(Peer{::geteuid(), 1, true, ""}, [&](auto request) {
      auto cluster = request.initSubmit();
      writeSpec(spec, cluster.initTask());
      cluster.setNode(where);
    });
  }

  Nanos assumeMax = seconds(30);
  std::vector<std::string> lines;
  std::set<std::string> waiting;  // UIDs
  int ready = 0;
  bool mayBind = true;
  std::map<std::string, BindUnderWay, std::less<>> binds;  // by UID
  ApiClient& api = client(plain());
  LoopJournal journal{loop};
  std::unique_ptr<Life> live;
};

TEST_F(KubeBridge, ALabelledNodeWithCardsIsAMember) {
  Json bare = node("bare");
  bare["metadata"]["labels"] = Json::object();
  server->put("nodes", bare);
  beginWithNode();
  EXPECT_EQ(nodeState("bare"), "unknown");
  EXPECT_TRUE(served([&] { return ready == 1; }));
  const auto answer = ask([](auto request) { request.setCards(); });
  ASSERT_EQ(answer.reply().getCards().size(), 1u);
  EXPECT_EQ(text(answer.reply().getCards()[0].getStatus().getInfo().getId()), "n1-gpu");
}

TEST_F(KubeBridge, ANodeThatServesWholeCardsTooIsRefused) {
  Json both = node("both");
  both["status"]["allocatable"]["nvidia.com/gpu"] = "1";
  server->put("nodes", both);
  beginWithNode();
  EXPECT_EQ(nodeState("both"), "unknown");
  EXPECT_NE(live->bridge->refusal("both").find("nvidia.com/gpu"), std::string::npos);
  both["status"]["allocatable"]["nvidia.com/gpu"] = "0";
  both["status"]["allocatable"]["amd.com/gpu"] = "1";
  server->put("nodes", both);
  EXPECT_TRUE(served(
      [&] { return live->bridge->refusal("both").find("amd.com/gpu") != std::string::npos; }));
  both["status"]["allocatable"]["amd.com/gpu"] = "0";
  server->put("nodes", both);
  EXPECT_TRUE(served([&] { return nodeState("both") == "alive"; }));
}

TEST_F(KubeBridge, ANodeThatGivesByClaimsIsNoMemberAndSaysSo) {
  Json claims = node("claims");
  claims["metadata"]["labels"]["qgpu.io/claims"] = "enable";
  server->put("nodes", claims);
  beginWithNode();
  EXPECT_EQ(nodeState("claims"), "unknown");
  EXPECT_NE(live->bridge->refusal("claims").find("by ResourceClaims"), std::string::npos);
  EXPECT_EQ(live->bridge->figures().refused, 0u) << "nothing is wrong with it";
  EXPECT_EQ(live->bridge->refusal("n1"), "");
}

TEST_F(KubeBridge, ANodeThatIsNotReadyIsLostAndComesBack) {
  server->put("pods", bound("p", "u1"));
  beginWithNode();
  ASSERT_TRUE(served([&] { return isBound("u1/main"); }));
  Json sick = node("n1");
  sick["status"]["conditions"][0]["status"] = "Unknown";
  server->put("nodes", sick);
  ASSERT_TRUE(served([&] { return nodeState("n1") == "lost"; }));
  EXPECT_EQ(server->evictions(), 0u);
  server->put("nodes", node("n1"));
  ASSERT_TRUE(served([&] { return nodeState("n1") == "alive" && isBound("u1/main"); }));
}

TEST_F(KubeBridge, LabelsChangeALiveNode) {
  beginWithNode();
  Json mixed = node("n1");
  mixed["metadata"]["labels"]["mixed-qgpu-enable"] = "enable";
  mixed["metadata"]["labels"]["tke.cloud.tencent.com/qgpu-schedule-policy"] = "fs";
  server->put("nodes", mixed);
  EXPECT_TRUE(served([&] {
    const auto nodes = ask([](auto request) { request.setNodes(); });
    const auto cards = ask([](auto request) { request.setCards(); });
    return nodes.reply().getNodes()[0].getMixed() &&
           cards.reply().getCards()[0].getStatus().getPolicy() == schema::Policy::FIXED_SHARE;
  }));
}

TEST_F(KubeBridge, PodsWithTheirAnnotationAreHeldUntilTheyAreGone) {
  server->put("pods", bound("p", "u1"));
  server->put("pods", ApiStandIn::pod("web", "waits", "u2"));
  beginWithNode();
  ASSERT_TRUE(served([&] { return isBound("u1/main"); }));
  EXPECT_EQ(tasks()[0].node, "n1");
  EXPECT_EQ(tasks()[0].cards, "n1-gpu");
  Json going = bound("p", "u1");
  going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z";
  server->put("pods", going);
  server->put("pods", bound("q", "u3"));
  ASSERT_TRUE(served([&] { return tasks().size() == 2; })) << "the one that goes keeps its card";
  server->remove("pods", "web", "p");
  ASSERT_TRUE(served([&] { return isBound("u3/main"); }));
  Json over = bound("q", "u3");
  over["status"]["phase"] = "Succeeded";
  server->put("pods", over);
  EXPECT_TRUE(served([&] { return tasks().empty(); }));
}

TEST_F(KubeBridge, ThePriorityOfAPodThatHoldsCardsIsKnown) {
  beginWithNode();
  server->put("pods", ApiStandIn::pod("web", "p", "u1"));
  ASSERT_TRUE(wait(submit("u1", "p")).ok());
  EXPECT_EQ(live->bridge->priorityOf("n1", "u1"), std::nullopt) << "it was not seen bound";
  Json pod = bound("p", "u1");
  pod["spec"]["priority"] = 1000;
  server->put("pods", pod);
  ASSERT_TRUE(served([&] { return live->bridge->figures().held == 1; }));
  EXPECT_EQ(live->bridge->priorityOf("n1", "u1"), 1000);
  EXPECT_EQ(live->bridge->priorityOf("n1", "u"), std::nullopt);
  EXPECT_EQ(live->bridge->priorityOf("n2", "u1"), std::nullopt);
  server->remove("pods", "web", "p");
  EXPECT_TRUE(served([&] { return !live->bridge->priorityOf("n1", "u1"); }));
}

// Its class may be edited to one whose rules it breaks: it keeps its room, also after a restart.
TEST_F(KubeBridge, P1_AnEditOfARunningPodsClassFreesNothing) {
  server->put("pods", bound("p", "u1"));
  beginWithNode();
  ASSERT_TRUE(served([&] { return tasks().size() == 1; }));
  Json edited = bound("p", "u1");
  edited["metadata"]["annotations"]["tke.cloud.tencent.com/app-class"] = "online";
  server->put("pods", edited);
  server->put("pods", bound("q", "u2"));  // told after it
  ASSERT_TRUE(served([&] { return tasks().size() == 2; }));
  server->forget();  // it is listed again
  server->endWatches();
  server->remove("pods", "web", "q");
  ASSERT_TRUE(served([&] { return tasks().size() == 1; }));
  EXPECT_TRUE(isBound("u1/main"));
  live.reset();
  beginWithNode();
  EXPECT_TRUE(served([&] { return isBound("u1/main"); }));
  server->remove("pods", "web", "p");
  EXPECT_TRUE(served([&] { return tasks().empty(); }));
}

TEST_F(KubeBridge, ABindIsAssumedAndThenSeen) {
  beginWithNode();
  server->put("pods", ApiStandIn::pod("web", "p", "u1"));
  const auto answer = wait(submit("u1", "p"));
  ASSERT_TRUE(answer.ok()) << answer.error().message;
  EXPECT_EQ(text(answer->reply().getAssigned().getNode()), "n1");
  EXPECT_EQ(live->bridge->figures().assumed, 1u);
  server->put("pods", bound("p", "u1"));
  ASSERT_TRUE(served([&] { return live->bridge->figures().held == 1; }));
  ASSERT_EQ(tasks().size(), 1u);
  EXPECT_EQ(tasks()[0].id, answer->reply().getAssigned().getTask());
}

TEST_F(KubeBridge, WhoMayNotBindRefuses) {
  mayBind = false;
  beginWithNode();
  const auto answer = wait(submit("u1", "p"));
  ASSERT_TRUE(answer.ok());
  EXPECT_TRUE(answer->reply().getAssigned().getWaiting());
  mayBind = true;
  EXPECT_TRUE(served([&] { return live->bridge->figures().assumed == 1; }));
}

TEST_F(KubeBridge, ALaterAttemptReplacesWhatWasOnlyAssumed) {
  beginWithNode();
  ASSERT_TRUE(wait(submit("u1", "p")).ok());
  ASSERT_TRUE(wait(submit("u1", "p", "n1", "2")).ok());
  ASSERT_TRUE(served([&] { return isBound("u1/main"); }));
  EXPECT_EQ(tasks()[0].request, "u1/main#2");
  EXPECT_EQ(live->bridge->figures().assumed, 1u);
}

TEST_F(KubeBridge, AnAssumptionThatNoPodTakesUpIsOver) {
  assumeMax = millis(30);
  beginWithNode();
  ASSERT_TRUE(wait(submit("u1", "p")).ok());
  EXPECT_TRUE(served([&] { return tasks().empty(); }));
  EXPECT_EQ(live->bridge->figures().assumed, 0u);
  EXPECT_EQ(server->evictions(), 0u);
}

// The watch is late: whoever looks at it alone gives the card of a bound pod to another one.
TEST_F(KubeBridge, P1_APodThatIsBoundKeepsItsCardsWhileTheWatchDoesNotSayIt) {
  assumeMax = millis(10);
  beginWithNode();
  server->put("pods", ApiStandIn::pod("web", "p", "u1"));
  ASSERT_TRUE(wait(submit("u1", "p")).ok());
  server->setLate(true);
  server->put("pods", bound("p", "u1"));
  const auto reads = [&] {
    return std::count(server->heard.begin(), server->heard.end(),
                      "GET /api/v1/namespaces/web/pods/p");
  };
  ASSERT_TRUE(served([&] { return reads() >= 3; })) << "it is asked again and again";
  EXPECT_TRUE(isBound("u1/main"));
  EXPECT_EQ(live->bridge->figures().assumed, 1u);
  const std::uint64_t task = tasks()[0].id;
  server->setLate(false);
  ASSERT_TRUE(served([&] { return live->bridge->figures().held == 1; }));
  EXPECT_EQ(tasks()[0].id, task);
}

// The Binding arrives when its cards are others' already: it must not bring its decision with it.
TEST_F(KubeBridge, P1_ABindingThatComesTooLateBringsNoCards) {
  assumeMax = millis(10);
  beginWithNode();
  Json decided = ApiStandIn::pod("web", "p", "u1");
  decided["metadata"]["annotations"][kAssignedAnnotation] = R"({"main":["n1-gpu"]})";
  server->put("pods", decided);
  ASSERT_TRUE(wait(submit("u1", "p")).ok());
  ASSERT_TRUE(served([&] { return tasks().empty(); }));
  EXPECT_FALSE(
      server->find("pods", "web", "p")["metadata"]["annotations"].contains(kAssignedAnnotation));
  ASSERT_TRUE(wait(live->writer->bindPod({"web", "p", "u1"}, "n1")).ok());
  server->put("pods", bound("q", "u2"));
  ASSERT_TRUE(served([&] { return isBound("u2/main"); })) << "all before it was seen too";
  EXPECT_EQ(live->bridge->figures().held, 1u) << "the late one holds nothing";
}

TEST_F(KubeBridge, P1_WhileABindIsUnderWayNothingOfItIsOver) {
  assumeMax = millis(5);
  binds["u1"] = {{"web", "p", "u1"}, true};
  beginWithNode();
  const auto answer = wait(submit("u1", "p"));
  ask([&](auto request) { request.setDelete(answer->reply().getAssigned().getTask()); });
  wait(kj.timer().afterDelay(30 * kj::MILLISECONDS).then([] { return 0; }));
  EXPECT_EQ(live->bridge->figures().assumed, 1u) << "it writes to the API server";
  binds.clear();
  EXPECT_TRUE(served([&] { return tasks().empty(); }));
}

TEST_F(KubeBridge, AnAssumedTaskThatWasDeletedIsAPodToEvictWhereItWasBoundAllTheSame) {
  beginWithNode();
  const auto answer = wait(submit("u1", "p"));
  server->setLate(true);
  server->put("pods", bound("p", "u1"));
  ask([&](auto request) { request.setDelete(answer->reply().getAssigned().getTask()); });
  server->setLate(false);
  ASSERT_TRUE(served([&] { return server->evictions() == 1; }));
  server->remove("pods", "web", "p");
  ASSERT_TRUE(served([&] { return tasks().empty(); }));
  ASSERT_TRUE(served([&] { return server->all("events").size() == 1; }));
  EXPECT_EQ(server->all("events")[0]["reason"], "QGPUPreempted");
}

TEST_F(KubeBridge, P1_WhatWasAssumedBeforeARestartIsAssumedUntilTheServerWasAsked) {
  beginWithNode();
  server->put("pods", ApiStandIn::pod("web", "p", "u1"));
  ASSERT_TRUE(wait(submit("u1", "p")).ok());
  const Seen before = tasks()[0];
  live.reset();
  bool blind = true;  // as if the pod were bound just after the list, and its watch late
  server->onRequest = [&] {
    const bool asked = server->heard.back() == "GET /api/v1/namespaces/web/pods/p";
    if (!asked || !std::exchange(blind, false)) return;
    server->put("pods", bound("p", "u1"));
  };
  begin();
  ASSERT_TRUE(served([&] { return live->bridge->figures().held == 1; }));
  server->onRequest = nullptr;
  ASSERT_EQ(tasks().size(), 1u);
  EXPECT_EQ(tasks()[0].id, before.id);
  EXPECT_EQ(tasks()[0].state, "bound");
}

TEST_F(KubeBridge, WhatIsAssumedOfAPodThatHasEndedIsOver) {
  assumeMax = millis(5);
  beginWithNode();
  ASSERT_TRUE(wait(submit("u1", "p")).ok());
  server->setLate(true);
  Json over = bound("p", "u1");
  over["status"]["phase"] = "Failed";
  server->put("pods", over);
  EXPECT_TRUE(served([&] { return tasks().empty(); })) << "the server says so";
  live.reset();
  server->setLate(false);
  assumeMax = seconds(30);
  beginWithNode();
  ASSERT_TRUE(wait(submit("u2", "q")).ok());
  Json ended = bound("q", "u2");
  ended["status"]["containerStatuses"] =
      Json::array({{{"name", "main"}, {"state", {{"terminated", {{"exitCode", 0}}}}}}});
  ended["spec"]["restartPolicy"] = "Never";
  server->put("pods", ended);
  EXPECT_TRUE(served([&] { return tasks().empty(); })) << "the watch does";
  EXPECT_EQ(live->bridge->figures().assumed, 0u);
}

TEST_F(KubeBridge, SaysHowItFollowsTheServer) {
  const auto shows = [&](const std::string& line) {
    const std::string page = live->bridge->metrics();
    const bool found = page.find("\n" + line + "\n") != std::string::npos;
    if (!found) ADD_FAILURE() << line << " is not in\n" << page;
    return found;
  };
  Json both = node("both");
  both["status"]["allocatable"]["nvidia.com/gpu"] = "1";
  server->put("nodes", both);
  server->put("pods", bound("p", "u1"));
  beginWithNode();
  ASSERT_TRUE(served([&] { return isBound("u1/main"); }));
  ASSERT_TRUE(wait(submit("u2", "q")).ok());
  shows(R"(qgpu_kube_acting 1)");
  shows(R"(qgpu_kube_api_reachable 1)");
  shows(R"(qgpu_kube_nodes{state="member"} 1)");
  shows(R"(qgpu_kube_nodes{state="refused"} 1)");
  shows(R"(qgpu_kube_containers{state="bound"} 1)");
  shows(R"(qgpu_kube_containers{state="assumed"} 1)");
  shows(R"(qgpu_kube_objects{of="nodes"} 2)");
  shows(R"(qgpu_kube_objects{of="pods"} 1)");
  shows(R"(qgpu_kube_lists_total{of="pods"} 1)");
  const std::string page = live->bridge->metrics();
  EXPECT_NE(page.find(R"(qgpu_kube_watch_age_seconds{of="pods"} 0.)"), std::string::npos) << page;
  server->cut();
  server->forget();
  server->restart();
  ASSERT_TRUE(served([&] {
    return live->bridge->metrics().find(R"(qgpu_kube_lists_total{of="nodes"} 2)") !=
           std::string::npos;
  })) << live->bridge->metrics();
}

TEST_F(KubeBridge, AMarkOfACardIsKeptByTheServer) {
  beginWithNode();
  const auto mark = [&](bool cordon) {
    ask([&](auto request) {
      auto target = cordon ? request.initCordon() : request.initUncordon();
      target.setNode("n1");
      target.setCard("n1-gpu");
    });
  };
  const auto state = [&] {
    const auto cards = ask([](auto request) { request.setCards(); });
    return std::string(cardStateName(cards.reply().getCards()[0].getStatus().getState()));
  };
  const auto stored = [&] {
    return server->find("nodes", "", "n1")["metadata"]["annotations"].value(kCordonedAnnotation,
                                                                            "");
  };
  server->refusals.push_back({500, "InternalError", "not now", ""});
  mark(true);
  ASSERT_TRUE(served([&] { return stored() == R"(["n1-gpu"])"; })) << "tried again";
  EXPECT_EQ(state(), "cordoned");
  // Whatever the node says next, and whoever follows, knows of it.
  Json changed = server->find("nodes", "", "n1");
  changed["metadata"]["labels"]["mixed-qgpu-enable"] = "enable";
  server->put("nodes", changed);
  ASSERT_TRUE(served([&] {
    const auto nodes = ask([](auto request) { request.setNodes(); });
    return nodes.reply().getNodes()[0].getMixed();
  }));
  EXPECT_EQ(state(), "cordoned");
  live.reset();
  beginWithNode();
  EXPECT_EQ(state(), "cordoned");
  EXPECT_TRUE(wait(submit("u1", "p"))->reply().getAssigned().getWaiting());
  mark(false);
  ASSERT_TRUE(served([&] { return stored() == "[]"; }));
  EXPECT_EQ(state(), "ready");
}

TEST_F(KubeBridge, ACardThatKubeletDoesNotCountTakesNothingAndSaysWhy) {
  server->put("nodes", startingNode("n1"));
  beginWithNode();
  EXPECT_TRUE(wait(submit("u1", "p"))->reply().getAssigned().getWaiting());
  const auto cardsNow = ask([](auto request) { request.setCards(); });
  EXPECT_EQ(cardsNow.reply().getCards()[0].getStatus().getState(), schema::CardState::STARTING);
  server->put("nodes", node("n1"));
  EXPECT_TRUE(served([&] { return tasks().size() == 1 && tasks()[0].state == "bound"; }));
}

TEST_F(KubeBridge, ACardThatChangesBetweenHelloAndWelcomeIsTold) {
  server->remove("nodes", "", "n1");
  begin();
  ASSERT_EQ(nodeState("n1"), "unknown");
  journal.hold();
  server->put("nodes", startingNode("n1"));
  ASSERT_TRUE(served([&] { return journal.holdsSome(); })) << "the welcome waits for the disk";
  server->put("nodes", node("n1"));
  Json later = node("n2");  // what is seen after it
  later["metadata"]["annotations"].erase(kCardsAnnotation);
  server->put("nodes", later);
  ASSERT_TRUE(served([&] { return !live->bridge->refusal("n2").empty(); }));
  journal.letGo();
  EXPECT_TRUE(served([&] {
    const auto cards = ask([](auto request) { request.setCards(); });
    const auto told = cards.reply().getCards();
    return told.size() == 1 && told[0].getStatus().getState() == schema::CardState::READY;
  }));
}

// kube-scheduler leaves it alone as well.
TEST_F(KubeBridge, APodWithASchedulingGateDoesNotWaitUntilTheGateGoes) {
  Json gated = ApiStandIn::pod("web", "gated", "u1");
  gated["spec"]["schedulingGates"] = Json::array({{{"name", "example.org/group"}}});
  server->put("pods", gated);
  server->put("pods", ApiStandIn::pod("web", "open", "u2"));
  beginWithNode();
  EXPECT_EQ(waiting, std::set<std::string>{"u2"});
  gated["spec"]["schedulingGates"] = Json::array();
  server->put("pods", gated);
  EXPECT_TRUE(served([&] { return waiting.contains("u1"); }));
}

TEST_F(KubeBridge, WhichPodsWaitIsTold) {
  server->put("pods", ApiStandIn::pod("web", "p", "u1"));
  beginWithNode();
  EXPECT_TRUE(served([&] { return waiting.contains("u1"); }));
  server->put("pods", bound("p", "u1"));
  EXPECT_TRUE(served([&] { return waiting.empty(); }));
  server->put("pods", ApiStandIn::pod("web", "q", "u2"));
  ASSERT_TRUE(served([&] { return waiting.contains("u2"); }));
  Json broken = ApiStandIn::pod("web", "q", "u2");
  broken["metadata"]["annotations"]["tke.cloud.tencent.com/app-class"] = "online";
  server->put("pods", broken);
  EXPECT_TRUE(served([&] { return waiting.empty(); })) << "it fits nowhere";
}

TEST_F(KubeBridge, WhatIsNoPodIsRefused) {
  beginWithNode();
  auto answer = live->actor->ask(Peer{::geteuid(), 1, true, ""}, [](auto request) {
    TaskSpec spec;
    spec.name = "train";
    spec.mem = gibibytes(1);
    spec.share = Permille(100);
    writeSpec(spec, request.initSubmit().initTask());
  });
  const auto said = wait(kj::mv(answer));
  ASSERT_TRUE(said.ok());
  EXPECT_TRUE(said->reply().getAssigned().getWaiting());
  EXPECT_NE(
      text(ask([&](auto request) { request.setExplain(said->reply().getAssigned().getTask()); })
               .reply()
               .getExplanation()
               .getText())
          .find("containers of pods"),
      std::string::npos);
}

TEST_F(KubeBridge, AnEndedTaskIsAnEvictedPod) {
  server->put("pods", bound("p", "u1"));
  beginWithNode();
  ASSERT_TRUE(served([&] { return isBound("u1/main"); }));
  server->refusals.push_back({429, "TooManyRequests", "the disruption budget forbids it", ""});
  const std::uint64_t task = tasks()[0].id;
  ask([&](auto request) { request.setDelete(task); });
  ASSERT_TRUE(served([&] { return server->evictions() == 1; })) << "asked again after the refusal";
  EXPECT_EQ(tasks().size(), 1u) << "it holds its card until it is gone";
  ASSERT_TRUE(served([&] { return server->all("events").size() == 1; }));
  const Json told = server->all("events")[0];
  EXPECT_EQ(told["reason"], "QGPUPreempted");
  EXPECT_EQ(told["involvedObject"]["uid"], "u1");
  EXPECT_EQ(told["message"], "asked to leave node n1: deleted");
  server->remove("pods", "web", "p");
  EXPECT_TRUE(served([&] { return tasks().empty(); }));
}

TEST_F(KubeBridge, ADeletedTaskThatIsOnlyAssumedTouchesNoPod) {
  beginWithNode();
  const auto answer = wait(submit("u1", "p"));
  ask([&](auto request) { request.setDelete(answer->reply().getAssigned().getTask()); });
  EXPECT_TRUE(served([&] { return tasks().empty(); }));
  EXPECT_EQ(server->evictions(), 0u);
}

TEST_F(KubeBridge, ARestartKeepsNumbersAndEpochs) {
  beginWithNode();
  server->put("pods", ApiStandIn::pod("web", "p", "u1"));
  ASSERT_TRUE(wait(submit("u1", "p")).ok());
  server->put("pods", bound("p", "u1"));
  ASSERT_TRUE(served([&] { return live->bridge->figures().held == 1; }));
  const Seen before = tasks()[0];
  live.reset();
  beginWithNode();
  ASSERT_TRUE(served([&] { return live->bridge->figures().held == 1; }));
  ASSERT_EQ(tasks().size(), 1u);
  EXPECT_EQ(tasks()[0].id, before.id);
  EXPECT_EQ(tasks()[0].epoch, before.epoch);
  EXPECT_EQ(tasks()[0].state, "bound");
  EXPECT_EQ(server->evictions(), 0u);
}

TEST_F(KubeBridge, WhatEndedWhileNobodyLookedIsOverAfterARestart) {
  server->put("pods", bound("p", "u1"));
  beginWithNode();
  ASSERT_TRUE(served([&] { return isBound("u1/main"); }));
  live.reset();
  server->remove("pods", "web", "p");
  server->put("pods", bound("q", "u2"));
  beginWithNode();
  EXPECT_TRUE(served([&] { return isBound("u2/main"); }));
  EXPECT_EQ(server->evictions(), 0u);
}

TEST_F(KubeBridge, APodOfTheSameNameIsAnotherTask) {
  server->put("pods", bound("p", "u1"));
  beginWithNode();
  ASSERT_TRUE(served([&] { return isBound("u1/main"); }));
  server->cut();
  server->remove("pods", "web", "p");
  server->put("pods", bound("p", "u2"));
  server->forget();
  server->restart();
  EXPECT_TRUE(served([&] { return isBound("u2/main"); }));
}

TEST_F(KubeBridge, WhileTheServerIsAwayEverythingStaysAndNothingIsBound) {
  server->put("pods", bound("p", "u1"));
  beginWithNode();
  ASSERT_TRUE(served([&] { return isBound("u1/main"); }));
  server->cut();
  ASSERT_TRUE(served([&] { return !api.reachable(); }));
  const kj::TimePoint end = kj.timer().now() + 600 * kj::MILLISECONDS;  // two fences
  ASSERT_TRUE(served([&] { return kj.timer().now() > end; }));
  EXPECT_EQ(nodeState("n1"), "alive");
  EXPECT_TRUE(isBound("u1/main"));
  const auto answer = wait(submit("u2", "q"));
  ASSERT_TRUE(answer.ok());
  EXPECT_TRUE(answer->reply().getAssigned().getWaiting());
  server->restart();
  EXPECT_TRUE(served([&] {
    const auto all = tasks();
    return all.size() == 2 && all[1].state == "bound";
  })) << "what waited is bound";
}

TEST_F(KubeBridge, C7_NonsenseInAnnotationsHarmsNobody) {
  Json odd = node("odd");
  odd["metadata"]["annotations"][kCardsAnnotation] = "{\"format\":1,\"cards\":[{}]}";
  server->put("nodes", odd);
  for (const char* text : {"{", "[]", R"({"main":7})", R"({"main":[7]})", R"({"other":["x"]})"}) {
    Json pod = bound("p" + std::to_string(lines.size()), "u" + std::string(text));
    pod["metadata"]["annotations"][kAssignedAnnotation] = text;
    server->put("pods", pod);
  }
  server->put("pods", bound("good", "u1"));
  beginWithNode();
  ASSERT_TRUE(served([&] {
    for (const Seen& seen : tasks()) {
      if (seen.request.starts_with("u1/main#") && seen.state == "bound") return true;
    }
    return false;
  }));
  EXPECT_EQ(nodeState("odd"), "unknown");
  EXPECT_EQ(live->log.errors(), 0u);
}

}  // namespace
}  // namespace qgpu::kube_bridge_test
