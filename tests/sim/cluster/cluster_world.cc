#include "tests/sim/cluster/cluster_world.h"

#include <algorithm>
#include <cstdio>
#include <utility>
#include <vector>

#include "actors/member/member_actor.h"
#include "actors/node/node_actor.h"
#include "actors/scheduler/scheduler_actor.h"
#include "runtime/planted.h"
#include "services/api/rpc/standing_by.h"
#include "services/replay/replay.h"
#include "services/replay/testing/memory_recording.h"
#include "store/etcd/seat_rounds.h"
#include "tests/sim/cluster/cluster_clients.h"
#include "tests/sim/cluster/cluster_net.h"
#include "tests/sim/cluster/cluster_room.h"
#include "tests/sim/cluster/cluster_site.h"
#include "tests/sim/cluster/cluster_tap.h"
#include "tests/sim/cluster/sim_etcd.h"
#include "tests/sim/seeded_tokens.h"
#include "tests/sim/sim_journal.h"

namespace qgpu::sim {
namespace {

constexpr Nanos kBootMin = millis(1);
constexpr Nanos kBootMax = seconds(2);
constexpr Nanos kAwayMax = seconds(60);  // of a machine that is lost
constexpr Nanos kWhileMin = millis(50);  // of a fault that passes
constexpr Nanos kWhileMax = seconds(40);
constexpr Nanos kConvergence = seconds(30);
constexpr Nanos kPatience = seconds(5);  // a difference that lasts is one
constexpr Nanos kRestIn = seconds(150);
constexpr Nanos kStill = seconds(8);
constexpr std::uint64_t kCalmEvents = 120'000;
constexpr std::uint64_t kCpuMilli = 8'000;
constexpr std::uint64_t kSeatEvents = 3'000;  // looks at a seat are many, and cheap
constexpr Nanos kPosted = micros(20);         // from a thread to the loop
constexpr Nanos kHeardMin = micros(50);       // from an end to who watched for it
constexpr Nanos kHeardMax = millis(300);
constexpr Nanos kSeatCalls = millis(50);  // less than a scheduler waits between two looks
constexpr const char* kPrefix = SimEtcd::kPrefix;

// A process, on its machine or between two lives. It ends in the reverse order of its members.
struct NodeLife {
  std::unique_ptr<SimJournal> journal;
  std::unique_ptr<RoomDouble> room;
  std::unique_ptr<NodeActor> node;
  std::unique_ptr<MemberActor> member;
};
struct SchedulerLife {
  std::string identity;
  std::unique_ptr<SeatRounds> seat;     // where several share an etcd; ...
  std::string other;                    // ... and whom it saw acting
  std::vector<StoredRow> early;         // a planted bug: what it read while it stood by
  std::unique_ptr<SimJournal> journal;  // these once it acts
  qgpu::testing::MemoryRecording recording;
  std::optional<Recorder> recorder;
  std::unique_ptr<SchedulerActor> scheduler;
};

}  // namespace

class ClusterWorld::Parts final : public Verdict {
 public:
  Parts(const ClusterOptions& options, std::uint64_t traceFrom);
  ~Parts() noexcept override;
  Outcome run();

  void violated(const char* invariant, const std::string& what) override {
    const bool counts = options_.judge.find(invariant[0]) != std::string::npos;
    if (options_.judge.empty() || counts) fail(Failing::Invariant, invariant, what);
  }

 private:
  struct Machine {
    std::string name;
    std::uint32_t cards = 1;
    bool mixed = true;
    std::unique_ptr<StorageCheck> storage;  // of a node
    std::unique_ptr<Tap> tap;
    std::unique_ptr<Site> site;
    std::unique_ptr<NodeLife> node;  // of a node
    std::unique_ptr<NodeClient> client;
    std::unique_ptr<SchedulerLife> scheduler;  // of a scheduler
    std::unique_ptr<EtcdWay> ways[2];          // to etcd, of its seat and of its store
    std::uint32_t lives = 0;
    bool slowDisk = false;
    bool booting = false;
    std::optional<Ending> ending;  // asked for, after this step
    Nanos away{0};                 // it boots no earlier
    std::uint32_t boots = 0;       // orders to boot; a later one counts

    bool runs() const { return node != nullptr || scheduler != nullptr; }
    bool acts() const { return scheduler != nullptr && scheduler->scheduler != nullptr; }
  };

  void fail(Failing failing, const std::string& id, const std::string& what);
  void say(const std::string& text);
  void makeMachines();
  std::size_t nodes() const { return options_.nodes; }
  bool isNode(std::size_t index) const { return index < nodes(); }
  bool several() const { return options_.schedulers > 1; }
  std::size_t anyNode() { return dice_.below(nodes()); }
  std::size_t anyScheduler() {
    return nodes() + (several() ? dice_.below(options_.schedulers) : 0);
  }
  Machine* acting();

  // The life of processes.
  void boot(std::size_t index);
  void bootLater(std::size_t index, Nanos delay);
  void composeNode(std::size_t index, std::unique_ptr<SimJournal> journal);
  void composeScheduler(std::size_t index, std::unique_ptr<SimJournal> journal);
  void standBy(std::size_t index);
  void onSeated(std::size_t index, const KvCondition& guard);
  void seatRound(std::size_t index);
  void seatCalls(std::size_t index, Nanos read);
  std::optional<Error> refusal(std::size_t index) const;
  bool holds(std::size_t index);
  void end(std::size_t index, Ending ending);
  void endLife(std::size_t index, bool silently);
  void replay(const Machine& machine);
  void heardEnd(std::size_t index, const std::string& identity);
  SimJournal* journalOf(Machine& machine) const;
  void setPace(Machine& machine);

  // Faults.
  void faultLater();
  void strike();
  void strikeDisk(Machine& machine, ClusterFault fault);
  void strikeNet(ClusterFault fault);
  void strikeStall(std::size_t index, Nanos time);
  void strikeEtcd(ClusterFault fault);
  void passing(std::function<void(bool)> fault);

  // Time and phases.
  bool step(Nanos until);
  void run(Nanos time);
  template <typename Done>
  bool until(const char* what, Nanos within, Done&& done);
  bool atRest();
  std::string state();
  bool restsFor(Nanos still);
  void judgeRest();
  void compareLedgers(std::size_t index);
  void safety();
  void heal();
  void liveness();
  void restart();
  void goHome();

  const ClusterOptions options_;
  const std::uint64_t traceFrom_;
  Dice dice_;
  SeededTokens tokens_;
  bool trace_ = false;
  Watch nobody_;
  std::vector<Machine> machines_;  // nodes, and the schedulers last
  std::unique_ptr<ClusterCheck> check_;
  std::unique_ptr<StorageCheck> sharedStorage_;  // of all schedulers
  SimEtcd etcd_;
  std::vector<StoredRow> loaded_;  // by who acted last
  std::unique_ptr<Host> fate_;     // when faults strike; its clock is the world's
  std::unique_ptr<Net> net_;
  std::unique_ptr<ClusterClient> client_;
  std::vector<ClusterFault> mine_;
  bool healed_ = false;
  Nanos now_ = seconds(1);
  std::uint64_t events_ = 0;
  std::uint64_t eventsMax_ = UINT64_MAX;
  std::optional<Failure> failure_;
};

ClusterWorld::Parts::Parts(const ClusterOptions& options, std::uint64_t traceFrom)
    : options_(options),
      traceFrom_(traceFrom),
      dice_(options.seed ^ 0x636c7573ULL),
      tokens_(Dice(dice_.word())) {
  makeMachines();
  HostOptions fate;
  fate.seed = dice_.word();
  fate_ = std::make_unique<Host>(fate, nobody_);
  std::vector<Site*> nodeSites, schedulers;
  std::vector<std::string> names;
  for (std::size_t i = 0; i < machines_.size(); ++i) {
    (isNode(i) ? nodeSites : schedulers).push_back(machines_[i].site.get());
    if (isNode(i)) names.push_back(machines_[i].name);
  }
  const SchedulerFacts facts{[this](std::size_t i) { return refusal(nodes() + i); },
                             [this](std::size_t i) { return holds(nodes() + i); }};
  net_ = std::make_unique<Net>(options_, schedulers, nodeSites, facts, Dice(dice_.word()),
                               [this](const std::string& text) { say(text); });
  client_ = std::make_unique<ClusterClient>(schedulers, facts, options_, names, Dice(dice_.word()));
  for (std::size_t i = 0; i < nodes(); ++i) {
    machines_[i].client = std::make_unique<NodeClient>(*machines_[i].site, options_,
                                                       machines_[i].cards, Dice(dice_.word()));
  }
  constexpr ClusterFault kHere[] = {
      ClusterFault::NodeCrash, ClusterFault::SchedulerCrash, ClusterFault::PowerLoss,
      ClusterFault::NodeLoss,  ClusterFault::DiskFull,       ClusterFault::DiskErrors,
      ClusterFault::SyncFails, ClusterFault::SlowDisk,       ClusterFault::Stalls,
      ClusterFault::Cuts,      ClusterFault::Partitions,     ClusterFault::OneWay,
      ClusterFault::Pauses,    ClusterFault::EtcdCuts,       ClusterFault::EtcdCalls,
      ClusterFault::EtcdDown,  ClusterFault::EtcdFull,       ClusterFault::EtcdSlow};
  for (const ClusterFault fault : kHere) {
    const bool here = fault < ClusterFault::Pauses || options_.etcd;
    if (here && options_.has(fault)) mine_.push_back(fault);
  }
}

ClusterWorld::Parts::~Parts() noexcept {
  for (std::size_t i = 0; i < machines_.size(); ++i) endLife(i, true);
}

void ClusterWorld::Parts::makeMachines() {
  std::vector<JudgedNode> judged;
  machines_.resize(nodes() + options_.schedulers);
  for (std::size_t i = 0; i < machines_.size(); ++i) {
    Machine& machine = machines_[i];
    machine.name = isNode(i)   ? "n" + std::to_string(i)
                   : several() ? "s" + std::to_string(i - nodes())
                               : "scheduler";
    machine.cards = static_cast<std::uint32_t>(
        dice_.between(std::int64_t{1}, std::max<std::int64_t>(1, options_.cards)));
    machine.mixed = dice_.percent(options_.mixedPercent);
    if (!isNode(i)) continue;
    JudgedNode& node = judged.emplace_back();
    node.name = machine.name;
    node.mixed = machine.mixed;
    node.cpuMilli = kCpuMilli;
    node.cards.assign(machine.cards, CardFact{{}, gibibytes(options_.cardGib), false});
  }
  check_ = std::make_unique<ClusterCheck>(*this, std::move(judged));
  sharedStorage_ = std::make_unique<StorageCheck>(*this, StorageCheck::Rounds::MayBeEmpty);
  for (std::size_t i = 0; i < machines_.size(); ++i) {
    Machine& machine = machines_[i];
    // Clocks of machines show what they like.
    const Nanos offset = dice_.magnitude(millis(1), seconds(1'000'000));
    if (isNode(i)) machine.storage = std::make_unique<StorageCheck>(*this);
    StorageCheck& storage = isNode(i) ? *machine.storage : *sharedStorage_;
    machine.tap = std::make_unique<Tap>(*this, *check_, storage,
                                        isNode(i) ? Tap::Of::Node : Tap::Of::Scheduler,
                                        isNode(i) ? i : i - nodes(), offset,
                                        [this](std::uint32_t link) { return net_->nodeOf(link); });
    HostOptions host;
    host.seed = dice_.word();
    host.mailboxMax = options_.mailboxMax;
    machine.site = std::make_unique<Site>(machine.name, host, offset, *machine.tap);
    if (isNode(i) || !options_.etcd) continue;
    for (auto& way : machine.ways) {
      way = std::make_unique<EtcdWay>(etcd_, *machine.site, Dice(dice_.word()));
    }
  }
}

void ClusterWorld::Parts::fail(Failing failing, const std::string& id, const std::string& what) {
  if (!failure_) failure_ = Failure{failing, id, what, now_, events_};
}

void ClusterWorld::Parts::say(const std::string& text) {
  if (!trace_) return;
  std::printf("%14.6f s  --- %s\n", static_cast<double>(now_.value) / 1e9, text.c_str());
}

// --- the life of processes ---

SimJournal* ClusterWorld::Parts::journalOf(Machine& machine) const {
  if (machine.node != nullptr) return machine.node->journal.get();
  return machine.scheduler != nullptr ? machine.scheduler->journal.get() : nullptr;
}

void ClusterWorld::Parts::setPace(Machine& machine) {
  DiskPace pace;
  const bool slowEtcd = etcd_.slow && machine.scheduler != nullptr;
  pace.slowPermille = machine.slowDisk || slowEtcd ? 300 : 0;
  if (SimJournal* journal = journalOf(machine)) journal->setPace(pace);
}

void ClusterWorld::Parts::bootLater(std::size_t index, Nanos delay) {
  Machine& machine = machines_[index];
  const std::uint32_t order = ++machine.boots;
  machine.site->after(delay, [this, index, order] {
    if (order == machines_[index].boots && !machines_[index].runs()) boot(index);
  });
}

void ClusterWorld::Parts::boot(std::size_t index) {
  Machine& machine = machines_[index];
  if (!isNode(index) && options_.etcd) return standBy(index);
  JournalLimits limits;
  limits.snapshotRows = options_.snapshotRows;
  auto journal = SimJournal::open(
      machine.site->host, machine.site->disk, Dice(dice_.word()), limits,
      [this, index](const std::string&) { machines_[index].ending = Ending::Crash; });
  if (!journal) {
    say(machine.name + " does not start: " + journal.error().message);
    machine.site->disk.restart();
    if (journal.error().code == ErrorCode::Corrupt) {
      fail(Failing::Invariant, "D1", machine.name + " does not start: " + journal.error().message);
    }
    return bootLater(index, dice_.magnitude(kBootMin, kBootMax));
  }
  if (isNode(index)) {
    composeNode(index, std::move(*journal));
  } else {
    machine.scheduler = std::make_unique<SchedulerLife>();
    ++machine.lives;
    composeScheduler(index, std::move(*journal));
  }
  setPace(machine);
}

void ClusterWorld::Parts::composeNode(std::size_t index, std::unique_ptr<SimJournal> journal) {
  Machine& machine = machines_[index];
  Host& host = machine.site->host;
  machine.node = std::make_unique<NodeLife>();
  NodeLife& life = *machine.node;
  life.journal = std::move(journal);
  host.setJournal(life.journal.get());
  Boot boot;
  boot.life = ++machine.lives;
  boot.rows = life.journal->rows();
  boot.rowsAgain = life.journal->rowsAgain();
  boot.incarnation = NodeNumbers::storedIncarnation(boot.rows).value_or(0) + 1;
  boot.mixed = machine.mixed;
  boot.mailboxMax = options_.mailboxMax;
  boot.node = host.reserve(Home::Main);
  const ActorId member = host.reserve(Home::Main);
  const ActorId link = host.add(net_->nodeEnd(index), Home::Main);
  const ActorId client = host.add(*machine.client, Home::Main);
  boot.clients = {member, link, client};
  life.room = std::make_unique<RoomDouble>(*machine.site, options_, Dice(dice_.word()));
  if (healed_) life.room->calm();
  NodePeers peers = life.room->settle(boot.node, machine.cards, options_.slots);
  peers.member = member;
  boot.attach = peers.attach;
  boot.tasks = peers.tasks;
  std::vector<CardFacts> cards(machine.cards);
  for (std::uint32_t i = 0; i < machine.cards; ++i) {
    cards[i].id = "sim-" + std::to_string(i);
    cards[i].index = i;
    cards[i].model = "imaginary";
    cards[i].backend = "sim";
    cards[i].mem = gibibytes(options_.cardGib);
    boot.cards.push_back({peers.cards[i], cards[i].mem, false});
  }
  machine.tap->boot(boot, {boot.node, link, member}, host.now());
  NodeOptions node;
  node.name = machine.name;
  node.version = "sim";
  node.incarnation = boot.incarnation;
  node.mixed = machine.mixed;
  life.node = std::make_unique<NodeActor>(std::move(node), std::move(peers), std::move(cards),
                                          tokens_, boot.rows);
  host.attach(boot.node, *life.node);
  MemberOptions options;
  options.cpuMilli = kCpuMilli;
  life.member = std::make_unique<MemberActor>(options, MemberPeers{boot.node, link});
  host.attach(member, *life.member);
  machine.client->connect(client, boot.node, member);
  host.sendUrgent(client, boot.node, [](auto message) { message.initStart(); });
  net_->nodeUp(index, link, member);
}

// It acts from now on.
void ClusterWorld::Parts::composeScheduler(std::size_t index, std::unique_ptr<SimJournal> journal) {
  Machine& machine = machines_[index];
  const std::size_t number = index - nodes();
  loaded_ = journal->rows();
  Host& host = machine.site->host;
  SchedulerLife& life = *machine.scheduler;
  life.journal = std::move(journal);
  host.setJournal(life.journal.get());
  Boot boot;
  boot.life = machine.lives;
  boot.rows = QGPU_PLANTED(LoadedTooEarly) && options_.etcd ? life.early : life.journal->rows();
  boot.rowsAgain = options_.etcd ? boot.rows : life.journal->rowsAgain();
  boot.mailboxMax = options_.mailboxMax;
  boot.node = host.reserve(Home::Main);
  boot.attach = host.add(net_->linksEnd(number), Home::Card);
  boot.clients = {host.add(*client_, Home::Main)};
  std::size_t before = 0;
  while (!check_->acts(before)) ++before;
  machine.tap->boot(boot, {boot.node, boot.attach, ActorId::kNobody}, host.now());
  machines_[nodes() + before].tap->followed();
  SchedulerOptions options;
  options.version = "sim";
  life.recorder.emplace(host, life.recording, options_.seed, options.unixMsAtZero);
  options.unixMsAtZero = life.recorder->date();
  RecordedLife recorded;
  recorded.self = boot.node;
  recorded.peers.links = boot.attach;
  recorded.seed = options_.seed;
  for (Words& record : recordsOf(recorded, options, boot.rows)) {
    life.recording.put(std::move(record));
  }
  life.scheduler = std::make_unique<SchedulerActor>(options, recorded.peers, boot.rows);
  life.recorder->attach(*life.scheduler);
  host.attach(boot.node, *life.recorder);
  client_->connect(number, boot.clients[0], boot.node);
  host.sendUrgent(boot.clients[0], boot.node, [](auto message) { message.initStart(); });
  net_->schedulerUp(number, boot.attach, boot.node);
}

// --- one of several ---

// As services/daemons/scheduler.cc: it acts once it is seated, and whatever ends that ends it.
void ClusterWorld::Parts::standBy(std::size_t index) {
  Machine& machine = machines_[index];
  machine.scheduler = std::make_unique<SchedulerLife>();
  SchedulerLife& life = *machine.scheduler;
  life.early = loaded_;
  life.identity = machine.name + "-" + std::to_string(++machine.lives);
  SeatOptions options;
  options.prefix = kPrefix;
  options.identity = life.identity;
  options.address = machine.name;
  SeatRounds::Calls calls;
  calls.seated = [this, index](const KvCondition& guard) { onSeated(index, guard); };
  calls.lost = [this, index](const std::string& why) {
    say(machines_[index].name + " lost its seat: " + why);
    machines_[index].ending = Ending::Crash;
  };
  calls.other = [&life](const SeatHolder& other) { life.other = other.address; };
  calls.health = [](const Status&) {};
  Host& host = machine.site->host;
  life.seat = std::make_unique<SeatRounds>(
      machine.ways[0]->kv(), std::move(options),
      [&host](std::function<void()> work) { host.after(Scope::Manager, kPosted, std::move(work)); },
      std::move(calls));
  seatRound(index);
}

// Its thread. The clock is read before the calls, which take a while; sometimes that is an event of
// its own, so that other things may happen in between.
void ClusterWorld::Parts::seatRound(std::size_t index) {
  Host& host = machines_[index].site->host;
  const Nanos takes = etcd_.takes(dice_);
  const bool apart = dice_.percent(10);
  if (!apart) return seatCalls(index, host.now() - std::min(takes, kSeatCalls));
  host.after(Scope::Manager, takes, [this, index, read = host.now()] { seatCalls(index, read); });
}

void ClusterWorld::Parts::seatCalls(std::size_t index, Nanos read) {
  Machine& machine = machines_[index];
  const Nanos again = machine.scheduler->seat->round(read);
  if (again == kNever) return;
  machine.site->host.after(Scope::Manager, again, [this, index] { seatRound(index); });
}

void ClusterWorld::Parts::onSeated(std::size_t index, const KvCondition& guard) {
  Machine& machine = machines_[index];
  JournalLimits limits;
  limits.snapshotRows = options_.snapshotRows;
  auto journal = SimJournal::open(
      machine.site->host, machine.ways[1]->kv(), kPrefix, guard, Dice(dice_.word()), limits,
      [this, index](const std::string&) { machines_[index].ending = Ending::Crash; });
  if (!journal) {
    say(machine.name + " does not act: " + journal.error().message);
    if (journal.error().code == ErrorCode::Corrupt) {
      fail(Failing::Invariant, "D1", machine.name + " does not act: " + journal.error().message);
    }
    machine.ending = Ending::Crash;
    return;
  }
  say(machine.name + " acts");
  composeScheduler(index, std::move(*journal));
  setPace(machine);
}

// As a process that is not there, or as services/api/rpc/standing_by.h.
std::optional<Error> ClusterWorld::Parts::refusal(std::size_t index) const {
  const Machine& machine = machines_[index];
  if (!machine.runs()) return qgpu::fail(ErrorCode::Unavailable, "nobody listens");
  if (!machine.acts()) return standsBy(machine.scheduler->other);
  return std::nullopt;
}

bool ClusterWorld::Parts::holds(std::size_t index) {
  const Machine& machine = machines_[index];
  if (machine.scheduler == nullptr || machine.scheduler->seat == nullptr) return true;
  if (!machine.scheduler->seat->holds(machine.site->host.now())) return false;
  if (etcd_.acting(machine.site->now()) != machine.scheduler->identity) {
    violated("C1", machine.name + " hears nodes or answers clients, and its seat is over");
  }
  return true;
}

ClusterWorld::Parts::Machine* ClusterWorld::Parts::acting() {
  for (std::size_t i = nodes(); i < machines_.size(); ++i) {
    Machine& machine = machines_[i];
    const bool seated = !options_.etcd || (machine.scheduler != nullptr &&
                                           etcd_.acting(now_) == machine.scheduler->identity);
    if (machine.acts() && seated) return &machine;
  }
  return nullptr;
}

void ClusterWorld::Parts::end(std::size_t index, Ending ending) {
  Machine& machine = machines_[index];
  if (!machine.runs()) return;
  say(machine.name + (ending == Ending::Stop ? " stops" : " dies"));
  SimJournal* const journal = journalOf(machine);  // of who stands by there is none
  if (journal != nullptr) machine.tap->onEnd(ending, machine.site->host.now());
  if (ending == Ending::Stop) {
    if (journal != nullptr) journal->close();
    if (machine.scheduler != nullptr && machine.scheduler->seat) machine.scheduler->seat->leave();
  }
  const std::string identity = machine.scheduler != nullptr ? machine.scheduler->identity : "";
  replay(machine);
  endLife(index, ending == Ending::PowerLoss);
  if (ending == Ending::Crash && several() && !identity.empty()) heardEnd(index, identity);
  if (ending == Ending::PowerLoss)
    machine.site->disk.powerCut(dice_.word());
  else
    machine.site->disk.restart();
  const Nanos away = std::max(Nanos(0), machine.away - machine.site->now());
  bootLater(index, away + dice_.magnitude(kBootMin, kBootMax));
}

// Its host runs on and refuses connections, which the other schedulers notice, if they reach it.
void ClusterWorld::Parts::heardEnd(std::size_t index, const std::string& identity) {
  for (std::size_t i = nodes(); i < machines_.size(); ++i) {
    Machine& other = machines_[i];
    if (i == index || other.scheduler == nullptr || dice_.percent(50)) continue;
    other.site->host.after(Scope::Manager, dice_.magnitude(kHeardMin, kHeardMax),
                           [&other, identity] { other.scheduler->seat->ended(identity); });
  }
}

void ClusterWorld::Parts::endLife(std::size_t index, bool silently) {
  Machine& machine = machines_[index];
  if (!machine.runs()) return;
  if (machine.node != nullptr) {
    net_->nodeDown(index, silently);
    machine.client->disconnect();
  } else {
    net_->schedulerDown(index - nodes(), silently);
    client_->disconnect(index - nodes());
  }
  machine.node.reset();
  machine.scheduler.reset();
  machine.site->host.clearManager();
}

// A13: what this life was told, told to another scheduler actor.
void ClusterWorld::Parts::replay(const Machine& machine) {
  if (!machine.acts()) return;
  const auto differs = [&](const std::string& how) {
    violated("A13", machine.name + " is told the same again: " + how);
  };
  auto reader = qgpu::testing::MemoryRecording::read(machine.scheduler->recording.file());
  if (!reader) return differs(reader.error().message);
  auto again = SchedulerReplay::open(std::move(*reader));
  if (!again) return differs(again.error().message);
  if (const Status ran = (*again)->run(); !ran) return differs(ran.error().message);
  if (!(*again)->seen().difference.empty()) return differs((*again)->seen().difference);
}

// --- faults ---

void ClusterWorld::Parts::faultLater() {
  if (mine_.empty()) return;
  const Nanos delay = dice_.magnitude(options_.faultEvery / 8, options_.faultEvery * 2);
  fate_->after(Scope::World, delay, [this] {
    if (healed_) return;
    strike();
    faultLater();
  });
}

// A fault that is over after a while.
void ClusterWorld::Parts::passing(std::function<void(bool)> fault) {
  fault(true);
  fate_->after(Scope::World, dice_.magnitude(kWhileMin, kWhileMax), [this, fault] {
    if (!healed_) fault(false);
  });
}

void ClusterWorld::Parts::strike() {
  for (Machine& machine : machines_) machine.site->idleUntil(now_);
  const ClusterFault fault = dice_.pick(mine_);
  const std::size_t node = anyNode();
  const std::size_t any = dice_.below(machines_.size());
  switch (fault) {
    case ClusterFault::NodeCrash:
      return end(node, Ending::Crash);
    case ClusterFault::SchedulerCrash:
      return end(anyScheduler(), Ending::Crash);
    case ClusterFault::PowerLoss:
      return end(any, Ending::PowerLoss);
    case ClusterFault::NodeLoss:
      machines_[node].away = now_ + dice_.between(seconds(1), kAwayMax);
      return end(node, Ending::PowerLoss);
    case ClusterFault::Stalls:
      return strikeStall(any, dice_.magnitude(millis(10), seconds(40)));
    case ClusterFault::Pauses: {
      const Machine* machine = acting();
      if (machine == nullptr) return;
      return strikeStall(static_cast<std::size_t>(machine - machines_.data()),
                         dice_.magnitude(seconds(1), seconds(40)));
    }
    case ClusterFault::Cuts:
    case ClusterFault::Partitions:
    case ClusterFault::OneWay:
      return strikeNet(fault);
    case ClusterFault::EtcdCuts:
    case ClusterFault::EtcdCalls:
    case ClusterFault::EtcdDown:
    case ClusterFault::EtcdFull:
    case ClusterFault::EtcdSlow:
      return strikeEtcd(fault);
    default:
      return strikeDisk(machines_[any], fault);
  }
}

// The process has no turns for a while. When it is woken, its threads go on in any order.
void ClusterWorld::Parts::strikeStall(std::size_t index, Nanos time) {
  Machine& machine = machines_[index];
  say(machine.name + " stalls for " + std::to_string(time / millis(1)) + " ms");
  Host& host = machine.site->host;
  host.stall(Home::Main, host.now() + time);
  if (options_.etcd && !isNode(index)) time += dice_.magnitude(micros(1), millis(100));
  host.stall(Home::Card, host.now() + time);
  machine.tap->stall(host.now() + time);
  if (isNode(index))
    check_->nodeStalls(index, now_ + time);
  else
    check_->schedulerStalls(now_ + time);
}

void ClusterWorld::Parts::strikeEtcd(ClusterFault fault) {
  say("a fault of etcd, " + std::to_string(static_cast<unsigned>(fault)));
  switch (fault) {
    case ClusterFault::EtcdCuts: {
      Machine& machine = machines_[anyScheduler()];
      const EtcdWay::Cut how = dice_.percent(60) ? EtcdWay::Cut::Both : EtcdWay::Cut::Answers;
      return passing([this, &machine, how](bool on) {
        say(machine.name + (on ? " is cut off from etcd" : " reaches etcd again"));
        for (auto& way : machine.ways) way->cut(on ? how : EtcdWay::Cut::None);
      });
    }
    case ClusterFault::EtcdCalls: {
      const auto share = static_cast<std::uint32_t>(dice_.between(10, 70));
      return passing([this, share](bool on) { etcd_.loses = on ? share : 0; });
    }
    case ClusterFault::EtcdDown:
      return passing([this](bool on) { etcd_.down(on, now_); });
    case ClusterFault::EtcdFull:
      return passing([this](bool on) { etcd_.full = on; });
    default:
      return passing([this](bool on) {
        etcd_.slow = on;
        for (std::size_t i = nodes(); i < machines_.size(); ++i) setPace(machines_[i]);
      });
  }
}

void ClusterWorld::Parts::strikeDisk(Machine& machine, ClusterFault fault) {
  MemoryDisk& disk = machine.site->disk;
  say(machine.name + ": a fault of its disk, " + std::to_string(static_cast<unsigned>(fault)));
  switch (fault) {
    case ClusterFault::DiskFull:
      return passing([&disk](bool on) { disk.setCapacity(on ? disk.used() : INT64_MAX); });
    case ClusterFault::DiskErrors:
      return disk.fail(dice_.percent(70) ? MemoryDisk::Op::Write : MemoryDisk::Op::Read,
                       1 + dice_.below(20));
    case ClusterFault::SyncFails:
      return disk.fail(MemoryDisk::Op::Sync, 1);
    default:
      return passing([this, &machine](bool on) {
        machine.slowDisk = on;
        setPace(machine);
      });
  }
}

void ClusterWorld::Parts::strikeNet(ClusterFault fault) {
  if (fault == ClusterFault::Cuts) return net_->cut(anyNode());
  std::vector<std::size_t> cutOff;
  const std::size_t first = anyNode();
  for (std::size_t i = 0; i < nodes(); ++i) {
    if (i == 0 || dice_.percent(40)) cutOff.push_back((first + i) % nodes());
  }
  const bool both = fault == ClusterFault::Partitions;
  const Way way = dice_.percent(50) ? Way::Up : Way::Down;
  const bool one = several() && dice_.percent(50);  // or all schedulers
  const std::size_t from = one ? anyScheduler() - nodes() : 0;
  const std::size_t to = one ? from + 1 : options_.schedulers;
  passing([this, cutOff, both, way, from, to](bool on) {
    for (Machine& machine : machines_) machine.site->idleUntil(now_);
    for (std::size_t i = from; i < to; ++i) {
      for (const std::size_t node : cutOff) {
        say(machines_[node].name + (on ? " is cut off from " : " is reached again by ") +
            machines_[nodes() + i].name);
        if (both || way == Way::Up) net_->block(i, node, Way::Up, on);
        if (both || way == Way::Down) net_->block(i, node, Way::Down, on);
      }
    }
  });
}

// --- time ---

// One event of the machine whose time is first. False: nothing happens until then.
bool ClusterWorld::Parts::step(Nanos until) {
  if (events_ >= traceFrom_ && !trace_) {
    trace_ = true;
    for (Machine& machine : machines_) machine.tap->trace(true);
  }
  const std::optional<Nanos> fate = fate_->nextEvent();
  Nanos first = fate.value_or(kNever);
  std::size_t whose = machines_.size();
  for (std::size_t i = 0; i < machines_.size(); ++i) {
    const Nanos next = machines_[i].site->next();
    if (next >= first) continue;
    first = next;
    whose = i;
  }
  if (first > until) {
    now_ = std::max(now_, until);
    return false;
  }
  now_ = std::max(now_, first);
  ++events_;
  if (whose == machines_.size()) {
    fate_->step(first);
  } else {
    machines_[whose].site->step(first);
  }
  for (std::size_t i = 0; i < machines_.size(); ++i) {
    if (machines_[i].ending) end(i, *std::exchange(machines_[i].ending, std::nullopt));
  }
  return !failure_;
}

void ClusterWorld::Parts::run(Nanos time) {
  const Nanos until = now_ + time;
  while (events_ <= eventsMax_ && step(until)) {
  }
}

template <typename Done>
bool ClusterWorld::Parts::until(const char* what, Nanos within, Done&& done) {
  const Nanos deadline = now_ + within;
  while (!failure_ && !done()) {
    if (events_ <= eventsMax_ && step(deadline)) continue;
    if (failure_) return false;
    const std::string why = events_ > eventsMax_
                                ? "still busy after many events"
                                : "not within " + std::to_string(within / seconds(1)) + " s";
    fail(Failing::Liveness, "rest", std::string(what) + ": " + why + "; " + state());
  }
  return !failure_;
}

std::string ClusterWorld::Parts::state() {
  std::string text = "the client waits for " + client_->waitsFor();
  for (Machine& machine : machines_) {
    text += "; " + machine.name;
    if (!machine.runs())
      text += " does not run";
    else if (journalOf(machine) == nullptr)
      text += " stands by";
    else if (journalOf(machine)->busy())
      text += " stores";
    if (machine.client != nullptr && !machine.client->satisfied()) text += " owes answers";
    if (machine.client != nullptr && machine.client->hasTasks()) text += " has wishes";
    if (machine.node == nullptr) continue;
    const auto member = static_cast<int>(machine.node->member->state());
    text += " member in state " + std::to_string(member) + ", " +
            std::to_string(machine.node->node->tasks()) + " tasks";
  }
  text += "; rows " + std::to_string(check_->rows().size());
  for (const std::string& difference : check_->differences()) text += "; " + difference;
  return text;
}

bool ClusterWorld::Parts::atRest() {
  const Machine* acts = acting();
  if (!client_->satisfied() || acts == nullptr) return false;
  if (acts->scheduler->scheduler->membership().alive() != nodes()) return false;
  for (Machine& machine : machines_) {
    SimJournal* journal = journalOf(machine);
    if (machine.scheduler != nullptr && &machine != acts) continue;
    if (journal == nullptr || journal->busy() || !journal->healthy()) return false;
    if (machine.client != nullptr && !machine.client->satisfied()) return false;
    if (machine.node == nullptr) continue;
    if (machine.node->member->state() != MemberState::Member) return false;
  }
  return true;
}

// At rest, and no row of a task changes for that long.
bool ClusterWorld::Parts::restsFor(Nanos still) {
  std::uint64_t changes = check_->changes();
  Nanos since = now_;
  return until("the cluster comes to rest", kRestIn, [&] {
    if (check_->changes() != changes) since = now_;
    changes = check_->changes();
    return now_ - since >= still && atRest();
  });
}

// What the scheduler, the node, its cards and the judge think that a node's cards hold.
void ClusterWorld::Parts::compareLedgers(std::size_t index) {
  Machine& machine = machines_[index];
  const Machine* acts = acting();
  if (acts == nullptr) return violated("P4", "no scheduler acts");
  const ClusterLedger& ledger = acts->scheduler->scheduler->ledger();
  const auto node = ledger.findNode(machine.name);
  if (!node) return violated("P4", machine.name + " is unknown to the scheduler");
  for (std::uint32_t i = 0; i < machine.cards; ++i) {
    const CardRoom& there = ledger.room(*node, i);
    const CardRoom& here = machine.node->node->ledger().use(i);
    const HeldCard& judged = check_->model(index).cards()[i];
    const std::string what = machine.name + " card " + std::to_string(i);
    if (there.memBound != here.memBound || there.ordinary != here.ordinary ||
        there.greedy != here.greedy || there.tasks != here.tasks) {
      violated("P4", what + ": the scheduler has " + std::to_string(there.tasks) +
                         " tasks of it, the node " + std::to_string(here.tasks));
    }
    if (here.memBound.value != judged.mem || here.ordinary.value != judged.ordinary ||
        here.greedy.value != judged.greedy || here.tasks != judged.tasks) {
      violated("P4", what + ": the node has " + std::to_string(here.tasks) +
                         " tasks of it, its rows " + std::to_string(judged.tasks));
    }
    std::set<std::uint64_t> rows;
    for (const ClusterCheck::Copy& copy : check_->copiesOn(index)) {
      if (std::find(copy.cards.begin(), copy.cards.end(), i) != copy.cards.end()) {
        rows.insert(copy.nodeTask);
      }
    }
    if (machine.node->room->onCard(i) != rows) {
      violated("P4", what + " itself knows other tasks than its node");
    }
  }
}

void ClusterWorld::Parts::judgeRest() {
  if (failure_) return;
  check_->atRest();
  for (std::size_t i = 0; i < nodes() && !failure_; ++i) compareLedgers(i);
}

// --- phases ---

void ClusterWorld::Parts::safety() {
  for (Machine& machine : machines_) machine.tap->onPhase(Phase::Safety, now_);
  for (std::size_t i = 0; i < machines_.size(); ++i) {
    bootLater(i, dice_.magnitude(millis(1), seconds(5)));
  }
  faultLater();
  const Nanos until = now_ + options_.length;
  const std::uint64_t most =
      options_.events + (options_.etcd ? options_.schedulers * kSeatEvents : 0);
  while (events_ < most && step(until)) {
  }
}

void ClusterWorld::Parts::heal() {
  healed_ = true;
  say("everything heals");
  for (std::size_t i = 0; i < machines_.size(); ++i) {
    Machine& machine = machines_[i];
    machine.site->idleUntil(now_);
    machine.site->host.wake();
    machine.site->disk.mend();
    machine.site->disk.setCapacity(INT64_MAX);
    machine.slowDisk = false;
    setPace(machine);
    machine.away = Nanos(0);
    if (!machine.runs()) bootLater(i, dice_.magnitude(kBootMin, kBootMax));
    if (machine.node != nullptr) machine.node->room->calm();
    if (machine.client != nullptr) machine.client->calm();
  }
  for (Machine& machine : machines_) {
    for (auto& way : machine.ways) {
      if (way != nullptr) way->cut(EtcdWay::Cut::None);
    }
  }
  etcd_.heal(now_);
  client_->calm();
  net_->heal();
}

// Views agree soon; then, with nobody asking for more, everything comes to rest.
void ClusterWorld::Parts::liveness() {
  if (failure_) return;
  for (Machine& machine : machines_) machine.tap->onPhase(Phase::Liveness, now_);
  eventsMax_ = events_ + kCalmEvents;
  heal();
  run(kConvergence);
  if (failure_) return;
  const std::set<std::string> before = check_->differences();
  run(kPatience);
  for (const std::string& difference : check_->differences()) {
    if (!before.contains(difference)) continue;
    violated("C4", std::to_string((kConvergence + kPatience) / seconds(1)) +
                       " s after everything healed: " + difference);
  }
  if (restsFor(kStill)) judgeRest();
}

// Processes that start again find on disk what the ones before them knew (judged as they boot). A
// client that repeats a request of a task that has ended by then gets another task: what ended is
// remembered by one life of the scheduler.
void ClusterWorld::Parts::restart() {
  if (failure_) return;
  for (Machine& machine : machines_) machine.tap->onPhase(Phase::Restart, now_);
  for (Machine& machine : machines_) machine.site->idleUntil(now_);
  const auto ending = [this] {
    return dice_.percent(40) ? Ending::Stop : dice_.percent(50) ? Ending::Crash : Ending::PowerLoss;
  };
  for (std::size_t i = nodes(); i < machines_.size(); ++i) {
    if (!several() || machines_[i].acts() || dice_.percent(50)) end(i, ending());
  }
  const std::size_t node = anyNode();
  if (dice_.percent(50)) end(node, ending());
  if (!until("processes start again", kRestIn,
             [&] { return acting() != nullptr && machines_[node].runs(); })) {
    return;
  }
  if (restsFor(kStill)) judgeRest();
}

// Every task ends, and everything returns.
void ClusterWorld::Parts::goHome() {
  if (failure_) return;
  client_->endAll();
  for (Machine& machine : machines_) {
    if (machine.client != nullptr) machine.client->endAll();
  }
  const auto gone = [this] {
    if (!atRest() || client_->hasTasks()) return false;
    for (Machine& machine : machines_) {
      if (machine.client != nullptr && machine.client->hasTasks()) return false;
    }
    return check_->rows().empty() && check_->differences().empty();
  };
  if (!until("every task ends", kRestIn, gone)) return;
  if (restsFor(seconds(2))) judgeRest();
}

Outcome ClusterWorld::Parts::run() {
  safety();
  liveness();
  restart();
  goHome();
  for (const Machine& machine : machines_) replay(machine);
  Outcome outcome;
  outcome.seed = options_.seed;
  outcome.events = events_;
  outcome.hash = static_cast<std::uint64_t>(now_.value);
  for (const Machine& machine : machines_) {
    outcome.hash = outcome.hash * 1099511628211ULL ^ machine.site->host.hash();
    outcome.lives += machine.lives;
  }
  outcome.tasks = client_->tasks();
  outcome.length = now_ - seconds(1);
  outcome.failure = failure_;
  return outcome;
}

ClusterWorld::ClusterWorld(const ClusterOptions& options, std::uint64_t traceFrom)
    : parts_(std::make_unique<Parts>(options, traceFrom)) {}

ClusterWorld::~ClusterWorld() = default;

Outcome ClusterWorld::run() {
  return parts_->run();
}

}  // namespace qgpu::sim
