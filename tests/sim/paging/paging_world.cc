#include "tests/sim/paging/paging_world.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>
#include <vector>

#include "actors/residency/residency.h"
#include "tests/sim/paging/paged_process.h"
#include "tests/sim/paging/tenant_memory.h"

namespace qgpu::sim {
namespace {

constexpr Nanos kBeat = millis(250);  // of the page's heartbeat
constexpr Nanos kLooksLate = millis(100);
constexpr Nanos kManagerAwayMax = kOrphanGrace * 2;

// The manager's words and the library's are the same, by value.
static_assert(static_cast<int>(PagingWord::Phase::In) == static_cast<int>(paging::Phase::In) &&
              static_cast<int>(PagingWord::Phase::Drain) ==
                  static_cast<int>(paging::Phase::Drain) &&
              static_cast<int>(PagingWord::Phase::Out) == static_cast<int>(paging::Phase::Out));
static_assert(static_cast<int>(PagingAnswer::Idle) == static_cast<int>(paging::Answer::Idle) &&
              static_cast<int>(PagingAnswer::Left) == static_cast<int>(paging::Answer::Left) &&
              static_cast<int>(PagingAnswer::In) == static_cast<int>(paging::Answer::In) &&
              static_cast<int>(PagingAnswer::NoRoom) == static_cast<int>(paging::Answer::NoRoom));

paging::Word wordOf(const PagingWord& word) {
  return {word.epoch, static_cast<paging::Phase>(word.phase),
          static_cast<std::uint32_t>(word.out.value)};
}

}  // namespace

class PagingWorld::Parts final : public PagingSite, public NeedPort {
 public:
  Parts(const PagingOptions& options, std::uint64_t traceFrom);
  Outcome run();

  // PagingSite
  Nanos now() const override { return now_; }
  void after(Nanos delay, std::function<void()> work) override {
    events_.emplace(std::make_pair(now_ + std::max(delay, Nanos(1)), serial_++), std::move(work));
  }
  void violated(const char* invariant, const std::string& what) override;
  void say(const char* what, TaskId task, std::uint32_t process, std::int64_t amount) override;
  Dice& dice() override { return dice_; }
  CardMemory& card() override { return card_; }
  void ring(TaskId task) override;
  bool calm() const override { return calm_; }

  // NeedPort
  bool there() const override { return core_.has_value(); }
  std::uint32_t life() const override { return lives_; }
  std::uint64_t need(std::size_t tenant, Bytes bytes, Nanos since) override;
  void given(std::uint64_t request) override;
  void othersChanged() override;
  bool mayRefuse() const override;
  Nanos waitFor() const override { return config_.waitFor; }

 private:
  struct Tenant {
    PagedTask task;
    std::vector<std::unique_ptr<PagedProcess>> processes;
    bool ended = false;  // by the manager
    bool rung = false;
    bool alive() const {
      return std::any_of(processes.begin(), processes.end(),
                         [](const auto& process) { return !process->dead(); });
    }
    std::map<std::uint32_t, std::uint64_t> kernelsBefore;  // by index
    Bytes ordered{0};  // the highest limit that was ordered and may not stand in its page yet
  };

  void step();
  void runUntil(Nanos end, std::uint64_t events);
  // The manager.
  void boot();
  void carryOut();
  void carry(const ResidencyOrder& order);
  void look(Tenant& tenant);
  void arm();
  Nanos hears();                           // how late the manager is
  void later(std::function<void()> work);  // what the manager does once it hears of it
  void tellOthers();
  void effect(std::function<void()> work);  // of an order
  Bytes in(const Tenant& tenant) const;
  Bytes out(const Tenant& tenant) const;
  Bytes othersHold() const;
  void checkGrants();
  void checkBack(const Tenant& tenant);
  // Tasks and faults.
  void begin();
  void end(Tenant& tenant);
  void fault();
  void beat();
  void toggleOnline();
  void checkOrphans();
  static bool mayMake(const Tenant& tenant);
  void restart();
  void judgeLiveness();
  Tenant* find(TaskId id);

  const PagingOptions options_;
  const std::uint64_t traceFrom_;
  Dice dice_;
  Nanos now_ = seconds(1);
  CardMemory card_;
  std::map<std::pair<Nanos, std::uint64_t>, std::function<void()>> events_;
  std::uint64_t serial_ = 0, count_ = 0, hash_ = 14695981039346656037ULL;
  std::optional<Failure> failure_;
  bool calm_ = false;

  ResidencyConfig config_;
  std::optional<Residency> core_;
  std::uint32_t lives_ = 0, lastEpoch_ = 0;
  Nanos stalledUntil_{0};
  ResidencyOrders orders_;
  Nanos armedFor_ = kNever;

  std::vector<std::unique_ptr<Tenant>> tenants_;  // with pageable memory; the gone as well
  std::vector<std::unique_ptr<TenantMemory>> others_;
  std::map<std::uint64_t, std::size_t> needs_;  // by request
  std::map<std::uint64_t, Bytes> promised_;     // answered with room, and not over
  Bytes othersTold_{0};                         // what the manager knows of all others
  Nanos ordersTake_{0};                         // until they take effect
  std::uint64_t requests_ = 0, tasks_ = 0;
  Bytes strangers_{0};
};

// --- the world ---

PagingWorld::Parts::Parts(const PagingOptions& options, std::uint64_t traceFrom)
    : options_(options), traceFrom_(traceFrom), dice_(options.seed ^ 0x50616765ULL) {
  card_.size = mebibytes(options_.cardMib);
  config_.memory = card_.size;
  config_.stayMin = millis(200);
  config_.stayMax = options_.stayMax;
  if (options_.has(PagingFault::LateOrders)) ordersTake_ = dice_.magnitude(micros(1), millis(1));
  const Bytes firm = Bytes(mulDiv(card_.size.value, options_.firmPercent, 100));
  for (std::size_t i = 0; i < options_.tenants; ++i) {
    const Bytes quota = firm * 4 / static_cast<std::int64_t>(options_.tenants) / 5;
    others_.push_back(
        std::make_unique<TenantMemory>(*this, *this, i, quota, std::max(quota / 3, mebibytes(1))));
  }
}

void PagingWorld::Parts::violated(const char* invariant, const std::string& what) {
  const bool counts =
      options_.judge.empty() || options_.judge.find(invariant[0]) != std::string::npos;
  if (failure_ || !counts) return;
  failure_ = Failure{Failing::Invariant, invariant, what, now_, count_};
}

void PagingWorld::Parts::say(const char* what, TaskId task, std::uint32_t process,
                             std::int64_t amount) {
  const auto mix = [this](std::uint64_t word) { hash_ = (hash_ ^ word) * 1099511628211ULL; };
  mix(static_cast<std::uint64_t>(now_.value));
  mix(static_cast<std::uint64_t>(task) << 32 | process);
  mix(static_cast<std::uint64_t>(amount));
  if (count_ < traceFrom_) return;
  std::printf("%6llu %12.6f s  %-14s task %llu.%u  %lld\n", static_cast<unsigned long long>(count_),
              static_cast<double>(now_.value) / 1e9, what, static_cast<unsigned long long>(task),
              process, static_cast<long long>(amount));
}

void PagingWorld::Parts::step() {
  auto first = events_.begin();
  now_ = std::max(now_, first->first.first);
  const std::function<void()> work = std::move(first->second);
  events_.erase(first);
  ++count_;
  work();
}

void PagingWorld::Parts::runUntil(Nanos end, std::uint64_t events) {
  while (!failure_ && !events_.empty() && events_.begin()->first.first <= end && count_ < events) {
    step();
  }
}

PagingWorld::Parts::Tenant* PagingWorld::Parts::find(TaskId id) {
  for (auto& tenant : tenants_) {
    if (tenant->task.id == id) return tenant.get();
  }
  return nullptr;
}

// --- the manager ---

Nanos PagingWorld::Parts::hears() {
  return std::max(dice_.magnitude(micros(2), micros(800)), stalledUntil_ - now_);
}

void PagingWorld::Parts::later(std::function<void()> work) {
  after(hears(), [this, life = lives_, work = std::move(work)] {
    if (core_ && life == lives_) work();
  });
}

Bytes PagingWorld::Parts::in(const Tenant& tenant) const {
  Bytes bytes{0};
  for (const auto& process : tenant.processes) bytes += process->in();
  return bytes;
}

Bytes PagingWorld::Parts::out(const Tenant& tenant) const {
  Bytes bytes{0};
  for (const auto& process : tenant.processes) bytes += process->out();
  return bytes;
}

Bytes PagingWorld::Parts::othersHold() const {
  Bytes bytes{0};
  for (const auto& other : others_) bytes += other->holds();
  for (const auto& tenant : tenants_) bytes += tenant->task.firm;
  return bytes;
}

void PagingWorld::Parts::ring(TaskId task) {
  Tenant* tenant = find(task);
  if (!core_ || !tenant || tenant->rung) return;
  tenant->rung = true;
  const std::uint32_t life = lives_;
  after(hears(), [this, tenant, life] {
    tenant->rung = false;
    if (core_ && life == lives_) look(*tenant);
  });
}

void PagingWorld::Parts::tellOthers() {
  othersTold_ = othersHold();
  core_->othersHold(othersTold_, now_, orders_);
}

void PagingWorld::Parts::look(Tenant& tenant) {
  const TaskId id = tenant.task.id;
  bool allTorn = true;
  Bytes wanted{0};
  for (const auto& process : tenant.processes) {
    if (!process->dead()) wanted += process->wanted();
  }
  tellOthers();
  core_->holds(id, in(tenant), out(tenant), wanted, now_, orders_);
  for (const auto& process : tenant.processes) {
    allTorn = allTorn && process->torn();
    if (process->dead()) core_->died(id, process->index(), now_, orders_);
    if (process->dead() || process->memory().answer() == paging::Answer::None) continue;
    core_->answered(id, process->index(), process->memory().word().epoch,
                    static_cast<PagingAnswer>(process->memory().answer()), now_, orders_);
  }
  if (allTorn && core_->state(id) != Residency::State::In) say("gone", id, 0, 0);
  if (allTorn) core_->leave(id, now_, orders_);
  carryOut();
}

void PagingWorld::Parts::carryOut() {
  bool granted = false, again = false;  // something new; or what was granted before
  for (std::size_t i = 0; i < orders_.size(); ++i) {
    const ResidencyOrder order = orders_[i];
    Tenant* tenant = find(order.task);
    if (order.kind == ResidencyOrder::Kind::Limit) {
      const bool leaves = core_->state(order.task) == Residency::State::Leaving;
      granted = granted || (!leaves && order.bytes > tenant->ordered);
      // Whose processes wait for a word reads the limit after it.
      tenant->ordered =
          mayMake(*tenant) ? std::max(order.bytes, tenant->task.page.limit) : order.bytes;
    }
    if (order.kind == ResidencyOrder::Kind::Tell) {
      const bool in = order.word.phase == PagingWord::Phase::In;
      granted = granted || (in && out(*tenant) > Bytes(0));
      again = again || in;
      lastEpoch_ = std::max(lastEpoch_, order.word.epoch);
    }
    if (order.room) promised_[order.request] = order.bytes;
    granted = granted || order.room;
    effect([this, order] { carry(order); });
  }
  orders_.clear();
  if (granted || (again && core_->room() >= Bytes(0))) checkGrants();
  arm();
}

// Orders take effect at once, or all of them a moment later.
void PagingWorld::Parts::effect(std::function<void()> work) {
  if (ordersTake_ == Nanos(0)) return work();
  after(ordersTake_, [this, life = lives_, work = std::move(work)] {
    if (!core_ || life != lives_) return;
    work();
    if (!orders_.empty()) carryOut();
  });
}

void PagingWorld::Parts::carry(const ResidencyOrder& order) {
  Tenant* tenant = find(order.task);
  switch (order.kind) {
    case ResidencyOrder::Kind::Tell:
      say("tell", order.task, order.word.epoch, static_cast<std::int64_t>(order.word.phase));
      tenant->task.page.word = paging::pack(wordOf(order.word));
      tenant->task.page.gateOpen = false;
      break;
    case ResidencyOrder::Kind::Back:
      say("back", order.task, 0, 0);
      checkBack(*tenant);
      tenant->task.page.gateOpen = true;
      break;
    case ResidencyOrder::Kind::Hurry:  // work here is never stopped midway: it ends by itself
      say("hurry", order.task, 0, 0);
      return;
    case ResidencyOrder::Kind::Limit:
      say("limit", order.task, 0, order.bytes.value);
      tenant->task.page.limit = tenant->ordered = order.bytes;
      core_->trimmed(order.task, order.bytes, in(*tenant), now_, orders_);
      break;
    case ResidencyOrder::Kind::End:
      say("end", order.task, 0, 0);
      tenant->ended = true;
      end(*tenant);
      return;
    case ResidencyOrder::Kind::Answered: {
      say("answer", order.task, static_cast<std::uint32_t>(order.request), order.room ? 1 : 0);
      const std::size_t other = needs_.at(order.request);
      after(dice_.magnitude(micros(2), micros(300)),
            [this, other, order] { others_[other]->answered(order.request, order.room); });
      return;
    }
  }
  for (const auto& process : tenant->processes) {
    after(dice_.magnitude(micros(1), micros(100)), [p = process.get()] { p->wake(); });
  }
}

void PagingWorld::Parts::arm() {
  if (!core_) return;
  const Nanos at = core_->nextDeadline();
  if (at == kNever || (at >= armedFor_ && armedFor_ > now_)) return;
  armedFor_ = at;
  after(std::max(at, stalledUntil_) - now_ + dice_.magnitude(micros(1), millis(1)),
        [this, life = lives_] {
          if (!core_ || life != lives_) return;
          armedFor_ = kNever;
          core_->expire(now_, orders_);
          carryOut();
        });
}

// A manager that starts reads from the pages who is here.
void PagingWorld::Parts::boot() {
  ++lives_;
  promised_.clear();
  core_.emplace(config_, now_, lastEpoch_);
  armedFor_ = kNever;
  say("boot", TaskId::kNone, lives_, 0);
  tellOthers();
  for (auto& tenant : tenants_) {
    std::set<std::uint32_t> alive;
    bool gone = true;
    for (const auto& process : tenant->processes) {
      if (!process->dead()) alive.insert(process->index());
      gone = gone && process->torn();
    }
    if (gone) continue;
    tenant->task.page.heartbeat = now_;
    tenant->ordered = tenant->task.page.limit;
    core_->join(tenant->task.id, tenant->task.quota, in(*tenant), out(*tenant), alive, now_,
                orders_);
    ring(tenant->task.id);
  }
  carryOut();
}

std::uint64_t PagingWorld::Parts::need(std::size_t tenant, Bytes bytes, Nanos since) {
  const std::uint64_t request = ++requests_;
  needs_[request] = tenant;
  later([this, request, bytes, since] {
    tellOthers();
    core_->need(request, bytes, since, now_, orders_);
    carryOut();
  });
  return request;
}

void PagingWorld::Parts::given(std::uint64_t request) {
  later([this, request] {
    promised_.erase(request);
    tellOthers();
    core_->given(request, now_, orders_);
    carryOut();
  });
}

void PagingWorld::Parts::othersChanged() {
  later([this] {
    tellOthers();
    carryOut();
  });
}

// --- who judges ---

bool PagingWorld::Parts::mayRefuse() const {
  if (strangers_ > Bytes(0)) return true;
  return std::any_of(tenants_.begin(), tenants_.end(), [this](const auto& tenant) {
    return tenant->ended && in(*tenant) > Bytes(0);
  });
}

// M3, at the time of a grant: all that may be on the card by what processes heard, what others hold
// and what they were promised, whatever the manager believes of the first. Others may have taken
// since what was free then, so what was granted before is looked at only where there is room.
void PagingWorld::Parts::checkGrants() {
  Bytes bytes = othersTold_;
  for (const auto& [request, promised] : promised_) bytes += promised;
  for (const auto& tenant : tenants_) {
    Bytes has{0};  // without what is only being tried
    for (const auto& process : tenant->processes) has += process->onCard();
    const Residency::State state = core_->state(tenant->task.id);
    const bool told = state == Residency::State::Returning || state == Residency::State::In;
    bytes += tenant->alive() && (told || mayMake(*tenant)) ? std::max(has, tenant->ordered) : has;
  }
  if (bytes <= card_.size) return;
  violated("M3", std::to_string(bytes.value >> 20) + " MiB are granted on a card of " +
                     std::to_string(card_.size.value >> 20));
}

// M7: who has all of its memory goes on without a manager.
void PagingWorld::Parts::checkOrphans() {
  if (core_) return;
  for (const auto& tenant : tenants_) {
    if (now_ < tenant->task.page.heartbeat + kOrphanGrace + millis(500)) continue;
    for (const auto& process : tenant->processes) {
      if (!process->couldGoOn()) continue;
      violated("M7", "a process of task " +
                         std::to_string(static_cast<std::uint64_t>(tenant->task.id)) +
                         " has all of its memory and does not go on without a manager");
    }
  }
}

bool PagingWorld::Parts::mayMake(const Tenant& tenant) {
  return std::any_of(tenant.processes.begin(), tenant.processes.end(),
                     [](const auto& process) { return process->mayMake(); });
}

void PagingWorld::Parts::checkBack(const Tenant& tenant) {
  for (const auto& process : tenant.processes) {
    if (process->dead() || process->out() == Bytes(0)) continue;
    violated("M1", "task " + std::to_string(static_cast<std::uint64_t>(tenant.task.id)) +
                       " is granted the card, and a process of it is out");
  }
}

// Each process has run again, once its task could have had several stays.
void PagingWorld::Parts::judgeLiveness() {
  for (const auto& tenant : tenants_) {
    for (const auto& process : tenant->processes) {
      if (process->dead() || process->kernels() > tenant->kernelsBefore[process->index()]) continue;
      violated("M4", "a process of task " +
                         std::to_string(static_cast<std::uint64_t>(tenant->task.id)) +
                         " never ran again; state " +
                         std::to_string(static_cast<int>(core_->state(tenant->task.id))) +
                         ", has " + std::to_string(in(*tenant).value >> 20) + " MiB and wants " +
                         std::to_string(process->wanted().value >> 20) + ", limit " +
                         std::to_string(core_->limit(tenant->task.id).value >> 20) + ", room " +
                         std::to_string(core_->room().value >> 20));
    }
  }
}

// --- tasks and faults ---

void PagingWorld::Parts::begin() {
  if (calm_) return;
  const auto there = static_cast<std::size_t>(
      std::count_if(tenants_.begin(), tenants_.end(), [](const auto& tenant) {
        return std::any_of(tenant->processes.begin(), tenant->processes.end(),
                           [](const auto& process) { return !process->torn(); });
      }));
  after(dice_.magnitude(millis(50), seconds(3)), [this] { begin(); });
  if (there >= options_.tasks || !core_) return;
  auto tenant = std::make_unique<Tenant>();
  tenant->task.id = TaskId{++tasks_};
  const Bytes firm = Bytes(mulDiv(card_.size.value, options_.firmPercent, 100));
  const auto among = static_cast<std::int64_t>(options_.tasks);
  tenant->task.firmQuota = firm / among / 5;
  tenant->task.quota = Bytes(mulDiv((card_.size - firm).value, dice_.between(40, 100), 100));
  tenant->task.page.heartbeat = now_;
  const std::int64_t processes = dice_.between(1, options_.processes);
  for (std::int64_t i = 0; i < processes; ++i) {
    tenant->processes.push_back(std::make_unique<PagedProcess>(*this, options_, tenant->task,
                                                               static_cast<std::uint32_t>(i)));
  }
  tenants_.push_back(std::move(tenant));
  Tenant& made = *tenants_.back();
  say("joins", made.task.id, 0, made.task.quota.value);
  core_->join(made.task.id, made.task.quota, Bytes(0), Bytes(0), {}, now_, orders_);
  for (const auto& process : made.processes) {
    core_->attached(made.task.id, process->index(), now_, orders_);
  }
  carryOut();
  for (const auto& process : made.processes) process->start();
}

void PagingWorld::Parts::end(Tenant& tenant) {
  for (const auto& process : tenant.processes) process->kill();
}

void PagingWorld::Parts::fault() {
  if (calm_) return;
  after(dice_.between(Nanos(1), options_.faultEvery * 2), [this] { fault(); });
  std::vector<PagingFault> possible;
  for (const PagingFaultName& entry : pagingFaultNames()) {
    if (options_.has(entry.fault)) possible.push_back(entry.fault);
  }
  if (possible.empty()) return;
  const PagingFault fault = dice_.pick(possible);
  switch (fault) {
    case PagingFault::Kills:
    case PagingFault::Stops: {
      std::vector<Tenant*> alive;
      for (const auto& tenant : tenants_) {
        if (tenant->alive()) alive.push_back(tenant.get());
      }
      if (alive.empty()) return;
      Tenant& tenant = *dice_.pick(alive);
      PagedProcess& process = *tenant.processes[dice_.below(tenant.processes.size())];
      if (fault == PagingFault::Stops) {
        return process.stopUntil(now_ + dice_.magnitude(millis(5), seconds(12)));
      }
      return dice_.percent(30) ? end(tenant) : process.kill();
    }
    case PagingFault::Restarts:
      return restart();
    case PagingFault::Stalls:
      stalledUntil_ = now_ + dice_.magnitude(millis(1), kLooksLate);
      return;
    case PagingFault::Strangers: {
      const Bytes bytes = mebibytes(dice_.between(1, options_.cardMib * 2 / 3));
      if (!card_.take(bytes)) return;
      strangers_ += bytes;
      say("strangers", TaskId::kNone, 0, bytes.value);
      after(dice_.magnitude(millis(10), seconds(8)), [this, bytes] {
        card_.give(bytes);
        strangers_ -= bytes;
      });
      return;
    }
    default:
      return;  // of the whole run
  }
}

void PagingWorld::Parts::restart() {
  if (!core_) return;
  core_.reset();
  orders_.clear();
  say("manager ends", TaskId::kNone, lives_, 0);
  after(dice_.magnitude(millis(20), kManagerAwayMax), [this] { boot(); });
  // Silence is noticed by the clock.
  after(kOrphanGrace + kBeat + millis(1), [this] {
    for (const auto& tenant : tenants_) {
      for (const auto& process : tenant->processes) process->wake();
    }
  });
  after(kOrphanGrace + kBeat + seconds(1), [this] { checkOrphans(); });
}

void PagingWorld::Parts::beat() {
  if (core_) {
    for (const auto& tenant : tenants_) tenant->task.page.heartbeat = now_;
  }
  after(kBeat, [this] { beat(); });
}

void PagingWorld::Parts::toggleOnline() {
  if (core_) {
    core_->online(!calm_ && dice_.percent(50), now_);
    arm();
  }
  after(dice_.magnitude(millis(5), millis(500)), [this] { toggleOnline(); });
}

Outcome PagingWorld::Parts::run() {
  boot();
  begin();
  for (std::uint32_t i = 1; i < options_.tasks; ++i) begin();
  for (auto& other : others_) other->start();
  fault();
  beat();
  toggleOnline();
  runUntil(now_ + options_.length, options_.events);

  calm_ = true;
  if (!failure_ && !core_) runUntil(now_ + kManagerAwayMax, UINT64_MAX);
  // What was begun before ends, and tenants give most of theirs back.
  runUntil(now_ + seconds(20), UINT64_MAX);
  for (const auto& tenant : tenants_) {
    for (const auto& process : tenant->processes) {
      tenant->kernelsBefore[process->index()] = process->kernels();
    }
  }
  const Nanos turn = options_.stayMax * 2 + seconds(20);
  runUntil(now_ + turn * (static_cast<std::int64_t>(options_.tasks) + 1), UINT64_MAX);
  if (!failure_) judgeLiveness();

  Outcome outcome;
  outcome.seed = options_.seed;
  outcome.hash = hash_;
  outcome.events = count_;
  outcome.lives = lives_;
  outcome.tasks = tasks_;
  outcome.length = now_ - seconds(1);
  outcome.failure = failure_;
  return outcome;
}

PagingWorld::PagingWorld(const PagingOptions& options, std::uint64_t traceFrom)
    : parts_(std::make_unique<Parts>(options, traceFrom)) {}

PagingWorld::~PagingWorld() = default;

Outcome PagingWorld::run() {
  return parts_->run();
}

}  // namespace qgpu::sim
