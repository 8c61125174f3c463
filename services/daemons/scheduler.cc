#include "services/daemons/scheduler.h"

#include <optional>
#include <unistd.h>

#include "actors/scheduler/scheduler_actor.h"
#include "runtime/dispatcher.h"
#include "runtime/kj/bridge.h"
#include "services/api/admin/cluster_handler.h"
#include "services/api/commands/cluster_render.h"
#include "services/api/commands/node_link.h"
#include "services/api/commands/schema_names.h"
#include "services/api/join/join_server.h"
#include "services/api/metrics/pages.h"
#include "services/api/rpc/acting_scheduler.h"
#include "services/api/rpc/node_traces.h"
#include "services/api/rpc/rpc_server.h"
#include "services/api/rpc/scheduler_service.h"
#include "services/api/rpc/standing_by.h"
#include "services/api/rpc/while_seated.h"
#include "services/base/host.h"
#include "services/base/net/live_tls.h"
#include "services/base/wall_time.h"
#include "services/daemons/extender_server.h"
#include "services/daemons/listeners.h"
#include "services/etcd/etcd_client.h"
#include "services/etcd/seat_keeper.h"
#include "services/kubernetes/bridge/cluster_bridge.h"
#include "services/kubernetes/bridge/role_label.h"
#include "services/kubernetes/client/event_metrics.h"
#include "services/kubernetes/client/leader.h"
#include "services/kubernetes/extender/extender.h"
#include "services/kubernetes/webhook/webhook_service.h"
#include "services/replay/began.h"
#include "services/replay/recorder.h"
#include "services/replay/recording_writer.h"
#include "services/web/web_routes.h"
#include "store/etcd/etcd_store.h"
#include "store/sqlite_store.h"

namespace qgpu {
namespace {

constexpr auto kGoodbye = 2 * kj::SECONDS;       // for the API server's answer at the end
constexpr const char* kName = "scheduler";       // of its files in the run dir
constexpr Nanos kHttpIdle = seconds(120);        // Go's clients close after 90 s, and so before us
constexpr std::size_t kHttpConnections = 2'048;  // kube-scheduler has one for each bind under way

// Three beats in a lease, and a fence that is longer than the lease by one of them (C1).
Membership::Times timesOf(Nanos lease) {
  const Nanos beat{lease.value / 3};
  return {beat, lease, lease + beat};
}

SchedulerOptions actorOptions(const SchedulerDaemonOptions& options) {
  SchedulerOptions out;
  out.version = QGPU_VERSION;
  out.pid = static_cast<std::uint32_t>(::getpid());
  out.priority = readScore(options.priority);
  out.unixMsAtZero = unixMsAtZero;
  out.firstTask = static_cast<std::uint64_t>(unixMsAtZero() + monotonicNow() / millis(1));
  out.times = timesOf(options.lease);
  out.rebuilds = options.rebuild;
  out.reportMsMax = options.reportDays * kDayMs;
  return out;
}

HttpLimits httpLimits() {
  HttpLimits limits;
  limits.connectionsMax = kHttpConnections;
  limits.bodiesMax = 2 * kExtenderBodyMax;
  limits.idleDeadline = kHttpIdle;
  return limits;
}

// Nothing where it is not given; whoever connects shows a certificate, so it may be anywhere.
Result<std::optional<TcpListener>> openExtender(const SchedulerDaemonOptions& options) {
  if (options.extender.empty()) return std::optional<TcpListener>();
  auto opened = TcpListener::open(options.extender, "--extender", Reach::Anywhere);
  if (!opened) return opened.error();
  return std::optional(std::move(*opened));
}

// Nothing where no certificate was given.
Result<std::unique_ptr<LiveTls>> readTls(const SchedulerDaemonOptions& options) {
  const TlsFiles files{options.tlsCert, options.tlsKey, options.tlsCa};
  if (files.none()) return std::unique_ptr<LiveTls>();
  auto tls = std::make_unique<LiveTls>(files);
  if (Status read = tls->read(); !read) return read.error();
  return tls;
}

// The server for machines without a certificate and its address; nothing without --join.
struct JoinOpened {
  TcpListener listener;
  std::unique_ptr<JoinServer> server;
};
Result<std::optional<JoinOpened>> openJoin(const SchedulerDaemonOptions& options) {
  if (options.join.empty()) return std::optional<JoinOpened>();
  const TlsFiles files{options.tlsCert, options.tlsKey, options.tlsCa};
  auto server = JoinServer::open({files, options.joinCaKey});
  if (!server) return server.error();
  auto opened = TcpListener::open(options.join, "--join", Reach::Anywhere);
  if (!opened) return opened.error();
  return std::optional(JoinOpened{std::move(*opened), std::move(*server)});
}

// Nothing where --webhook is not given.
Result<std::optional<WebhookService::Opened>> openWebhook(const SchedulerDaemonOptions& options) {
  if (options.webhook.empty()) return std::optional<WebhookService::Opened>();
  auto opened = WebhookService::open(options.webhook, KubePlatform::ofProcess());
  if (!opened) return opened.error();
  return std::optional(std::move(*opened));
}

// Nothing where Kubernetes takes no part.
Result<std::optional<KubeCredentials>> readKubernetes(const SchedulerDaemonOptions& options,
                                                      Log& log) {
  const KubePlatform around = KubePlatform::ofProcess();
  const bool automatic = options.kubernetes == KubernetesChoice::Auto;
  if (options.kubernetes == KubernetesChoice::Off || (automatic && !around.present())) {
    return std::optional<KubeCredentials>();
  }
  auto found = findCredentials(around);
  if (!found) {
    Error error = found.error();
    error.message += "; or say --kubernetes=off";
    return error;
  }
  for (const std::string& warning : found->warnings) log.warn("kubernetes", {{"why", warning}});
  return std::optional<KubeCredentials>(std::move(*found));
}

// The file of this machine, read in full, or clients of an etcd that nobody has asked anything yet.
struct State {
  std::unique_ptr<RowStore> store;
  std::vector<StoredRow> rows;
  std::unique_ptr<EtcdClient> etcd;
  std::unique_ptr<EtcdClient> forSeat;  // a client is one thread's
};
Result<State> openState(const SchedulerDaemonOptions& options) {
  State state;
  if (options.etcd) {
    for (auto* client : {&state.etcd, &state.forSeat}) {
      auto opened = EtcdClient::open(*options.etcd);
      if (!opened) return opened.error();
      *client = std::move(*opened);
    }
    return state;
  }
  auto opened = SqliteStore::open(options.dbfile);
  if (!opened) return opened.error();
  auto rows = opened->load();
  if (!rows) return rows.error();
  state.store = std::make_unique<SqliteStore>(std::move(*opened));
  state.rows = std::move(*rows);
  return state;
}

// Nothing where --record is not given. Who is told when it stops sets that later.
Result<std::unique_ptr<RecordingWriter>> openRecording(const SchedulerDaemonOptions& options) {
  if (options.record.empty()) return std::unique_ptr<RecordingWriter>();
  RecordingWriter::Limits limits;
  limits.folderBytes = static_cast<std::uint64_t>(options.recordMib) << 20U;
  return RecordingWriter::open(options.record, limits);
}

// Where clients and other schedulers find this one's RPC.
std::string advertised(const SchedulerDaemonOptions& options, const TcpListener& rpc) {
  if (!options.advertise.empty()) return options.advertise;
  const std::string address = rpc.address();
  const std::string host = address.substr(0, address.rfind(':'));
  const bool everywhere = host == "0.0.0.0" || host == "[::]" || host == "*";
  return (everywhere ? options.hostname : host) + ":" + std::to_string(rpc.port());
}

// What a scheduler that gathers took over from nodes, in the log, until it has gathered all.
class LoggedGathering final : private kj::TaskSet::ErrorHandler {
 public:
  LoggedGathering(ClusterActorClient& actor, Log& log) : log_(log), tasks_(*this) {
    Peer peer;
    peer.mayChange = true;
    tasks_.add(Events::open(actor, peer, 0).then([this](Result<kj::Own<Events>> events) {
      return events ? tell(kj::mv(*events)) : kj::Promise<void>(kj::READY_NOW);
    }));
  }

 private:
  using Events = Feed<ClusterApi>;

  kj::Promise<void> tell(kj::Own<Events> events) {
    auto next = events->next();
    return next.then([this, events = kj::mv(events)](
                         kj::Maybe<Events::EventCopy> told) mutable -> kj::Promise<void> {
      KJ_IF_MAYBE (copy, told) {
        const auto event = (*copy)->getRoot<schema::Event>().asReader();
        const std::string_view kind = view(event.getKind());
        if (kind == "gathers" || kind == "gathered") {
          log_.info(kind, {{"text", view(event.getText())}});
        }
        if (kind == "task-adopted") {
          log_.info(kind, {{"task", event.getTask()},
                           {"node", view(event.getCard())},
                           {"text", view(event.getText())}});
        }
        if (kind != "gathered") return tell(kj::mv(events));
      }
      return kj::READY_NOW;
    });
  }
  void taskFailed(kj::Exception&&) override {}

  Log& log_;
  kj::TaskSet tasks_;  // last
};

// How else an address may be reached from elsewhere.
Error refused(Error error) {
  if (error.code == ErrorCode::Denied && error.message.starts_with("--rpc")) {
    error.message += "; or give --tls-cert, --tls-key and --tls-ca, or say --insecure";
  } else if (error.code == ErrorCode::Denied) {
    error.message += "; or say --http-tls, with --tls-cert, --tls-key and --tls-ca, or --insecure";
  }
  return error;
}

}  // namespace

// Members in the order in which they start; they end in the reverse order.
struct Scheduler::Parts {
  Parts(RunDir dir, Log& daemonLog) : runDir(std::move(dir)), log(daemonLog) {}

  RunDir runDir;
  Log& log;
  std::unique_ptr<LiveTls> tls;  // null: none was given
  Loop loop;
  ActorSystem system{randomWord()};
  Dispatcher actors{system, loop};

  std::optional<StoreJournal> journal;
  std::unique_ptr<RecordingWriter> recording;  // null: none was asked for
  std::optional<Recorder> recorder;
  std::optional<SchedulerActor> scheduler;

  std::optional<KjBridge> kj;
  ActorId schedulerId{};  // its actor comes once this scheduler acts
  ActorId clientId{};
  ActorId linksId{};
  std::optional<NodeLink> fromClient;
  std::optional<NodeTraces> traces;
  std::optional<ActingScheduler> acting;  // none: nobody else can act
  std::optional<NodeLink> fromLinks;
  std::optional<WordsWhileSeated> whileSeated;  // none: nobody else can act
  std::optional<ClusterActorClient> actor;
  std::optional<AnswersWhileSeated> toClients;  // none: nobody else can act
  std::optional<LoggedGathering> loggedGathering;
  std::optional<Links> links;
  std::optional<Keeping> keeping;
  std::optional<ClusterHandler> handler;
  std::optional<AdminServer> admin;
  std::optional<RpcServer> rpc;
  std::optional<ClusterPages> pages;
  std::optional<Health> health;
  std::optional<Extender> extender;
  std::optional<HttpServer> http;
  std::optional<HttpServer> scrapes;  // --metrics
  std::optional<HttpServer> web;      // none: nobody asked for it
  std::optional<ExtenderServer> outerExtender;
  std::unique_ptr<JoinServer> joinServer;  // null: nobody joins by a token
  std::optional<WebhookService> webhook;
  std::optional<ApiClient> api;  // these on Kubernetes
  std::optional<PodWriter> writer;
  std::optional<ClusterBridge> bridge;
  std::optional<RoleLabel> label;
  std::optional<LeaderElection> election;
  std::unique_ptr<EtcdClient> etcd;  // of the store; these where several schedulers share one
  std::optional<SeatKeeper> seat;
  kj::AutoCloseFd rpcStays;  // listens until the seat is given back; see listener_end.h

  void addClients(const SchedulerDaemonOptions& options);
  void act(const SchedulerDaemonOptions& options, std::unique_ptr<RowStore> store,
           const std::vector<StoredRow>& rows);
  void record(SchedulerOptions& decides, const std::string& host,
              const std::vector<StoredRow>& rows);
  void standBy(const SchedulerDaemonOptions& options, std::unique_ptr<EtcdClient> forSeat,
               const std::string& address);
  void onSeated(const SchedulerDaemonOptions& options, const KvCondition& guard);
  bool standsBy() const { return acting && !scheduler; }
  void serve(const SchedulerDaemonOptions& options, UnixListeners local, TcpListeners remote);
  void followCertificates();
  void serveHttp(const SchedulerDaemonOptions& options, TcpListeners remote);
  void serveWeb(WebOpened opened);
  void serveJoin(JoinOpened opened, std::uint16_t rpcPort);
  void serveExtender(const std::string& certificates, TcpListener listener);
  void serveWebhook(const SchedulerDaemonOptions& options, WebhookService::Opened opened);
  HttpPage readiness() const;
  void joinKubernetes(const SchedulerDaemonOptions& options, KubeCredentials credentials);
  void leaveKubernetes();
  void close();
};

// Who asks, and who joins: there from the start, whoever acts.
void Scheduler::Parts::addClients(const SchedulerDaemonOptions& options) {
  schedulerId = actors.reserve();
  clientId = actors.reserve();
  linksId = actors.reserve();
  kj.emplace(loop);
  fromClient.emplace(actors, clientId, schedulerId);
  traces.emplace(*fromClient, kj->timer());
  fromLinks.emplace(actors, linksId, schedulerId);
  const auto holds = [this] { return seat && seat->holds(); };
  if (options.etcd) {
    acting.emplace(kj->io().getNetwork(), kj->timer());
    whileSeated.emplace(*fromLinks, holds);
  }
  actor.emplace(acting ? static_cast<RequestSink&>(*acting) : *traces, kj->timer());
  if (acting) toClients.emplace(*actor, holds);
  actors.attach(clientId, toClients ? static_cast<Actor&>(*toClients) : *actor);
  links.emplace(whileSeated ? static_cast<RequestSink&>(*whileSeated) : *fromLinks, kj->timer(),
                options.insecure ? Links::PlainJoins::Taken : Links::PlainJoins::Refused);
  actors.attach(linksId, *links);
  traces->start(*links, *actor);
  if (!acting) return;
  acting->start(*actor, tls ? kj::Maybe<kj::TlsContext&>(tls->now()) : nullptr);
  links->setMayJoin([this] {
    return acting->settled().then([this]() -> Status {
      if (!standsBy()) return ok();
      return qgpu::standsBy(acting->acting());
    });
  });
}

// From here on this scheduler decides.
void Scheduler::Parts::act(const SchedulerDaemonOptions& options, std::unique_ptr<RowStore> store,
                           const std::vector<StoredRow>& rows) {
  openJournal(journal, std::move(store), loop, log);
  actors.setJournal(*journal);
  if (options.rebuild && !rows.empty()) {
    log.info("no-rebuild", {{"why", "the store has " + std::to_string(rows.size()) + " rows"}});
  }
  SchedulerOptions decides = actorOptions(options);
  if (recording) record(decides, options.hostname, rows);
  scheduler.emplace(std::move(decides), SchedulerPeers{linksId}, rows);
  if (recorder) recorder->attach(*scheduler);
  actors.attach(schedulerId, recorder ? static_cast<Actor&>(*recorder) : *scheduler);
  if (acting) acting->setOwn(*traces);
  if (scheduler->gathers()) loggedGathering.emplace(*actor, log);
  Outlet(actors, clientId).sendUrgent(schedulerId, [](auto message) { message.initStart(); });
}

// A recording that can't be made, or stops, keeps nobody from deciding.
void Scheduler::Parts::record(SchedulerOptions& decides, const std::string& host,
                              const std::vector<StoredRow>& rows) {
  const std::uint64_t seed = randomWord();
  recorder.emplace(actors, *recording, seed, decides.unixMsAtZero);
  decides.unixMsAtZero = recorder->date();
  const RecordedLife life{QGPU_VERSION, buildId(), host, unixMsNow(), seed, schedulerId, {linksId}};
  const auto stopped = [this](const std::string& why) {
    loop.post([this, why] { log.warn("recording-stopped", {{"why", why}}); });
  };
  const Status begun = recording->begin(recordsOf(life, decides, rows), life.unixMs, stopped);
  if (!begun) return log.warn("recording-stopped", {{"why", begun.error().message}});
  log.info("records", {{"file", recording->path()}});
}

// One of several: it acts once it is seated. Whatever ends that ends the process, which stands by
// again in its next life.
void Scheduler::Parts::standBy(const SchedulerDaemonOptions& options,
                               std::unique_ptr<EtcdClient> forSeat, const std::string& address) {
  SeatOptions wanted;
  wanted.prefix = options.etcd->prefix;
  wanted.identity =
      options.hostname + "-" + std::to_string(::getpid()) + "-" + std::to_string(randomWord());
  wanted.address = address;
  SeatKeeper::Calls calls;
  calls.seated = [this, options](const KvCondition& guard) { onSeated(options, guard); };
  calls.lost = [](const std::string& why) {
    fatal(ExitCode::Environment, ("another scheduler may act now (" + why + ")").c_str());
  };
  calls.other = [this](const SeatHolder& other) {
    log.info("stands-by", {{"acting", other.address.empty() ? "nobody" : other.address}});
    acting->setActing(other.address, [this, other] {
      log.info("acting-ended", {{"address", other.address}});
      seat->ended(other.identity);
    });
  };
  calls.health = [this](const Status& answers) {
    if (answers) return log.info("etcd-answers");
    log.warn("etcd-silent", {{"why", answers.error().message}});
  };
  log.info("group", {{"prefix", wanted.prefix}, {"address", address}});
  seat.emplace(
      std::move(forSeat), std::move(wanted),
      [this](std::function<void()> work) { loop.post(std::move(work)); }, std::move(calls));
}

void Scheduler::Parts::onSeated(const SchedulerDaemonOptions& options, const KvCondition& guard) {
  const auto lost = [](const std::string& why) { fatal(ExitCode::Environment, why.c_str()); };
  auto store = EtcdStore::open(*etcd, {options.etcd->prefix, guard, lost});
  auto rows = store ? (*store)->load() : Result<std::vector<StoredRow>>(store.error());
  // Who can't read what there is gives the seat to one that can: nothing is decided yet.
  if (!rows) fatal(ExitCode::Environment, rows.error().message.c_str());
  log.info("acts", {{"rows", std::to_string(rows->size())}});
  act(options, std::move(*store), *rows);
}

void Scheduler::Parts::serve(const SchedulerDaemonOptions& options, UnixListeners local,
                             TcpListeners remote) {
  const ChangeRule rule(::geteuid());
  const std::string of = options.etcd ? options.etcd->prefix : options.hostname;
  keeping.emplace(journal, log, RowCopy{kName, of, 0, QGPU_VERSION, {}});
  handler.emplace(*actor, *keeping, launchVariables(guestLibrary(), runDir.path()));
  admin.emplace(*handler, rule, AdminLimits{}, kj->lowLevel(), kj->timer(), std::move(local.admin));
  rpc.emplace(kj::heap<SchedulerRpc>(*actor, *links, *keeping), rule, SchedulerRpc::limits(),
              kj->lowLevel(), kj->timer());
  log.info("serves", {{"run_dir", runDir.path()},
                      {"http", remote.http.address()},
                      {"rpc", remote.rpc->address()}});
  rpc->serveUnix(std::move(local.rpc));
  if (tls) {
    rpc->serveTcp(std::move(*remote.rpc), tls->now());
  } else {
    rpc->serveTcp(std::move(*remote.rpc));
  }
  serveHttp(options, std::move(remote));
  if (tls) followCertificates();
}

void Scheduler::Parts::followCertificates() {
  const auto use = [this](kj::TlsContext& now) {
    rpc->setTls(now);
    http->setTls(now);
    if (scrapes) scrapes->setTls(now);
    if (web) web->setTls(now);
    if (acting) acting->setTls(now);
    log.info("certificates-changed", {{"certificate", tls->files().cert}});
  };
  const auto refused = [this](const std::string& why) {
    log.warn("certificates-kept", {{"why", why}});
  };
  tls->follow(kj->timer(), {use, refused});
}

void Scheduler::Parts::serveHttp(const SchedulerDaemonOptions& options, TcpListeners remote) {
  const auto more = [this] {
    return links->metrics() + (extender ? extender->metrics() : "") +
           (bridge ? bridge->metrics() : "") + (writer ? eventMetrics(*writer) : "") +
           (tls ? tls->metrics() : "");
  };
  pages.emplace(*actor, more, [this] { return !standsBy() && (!election || election->holds()); });
  if (!acting) extender.emplace(*actor, *scheduler, kj->timer(), options.pods, randomWord());
  const auto storage = [this]() -> kj::Promise<Result<std::string>> {
    if (standsBy()) return Result<std::string>("ok");
    return pages->storage();
  };
  health.emplace(storage, std::vector<Health::Watched>{}, kj->timer(), feedWatchdog);
  std::vector<HttpRoute> routes = routesOf(*pages, *health);
  if (extender) {
    for (HttpRoute& route : extender->routes()) routes.push_back(std::move(route));
  }
  routes.push_back(
      HttpRoute::get("/readyz", [this]() -> kj::Promise<HttpPage> { return readiness(); }));
  const auto secured = [this](bool wanted) -> kj::Maybe<kj::TlsContext&> {
    if (wanted && tls) return tls->now();
    return nullptr;
  };
  http.emplace(std::move(routes), httpLimits(), kj->lowLevel(), kj->timer(), std::move(remote.http),
               secured(options.httpTls));
  if (!remote.metrics) return;
  log.info("metrics-open", {{"address", remote.metrics->address()}});
  scrapes.emplace(scrapeRoutes(*pages), HttpLimits{}, kj->lowLevel(), kj->timer(),
                  std::move(*remote.metrics), secured(options.metricsTls));
}

// Who follows does all that it can be asked to once nobody is led to it.
HttpPage Scheduler::Parts::readiness() const {
  constexpr const char* kPlain = "text/plain; charset=utf-8";
  if (standsBy()) {
    const std::string& other = acting->acting();
    if (!other.empty()) return {200, kPlain, "ok: " + other + " acts\n"};
    return {503, kPlain, "no scheduler acts now\n"};
  }
  if (!extender || extender->ready()) return {200, kPlain, "ok\n"};
  if (label && label->says(RoleLabel::Role::Follows)) {
    return {200, kPlain, "ok: " + election->holder() + " acts\n"};
  }
  return {503, kPlain, "the nodes of the cluster are not all known yet\n"};
}

void Scheduler::Parts::serveWeb(WebOpened opened) {
  log.info("serves-web", {{"web", opened.listener.address()}});
  kj::Maybe<kj::TlsContext&> secured;
  if (opened.access.certificates) secured = tls->now();
  web.emplace(webRoutes(*handler, Side::Cluster, std::move(opened.access)), HttpLimits{},
              kj->lowLevel(), kj->timer(), std::move(opened.listener), secured);
}

void Scheduler::Parts::serveJoin(JoinOpened opened, std::uint16_t rpcPort) {
  joinServer = std::move(opened.server);
  joinServer->serve(*actor, kj->lowLevel(), kj->timer(), std::move(opened.listener), rpcPort);
  keeping->setInvite([this](const std::string& node) { return joinServer->invite(node); });
  log.info("takes-joins", {{"join", joinServer->address()}});
}

void Scheduler::Parts::serveExtender(const std::string& certificates, TcpListener listener) {
  outerExtender.emplace(extender->routes(), httpLimits(), certificates, kj->lowLevel(), kj->timer(),
                        std::move(listener), log);
}

void Scheduler::Parts::serveWebhook(const SchedulerDaemonOptions& options,
                                    WebhookService::Opened opened) {
  webhook.emplace(std::move(opened), options.pods, randomWord(), log);
}

void Scheduler::Parts::joinKubernetes(const SchedulerDaemonOptions& options,
                                      KubeCredentials credentials) {
  log.info("kubernetes", {{"server", credentials.host + ":" + credentials.port},
                          {"credentials", credentials.source}});
  api.emplace(std::move(credentials), kj->io().getNetwork(), kj->timer(), randomWord());
  writer.emplace(*api, "qgpu-scheduler", options.hostname);
  extender->setApi(*writer);
  extender->setReady(false);
  BridgeOptions follow;
  follow.rules = options.pods;
  follow.mayBind = [this] { return !election || election->holds(); };
  follow.bindOf = [this](std::string_view uid) { return extender->binder().underWayOf(uid); };
  follow.onReady = [this] { extender->setReady(true); };
  follow.onWaits = [this](const KubePod& pod) { extender->waits(pod.demands); };
  follow.onBound = [this](const KubePod& pod) { extender->bound(pod.demands); };
  follow.onNeither = [this](const std::string& uid) { extender->gone(uid); };
  bridge.emplace(*fromLinks, *actor, *api, *writer, log, std::move(follow));
  extender->setPriorities([this](const std::string& node, std::string_view uid) {
    return bridge->priorityOf(node, uid);
  });
  extender->setWhyNot([this](const std::string& node) { return bridge->refusal(node); });
  links->setLocal(&*bridge);
  label.emplace(*api, KubePlatform::ofProcess(), log);
  const auto lead = [this] {
    label->tell(RoleLabel::Role::Leads);
    bridge->start();
  };
  if (!options.leaderElect) return lead();
  LeaseOptions lease;                 // one for the cluster, whichever namespace a KUBECONFIG names
  lease.identity = options.hostname;  // the same after a restart here, which need not wait then
  LeaderElection::Calls calls;
  calls.led = lead;
  calls.lost = [] { fatal(ExitCode::Environment, "another scheduler may act now"); };
  calls.follows = [this] { label->tell(RoleLabel::Role::Follows); };
  election.emplace(*api, std::move(lease), log, std::move(calls));
  election->start();
}

// Gives the lease back, so that whoever waits for it acts at once.
void Scheduler::Parts::leaveKubernetes() {
  links->setLocal(nullptr);
  bridge.reset();
  if (election) {
    auto given = kj->timer().timeoutAfter(kGoodbye, election->release());
    given.catch_([](kj::Exception&&) {}).wait(kj->waitScope());
  }
  election.reset();
  label.reset();
  writer.reset();
  api.reset();
}

// Servers first, then turns, then the disk: nothing is promised after it can't be kept.
void Scheduler::Parts::close() {
  webhook.reset();
  web.reset();
  joinServer.reset();
  outerExtender.reset();
  scrapes.reset();
  http.reset();
  health.reset();
  extender.reset();
  rpc.reset();
  admin.reset();
  if (acting) acting->stop();
  tls.reset();  // before the loop turns once more
  leaveKubernetes();
  system.stop();
  journal.reset();
  recording.reset();  // with the last turn
  seat.reset();       // after the last change is stored: another one acts at once
  rpcStays = nullptr;
  etcd.reset();
  traces->stop();
  loggedGathering.reset();
  links.reset();
  toClients.reset();
  actor.reset();
  acting.reset();
  traces.reset();
  fromLinks.reset();
  fromClient.reset();
  kj.reset();
}

Result<std::unique_ptr<Scheduler>> Scheduler::open(const SchedulerDaemonOptions& options,
                                                   Log& log) {
  blockEndSignals();
  raiseDescriptorLimit();
  auto tls = readTls(options);
  if (!tls) return tls.error();
  const auto reach = [&](bool secured) {
    return secured || options.insecure ? Reach::Anywhere : Reach::Loopback;
  };
  auto kubernetes = readKubernetes(options, log);
  if (!kubernetes) return kubernetes.error();
  auto remote =
      TcpListeners::open({options.http, options.rpc, options.metrics}, reach(*tls != nullptr),
                         reach(*tls != nullptr && options.httpTls));
  if (!remote) return refused(remote.error());
  auto outer = openExtender(options);
  if (!outer) return outer.error();
  auto join = openJoin(options);
  if (!join) return join.error();
  auto web = openWeb(options.web);
  if (!web) return web.error();
  auto webhook = openWebhook(options);
  if (!webhook) return webhook.error();
  auto runDir = RunDir::claim(options.runDir, kName);
  if (!runDir) return runDir.error();
  auto recording = openRecording(options);
  if (!recording) return recording.error();
  auto state = openState(options);
  if (!state) return state.error();
  auto local = UnixListeners::open(*runDir, kName);
  if (!local) return local.error();

  auto parts = std::make_unique<Parts>(std::move(*runDir), log);
  parts->tls = std::move(*tls);
  parts->recording = std::move(*recording);
  parts->addClients(options);
  const std::uint16_t rpcPort = remote->rpc->port();
  const std::string address = advertised(options, *remote->rpc);
  if (options.etcd) parts->rpcStays = remote->rpc->staying();
  if (!options.etcd) parts->act(options, std::move(state->store), state->rows);
  parts->serve(options, std::move(*local), std::move(*remote));
  if (*join) parts->serveJoin(std::move(**join), rpcPort);
  if (*web) parts->serveWeb(std::move(**web));
  if (*outer) parts->serveExtender(options.extenderCerts, std::move(**outer));
  if (*kubernetes) parts->joinKubernetes(options, std::move(**kubernetes));
  if (*webhook) parts->serveWebhook(options, std::move(**webhook));
  parts->etcd = std::move(state->etcd);
  if (options.etcd) parts->standBy(options, std::move(state->forSeat), address);
  return std::unique_ptr<Scheduler>(new Scheduler(std::move(parts)));
}

Scheduler::Scheduler(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

Scheduler::~Scheduler() {
  parts_->close();
}

void Scheduler::run() {
  serveUntilEnded(parts_->loop, parts_->log);
}

}  // namespace qgpu
