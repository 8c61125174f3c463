#include "actors/scheduler/evictions.h"

#include <algorithm>
#include <utility>

#include "runtime/planted.h"

namespace qgpu {
namespace {

// Processors and memory of a host are kept under a number that no task has.
constexpr std::uint64_t kHostBit = std::uint64_t{1} << 62;

WaitQueue::Place placeOf(std::uint64_t task, const Job& job) {
  return {job.spec.task.taskClass == TaskClass::Online ? 0u : 1u, task};
}

}  // namespace

Evictions::Evictions(Rounds& rounds, ClusterLedger& ledger, Members& members, FreedRoom& freed,
                     Places& places, Tasks& tasks)
    : rounds_(rounds),
      ledger_(ledger),
      members_(members),
      freed_(freed),
      places_(places),
      tasks_(tasks) {
  tasks_.setRoomMaker(*this);
}

bool Evictions::mayTry() const {
  if (places_.gathers()) return false;
  return rounds_.open().searches < kSearchesPerRound && claims_.size() < kClaimsMax;
}

MayEvict Evictions::mayEvict() const {
  return [this](TaskId id) {
    const Job* job = std::as_const(tasks_).find(raw(id));
    return job != nullptr && job->state == PlaceState::Bound &&
           job->spec.task.taskClass == TaskClass::Offline;
  };
}

void Evictions::waits(std::uint64_t task, const Job& job) {
  if (!job.spec.preempt || job.spec.task.taskClass == TaskClass::Offline) return;
  evictors_.insert(placeOf(task, job));
  freed_.change();
}

void Evictions::waitsNoMore(std::uint64_t task, const Job& job) {
  evictors_.erase(placeOf(task, job));
  dropClaim(task);
}

// Where this round has searched enough, the next look goes on.
void Evictions::came(std::uint64_t task) {
  if (!evictors_.contains(placeOf(task, tasks_.at(task)))) return;
  if (!mayTry()) return;
  ++rounds_.open().searches;
  evictFor(task);
}

void Evictions::look() {
  if (!next_ && !freed_.takeChanged()) return;
  std::set<WaitQueue::Key> inVain;
  for (std::size_t seen = 0; seen < kEvictorsPerLook && !rounds_.full(); ++seen) {
    const auto next = next_ ? evictors_.upper_bound(*next_) : evictors_.begin();
    if (next == evictors_.end()) return next_.reset();
    const std::uint64_t task = next->task;
    const Job job = tasks_.at(task);
    const ClusterAsk ask = askOf(job.spec);
    if (!claims_.contains(task) && !inVain.contains(WaitQueue::keyOf(ask))) {
      if (!mayTry()) return;
      ++rounds_.open().searches;
      next_ = *next;
      if (const Result<Spot> spot = tasks_.choose(task, job)) {
        tasks_.assume(task, job, *spot);
      } else if (!evictFor(task)) {
        inVain.insert(WaitQueue::keyOf(ask));
      }
    } else {
      next_ = *next;
    }
  }
}

// False where no set of offline tasks would do.
bool Evictions::evictFor(std::uint64_t task) {
  Job job = tasks_.at(task);
  const ClusterAsk ask = askOf(job.spec);
  std::optional<Eviction> eviction;
  {
    const Places::ShutNodes shut(ledger_, places_.shutTo(task, std::nullopt));
    eviction = leastEviction(ledger_, ask, mayEvict());
  }
  if (!eviction) return false;
  QGPU_MARK(Evicted);
  std::string numbers;
  for (const TaskId victim : eviction->victims) {
    numbers += (numbers.empty() ? "" : ", ") + std::to_string(raw(victim));
  }
  job.reason = "room is made for it: task(s) " + numbers + " end";
  RoomMaking& making = job.making.emplace();
  making.member = members_.memberOf(eviction->spot.node);
  making.cards = members_.cardIds(eviction->spot);
  for (const TaskId victim : eviction->victims) {
    making.victims.emplace_back(raw(victim), tasks_.at(raw(victim)).epoch);
  }
  const std::string where = members_.name(making.member);
  tasks_.put(task, std::move(job), std::nullopt);
  for (const TaskId victim : eviction->victims) {
    const Job& held = tasks_.at(raw(victim));
    tasks_.beginEnd(raw(victim), !held.adopted && !held.forwarded,
                    "evicted: task " + std::to_string(task) + " gets its room");
  }
  openClaim(task);
  rounds_.after([this, task, where, numbers](Turn&) {
    rounds_.note("task-evicts", task, where, "task(s) " + numbers + " end for it");
  });
  return true;
}

// Of a task that waits for victims which still end; of others there is nothing to open.
void Evictions::openClaim(std::uint64_t task) {
  const Job& job = tasks_.at(task);
  if (!job.making || claims_.contains(task)) return;
  Claim claim{job.making->member, job.making->cards, {}};
  for (const auto& [victim, epoch] : job.making->victims) {
    const Job* held = tasks_.find(victim);
    if (held == nullptr || held->state != PlaceState::Ending || held->epoch != epoch) continue;
    claim.victims.insert(victim);
    victims_.emplace(victim, task);
  }
  if (claim.victims.empty()) return;
  for (const std::string& card : claim.cards) members_.keep(claim.member, card);
  members_.applyMarks(claim.member);
  claims_.emplace(task, std::move(claim));
  keepHost(task);
}

void Evictions::openClaims() {
  for (const WaitQueue::Place& place : evictors_) openClaim(place.task);
}

// What is free of the node's processors and memory is kept too, as far as the task needs it.
void Evictions::keepHost(std::uint64_t task) {
  ledger_.release(TaskId{task | kHostBit});
  const ClusterMember& node = members_.at(claims_.at(task).member);
  if (!node.node) return;  // its hello makes up for it
  const ClusterSpec& spec = tasks_.at(task).spec;
  Spot spot{*node.node, {}, 0, Bytes(0)};
  const auto upTo = [](std::int64_t asked, std::int64_t free) {
    return std::clamp<std::int64_t>(free, 0, asked);
  };
  if (node.facts.ledger.cpuMilli != 0) {
    spot.cpuMilli = upTo(spec.cpuMilli, node.facts.ledger.cpuMilli - ledger_.cpuBound(spot.node));
  }
  if (node.facts.ledger.hostMem.value != 0) {
    const Bytes free = node.facts.ledger.hostMem - ledger_.hostMemBound(spot.node);
    spot.hostMem = Bytes(upTo(spec.hostMem.value, free.value));
  }
  if (spot.cpuMilli == 0 && spot.hostMem.value == 0) return;
  ledger_.bind(TaskId{task | kHostBit}, spot, "");
}

void Evictions::keepHosts(MemberId member) {
  for (const auto& [task, claim] : claims_) {
    if (claim.member == member) keepHost(task);
  }
}

void Evictions::dropClaim(std::uint64_t task) {
  const auto found = claims_.find(task);
  if (found == claims_.end()) return;
  const Claim claim = std::move(found->second);
  claims_.erase(found);
  for (const std::uint64_t victim : claim.victims) victims_.erase(victim);
  for (const std::string& card : claim.cards) members_.keepNoMore(claim.member, card);
  ledger_.release(TaskId{task | kHostBit});
  members_.applyMarks(claim.member);
  if (members_.at(claim.member).node) freed_.gain(*members_.at(claim.member).node);
}

void Evictions::isUndone(std::uint64_t victim) {
  const auto found = victims_.find(victim);
  if (found != victims_.end()) dropClaim(found->second);
}

// The last one hands over what was kept. Where that will not do any more, because the node or the
// card was lost meanwhile, the task waits on.
void Evictions::isGone(std::uint64_t victim) {
  const auto found = victims_.find(victim);
  if (found == victims_.end()) return;
  const std::uint64_t task = found->second;
  Claim& claim = claims_.at(task);
  victims_.erase(found);
  claim.victims.erase(victim);
  if (!claim.victims.empty()) return keepHost(task);
  Job job = tasks_.at(task);
  ClusterAsk ask = askOf(job.spec);
  ask.node = members_.name(claim.member);
  if (claim.cards.size() == 1) ask.task.card = claim.cards.front();
  dropClaim(task);
  const Result<Spot> spot = places_.place(task, ask);
  if (spot) {
    QGPU_MARK(EvictedRoomTaken);
    return tasks_.assume(task, std::move(job), *spot);
  }
  job.reason = "the room that was made for it is lost";
  job.making.reset();
  tasks_.put(task, std::move(job), std::nullopt);
}

}  // namespace qgpu
