// Offline tasks that make room for a task which may evict them. The least set is chosen, its nodes
// are told to end it, and until the last of it has ended the cards are closed to everybody else:
// what is freed goes to the task that it was freed for, in the turn in which that is known. The
// victims wait again. Who evicts is tried when it comes, and again at a look once rooms have
// changed. For whom the victims end is committed with their end, so a restart evicts nobody twice
// and keeps the cards closed until the last victim has ended, or its node is lost.
#include <algorithm>

#include "actors/scheduler/scheduler_actor.h"
#include "runtime/planted.h"

namespace qgpu {
namespace {

// Processors and memory of a host are kept under a number that no task has.
constexpr std::uint64_t kHostBit = std::uint64_t{1} << 62;

WaitQueue::Place placeOf(std::uint64_t task, const Job& job) {
  return {job.spec.task.taskClass == TaskClass::Online ? 0u : 1u, task};
}

}  // namespace

MayEvict SchedulerActor::mayEvict() const {
  return [this](TaskId id) {
    const Job* job = task(raw(id));
    return job != nullptr && job->state == PlaceState::Bound &&
           job->spec.task.taskClass == TaskClass::Offline;
  };
}

void SchedulerActor::listEvictor(std::uint64_t task, const Job& job) {
  if (!job.spec.preempt || job.spec.task.taskClass == TaskClass::Offline) return;
  evictors_.insert(placeOf(task, job));
  evictionsDue_ = true;
}

void SchedulerActor::unlistEvictor(std::uint64_t task, const Job& job) {
  evictors_.erase(placeOf(task, job));
  dropClaim(task);
}

// Where this round has searched enough, the next look goes on.
void SchedulerActor::evictSoon(std::uint64_t task) {
  if (!evictors_.contains(placeOf(task, jobs_.at(task)))) return;
  if (round_->searches >= kSearchesPerRound || claims_.size() >= kClaimsMax) return;
  ++round_->searches;
  evictFor(task);
}

// All that may evict, in their order, a few in each look; of those that ask for the same, one.
void SchedulerActor::evictAtLook() {
  if (!evictNext_ && !std::exchange(evictionsDue_, false)) return;
  std::set<WaitQueue::Key> inVain;
  for (std::size_t seen = 0; seen < kEvictorsPerLook && !roundFull(); ++seen) {
    const auto next = evictNext_ ? evictors_.upper_bound(*evictNext_) : evictors_.begin();
    if (next == evictors_.end()) return evictNext_.reset();
    const std::uint64_t task = next->task;
    const Job job = jobs_.at(task);
    const ClusterAsk ask = askOf(job.spec);
    if (!claims_.contains(task) && !inVain.contains(WaitQueue::keyOf(ask))) {
      if (round_->searches >= kSearchesPerRound || claims_.size() >= kClaimsMax) return;
      ++round_->searches;
      evictNext_ = *next;
      if (const Result<Spot> spot = choose(task, job)) {
        assume(task, job, *spot);
      } else if (!evictFor(task)) {
        inVain.insert(WaitQueue::keyOf(ask));
      }
    } else {
      evictNext_ = *next;
    }
  }
}

// False where no set of offline tasks would do.
bool SchedulerActor::evictFor(std::uint64_t task) {
  Job job = jobs_.at(task);
  const ClusterAsk ask = askOf(job.spec);
  std::optional<Eviction> eviction;
  {
    const ShutNodes shut(ledger_, nodesShutTo(task, std::nullopt));
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
  making.member = memberOf(eviction->spot.node);
  making.cards = cardIds(eviction->spot);
  for (const TaskId victim : eviction->victims) {
    making.victims.emplace_back(raw(victim), jobs_.at(raw(victim)).epoch);
  }
  const std::string where = at(making.member).facts.ledger.name;
  put(task, std::move(job), std::nullopt);
  for (const TaskId victim : eviction->victims) {
    const Job& held = jobs_.at(raw(victim));
    beginEnd(raw(victim), !held.adopted && !held.forwarded,
             "evicted: task " + std::to_string(task) + " gets its room");
  }
  openClaim(task);
  after([this, task, where, numbers](Turn&) {
    note("task-evicts", task, where, "task(s) " + numbers + " end for it");
  });
  return true;
}

// Of a task that waits for victims which still end; of others there is nothing to open.
void SchedulerActor::openClaim(std::uint64_t task) {
  const Job& job = jobs_.at(task);
  if (!job.making || claims_.contains(task)) return;
  Claim claim{job.making->member, job.making->cards, {}};
  for (const auto& [victim, epoch] : job.making->victims) {
    const Job* held = this->task(victim);
    if (held == nullptr || held->state != PlaceState::Ending || held->epoch != epoch) continue;
    claim.victims.insert(victim);
    victims_.emplace(victim, task);
  }
  if (claim.victims.empty()) return;
  for (const std::string& card : claim.cards) kept_.emplace(claim.member, card);
  applyMarks(claim.member);
  claims_.emplace(task, std::move(claim));
  keepHost(task);
}

// As the tasks have it: after a start, and where a round was undone.
void SchedulerActor::openClaims() {
  for (const WaitQueue::Place& place : evictors_) openClaim(place.task);
}

// What is free of the node's processors and memory is kept too, as far as the task needs it.
void SchedulerActor::keepHost(std::uint64_t task) {
  ledger_.release(TaskId{task | kHostBit});
  const ClusterMember& node = at(claims_.at(task).member);
  if (!node.node) return;   // its hello makes up for it
  const ClusterSpec& spec = jobs_.at(task).spec;
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

void SchedulerActor::dropClaim(std::uint64_t task) {
  const auto found = claims_.find(task);
  if (found == claims_.end()) return;
  const Claim claim = std::move(found->second);
  claims_.erase(found);
  for (const std::uint64_t victim : claim.victims) victims_.erase(victim);
  for (const std::string& card : claim.cards) kept_.erase({claim.member, card});
  ledger_.release(TaskId{task | kHostBit});
  applyMarks(claim.member);
  if (at(claim.member).node) gain(*at(claim.member).node);
}

void SchedulerActor::dropClaimOf(std::uint64_t victim) {
  const auto found = victims_.find(victim);
  if (found != victims_.end()) dropClaim(found->second);
}

// The last one hands over what was kept. Where that will not do any more, because the node or the
// card was lost meanwhile, the task waits on.
void SchedulerActor::victimGone(std::uint64_t victim) {
  const auto found = victims_.find(victim);
  if (found == victims_.end()) return;
  const std::uint64_t task = found->second;
  Claim& claim = claims_.at(task);
  victims_.erase(found);
  claim.victims.erase(victim);
  if (!claim.victims.empty()) return keepHost(task);
  Job job = jobs_.at(task);
  ClusterAsk ask = askOf(job.spec);
  ask.node = at(claim.member).facts.ledger.name;
  if (claim.cards.size() == 1) ask.task.card = claim.cards.front();
  dropClaim(task);
  const Result<Spot> spot = placeFor(task, ask);
  if (spot) {
    QGPU_MARK(EvictedRoomTaken);
    return assume(task, std::move(job), *spot);
  }
  job.reason = "the room that was made for it is lost";
  job.making.reset();
  put(task, std::move(job), std::nullopt);
}

}  // namespace qgpu
