#include "tests/sim/world.h"

#include <algorithm>
#include <cstdio>
#include <set>
#include <utility>
#include <vector>

#include "actors/card/card_actor.h"
#include "actors/card/task_actor.h"
#include "actors/node/node_actor.h"
#include "store/testing/memory_disk.h"
#include "tests/sim/checkers/checkers.h"
#include "tests/sim/client.h"
#include "tests/sim/crowd.h"
#include "tests/sim/faults.h"
#include "tests/sim/guests/guest.h"
#include "tests/sim/guests/sim_attach.h"
#include "tests/sim/host.h"
#include "tests/sim/seeded_tokens.h"
#include "tests/sim/sim_journal.h"

namespace qgpu::sim {
namespace {

constexpr Nanos kBootMin = millis(1);  // from the end of a manager to the next one
constexpr Nanos kBootMax = seconds(2);
constexpr Nanos kRestIn = seconds(120);         // with nothing failing any more
constexpr Nanos kStill = seconds(8);            // longer than any timer of the node
constexpr std::uint64_t kCalmEvents = 300'000;  // of the phases after the first, at most

HostOptions hostOptions(const Options& options) {
  HostOptions host;
  host.seed = options.seed;
  host.mailboxMax = options.mailboxMax;
  return host;
}

ArbiterConfig arbiterConfig(const Options& options) {
  ArbiterConfig config;
  config.policy = static_cast<qgpu::Policy>(options.policy);
  config.onlineIdle = options.onlineIdle;
  config.sliceMin = options.sliceMin;
  config.sliceMax = options.sliceMax;
  return options.freeze || options.rm ? whereHoldsStopWork(config) : config;
}

std::vector<CardFacts> cardFacts(const Options& options) {
  std::vector<CardFacts> facts;
  for (std::uint32_t i = 0; i < options.cards; ++i) {
    CardFacts& card = facts.emplace_back();
    card.id = "sim-" + std::to_string(i);
    card.index = i;
    card.model = "simulated";
    card.backend = "sim";
    card.mem = gibibytes(options.cardGib);
    card.suspend = options.freeze ? schema::Suspend::FREEZE
                   : options.rm   ? schema::Suspend::RM
                                  : schema::Suspend::GATE;
  }
  return facts;
}

}  // namespace

const char* name(Failing failing) {
  switch (failing) {
    case Failing::Usage:
      return "usage";
    case Failing::Crash:
      return "crash";
    case Failing::Liveness:
      return "liveness";
    case Failing::Invariant:
      return "invariant";
    case Failing::Nondeterminism:
      return "nondeterminism";
    case Failing::NotFound:
      return "not-found";
  }
  return "unknown";
}

// One manager, from boot to end. It ends in the reverse order of its members.
struct Life {
  std::unique_ptr<SimJournal> journal;
  std::vector<std::unique_ptr<CardActor>> cards;
  std::vector<std::unique_ptr<TaskActor>> tasks;
  std::unique_ptr<NodeActor> node;
  std::unique_ptr<SimAttach> attach;
};

class World::Parts final : public Verdict {
 public:
  Parts(const Options& options, std::uint64_t traceFrom);
  ~Parts() noexcept override { endLife(); }
  Outcome run();

  void violated(const char* invariant, const std::string& what) override {
    const bool counts = options_.judge.find(invariant[0]) != std::string::npos;
    if (options_.judge.empty() || counts) fail(Failing::Invariant, invariant, what);
  }

 private:
  void fail(Failing failing, const std::string& id, const std::string& what);
  FaultActions faultActions();
  void setPace();

  // The life of managers.
  void boot();
  void bootLater();
  void compose(std::unique_ptr<SimJournal> journal);
  void tellBoot(Boot& boot, const NodePeers& peers) const;
  std::set<std::uint64_t> living() const;
  void takeSurvivors(Boot& boot);
  void end(Ending ending);
  void endLife();

  // Phases.
  bool step(Nanos until);
  void safety();
  void liveness();
  void restart();
  void goHome();
  // Steps until `done`, at most kRestIn; a failure of liveness if it never is.
  template <typename Done>
  bool until(const char* what, Done&& done);
  bool atRest();
  std::string state();
  bool restsFor(Nanos still);

  const Options options_;
  const std::uint64_t traceFrom_;
  Dice dice_;
  Crowd crowd_;
  Tracer tracer_;
  Host host_;
  MemoryDisk disk_;
  SeededTokens tokens_;
  RunDir runDir_;  // outlives managers
  std::unique_ptr<Life> life_;
  Tenants tenants_;
  Client client_;
  Faults faults_;
  Checkers checkers_;
  std::optional<Ending> ending_;  // asked for, after this step
  bool slowDisk_ = false;
  bool databaseLost_ = false;
  std::uint32_t lives_ = 0;
  std::uint64_t tasks_ = 0;
  std::uint64_t eventsMax_ = UINT64_MAX;
  std::optional<Failure> failure_;
};

World::Parts::Parts(const Options& options, std::uint64_t traceFrom)
    : options_(options),
      traceFrom_(traceFrom),
      dice_(options.seed ^ 0x776f726c64ULL),
      host_(hostOptions(options), crowd_),
      disk_("qgpu-sim"),
      tokens_(Dice(dice_.word())),
      tenants_(host_, crowd_, options_, Dice(dice_.word())),
      client_(
          host_, options_, Dice(dice_.word()),
          [this](const Client::Bound& bound) {
            ++tasks_;
            tenants_.bound({bound.task, bound.token, bound.taskClass, bound.quota});
          },
          [this](std::uint32_t pid) { tenants_.ownerDies(pid); }),
      faults_(host_, options_, Dice(dice_.word()), faultActions()) {
  crowd_.add(tracer_);
  checkers_.join(crowd_, *this);
}

void World::Parts::fail(Failing failing, const std::string& id, const std::string& what) {
  if (!failure_) failure_ = Failure{failing, id, what, host_.now(), host_.events()};
}

FaultActions World::Parts::faultActions() {
  FaultActions actions;
  actions.end = [this](Ending ending) { ending_ = ending; };
  actions.fillDisk = [this](bool full) {
    tracer_.say(host_.now(), full ? "the disk is full" : "the disk has room again");
    disk_.setCapacity(full ? disk_.used() : INT64_MAX);
  };
  actions.breakDisk = [this](std::uint64_t times) {
    const auto op = dice_.percent(70) ? MemoryDisk::Op::Write : MemoryDisk::Op::Read;
    tracer_.say(host_.now(), std::to_string(times) +
                                 (op == MemoryDisk::Op::Write ? " writes" : " reads") + " fail");
    disk_.fail(op, times);
  };
  actions.failSync = [this] {
    tracer_.say(host_.now(), "the next fsync fails");
    disk_.fail(MemoryDisk::Op::Sync, 1);
  };
  actions.slowDisk = [this](bool slow) {
    tracer_.say(host_.now(), slow ? "the disk is slow" : "the disk is fast again");
    slowDisk_ = slow;
    setPace();
  };
  actions.loseDatabase = [this] {
    if (life_ == nullptr) return;  // it is about to read it
    ending_ = Ending::Crash;
    databaseLost_ = true;
  };
  return actions;
}

void World::Parts::setPace() {
  DiskPace pace;
  pace.slowPermille = slowDisk_ ? 300 : 0;
  if (life_ != nullptr) life_->journal->setPace(pace);
}

// --- the life of managers ---

// A manager that does not start is started again, as a supervisor does.
void World::Parts::boot() {
  JournalLimits limits;
  limits.snapshotRows = options_.snapshotRows;
  auto journal = SimJournal::open(host_, disk_, Dice(dice_.word()), limits,
                                  [this](const std::string&) { ending_ = Ending::Crash; });
  if (journal) return compose(std::move(*journal));
  tracer_.say(host_.now(), "no manager: " + journal.error().message);
  disk_.restart();
  if (journal.error().code == ErrorCode::Corrupt) {
    fail(Failing::Invariant, "D1", "a manager does not start: " + journal.error().message);
  }
  bootLater();
}

void World::Parts::bootLater() {
  host_.after(Scope::World, dice_.magnitude(kBootMin, kBootMax), [this] { boot(); });
}

// Tasks with a listed process or an owner that is alive.
std::set<std::uint64_t> World::Parts::living() const {
  std::set<std::uint64_t> tasks;
  for (const AttachedEntry& entry : runDir_.attached) {
    if (tenants_.lives(entry.pid)) tasks.insert(entry.task);
  }
  for (const auto& [task, row] : runDir_.records) {
    const auto stored = capnp::readMessageUnchecked<schema::Row>(row.words.data()).getTask();
    const std::uint32_t owner = stored.getSpec().getOwnerPid();
    if (owner != 0 && tenants_.lives(owner)) tasks.insert(task);
  }
  return tasks;
}

// As findSurvivors() does it with a real run dir.
void World::Parts::takeSurvivors(Boot& boot) {
  const std::set<std::uint64_t> alive = living();
  std::erase_if(runDir_.records, [&](const auto& record) { return !alive.contains(record.first); });
  if (NodeNumbers::storedIncarnation(boot.rows)) return;
  for (const auto& [task, row] : runDir_.records) {
    boot.survivors.push_back(row);
    const auto stored = capnp::readMessageUnchecked<schema::Row>(row.words.data()).getTask();
    client_.tookOver(task, stored.getSpec().getRequestId());
  }
}

void World::Parts::tellBoot(Boot& boot, const NodePeers& peers) const {
  boot.attach = peers.attach;
  boot.tasks = peers.tasks;
  for (const ActorId card : peers.cards) {
    boot.cards.push_back({card, gibibytes(options_.cardGib), options_.freeze});
  }
  boot.policy = options_.policy;
  boot.mixed = options_.mixed;
  boot.maxTasksPerCard = options_.maxTasksPerCard;
  boot.mailboxMax = options_.mailboxMax;
  const ArbiterConfig config = arbiterConfig(options_);
  boot.onlineIdle = config.onlineIdle;
  boot.sliceMin = config.sliceMin;
  boot.sliceMax = config.sliceMax;
  boot.lingerMax = config.lingerMax;
  boot.settleMax = config.settleMax;
  boot.settleFactor = config.settleFactor;
  boot.patience = config.patience;
  boot.resumeCost = config.resumeCost;
}

void World::Parts::compose(std::unique_ptr<SimJournal> journal) {
  life_ = std::make_unique<Life>();
  life_->journal = std::move(journal);
  host_.setJournal(life_->journal.get());
  setPace();
  Boot boot;
  boot.life = ++lives_;
  boot.rows = life_->journal->rows();
  boot.rowsAgain = life_->journal->rowsAgain();
  boot.databaseLost = std::exchange(databaseLost_, false);
  boot.incarnation = NodeNumbers::storedIncarnation(boot.rows).value_or(0) + 1;
  takeSurvivors(boot);

  boot.node = host_.reserve(Home::Main);
  NodePeers peers;
  peers.attach = host_.reserve(Home::Card);
  for (std::uint32_t i = 0; i < options_.cards; ++i) {
    life_->cards.push_back(std::make_unique<CardActor>(
        i, arbiterConfig(options_), CardPeers{peers.attach, boot.node}, host_.now()));
    peers.cards.push_back(host_.add(*life_->cards.back(), Home::Card));
  }
  for (std::uint32_t i = 0; i < options_.slots; ++i) {
    life_->tasks.push_back(std::make_unique<TaskActor>(boot.node, peers.attach));
    peers.tasks.push_back(host_.add(*life_->tasks.back(), Home::Card));
  }
  const ActorId client = host_.add(client_, Home::Main);
  boot.clients = {client};
  tellBoot(boot, peers);
  crowd_.onBoot(boot, host_.now());

  SimAttachOptions attach;
  attach.life = boot.life;
  attach.incarnation = boot.incarnation;
  attach.node = boot.node;
  attach.cards = peers.cards;
  attach.suspend = options_.freeze ? schema::Suspend::FREEZE
                   : options_.rm   ? schema::Suspend::RM
                                   : schema::Suspend::GATE;
  attach.refusals = options_.refusals;
  attach.busy = options_.busy;
  attach.undoes = options_.undoes;
  life_->attach = std::make_unique<SimAttach>(host_, crowd_, peers.attach, runDir_, tenants_,
                                              attach, Dice(dice_.word()));
  NodeOptions node;
  node.name = "sim";
  node.version = "sim";
  node.incarnation = boot.incarnation;
  const std::set<std::uint64_t> alive = living();
  node.living.assign(alive.begin(), alive.end());
  if (!alive.empty()) node.lastTask = *alive.rbegin();
  node.policy = static_cast<qgpu::Policy>(options_.policy);
  node.mixed = options_.mixed;
  node.maxTasksPerCard = options_.maxTasksPerCard;
  node.arbiter = arbiterConfig(options_);
  life_->node = std::make_unique<NodeActor>(std::move(node), std::move(peers), cardFacts(options_),
                                            tokens_, boot.rows, boot.survivors);
  host_.attach(boot.node, *life_->node);
  tenants_.managerBack(*life_->attach);
  client_.connect(client, boot.node);
  host_.sendUrgent(client, boot.node, [](auto message) { message.initStart(); });
}

void World::Parts::end(Ending ending) {
  if (life_ == nullptr) return;  // it is about to start
  crowd_.onEnd(ending, host_.now());
  if (ending == Ending::Stop) life_->journal->close();
  endLife();
  if (ending == Ending::PowerLoss) disk_.powerCut(dice_.word());
  if (ending != Ending::PowerLoss) disk_.restart();
  if (databaseLost_) disk_.wipe();
  bootLater();
}

void World::Parts::endLife() {
  if (life_ == nullptr) return;
  tenants_.managerGone();
  client_.disconnect();
  life_.reset();
  host_.clearManager();
}

// --- phases ---

// One event, and what it asked for. False when the run is over.
bool World::Parts::step(Nanos until) {
  if (host_.events() >= traceFrom_) tracer_.open();
  const bool more = host_.step(until);
  if (ending_) end(*std::exchange(ending_, std::nullopt));
  return more && !failure_;
}

void World::Parts::safety() {
  crowd_.onPhase(Phase::Safety, host_.now());
  boot();
  const Nanos until = host_.now() + options_.length;
  while (host_.events() < options_.events && step(until)) {
  }
}

template <typename Done>
bool World::Parts::until(const char* what, Done&& done) {
  const Nanos deadline = host_.now() + kRestIn;
  while (!failure_ && !done()) {
    if (host_.events() > eventsMax_ || !step(deadline)) {
      if (failure_) return false;
      const std::string why = host_.events() > eventsMax_
                                  ? "still busy after " + std::to_string(kCalmEvents) + " events"
                                  : "not within 120 s";
      fail(Failing::Liveness, "rest", std::string(what) + ": " + why + "; " + state());
    }
  }
  return !failure_;
}

// For a person: what there is to wait for.
std::string World::Parts::state() {
  std::string text =
      "the client waits for " + client_.waitsFor() + "; alive are " + tenants_.waitsFor();
  if (life_ == nullptr) return text + "; no manager runs";
  if (life_->journal->busy()) text += "; the journal is busy";
  if (!life_->journal->healthy()) text += "; storage fails";
  if (host_.mailWaits()) text += "; mail waits";
  return text + "; the node has " + std::to_string(life_->node->tasks()) + " tasks";
}

bool World::Parts::atRest() {
  return life_ != nullptr && client_.satisfied() && !life_->journal->busy() &&
         life_->journal->healthy() && !host_.mailWaits();
}

// At rest, and nobody's bindings change for that long.
bool World::Parts::restsFor(Nanos still) {
  std::uint64_t digest = 0;
  Nanos since = host_.now();
  return until("the node comes to rest", [&] {
    if (!atRest()) return false;
    const std::uint64_t now = life_->node->ledger().digest();
    if (now != digest) since = host_.now();
    digest = now;
    return host_.now() - since >= still;
  });
}

// Nothing fails any more; honest tenants work on for a moment, then all rest.
void World::Parts::liveness() {
  if (failure_) return;
  crowd_.onPhase(Phase::Liveness, host_.now());
  eventsMax_ = host_.events() + kCalmEvents;
  faults_.stop();
  disk_.mend();
  disk_.setCapacity(INT64_MAX);
  slowDisk_ = false;
  setPace();
  client_.calm();
  tenants_.calm();
  const Nanos deadline = host_.now() + millis(500);
  const std::uint64_t enough = host_.events() + kCalmEvents / 30;
  while (host_.events() < enough && step(deadline)) {
  }
  tenants_.rest();
  if (!restsFor(kStill)) return;
  if (!until("channels are put back", [this] { return !tenants_.isLeftOff(); })) return;
  client_.look();
  restsFor(millis(1));
}

// A new manager finds on disk what the old one knew.
void World::Parts::restart() {
  if (failure_) return;
  crowd_.onPhase(Phase::Restart, host_.now());
  const std::uint64_t before = life_->node->ledger().digest();
  const std::size_t tasks = life_->node->tasks();
  end(dice_.percent(50) ? Ending::Stop : dice_.percent(50) ? Ending::Crash : Ending::PowerLoss);
  if (!until("the manager starts again", [this] { return life_ != nullptr; })) return;
  if (life_->node->ledger().digest() != before) {
    fail(Failing::Invariant, "D1",
         "a manager of " + std::to_string(tasks) +
             " tasks restarted with others: " + std::to_string(life_->node->tasks()));
  }
  restsFor(kStill);
}

// Every task ends, and everything returns.
void World::Parts::goHome() {
  if (failure_) return;
  client_.endAll();
  if (!until("every task ends", [&] {
        return atRest() && !client_.hasTasks() && life_->node->tasks() == 0 && tenants_.quiet();
      })) {
    return;
  }
  client_.look();
  restsFor(millis(1));
}

Outcome World::Parts::run() {
  safety();
  liveness();
  restart();
  goHome();
  if (!failure_) end(Ending::Stop);
  Outcome outcome;
  outcome.seed = options_.seed;
  outcome.hash = host_.hash();
  outcome.events = host_.events();
  outcome.lives = lives_;
  outcome.tasks = tasks_;
  outcome.length = host_.now() - seconds(1);
  outcome.failure = failure_;
  return outcome;
}

World::World(const Options& options, std::uint64_t traceFrom)
    : parts_(std::make_unique<Parts>(options, traceFrom)) {}

World::~World() = default;

Outcome World::run() {
  return parts_->run();
}

}  // namespace qgpu::sim
