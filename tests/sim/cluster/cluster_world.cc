#include "tests/sim/cluster/cluster_world.h"

#include <algorithm>
#include <cstdio>
#include <utility>
#include <vector>

#include "actors/member/member_actor.h"
#include "actors/node/node_actor.h"
#include "actors/scheduler/scheduler_actor.h"
#include "tests/sim/cluster/cluster_clients.h"
#include "tests/sim/cluster/cluster_net.h"
#include "tests/sim/cluster/cluster_room.h"
#include "tests/sim/cluster/cluster_site.h"
#include "tests/sim/cluster/cluster_tap.h"
#include "tests/sim/seeded_tokens.h"
#include "tests/sim/sim_journal.h"

namespace qgpu::sim {
namespace {

constexpr Nanos kBootMin = millis(1);
constexpr Nanos kBootMax = seconds(2);
constexpr Nanos kAwayMax = seconds(60);           // of a machine that is lost
constexpr Nanos kWhileMin = millis(50);           // of a fault that passes
constexpr Nanos kWhileMax = seconds(40);
constexpr Nanos kConvergence = seconds(30);
constexpr Nanos kPatience = seconds(5);           // a difference that lasts is one
constexpr Nanos kRestIn = seconds(150);
constexpr Nanos kStill = seconds(8);
constexpr std::uint64_t kCalmEvents = 120'000;
constexpr std::uint64_t kCpuMilli = 8'000;

// A process, on its machine or between two lives. It ends in the reverse order of its members.
struct NodeLife {
  std::unique_ptr<SimJournal> journal;
  std::unique_ptr<RoomDouble> room;
  std::unique_ptr<NodeActor> node;
  std::unique_ptr<MemberActor> member;
};
struct SchedulerLife {
  std::unique_ptr<SimJournal> journal;
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
    std::unique_ptr<Tap> tap;
    std::unique_ptr<Site> site;
    std::unique_ptr<NodeLife> node;             // of a node
    std::unique_ptr<NodeClient> client;
    std::unique_ptr<SchedulerLife> scheduler;   // of the scheduler
    std::uint32_t lives = 0;
    bool slowDisk = false;
    bool booting = false;
    std::optional<Ending> ending;               // asked for, after this step
    Nanos away{0};                              // it boots no earlier
    std::uint32_t boots = 0;                    // orders to boot; a later one counts

    bool runs() const { return node != nullptr || scheduler != nullptr; }
  };

  void fail(Failing failing, const std::string& id, const std::string& what);
  void say(const std::string& text);
  void makeMachines();
  std::size_t schedulerIndex() const { return machines_.size() - 1; }
  Machine& scheduler() { return machines_.back(); }
  bool isScheduler(const Machine& machine) const { return &machine == &machines_.back(); }

  // The life of processes.
  void boot(std::size_t index);
  void bootLater(std::size_t index, Nanos delay);
  void composeNode(std::size_t index, std::unique_ptr<SimJournal> journal);
  void composeScheduler(std::unique_ptr<SimJournal> journal);
  void end(std::size_t index, Ending ending);
  void endLife(std::size_t index, bool silently);
  SimJournal* journalOf(Machine& machine) const;
  void setPace(Machine& machine);

  // Faults.
  void faultLater();
  void strike();
  void strikeDisk(Machine& machine, ClusterFault fault);
  void strikeNet(ClusterFault fault);
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
  std::vector<Machine> machines_;             // nodes, and the scheduler last
  std::unique_ptr<ClusterCheck> check_;
  std::unique_ptr<Host> fate_;                // when faults strike; its clock is the world's
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
  std::vector<Site*> nodes;
  std::vector<std::string> names;
  for (std::size_t i = 0; i < schedulerIndex(); ++i) {
    nodes.push_back(machines_[i].site.get());
    names.push_back(machines_[i].name);
  }
  net_ = std::make_unique<Net>(options_, *scheduler().site, nodes, Dice(dice_.word()),
                               [this](const std::string& text) { say(text); });
  client_ = std::make_unique<ClusterClient>(*scheduler().site, options_, names,
                                            Dice(dice_.word()));
  for (std::size_t i = 0; i < schedulerIndex(); ++i) {
    machines_[i].client = std::make_unique<NodeClient>(*machines_[i].site, options_,
                                                       machines_[i].cards, Dice(dice_.word()));
  }
  constexpr ClusterFault kHere[] = {
      ClusterFault::NodeCrash, ClusterFault::SchedulerCrash, ClusterFault::PowerLoss,
      ClusterFault::NodeLoss,  ClusterFault::DiskFull,       ClusterFault::DiskErrors,
      ClusterFault::SyncFails, ClusterFault::SlowDisk,       ClusterFault::Stalls,
      ClusterFault::Cuts,      ClusterFault::Partitions,     ClusterFault::OneWay};
  for (const ClusterFault fault : kHere) {
    if (options_.has(fault)) mine_.push_back(fault);
  }
}

ClusterWorld::Parts::~Parts() noexcept {
  for (std::size_t i = 0; i < machines_.size(); ++i) endLife(i, true);
}

void ClusterWorld::Parts::makeMachines() {
  std::vector<JudgedNode> judged;
  machines_.resize(options_.nodes + 1);
  for (std::size_t i = 0; i < machines_.size(); ++i) {
    Machine& machine = machines_[i];
    machine.name = i == schedulerIndex() ? "scheduler" : "n" + std::to_string(i);
    machine.cards = static_cast<std::uint32_t>(
        dice_.between(std::int64_t{1}, std::max<std::int64_t>(1, options_.cards)));
    machine.mixed = dice_.percent(options_.mixedPercent);
    if (i == schedulerIndex()) break;
    JudgedNode& node = judged.emplace_back();
    node.name = machine.name;
    node.mixed = machine.mixed;
    node.cpuMilli = kCpuMilli;
    node.cards.assign(machine.cards, CardFact{{}, gibibytes(options_.cardGib), false});
  }
  check_ = std::make_unique<ClusterCheck>(*this, std::move(judged));
  for (std::size_t i = 0; i < machines_.size(); ++i) {
    Machine& machine = machines_[i];
    // Clocks of machines show what they like.
    const Nanos offset = dice_.magnitude(millis(1), seconds(1'000'000));
    const std::optional<std::size_t> node =
        i == schedulerIndex() ? std::nullopt : std::optional<std::size_t>(i);
    machine.tap = std::make_unique<Tap>(*this, *check_, node, offset, [this](std::uint32_t link) {
      return net_->nodeOf(link);
    });
    HostOptions host;
    host.seed = dice_.word();
    host.mailboxMax = options_.mailboxMax;
    machine.site = std::make_unique<Site>(machine.name, host, offset, *machine.tap);
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
  pace.slowPermille = machine.slowDisk ? 300 : 0;
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
  JournalLimits limits;
  limits.snapshotRows = options_.snapshotRows;
  auto journal = SimJournal::open(machine.site->host, machine.site->disk, Dice(dice_.word()),
                                  limits, [this, index](const std::string&) {
                                    machines_[index].ending = Ending::Crash;
                                  });
  if (!journal) {
    say(machine.name + " does not start: " + journal.error().message);
    machine.site->disk.restart();
    if (journal.error().code == ErrorCode::Corrupt) {
      fail(Failing::Invariant, "D1", machine.name + " does not start: " + journal.error().message);
    }
    return bootLater(index, dice_.magnitude(kBootMin, kBootMax));
  }
  if (index == schedulerIndex()) composeScheduler(std::move(*journal));
  else composeNode(index, std::move(*journal));
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

void ClusterWorld::Parts::composeScheduler(std::unique_ptr<SimJournal> journal) {
  Machine& machine = scheduler();
  Host& host = machine.site->host;
  machine.scheduler = std::make_unique<SchedulerLife>();
  SchedulerLife& life = *machine.scheduler;
  life.journal = std::move(journal);
  host.setJournal(life.journal.get());
  Boot boot;
  boot.life = ++machine.lives;
  boot.rows = life.journal->rows();
  boot.rowsAgain = life.journal->rowsAgain();
  boot.mailboxMax = options_.mailboxMax;
  boot.node = host.reserve(Home::Main);
  boot.attach = host.add(net_->linksEnd(), Home::Card);
  boot.clients = {host.add(*client_, Home::Main)};
  machine.tap->boot(boot, {boot.node, boot.attach, ActorId::kNobody}, host.now());
  SchedulerOptions options;
  options.version = "sim";
  life.scheduler = std::make_unique<SchedulerActor>(options, SchedulerPeers{boot.attach},
                                                    boot.rows);
  host.attach(boot.node, *life.scheduler);
  client_->connect(boot.clients[0], boot.node);
  host.sendUrgent(boot.clients[0], boot.node, [](auto message) { message.initStart(); });
  net_->schedulerUp(boot.attach, boot.node);
}

void ClusterWorld::Parts::end(std::size_t index, Ending ending) {
  Machine& machine = machines_[index];
  if (!machine.runs()) return;
  say(machine.name + (ending == Ending::Stop ? " stops" : " dies"));
  machine.tap->onEnd(ending, machine.site->host.now());
  if (ending == Ending::Stop) journalOf(machine)->close();
  endLife(index, ending == Ending::PowerLoss);
  if (ending == Ending::PowerLoss) machine.site->disk.powerCut(dice_.word());
  else machine.site->disk.restart();
  const Nanos away = std::max(Nanos(0), machine.away - machine.site->now());
  bootLater(index, away + dice_.magnitude(kBootMin, kBootMax));
}

void ClusterWorld::Parts::endLife(std::size_t index, bool silently) {
  Machine& machine = machines_[index];
  if (!machine.runs()) return;
  if (machine.node != nullptr) {
    net_->nodeDown(index, silently);
    machine.client->disconnect();
  } else {
    net_->schedulerDown(silently);
    client_->disconnect();
  }
  machine.node.reset();
  machine.scheduler.reset();
  machine.site->host.clearManager();
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
  const std::size_t node = dice_.below(schedulerIndex());
  const std::size_t any = dice_.below(machines_.size());
  switch (fault) {
    case ClusterFault::NodeCrash: return end(node, Ending::Crash);
    case ClusterFault::SchedulerCrash: return end(schedulerIndex(), Ending::Crash);
    case ClusterFault::PowerLoss: return end(any, Ending::PowerLoss);
    case ClusterFault::NodeLoss:
      machines_[node].away = now_ + dice_.between(seconds(1), kAwayMax);
      return end(node, Ending::PowerLoss);
    case ClusterFault::Stalls: {
      const Nanos time = dice_.magnitude(millis(10), seconds(40));
      Machine& machine = machines_[any];
      say(machine.name + " stalls for " + std::to_string(time / millis(1)) + " ms");
      for (const Home home : {Home::Main, Home::Card}) {
        machine.site->host.stall(home, machine.site->host.now() + time);
      }
      machine.tap->stall(machine.site->host.now() + time);
      if (any == schedulerIndex()) check_->schedulerStalls(now_ + time);
      else check_->nodeStalls(any, now_ + time);
      return;
    }
    case ClusterFault::Cuts:
    case ClusterFault::Partitions:
    case ClusterFault::OneWay: return strikeNet(fault);
    default: return strikeDisk(machines_[any], fault);
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
    case ClusterFault::SyncFails: return disk.fail(MemoryDisk::Op::Sync, 1);
    default:
      return passing([this, &machine](bool on) {
        machine.slowDisk = on;
        setPace(machine);
      });
  }
}

void ClusterWorld::Parts::strikeNet(ClusterFault fault) {
  if (fault == ClusterFault::Cuts) {
    const std::size_t node = dice_.below(schedulerIndex());
    return net_->cut(node);
  }
  std::vector<std::size_t> cutOff;
  const std::size_t first = dice_.below(schedulerIndex());
  for (std::size_t i = 0; i < schedulerIndex(); ++i) {
    if (i == 0 || dice_.percent(40)) cutOff.push_back((first + i) % schedulerIndex());
  }
  const bool both = fault == ClusterFault::Partitions;
  const Way way = dice_.percent(50) ? Way::Up : Way::Down;
  passing([this, cutOff, both, way](bool on) {
    for (Machine& machine : machines_) machine.site->idleUntil(now_);
    for (const std::size_t node : cutOff) {
      say(machines_[node].name + (on ? " is cut off" : " is reached again"));
      if (both || way == Way::Up) net_->block(node, Way::Up, on);
      if (both || way == Way::Down) net_->block(node, Way::Down, on);
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
    const std::string why = events_ > eventsMax_ ? "still busy after many events"
                                                 : "not within " +
                                                       std::to_string(within / seconds(1)) + " s";
    fail(Failing::Liveness, "rest", std::string(what) + ": " + why + "; " + state());
  }
  return !failure_;
}

std::string ClusterWorld::Parts::state() {
  std::string text = "the client waits for " + client_->waitsFor();
  for (Machine& machine : machines_) {
    text += "; " + machine.name;
    if (!machine.runs()) text += " does not run";
    else if (journalOf(machine)->busy()) text += " stores";
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
  if (!client_->satisfied() || scheduler().scheduler == nullptr) return false;
  if (scheduler().scheduler->scheduler->membership().alive() != schedulerIndex()) return false;
  for (Machine& machine : machines_) {
    SimJournal* journal = journalOf(machine);
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
  const ClusterLedger& ledger = scheduler().scheduler->scheduler->ledger();
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
  for (std::size_t i = 0; i < schedulerIndex() && !failure_; ++i) compareLedgers(i);
}

// --- phases ---

void ClusterWorld::Parts::safety() {
  for (Machine& machine : machines_) machine.tap->onPhase(Phase::Safety, now_);
  for (std::size_t i = 0; i < machines_.size(); ++i) {
    bootLater(i, dice_.magnitude(millis(1), seconds(5)));
  }
  faultLater();
  const Nanos until = now_ + options_.length;
  while (events_ < options_.events && step(until)) {
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
  end(schedulerIndex(), ending());
  const std::size_t node = dice_.below(schedulerIndex());
  if (dice_.percent(50)) end(node, ending());
  if (!until("processes start again", kRestIn, [&] {
        return scheduler().runs() && machines_[node].runs();
      })) {
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

Outcome ClusterWorld::run() { return parts_->run(); }

}  // namespace qgpu::sim
