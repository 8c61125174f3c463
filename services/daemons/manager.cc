#include "services/daemons/manager.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <future>
#include <optional>
#include <sys/random.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "actors/card/card_actor.h"
#include "actors/card/task_actor.h"
#include "actors/member/member_actor.h"
#include "actors/node/node_actor.h"
#include "runtime/dispatcher.h"
#include "runtime/kj/bridge.h"
#include "runtime/loop.h"
#include "runtime/realtime.h"
#include "services/api/admin/node_handler.h"
#include "services/api/commands/node_link.h"
#include "services/api/metrics/pages.h"
#include "services/api/rpc/rpc_server.h"
#include "services/api/rpc/scheduler_link.h"
#include "services/attach/attach_port.h"
#include "services/attach/run_dir/survivors.h"
#include "services/base/host.h"
#include "services/base/metrics_text.h"
#include "services/base/net/live_tls.h"
#include "services/base/run_dir.h"
#include "services/cards/nvidia/layout_trial.h"
#include "services/cards/nvidia/suspend_answers.h"
#include "services/daemons/card_watch.h"
#include "services/daemons/guard_choice.h"
#include "services/daemons/kubelet_choice.h"
#include "services/daemons/listeners.h"
#include "services/daemons/logged_events.h"
#include "services/kubernetes/agent/kubelet_handler.h"
#include "services/kubernetes/agent/node_agent.h"
#include "services/kubernetes/agent/plugin_process.h"
#include "services/kubernetes/agent/tenant_socket.h"
#include "services/kubernetes/client/event_metrics.h"
#include "services/kubernetes/client/pod_writer.h"
#include "services/prove/card_reports.h"
#include "services/web/web_routes.h"
#include "store/sqlite_store.h"

namespace qgpu {
namespace {

// Tasks bound on this node at once: no more than one card may be given.
constexpr std::size_t kTaskSlots = Arbiter::kTasksMax;
constexpr const char* kName = "manager";    // of its files in the run dir
constexpr auto kGoodbye = 2 * kj::SECONDS;  // for the API server's answer at the end

// 128 bits from the kernel: nobody guesses another tenant's token.
class KernelTokens final : public TokenSource {
 public:
  std::string next() override {
    constexpr char kDigits[] = "0123456789abcdef";
    std::array<unsigned char, 16> bytes{};
    if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
      fatal(ExitCode::Environment, "getrandom() gives nothing");
    }
    std::string token;
    for (const unsigned char byte : bytes) {
      token += kDigits[byte >> 4];
      token += kDigits[byte & 15];
    }
    return token;
  }
};

// The loop of cards and tasks on a thread of its own, which waits until everybody is registered.
class CardThread {
 public:
  explicit CardThread(Loop& loop, RealtimeChoice realtime)
      : loop_(loop), thread_([this, realtime] {
          const Realtime off;
          granted_.set_value(realtime == RealtimeChoice::Auto ? askRealtime() : off);
          if (go_.get_future().get()) loop_.run();
        }) {}
  ~CardThread() { stop(); }

  Realtime realtime() { return granted_.get_future().get(); }
  void start() {
    started_ = true;
    go_.set_value(true);
  }
  void stop() {
    if (!thread_.joinable()) return;
    if (!started_) go_.set_value(false);
    loop_.stop();
    thread_.join();
  }

 private:
  Loop& loop_;
  std::promise<Realtime> granted_;
  std::promise<bool> go_;
  bool started_ = false;
  std::thread thread_;  // last: it uses the promises
};

std::string suspendProbe() {
  return folderOfBinaries() / "qgpu-suspend-probe";
}

SuspendTrial suspendTrial(const ManagerOptions& options, const RunDir& dir) {
  SuspendTrial trial;
  trial.choice = options.cards.suspend;
  trial.probe = suspendProbe();
  trial.kept = dir.file(kSuspendAnswersFile);
  trial.layouts = dir.file(kLayoutsFile);
  trial.version = QGPU_VERSION;
  return trial;
}

// What was found on disk before anything serves.
struct Past {
  std::vector<StoredRow> rows;
  Survivors survivors;  // without tasks where the store knows them

  static Result<Past> read(SqliteStore& store, const RunDir& dir, Log& log) {
    auto rows = store.load();
    if (!rows) return rows.error();
    auto survivors = findSurvivors(dir.path());
    if (!survivors) return survivors.error();
    for (const std::string& why : survivors->unusable) log.warn("task-record", {{"why", why}});
    const bool known = NodeNumbers::storedIncarnation(*rows).has_value();
    if (known) {
      std::erase_if(survivors->tasks, [&rows](const StoredRow& task) {
        return !NodeNumbers::laterThanCopy(*rows, task.key.id);
      });
    }
    if (!survivors->tasks.empty()) {
      log.warn(known ? "database-is-older" : "database-is-new",
               {{"tasks_taken_over", survivors->tasks.size()}});
    }
    return Past{std::move(*rows), std::move(*survivors)};
  }
};

std::string unheldMetrics(const AttachPort& attach) {
  const UnheldCounters& counters = attach.unheld();
  MetricsText page;
  page.one("qgpu_unattached_tasks_total", "counter",
           "Tasks of which no process attached in their first minute.",
           countText(attach.gate().unattached()));
  page.one("qgpu_unheld_processes_total", "counter",
           "Processes of tasks that had a card open and were not attached.",
           countText(counters.told.load()));
  page.one("qgpu_unheld_ended_total", "counter", "Of these, the ones that --strict ended.",
           countText(counters.ended.load()));
  return page.take();
}

// A damaged database is never served; what lives does not depend on it.
Error refused(Error store) {
  if (store.code == ErrorCode::Corrupt) {
    store.message += "; where it is away, the tasks that live are taken over";
  }
  return store;
}

// Every report would count for nothing, and not say that it is the file.
Status checkReportSigners(const std::string& file) {
  if (file.empty() || ::access(file.c_str(), R_OK) == 0) return ok();
  return fail(ErrorCode::InvalidArgument,
              "--report-signers: " + file + " can't be read: " + std::strerror(errno));
}

Status checkOvercommit(const ManagerOptions& options, const std::vector<Card>& cards) {
  if (options.overcommit == Permille(0)) return ok();
  for (const Card& card : cards) {
    const bool imagined = card.platform.empty();
    if (!imagined && card.platform != "NVIDIA CUDA") {
      return fail(ErrorCode::InvalidArgument,
                  "--overcommit: card " + card.id + " is of platform '" + card.platform +
                      "', and only memory of CUDA can leave a card: give no --overcommit");
    }
  }
  return ok();
}

std::optional<ResidencyConfig> residencyConfig(const ManagerOptions& options, const Card& card,
                                               const ArbiterConfig& arbiter) {
  if (options.overcommit == Permille(0)) return std::nullopt;
  ResidencyConfig config;
  config.memory = card.mem;
  // A drain waits for the hold before it, and what is said of its end takes a moment.
  const Nanos drained = arbiter.drainFor + arbiter.settleMax * 2;
  if (arbiter.drainFor > Nanos(0)) config.idleFor = std::max(config.idleFor, drained);
  return config;
}

ArbiterConfig arbiterConfig(const ManagerOptions& options) {
  ArbiterConfig config;
  config.policy = readPolicy(options.policy);
  config.onlineIdle = options.onlineIdle;
  config.sliceMin = options.slice.low;
  config.sliceMax = options.slice.high;
  return config;
}

}  // namespace

// Nothing where the node stands alone, or reaches its scheduler without certificates.
Result<std::unique_ptr<LiveTls>> openWay(const ManagerOptions& options) {
  if (options.tls.none()) return std::unique_ptr<LiveTls>();
  auto tls = std::make_unique<LiveTls>(options.tls);
  if (Status read = tls->read(); !read) return read.error();
  return tls;
}

// Nothing where no kubelet is served, or no API server is known.
Result<std::optional<KubeCredentials>> findCluster(const ManagerOptions& options) {
  using Found = std::optional<KubeCredentials>;
  const KubePlatform around = KubePlatform::ofProcess();
  if (!servesKubelet(options) || !around.present()) return Found();
  auto credentials = findCredentials(around);
  if (!credentials) return credentials.error();
  return Found(std::move(*credentials));
}

// Members in the order in which they start; they end in the reverse order.
struct Manager::Parts {
  Parts(RunDir dir, const ManagerOptions& options, Log& daemonLog)
      : runDir(std::move(dir)), log(daemonLog), cardThread(cardLoop, options.realtime) {}

  RunDir runDir;
  Log& log;
  Loop mainLoop;
  Loop cardLoop;
  CardThread cardThread;
  KernelTokens tokens;
  ActorSystem system{randomWord()};
  Dispatcher mainActors{system, mainLoop};
  Dispatcher cardActors{system, cardLoop};
  LoopBeat cardBeat{cardLoop};

  std::optional<StoreJournal> journal;
  std::optional<NodeActor> node;
  std::vector<std::unique_ptr<CardActor>> cards;
  std::vector<std::unique_ptr<TaskActor>> tasks;
  std::unique_ptr<Guard> guard;  // null: there is none
  std::optional<AttachPort> attach;

  ActorId memberId = ActorId::kNobody;  // stays so where the node stands alone
  ActorId clientId{};                   // of `actor`, and of what the composition tells the node
  std::optional<MemberActor> member;

  std::optional<KjBridge> kj;
  std::unique_ptr<LiveTls> tls;  // null: none was given
  std::optional<NodeLink> toMember;
  std::optional<SchedulerLink> scheduler;
  std::optional<NodeLink> link;
  std::optional<NodeActorClient> actor;
  std::optional<LoggedEvents> loggedEvents;
  std::optional<prove::CardReports> reports;
  std::optional<Keeping> keeping;
  std::optional<CardWatch> cardWatch;  // none: no card of NVIDIA's
  std::optional<NodeHandler> handler;
  PodBook pods;
  std::optional<PodGuard> podGuard;
  std::optional<PodLimits> podLimits;     // none: the driver has no limits
  std::optional<KubeletHandler> kubelet;  // none: this node serves no kubelet
  std::optional<AdminServer> admin;
  std::optional<RpcServer> rpc;
  std::optional<NodePages> pages;
  std::optional<Health> health;
  std::optional<HttpServer> http;
  std::optional<HttpServer> scrapes;  // --metrics
  std::optional<HttpServer> web;      // none: nobody asked for it
  std::optional<PluginProcess> plugin;
  std::optional<ApiClient> api;  // of the Kubernetes API server; none: nobody named one
  std::optional<PodWriter> podEvents;
  std::optional<NodeAgent> agent;

  void addActors(const ManagerOptions& options, const CardsFound& found, const Past& past,
                 ActorId nodeId);
  bool inCluster = false;  // of Kubernetes
  void addServers(CardsFound& found, const ManagerOptions& options, UnixListeners local,
                  TcpListeners remote, ActorId nodeId);
  void addMember(const ManagerOptions& options, const TenantEnvironment& environment,
                 ActorId nodeId);
  void followCertificates();
  void serveScrapes(const ManagerOptions& options, TcpListener listener);
  void serveWeb(WebOpened opened);
  kj::Maybe<KubeletHandlers&> addKubelet(CardsFound& found, const ManagerOptions& options,
                                         const TenantEnvironment& environment);
  Status serveKubelet(const ManagerOptions& options);
  void readReports(const ManagerOptions& options, ActorId nodeId);
  void addAgent(const ManagerOptions& options, KubeCredentials credentials, ActorId nodeId);
  void close();
};

void Manager::Parts::addActors(const ManagerOptions& options, const CardsFound& found,
                               const Past& past, ActorId nodeId) {
  NodeOptions node_;
  node_.name = options.nodename;
  node_.version = QGPU_VERSION;
  node_.pid = static_cast<std::uint32_t>(::getpid());
  node_.incarnation = NodeNumbers::storedIncarnation(past.rows).value_or(0) + 1;
  node_.lastTask = past.survivors.lastTask;
  node_.living = past.survivors.living;
  node_.arbiter = arbiterConfig(options);
  node_.policy = node_.arbiter.policy;
  node_.mixed = options.mixed;
  node_.labelled = inCluster;
  node_.maxTasksPerCard = options.maxTasksPerCard;
  node_.overcommit = options.overcommit;
  node_.attachSocket = runDir.file("attach.sock");
  const Realtime realtime = cardThread.realtime();
  // A word, and ": " with why it is no more.
  node_.realtime = std::string(realtime.got) + (*realtime.why != 0 ? ": " : "") + realtime.why;
  node_.unixMsAtZero = unixMsAtZero;

  NodePeers peers;
  peers.attach = cardActors.reserve();
  peers.member = memberId;
  AttachPortConfig port;
  port.node = nodeId;
  port.listenerLoop = &mainLoop;
  port.cards = found.cards;
  port.server.runDir = runDir.path();
  port.server.timeslices = options.timeslices;
  port.server.guard = guard.get();
  port.suspend.probe = suspendProbe();
  port.suspend.realtime = options.realtime == RealtimeChoice::Auto;
  port.suspend.lost = [this](const Card& card) {
    log.warn("card-suspends", {{"card", card.id}, {"by", "gate"}, {"why", card.suspendWhy}});
    // The next manager is to test it anew.
    ::unlink(runDir.file(kSuspendAnswersFile).c_str());
  };
  port.server.incarnation = node_.incarnation;
  port.unheld.nodes = cardNodes(found.cards);
  port.unheld.strict = options.strict;
  std::vector<CardFacts> facts;
  for (const Card& card : found.cards) {
    facts.push_back(card);
    const bool stops = card.suspend != schema::Suspend::GATE;
    const ArbiterConfig config = stops ? whereHoldsStopWork(node_.arbiter) : node_.arbiter;
    cards.push_back(std::make_unique<CardActor>(card.index, config, CardPeers{peers.attach, nodeId},
                                                monotonicNow(), CardTrace::kKept,
                                                residencyConfig(options, card, config)));
    peers.cards.push_back(cardActors.add(*cards.back()));
  }
  port.cardActors = peers.cards;
  for (std::size_t slot = 0; slot < kTaskSlots; ++slot) {
    tasks.push_back(std::make_unique<TaskActor>(nodeId, peers.attach));
    peers.tasks.push_back(cardActors.add(*tasks.back()));
  }
  const ActorId attachId = peers.attach;
  attach.emplace(cardActors, attachId, std::move(port));
  node.emplace(std::move(node_), std::move(peers), std::move(facts), tokens, past.rows,
               past.survivors.tasks);
  mainActors.attach(nodeId, *node);
}

void Manager::Parts::addServers(CardsFound& found, const ManagerOptions& options,
                                UnixListeners local, TcpListeners remote, ActorId nodeId) {
  clientId = mainActors.reserve();
  kj.emplace(mainLoop);
  link.emplace(mainActors, clientId, nodeId, memberId);
  actor.emplace(*link, kj->timer());
  mainActors.attach(clientId, *actor);
  if (found.health) {
    cardWatch.emplace(std::move(*found.health), *actor, log, kj->lowLevel(), kj->timer(),
                      [this](const HealthChange& change) {
                        if (agent) agent->onHealth(change);
                      });
  }
  for (const std::string& card : found.leftAlone) log.warn("card-left-alone", {{"why", card}});
  keeping.emplace(journal, log, RowCopy{kName, options.nodename, 0, QGPU_VERSION, {}});
  const ChangeRule rule(::geteuid());
  const TenantEnvironment environment{guestLibrary(), found.tenantEnv};
  handler.emplace(*actor, *keeping, options.nodename, environment);
  admin.emplace(*handler, rule, AdminLimits{}, kj->lowLevel(), kj->timer(), std::move(local.admin));
  rpc.emplace(*actor, rule, RpcLimits{}, kj->lowLevel(), kj->timer(),
              addKubelet(found, options, environment), *keeping);
  rpc->serveUnix(std::move(local.rpc));
  if (remote.rpc) rpc->serveTcp(std::move(*remote.rpc));
  log.info(
      "serves",
      {{"run_dir", runDir.path()}, {"http", remote.http.address()}, {"cards", found.cards.size()}});
  const auto more = [this, guarded = guard ? found.cards : std::vector<Card>()] {
    return unheldMetrics(*attach) + (guard ? guardMetrics(*guard, guarded) : "") +
           (podEvents ? eventMetrics(*podEvents) : "") + (agent ? agent->metrics() : "") +
           (tls ? tls->metrics() : "");
  };
  const auto podOf = [this](std::uint64_t task) {
    const PodTaskParts parts = agent ? agent->containerOf(task) : PodTaskParts{};
    return PodLabels{parts.nameSpace, parts.pod, parts.container};
  };
  pages.emplace(*actor, more, kubelet ? PodOfTask(podOf) : nullptr);
  health.emplace([this] { return pages->storage(); },
                 std::vector<Health::Watched>{{"card loop", cardBeat}}, kj->timer(), feedWatchdog);
  http.emplace(routesOf(*pages, *health), HttpLimits{}, kj->lowLevel(), kj->timer(),
               std::move(remote.http));
  if (remote.metrics) serveScrapes(options, std::move(*remote.metrics));
  Outlet(mainActors, clientId).sendUrgent(nodeId, [](auto message) { message.initStart(); });
  loggedEvents.emplace(*actor, log);
  loggedEvents->start();
  readReports(options, nodeId);
  if (memberId != ActorId::kNobody) addMember(options, environment, nodeId);
  if (tls) followCertificates();
}

void Manager::Parts::readReports(const ManagerOptions& options, ActorId nodeId) {
  const auto post = [this](std::function<void()> work) { mainLoop.post(std::move(work)); };
  const auto tell = [this, nodeId](const std::string& card, const prove::ReportNow& now) {
    Outlet(mainActors, clientId).sendUrgent(nodeId, [&](schema::Envelope::Builder message) {
      auto read = message.initReportRead();
      read.setCard(card);
      read.setMadeUnixMs(static_cast<std::uint64_t>(now.madeUnixMs));
      read.setWhy(now.why);
    });
  };
  reports.emplace(*actor, kj->timer(), log,
                  prove::CardReports::Config{QGPU_VERSION, options.reportSigners}, post, tell);
  reports->start();
}

void Manager::Parts::serveScrapes(const ManagerOptions& options, TcpListener listener) {
  log.info("metrics-open", {{"address", listener.address()}});
  kj::Maybe<kj::TlsContext&> secured;
  if (options.metricsTls && tls) secured = tls->now();
  scrapes.emplace(scrapeRoutes(*pages), HttpLimits{}, kj->lowLevel(), kj->timer(),
                  std::move(listener), secured);
}

void Manager::Parts::addMember(const ManagerOptions& options, const TenantEnvironment& environment,
                               ActorId nodeId) {
  const ActorId linkId = mainActors.reserve();
  const HostRoom room = hostRoom();
  MemberOptions memberOptions;
  memberOptions.cpuMilli = room.cpuMilli;
  memberOptions.hostMem = room.mem;
  memberOptions.attachSocket = runDir.file("attach.sock");
  memberOptions.environment = assignments(nodeVariables(environment));
  member.emplace(std::move(memberOptions), MemberPeers{nodeId, linkId});
  mainActors.attach(memberId, *member);

  SchedulerLinkConfig config;
  config.addresses = options.schedulers;
  if (tls) config.tls = tls->now();
  config.node = *actor;
  config.seed = randomWord();
  config.onState = [this](const std::string& state) { log.info("scheduler", {{"state", state}}); };
  toMember.emplace(mainActors, linkId, memberId);
  scheduler.emplace(*toMember, kj->io().getNetwork(), kj->timer(), std::move(config));
  mainActors.attach(linkId, *scheduler);
  scheduler->start();
}

void Manager::Parts::serveWeb(WebOpened opened) {
  log.info("serves-web", {{"web", opened.listener.address()}});
  kj::Maybe<kj::TlsContext&> secured;
  if (opened.access.certificates) secured = tls->now();
  web.emplace(webRoutes(*handler, Side::Node, std::move(opened.access)), HttpLimits{},
              kj->lowLevel(), kj->timer(), std::move(opened.listener), secured);
}

void Manager::Parts::followCertificates() {
  const auto use = [this](kj::TlsContext& now) {
    if (scheduler) scheduler->setTls(now);
    if (scrapes) scrapes->setTls(now);
    if (web) web->setTls(now);
    log.info("certificates-changed", {{"certificate", tls->files().cert}});
  };
  const auto refused = [this](const std::string& why) {
    log.warn("certificates-kept", {{"why", why}});
  };
  tls->follow(kj->timer(), {use, refused});
}

// The handler is there before anybody connects, the plugin once there is something to connect to.
kj::Maybe<KubeletHandlers&> Manager::Parts::addKubelet(CardsFound& found,
                                                       const ManagerOptions& options,
                                                       const TenantEnvironment& environment) {
  if (!servesKubelet(options)) return nullptr;
  KubeletHandlerConfig config;
  config.unit = options.pods.unit;
  config.mixed = options.mixed;
  // The library lies elsewhere in a container: the plugin says where.
  config.environment = assignments(nodeVariables({"", environment.extras}));
  kubelet.emplace(*actor, pods, std::move(config));
  if (guard) kubelet->setGuard(podGuard.emplace(*guard));
  if (found.limiter) {
    PodLimitsConfig limited;
    limited.mounts = PodLimits::mountsNow();
    kubelet->setLimits(podLimits.emplace(std::move(*found.limiter), kj->lowLevel(), kj->timer(),
                                         log, std::move(limited)));
  } else if (!found.noLimiter.empty()) {
    log.info("no-pod-limits", {{"why", found.noLimiter}});
  }
  return *kubelet;
}

Status Manager::Parts::serveKubelet(const ManagerOptions& options) {
  if (!kubelet) return ok();
  if (Status opened = openTenantSocket(runDir.path()); !opened) return opened;
  plugin.emplace(mainLoop, log, pluginCommand(options, runDir.path(), guestLibrary()));
  plugin->start();
  return ok();
}

void Manager::Parts::addAgent(const ManagerOptions& options, KubeCredentials credentials,
                              ActorId nodeId) {
  if (!kubelet) return;
  for (const std::string& why : credentials.warnings) log.warn("kubernetes", {{"why", why}});
  log.info("kubernetes", {{"credentials", credentials.source}, {"server", credentials.host}});
  NodeAgentConfig config;
  config.node = options.nodename;
  config.version = QGPU_VERSION;
  config.attachSocket = runDir.file("attach.sock");
  config.maxTasksPerCard = options.maxTasksPerCard;
  config.policy = options.policy;
  config.rules = options.pods;
  config.labelNode = options.labelNode;
  config.onMixed = [this, nodeId](bool mixed) {
    Outlet(mainActors, clientId).sendUrgent(nodeId, [mixed](schema::Envelope::Builder message) {
      message.initNodeLabelled().setMixed(mixed);
    });
  };
  api.emplace(std::move(credentials), kj->io().getNetwork(), kj->timer(), randomWord());
  podEvents.emplace(*api, "qgpu-manager", options.nodename);
  agent.emplace(*actor, *kubelet, *api, *podEvents, log, std::move(config));
}

// Servers first, then turns, then the disk: nothing is promised after it can't be kept.
void Manager::Parts::close() {
  if (agent) {
    auto told = kj->timer().timeoutAfter(kGoodbye, agent->leave());
    told.catch_([](kj::Exception&&) {}).wait(kj->waitScope());
  }
  plugin.reset();
  reports.reset();
  loggedEvents.reset();
  web.reset();
  agent.reset();
  podEvents.reset();
  api.reset();
  scrapes.reset();
  http.reset();
  health.reset();
  rpc.reset();
  kubelet.reset();
  podLimits.reset();
  admin.reset();
  cardWatch.reset();
  system.stop();
  cardThread.stop();
  attach.reset();
  journal.reset();
  scheduler.reset();
  toMember.reset();
  actor.reset();
  link.reset();
  tls.reset();
  kj.reset();
}

Result<std::unique_ptr<Manager>> Manager::open(const ManagerOptions& options, CardsFound cards,
                                               Log& log) {
  blockEndSignals();
  raiseDescriptorLimit();
  if (Status units = checkMemoryUnit(options, cards); !units) return units.error();
  if (Status may = checkReportSigners(options.reportSigners); !may) return may.error();
  auto cluster = findCluster(options);
  if (!cluster) return cluster.error();
  auto way = openWay(options);
  if (!way) return way.error();
  auto remote = TcpListeners::open({options.http, options.rpc, options.metrics});
  if (!remote) return remote.error();
  auto web = openWeb(options.web);
  if (!web) return web.error();
  auto runDir = RunDir::claim(options.runDir, kName);
  if (!runDir) return runDir.error();
  const SuspendTrial trial = suspendTrial(options, *runDir);
  if (Status chosen = chooseSuspends(cards.cards, trial, log); !chosen) return chosen.error();
  if (Status may = checkOvercommit(options, cards.cards); !may) return may.error();
  auto guard = openGuard(options, runDir->path(), cards.cards, log);
  if (!guard) return guard.error();
  auto store = SqliteStore::open(options.dbfile);
  if (!store) return refused(store.error());
  auto past = Past::read(*store, *runDir, log);
  if (!past) return past.error();
  auto local = UnixListeners::open(*runDir, kName);
  if (!local) return local.error();

  auto parts = std::make_unique<Parts>(std::move(*runDir), options, log);
  openJournal(parts->journal, std::make_unique<SqliteStore>(std::move(*store)), parts->mainLoop,
              log);
  parts->mainActors.setJournal(*parts->journal);
  const ActorId nodeId = parts->mainActors.reserve();
  if (!options.schedulers.empty()) parts->memberId = parts->mainActors.reserve();
  parts->tls = std::move(*way);
  parts->guard = std::move(*guard);
  parts->inCluster = cluster->has_value();
  parts->addActors(options, cards, *past, nodeId);
  if (Status attach = parts->attach->listen(); !attach) return attach.error();
  parts->addServers(cards, options, std::move(*local), std::move(*remote), nodeId);
  if (*web) parts->serveWeb(std::move(**web));
  if (*cluster) parts->addAgent(options, std::move(**cluster), nodeId);
  if (Status kubelet = parts->serveKubelet(options); !kubelet) return kubelet.error();
  return std::unique_ptr<Manager>(new Manager(std::move(parts)));
}

Manager::Manager(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

Manager::~Manager() {
  parts_->close();
}

void Manager::run() {
  parts_->cardThread.start();
  serveUntilEnded(parts_->mainLoop, parts_->log);
}

}  // namespace qgpu
