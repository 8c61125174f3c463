#include "services/daemons/manager.h"

#include <signal.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <future>
#include <optional>
#include <thread>
#include <vector>

#include "actors/card_actor.h"
#include "actors/node_actor.h"
#include "actors/task_actor.h"
#include "runtime/dispatcher.h"
#include "runtime/kj_bridge.h"
#include "runtime/loop.h"
#include "runtime/realtime.h"
#include "services/admin/admin_server.h"
#include "services/admin/node_link.h"
#include "services/attach/attach_port.h"
#include "services/attach/survivors.h"
#include "services/daemons/run_dir.h"
#include "services/metrics/metrics_server.h"
#include "services/rpc/rpc_server.h"
#include "store/sqlite_journal.h"

namespace qgpu {
namespace {

// Tasks bound on this node at once: no more than one card may be given.
constexpr std::size_t kTaskSlots = Arbiter::kTasksMax;
constexpr mode_t kOpenToAll = 0666;         // the kernel says who is asking

std::uint64_t randomWord() {
  std::uint64_t word = 0;
  if (::getrandom(&word, sizeof word, 0) != sizeof word) {
    fatal(ExitCode::Environment, "getrandom() gives nothing");
  }
  return word;
}

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

// What the admin socket asks of the daemon itself.
class Keeping final : public Housekeeping {
 public:
  Keeping(SqliteJournal& journal, Log& log) : journal_(journal), log_(log) {}

  void snapshot(std::function<void(Status)> done) override { journal_.snapshot(std::move(done)); }

  Status setLogLevel(const std::string& level) override {
    const Result<LogLevel> parsed = parseLogLevel(level);
    if (!parsed) return parsed.error();
    log_.setLevel(*parsed);
    return ok();
  }

 private:
  SqliteJournal& journal_;
  Log& log_;
};

// The loop of cards and tasks on a thread of its own, which waits until everybody is registered.
class CardThread {
 public:
  explicit CardThread(Loop& loop, RealtimeChoice realtime)
      : loop_(loop), thread_([this, realtime] {
          granted_.set_value(realtime == RealtimeChoice::Auto ? askRealtime() : "none");
          if (go_.get_future().get()) loop_.run();
        }) {}
  ~CardThread() { stop(); }

  std::string realtime() { return granted_.get_future().get(); }
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
  std::promise<const char*> granted_;
  std::promise<bool> go_;
  bool started_ = false;
  std::thread thread_;   // last: it uses the promises
};

// What ends the daemon cleanly: blocked in every thread, taken by the main loop.
sigset_t endSignals() {
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  sigaddset(&ends, SIGINT);
  return ends;
}

std::int64_t unixMsAtZero() {
  timespec wall{};
  ::clock_gettime(CLOCK_REALTIME, &wall);
  return wall.tv_sec * 1'000 + wall.tv_nsec / 1'000'000 - monotonicNow() / millis(1);
}

// libqgpu.so beside the binaries: build/lib or PREFIX/lib.
std::string guestLibrary() {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  const auto path = self.parent_path().parent_path() / "lib" / "libqgpu.so";
  return !error && std::filesystem::exists(path, error) ? path.string() : std::string();
}

// Of the last manager; nothing where the store has no node row, so was never written.
std::optional<std::uint32_t> storedIncarnation(const std::vector<StoredRow>& rows) {
  for (const StoredRow& row : rows) {
    if (row.key.kind != RowKind::Node) continue;
    const auto words = kj::arrayPtr(row.words.data(), row.words.size());
    const auto read = capnp::readMessageUnchecked<schema::Row>(words.begin());
    if (read.isNode()) return read.getNode().getIncarnation();
  }
  return std::nullopt;
}

// What was found on disk before anything serves.
struct Past {
  std::vector<StoredRow> rows;
  Survivors survivors;    // without tasks where the store knows them

  static Result<Past> read(Store& store, const RunDir& dir, Log& log) {
    auto rows = store.load();
    if (!rows) return rows.error();
    auto survivors = findSurvivors(dir.path());
    if (!survivors) return survivors.error();
    for (const std::string& why : survivors->unusable) log.warn("task-record", {{"why", why}});
    if (storedIncarnation(*rows)) survivors->tasks.clear();
    if (!survivors->tasks.empty()) {
      log.warn("database-is-new", {{"tasks_taken_over", survivors->tasks.size()}});
    }
    return Past{std::move(*rows), std::move(*survivors)};
  }
};

// A damaged database is never served; what lives does not depend on it.
Error refused(Error store) {
  if (store.code == ErrorCode::Corrupt) {
    store.message += "; where it is away, the tasks that live are taken over";
  }
  return store;
}

CardFacts factsOf(const Card& card) {
  return {card.id, card.index, card.model, card.backend,
          card.mem, card.suspend, card.platform, card.device};
}

ArbiterConfig arbiterConfig(const ManagerOptions& options) {
  ArbiterConfig config;
  config.policy = readPolicy(options.policy);
  config.onlineIdle = options.onlineIdle;
  config.sliceMin = options.slice.low;
  config.sliceMax = options.slice.high;
  return config;
}

// The doors that have an address, opened before anything on disk is touched.
struct TcpDoors {
  TcpListener http;
  std::optional<TcpListener> rpc;

  static Result<TcpDoors> open(const ManagerOptions& options) {
    auto http = TcpListener::open(options.http, "--http");
    if (!http) return http.error();
    if (options.rpc.empty()) return TcpDoors{std::move(*http), std::nullopt};
    auto rpc = TcpListener::open(options.rpc, "--rpc");
    if (!rpc) return rpc.error();
    return TcpDoors{std::move(*http), std::move(*rpc)};
  }
};

// The doors in the run dir, opened before anybody serves.
struct UnixDoors {
  UnixListener admin;
  UnixListener rpc;

  static Result<UnixDoors> open(const RunDir& dir) {
    auto admin = UnixListener::open(dir.file("manager.sock"), kOpenToAll);
    if (!admin) return admin.error();
    auto rpc = UnixListener::open(dir.file("manager.rpc"), kOpenToAll);
    if (!rpc) return rpc.error();
    return UnixDoors{std::move(*admin), std::move(*rpc)};
  }
};

// A task costs three descriptors and each process two: the soft limit is for programs that use
// select(), which nobody here does.
void raiseDescriptorLimit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

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

  std::optional<SqliteJournal> journal;
  std::optional<NodeActor> node;
  std::vector<std::unique_ptr<CardActor>> cards;
  std::vector<std::unique_ptr<TaskActor>> tasks;
  std::optional<AttachPort> attach;

  std::optional<KjBridge> kj;
  std::optional<NodeLink> link;
  std::optional<NodeDoor> door;
  std::optional<Keeping> keeping;
  std::optional<AdminServer> admin;
  std::optional<RpcServer> rpc;
  std::optional<MetricsServer> metrics;

  void addActors(const ManagerOptions& options, const CardsFound& found, const Past& past,
                 ActorId nodeId);
  void addDoors(const CardsFound& found, const ManagerOptions& options, UnixDoors local,
                TcpDoors remote, ActorId nodeId);
  void openJournal(Store store);
  void close();
};

void Manager::Parts::openJournal(Store store) {
  journal.emplace(
      std::move(store), [this](std::function<void()> work) { mainLoop.post(std::move(work)); },
      [this](Status health) {
        if (health) {
          log.info("storage-works-again");
        } else {
          log.error("storage-failed", {{"why", health.error().message}});
        }
      });
  mainActors.setJournal(*journal);
}

void Manager::Parts::addActors(const ManagerOptions& options, const CardsFound& found,
                               const Past& past, ActorId nodeId) {
  NodeOptions node_;
  node_.name = options.nodename;
  node_.version = QGPU_VERSION;
  node_.pid = static_cast<std::uint32_t>(::getpid());
  node_.incarnation = storedIncarnation(past.rows).value_or(0) + 1;
  node_.lastTask = past.survivors.lastTask;
  node_.living = past.survivors.living;
  node_.arbiter = arbiterConfig(options);
  node_.policy = node_.arbiter.policy;
  node_.mixed = options.mixed;
  node_.maxTasksPerCard = options.maxTasksPerCard;
  node_.attachSocket = runDir.file("attach.sock");
  node_.realtime = cardThread.realtime();
  node_.unixMsAtZero = unixMsAtZero();

  NodePeers peers;
  peers.attach = cardActors.reserve();
  AttachPortConfig port;
  port.node = nodeId;
  port.cards = found.cards;
  port.server.runDir = runDir.path();
  port.server.incarnation = node_.incarnation;
  std::vector<CardFacts> facts;
  for (const Card& card : found.cards) {
    facts.push_back(factsOf(card));
    cards.push_back(std::make_unique<CardActor>(card.index, node_.arbiter,
                                                CardPeers{peers.attach, nodeId}, monotonicNow()));
    peers.cards.push_back(cardActors.add(*cards.back()));
  }
  port.cardActors = peers.cards;
  for (std::size_t slot = 0; slot < kTaskSlots; ++slot) {
    tasks.push_back(std::make_unique<TaskActor>(nodeId, peers.attach));
    peers.tasks.push_back(cardActors.add(*tasks.back()));
  }
  const ActorId attachId = peers.attach;
  attach.emplace(cardActors, attachId, std::move(port));
  node.emplace(std::move(node_), std::move(peers), std::move(facts), tokens,
               past.rows, past.survivors.tasks);
  mainActors.attach(nodeId, *node);
}

void Manager::Parts::addDoors(const CardsFound& found, const ManagerOptions& options,
                              UnixDoors local, TcpDoors remote, ActorId nodeId) {
  const ActorId doorId = mainActors.reserve();
  kj.emplace(mainLoop);
  link.emplace(mainActors, doorId, nodeId);
  door.emplace(*link, kj->timer());
  mainActors.attach(doorId, *door);
  keeping.emplace(*journal, log);
  const ChangeRule rule(::geteuid());
  AdminOptions adminOptions;
  adminOptions.nodeName = options.nodename;
  adminOptions.environment = {guestLibrary(), found.tenantEnv};
  admin.emplace(*door, *keeping, rule, adminOptions, kj->lowLevel(), kj->timer(),
                std::move(local.admin));
  rpc.emplace(*door, rule, RpcLimits{}, kj->lowLevel(), kj->timer());
  rpc->serveUnix(std::move(local.rpc));
  if (remote.rpc) rpc->serveTcp(std::move(*remote.rpc));
  log.info("serves", {{"run_dir", runDir.path()},
                      {"http", remote.http.address()},
                      {"cards", found.cards.size()}});
  metrics.emplace(*door, MetricsLimits{}, kj->lowLevel(), kj->timer(), std::move(remote.http));
  Outlet(mainActors, doorId).sendUrgent(nodeId, [](auto message) { message.initStart(); });
}

// Doors first, then turns, then the disk: nothing is promised after it can't be kept.
void Manager::Parts::close() {
  metrics.reset();
  rpc.reset();
  admin.reset();
  system.stop();
  cardThread.stop();
  attach.reset();
  journal.reset();
  door.reset();
  link.reset();
  kj.reset();
}

Result<std::unique_ptr<Manager>> Manager::open(const ManagerOptions& options, CardsFound cards,
                                               Log& log) {
  const sigset_t ends = endSignals();
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);

  raiseDescriptorLimit();
  auto remote = TcpDoors::open(options);
  if (!remote) return remote.error();
  auto runDir = RunDir::claim(options.runDir);
  if (!runDir) return runDir.error();
  auto store = Store::open(options.dbfile);
  if (!store) return refused(store.error());
  auto past = Past::read(*store, *runDir, log);
  if (!past) return past.error();
  auto local = UnixDoors::open(*runDir);
  if (!local) return local.error();

  auto parts = std::make_unique<Parts>(std::move(*runDir), options, log);
  parts->openJournal(std::move(*store));
  const ActorId nodeId = parts->mainActors.reserve();
  parts->addActors(options, cards, *past, nodeId);
  if (Status attach = parts->attach->listen(); !attach) return attach.error();
  parts->addDoors(cards, options, std::move(*local), std::move(*remote), nodeId);
  return std::unique_ptr<Manager>(new Manager(std::move(parts)));
}

Manager::Manager(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

Manager::~Manager() {
  parts_->close();
}

void Manager::run() {
  const sigset_t ends = endSignals();
  const int signals = ::signalfd(-1, &ends, SFD_CLOEXEC | SFD_NONBLOCK);
  if (signals < 0) fatal(ExitCode::Environment, "signalfd() fails");
  {
    const FdWatch watch = parts_->mainLoop.fds().watchLevel(signals, EPOLLIN, [&](std::uint32_t) {
      signalfd_siginfo taken{};
      if (::read(signals, &taken, sizeof taken) != sizeof taken) return;
      parts_->log.info("stops", {{"signal", taken.ssi_signo}});
      parts_->mainLoop.stop();
    });
    parts_->cardThread.start();
    parts_->mainLoop.run();
  }
  ::close(signals);
}

}  // namespace qgpu
