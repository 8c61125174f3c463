// The life of a task at the scheduler: where it waits, which node is told to hold it, and how it
// ends. Every durable change goes through put() and erase(), which remember what was before.
#include <algorithm>

#include "actors/scheduler/scheduler_actor.h"
#include "runtime/planted.h"

namespace qgpu {
namespace {

// Room that is kept for a task on its way is held under a number that no task has.
constexpr std::uint64_t kMoveBit = std::uint64_t{1} << 63;

}  // namespace

// --- what lists a task ---

void SchedulerActor::remember(std::uint64_t task) {
  const auto [entry, isNew] = round_->jobs.try_emplace(task);
  if (!isNew) return;
  const auto found = jobs_.find(task);
  if (found == jobs_.end()) return;
  entry->second.job = found->second;
  if (const Spot* spot = ledger_.spot(TaskId{task})) entry->second.spot = *spot;
}

void SchedulerActor::list(std::uint64_t task, const Job& job, const std::optional<Spot>& spot) {
  if (job.state == PlaceState::Waiting && waiting_.add(task, askOf(job.spec))) {
    listEvictor(task, job);
  }
  if (spot) ledger_.bind(TaskId{task}, *spot, job.spec.application);
  if (!job.member) return;
  at(*job.member).jobs.insert(task);
  if (job.adopted) at(*job.member).adopted[job.nodeTask] = task;
}

void SchedulerActor::unlist(std::uint64_t task, const Job& job) {
  if (waiting_.remove(task)) unlistEvictor(task, job);
  if (const Spot* spot = ledger_.spot(TaskId{task})) {
    gain(spot->node);
    const bool keeps = QGPU_PLANTED(EndedRoomKept) && job.state == PlaceState::Ending && !job.again;
    if (!keeps) ledger_.release(TaskId{task});
  }
  if (!job.member) return;
  at(*job.member).jobs.erase(task);
  if (job.adopted) at(*job.member).adopted.erase(job.nodeTask);
}

// `spot`: what it holds from now on; nothing where it holds no room that we know of.
void SchedulerActor::put(std::uint64_t task, Job job, std::optional<Spot> spot) {
  remember(task);
  const auto found = jobs_.find(task);
  if (found != jobs_.end()) unlist(task, found->second);
  Job& now = jobs_[task] = std::move(job);
  list(task, now, spot);
  if (!now.spec.task.requestId.empty()) {
    requests_[{now.spec.task.ownerUid, now.spec.task.requestId}] = task;
  }
  if (now.state != PlaceState::Ending) victimGone(task);
}

void SchedulerActor::erase(std::uint64_t task, std::string reason) {
  remember(task);
  const auto found = jobs_.find(task);
  QGPU_CHECK(found != jobs_.end(), "only a living task ends");
  Job job = std::move(found->second);
  unlist(task, job);
  jobs_.erase(found);
  releaseMove(task);
  victimGone(task);
  const bool bound = job.boundUnixMs != 0;
  job.state = PlaceState::Ended;
  job.reason = std::move(reason);
  job.phase = TaskPhase::Exited;
  job.making.reset();
  job.endedUnixMs = std::max<std::uint64_t>(
      static_cast<std::uint64_t>(options_.unixMsAtZero() + now_ / millis(1)), 1);
  round_->ended[task] = job;
  after([this, task, job = std::move(job), bound](Turn&) {
    for (const Asker& asker : job.askers) {
      replyFailed(asker, fail(ErrorCode::Unavailable,
                              "task " + std::to_string(task) + " ended before it was bound: " +
                                  job.reason));
    }
    note(bound ? "task-ended" : "task-dropped", task, "", job.reason);
    keepEnded(task, job);
    if (endedOrder_.size() > options_.endedKept) forgetOldest();
  });
}

void SchedulerActor::keepEnded(std::uint64_t task, Job job) {
  job.askers.clear();
  if (ended_.emplace(task, std::move(job)).second) endedOrder_.push_back(task);
}

void SchedulerActor::forgetOldest() {
  const std::uint64_t task = endedOrder_.front();
  const Job& oldest = ended_.at(task);
  const RequestKey key{oldest.spec.task.ownerUid, oldest.spec.task.requestId};
  const auto request = requests_.find(key);
  if (request != requests_.end() && request->second == task) requests_.erase(request);
  ended_.erase(task);
  endedOrder_.pop_front();
}

// --- places ---

std::vector<std::string> SchedulerActor::cardIds(const Spot& spot) const {
  std::vector<std::string> ids;
  for (const std::size_t card : spot.placement.cards) {
    ids.push_back(at(memberOf(spot.node)).facts.ledger.cards[card].id);
  }
  return ids;
}

// What a task of this spec holds of these cards; nothing where the node has not all of them.
std::optional<Spot> SchedulerActor::spotOf(const ClusterMember& member, const ClusterSpec& spec,
                                           const std::vector<std::string>& cards) const {
  if (!member.node) return std::nullopt;
  const bool whole = isWhole(askOf(spec.task));
  Spot spot{*member.node, {}, spec.cpuMilli, spec.hostMem};
  spot.placement.taskClass = spec.task.taskClass;
  spot.placement.exclusive = whole;
  spot.placement.share = whole ? kWholeCard : std::min(spec.task.share, kWholeCard);
  const std::vector<ClusterCard>& known = member.facts.ledger.cards;
  for (std::size_t i = 0; i < known.size(); ++i) {
    if (std::find(cards.begin(), cards.end(), known[i].id) == cards.end()) continue;
    spot.placement.cards.push_back(i);
    spot.placement.mem.push_back(whole ? known[i].mem : std::min(spec.task.mem, known[i].mem));
  }
  if (spot.placement.cards.size() != cards.size()) return std::nullopt;
  return spot;
}

// A node that has just refused it is left out for this once: its own sums are about to arrive.
Result<Spot> SchedulerActor::choose(std::uint64_t task, const Job& job,
                                    std::optional<MemberId> avoided) {
  return placeFor(task, askOf(job.spec), avoided);
}

void SchedulerActor::assume(std::uint64_t task, Job job, Spot spot) {
  job.state = PlaceState::Assumed;
  job.again = false;
  job.held = false;
  job.member = memberOf(spot.node);
  job.cards = cardIds(spot);
  job.nodeTask = 0;
  job.token.clear();
  job.reason.clear();
  job.making.reset();
  put(task, std::move(job), std::move(spot));
  after([this, task](Turn&) {
    count(Decided::Placed, Reason::Fits);
    orderBind(task);
  });
}

// `story`: what became of it before, if anything did; why it fits nowhere its shape knows.
void SchedulerActor::letWait(std::uint64_t task, Job job, const std::string& story) {
  job.state = PlaceState::Waiting;
  job.again = false;
  job.held = false;
  job.member.reset();
  job.cards.clear();
  job.nodeTask = 0;
  job.token.clear();
  job.boundUnixMs = 0;
  job.phase = TaskPhase::Pending;
  job.reason = story;
  job.making.reset();
  put(task, std::move(job), std::nullopt);
  after([this, task](Turn&) {
    beginsToWait(task);
    answerAskers(task);  // with "waiting"
  });
}

// Under the next epoch; its last place is known to hold it no more. Somebody who waits on one node
// for his task has gone by now, or asks again.
void SchedulerActor::placeAgain(std::uint64_t task, const std::string& reason, Elsewhere when,
                                std::optional<MemberId> avoided) {
  Job job = jobs_.at(task);
  if (job.forwarded || job.adopted) return erase(task, reason);
  releaseMove(task);
  ++job.epoch;
  job.boundUnixMs = 0;
  job.phase = TaskPhase::Pending;
  letWait(task, job, reason);   // gives back what it held, before another place is looked for
  if (when == Elsewhere::Later) return;
  const Result<Spot> spot = choose(task, job, avoided);
  if (spot) assume(task, std::move(job), *spot);
}

// Its node is told; what it holds it holds until the node says that it is over.
void SchedulerActor::beginEnd(std::uint64_t task, bool again, const std::string& reason) {
  Job job = jobs_.at(task);
  job.state = PlaceState::Ending;
  job.again = again;
  job.reason = reason;
  std::optional<Spot> spot;
  if (const Spot* held = ledger_.spot(TaskId{task})) spot = *held;
  put(task, std::move(job), std::move(spot));
  after([this, task](Turn&) {
    answerAskers(task);
    orderEnd(task);
  });
}

// Its node holds it no more.
void SchedulerActor::nodeEnded(std::uint64_t task, const std::string& reason) {
  const Job& job = jobs_.at(task);
  const bool neverHeld = job.state != PlaceState::Ending && job.boundUnixMs == 0 && !job.held;
  const bool known = job.state == PlaceState::Ending && !job.reason.empty();
  const std::string why = known ? job.reason : reason;
  if (job.again || neverHeld) return placeAgain(task, why, Elsewhere::Now);
  erase(task, why);
}

void SchedulerActor::releaseMove(std::uint64_t task) {
  const auto found = moves_.find(task);
  if (found == moves_.end()) return;
  gain(found->second.node);
  ledger_.release(TaskId{task | kMoveBit});
  moves_.erase(found);
}

void SchedulerActor::keepForMove(std::uint64_t task, const Spot& spot) {
  ledger_.bind(TaskId{task | kMoveBit}, spot, jobs_.at(task).spec.application);
  moves_.emplace(task, spot);
}

// --- orders ---

void SchedulerActor::orderBind(std::uint64_t task) {
  const auto found = jobs_.find(task);
  if (found == jobs_.end()) return;
  Job& job = found->second;
  if (job.state != PlaceState::Assumed && job.state != PlaceState::Bound) return;
  tell(*job.member, [task, epoch = job.epoch, spec = job.spec.task,
                     cards = job.cards](schema::ToMember::Builder words) {
    auto bind = words.initBind();
    bind.setTask(task);
    bind.setEpoch(epoch);
    TaskSpec ordered = spec;
    ordered.clusterTask = task;
    ordered.clusterEpoch = epoch;
    if (cards.size() == 1) ordered.card = cards.front();
    writeSpec(ordered, bind.initSpec());
    writeTexts(cards, bind.initCards(static_cast<unsigned>(cards.size())));
  });
  expectAnswer(task, job);
}

void SchedulerActor::orderEnd(std::uint64_t task) {
  const auto found = jobs_.find(task);
  if (found == jobs_.end() || found->second.state != PlaceState::Ending) return;
  Job& job = found->second;
  if (QGPU_PLANTED(EndUntold)) return;
  orderEndOf(*job.member, job.adopted ? 0 : task, job.epoch, job.nodeTask, job.reason);
  expectAnswer(task, job);
}

void SchedulerActor::expectAnswer(std::uint64_t task, Job& job) {
  job.answerBy = now_ + options_.assumeMax;
  overdue_.push_back({job.answerBy, task});
}

void SchedulerActor::orderEndOf(MemberId member, std::uint64_t task, std::uint32_t epoch,
                                std::uint64_t nodeTask, const std::string& reason) {
  tell(member, [=](schema::ToMember::Builder words) {
    auto end = words.initEnd();
    end.setTask(task);
    end.setEpoch(epoch);
    end.setNodeTask(nodeTask);
    end.setReason(reason);
  });
}

void SchedulerActor::onOverdue() {
  while (!overdue_.empty() && overdue_.front().at <= now_ && !roundFull()) {
    const Overdue due = overdue_.front();
    overdue_.pop_front();
    const auto found = jobs_.find(due.task);
    if (found == jobs_.end() || found->second.answerBy != due.at) continue;   // ordered again
    const Job& job = found->second;
    if (job.state == PlaceState::Assumed) {
      QGPU_MARK(AssumeExpired);
      note("assume-expired", due.task, at(*job.member).facts.ledger.name,
           "its node has not confirmed it in time");
      beginEnd(due.task, !job.forwarded, "not confirmed in time by its node");
    } else if (job.state == PlaceState::Ending) {
      QGPU_MARK(EndOrderedAgain);
      after([this, task = due.task](Turn&) { orderEnd(task); });
    }
  }
  while (!pausing_.empty() && pausing_.front().first <= now_) {
    gain(pausing_.front().second);
    pausing_.pop_front();
  }
}

// --- who waits ---

void SchedulerActor::gain(NodeId node) {
  if (QGPU_PLANTED(WaitersNotWoken)) return;
  evictionsDue_ = true;
  const auto [entry, isNew] = gained_.try_emplace(node);
  if (!isNew && entry->second.upTo) entry->second.again = true;
}

// Only the nodes that gained room, and on each only the shapes that fit it.
void SchedulerActor::wakeWaiting() {
  std::size_t tried = 0;
  while (!gained_.empty() && !roundFull() && tried < kShapesPerTurn) {
    const auto entry = gained_.begin();
    if (!wakeFor(entry->first, entry->second, tried)) return;
    if (std::exchange(entry->second.again, false)) {
      entry->second.upTo.reset();
    } else {
      gained_.erase(entry);
    }
  }
}

// False: the bound of this turn stopped it; the rest follows in a later one.
bool SchedulerActor::wakeFor(NodeId node, Wake& wake, std::size_t& tried) {
  const std::string& name = at(memberOf(node)).facts.ledger.name;
  while (std::optional<WaitQueue::Candidate> next = waiting_.next(name, wake.upTo)) {
    if (tried >= kShapesPerTurn || roundFull()) return false;
    ++tried;
    const std::optional<WaitQueue::Place> before = std::exchange(wake.upTo, next->place);
    if (!ledger_.fitsOn(node, *next->ask)) continue;
    // One that may not go there now stands in nobody's way.
    while (next && at(memberOf(node)).older.contains(next->place.task)) {
      next = waiting_.behind(next->place);
    }
    if (!next) continue;
    const std::uint64_t task = next->place.task;
    const bool oldest = next->place == wake.upTo;
    const Job& job = jobs_.at(task);
    const Result<Spot> spot = choose(task, job);
    if (!spot) continue;
    assume(task, job, *spot);
    if (!oldest) wake.upTo = before;   // others of its shape are behind it
  }
  return true;
}

}  // namespace qgpu
