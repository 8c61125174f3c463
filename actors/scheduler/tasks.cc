#include "actors/scheduler/tasks.h"

#include <algorithm>
#include <set>
#include <utility>

#include "actors/base/tenant_variables.h"
#include "actors/placement/group_fit.h"
#include "runtime/planted.h"

namespace qgpu {
namespace {

// Room that is kept for a task on its way is held under a number that no task has.
constexpr std::uint64_t kMoveBit = std::uint64_t{1} << 63;

PlaceState readState(schema::PlaceState word) {
  return word <= schema::PlaceState::LOST ? static_cast<PlaceState>(word) : PlaceState::Bound;
}

}  // namespace

const Job* Tasks::find(std::uint64_t task) const {
  const auto found = jobs_.find(task);
  return found == jobs_.end() ? nullptr : &found->second;
}

Job* Tasks::find(std::uint64_t task) {
  const auto found = jobs_.find(task);
  return found == jobs_.end() ? nullptr : &found->second;
}

const Job* Tasks::ended(std::uint64_t task) const {
  const auto found = ended_.find(task);
  return found == ended_.end() ? nullptr : &found->second;
}

bool Tasks::isOver(std::uint64_t task, std::uint32_t epoch) const {
  const auto now = rounds_.open().ended.find(task);
  const Job* job = now != rounds_.open().ended.end() ? &now->second : ended(task);
  return job != nullptr && epoch <= job->epoch;
}

const Job* Tasks::known(std::uint64_t task) const {
  const Job* living = find(task);
  return living != nullptr ? living : ended(task);
}

std::optional<std::uint64_t> Tasks::ofRequest(std::uint32_t uid,
                                              const std::string& requestId) const {
  const auto found = requests_.find({uid, requestId});
  if (requestId.empty() || found == requests_.end()) return std::nullopt;
  return found->second;
}

// --- what lists a task ---

void Tasks::remember(std::uint64_t task) {
  const auto [entry, isNew] = rounds_.open().jobs.try_emplace(task);
  if (!isNew) return;
  const auto found = jobs_.find(task);
  if (found == jobs_.end()) return;
  entry->second.job = found->second;
  if (const Spot* spot = ledger_.spot(TaskId{task})) entry->second.spot = *spot;
}

void Tasks::list(std::uint64_t task, const Job& job, const std::optional<Spot>& spot) {
  if (job.state == PlaceState::Waiting && waiting_.queue().add(task, askOf(job.spec))) {
    maker_->waits(task, job);
  }
  if (spot) ledger_.bind(TaskId{task}, *spot, job.spec.application);
  if (!job.spec.group.empty()) groups_.add(groupOf(job.spec), task, job);
  if (!job.member) return;
  members_.at(*job.member).jobs.insert(task);
  if (job.adopted) members_.at(*job.member).adopted[job.nodeTask] = task;
}

void Tasks::unlist(std::uint64_t task, const Job& job) {
  if (waiting_.queue().remove(task)) maker_->waitsNoMore(task, job);
  if (!job.spec.group.empty()) groups_.remove(groupOf(job.spec), task, job);
  if (const Spot* spot = ledger_.spot(TaskId{task})) {
    freed_.gain(spot->node);
    const bool keeps = QGPU_PLANTED(EndedRoomKept) && job.state == PlaceState::Ending && !job.again;
    if (!keeps) ledger_.release(TaskId{task});
  }
  if (!job.member) return;
  members_.at(*job.member).jobs.erase(task);
  if (job.adopted) members_.at(*job.member).adopted.erase(job.nodeTask);
}

void Tasks::put(std::uint64_t task, Job job, std::optional<Spot> spot) {
  remember(task);
  const auto found = jobs_.find(task);
  if (found != jobs_.end()) unlist(task, found->second);
  Job& now = jobs_[task] = std::move(job);
  list(task, now, spot);
  claimRequest(task, now.spec.task);
  livesAgain(task);
  if (now.state != PlaceState::Ending) maker_->isGone(task);
}

void Tasks::claimRequest(std::uint64_t task, const TaskSpec& spec) {
  if (spec.requestId.empty()) return;
  const RequestKey key{spec.ownerUid, spec.requestId};
  std::uint64_t& owner = requests_[key];
  rounds_.open().requests.try_emplace(key, owner);
  owner = task;
}

// It was taken for ended, and a node holds it by a later decision.
void Tasks::livesAgain(std::uint64_t task) {
  rounds_.open().ended.erase(task);
  if (!ended_.contains(task)) return;
  rounds_.after([this, task](Turn&) {
    if (ended_.erase(task) != 0) std::erase(endedOrder_, task);
  });
}

void Tasks::erase(std::uint64_t task, std::string reason) {
  remember(task);
  const auto found = jobs_.find(task);
  QGPU_CHECK(found != jobs_.end(), "only a living task ends");
  Job job = std::move(found->second);
  unlist(task, job);
  jobs_.erase(found);
  releaseMove(task);
  maker_->isGone(task);
  const bool bound = job.boundUnixMs != 0;
  job.state = PlaceState::Ended;
  job.reason = std::move(reason);
  job.phase = TaskPhase::Exited;
  job.making.reset();
  job.endedUnixMs = std::max<std::uint64_t>(rounds_.unixMs(), 1);
  rounds_.open().ended[task] = job;
  rounds_.after([this, task, job = std::move(job), bound](Turn&) {
    for (const Asker& asker : job.askers) {
      rounds_.replyFailed(
          asker, fail(ErrorCode::Unavailable, "task " + std::to_string(task) +
                                                  " ended before it was bound: " + job.reason));
    }
    rounds_.note(bound ? EventKind("task-ended") : EventKind("task-dropped"), task, "", job.reason);
    if (jobs_.contains(task)) return;  // a node that spoke later holds it
    keepEnded(task, job);
    if (endedOrder_.size() > options_.endedKept) forgetOldest();
  });
}

void Tasks::keepEnded(std::uint64_t task, Job job) {
  job.askers.clear();
  if (ended_.insert_or_assign(task, std::move(job)).second) endedOrder_.push_back(task);
}

void Tasks::forgetOldest() {
  const std::uint64_t task = endedOrder_.front();
  const Job& oldest = ended_.at(task);
  const RequestKey key{oldest.spec.task.ownerUid, oldest.spec.task.requestId};
  const auto request = requests_.find(key);
  const bool itsOwn = request != requests_.end() && request->second == task;
  if (itsOwn && !jobs_.contains(task)) requests_.erase(request);
  ended_.erase(task);
  endedOrder_.pop_front();
}

// --- places ---

Result<std::uint64_t> Tasks::admit(Job job) {
  job.spec.task.clusterTask = 0;
  job.spec.task.clusterEpoch = 0;
  const ClusterAsk ask = askOf(job.spec);
  Status valid = checkClusterSpec(job.spec);
  if (valid) valid = ledger_.check(ask);
  if (valid) valid = checkGroup(job);
  if (!valid) {
    waiting_.count(Waiting::Decided::Refused, Reason::InvalidRequest);
    return valid.error();
  }
  if (jobs_.size() >= kTasksMax) {
    return fail(ErrorCode::Overloaded, std::to_string(jobs_.size()) + " tasks are here already");
  }
  job.epoch = 1;
  job.submittedUnixMs = rounds_.unixMs();
  if (job.forwarded && places_.gathers()) {
    return fail(ErrorCode::Unavailable,
                "the scheduler waits until nodes have said what they hold: try again in a moment");
  }
  const std::uint64_t task = nextTask_;
  // What fits nowhere for an older task of the same shape fits nowhere for this one, unless that
  // one alone is kept off some node.
  if (!job.forwarded && freed_.empty() && !places_.anyOlder() && waiting_.queue().waitsAlike(ask)) {
    return admitToQueue(task, std::move(job));
  }
  Result<Spot> spot = choose(task, job);
  if (spot && !job.spec.group.empty()) return admitToQueue(task, std::move(job));
  if (spot) {
    ++nextTask_;
    assume(task, std::move(job), *spot);
    return task;
  }
  const Error& error = spot.error();
  const bool mayCome = error.code == ErrorCode::NoRoom || error.code == ErrorCode::Cordoned ||
                       error.code == ErrorCode::Conflict;
  const bool known = error.code == ErrorCode::Infeasible || error.code == ErrorCode::NotFound;
  if (QGPU_PLANTED(InfeasibleWhenFull) && !job.forwarded) {
    return fail(ErrorCode::Infeasible, error.message);
  }
  if (!job.forwarded && (mayCome || (known && members_.missing()))) {
    return admitToQueue(task, std::move(job));
  }
  waiting_.count(Waiting::Decided::Refused, waiting_.whyOf(ask).reason);
  if (!job.forwarded) return error;
  return fail(error.code, error.message + whereElse(job.spec));
}

Result<std::uint64_t> Tasks::admitToQueue(std::uint64_t task, Job job) {
  const WaitQueue& queue = waiting_.queue();
  if (queue.full()) {
    return fail(ErrorCode::Overloaded,
                std::to_string(queue.size()) + " tasks wait already: try again later");
  }
  ++nextTask_;
  const std::string group = groupOf(job.spec);
  letWait(task, std::move(job), "");
  maker_->came(task);
  if (group.empty()) return task;
  placeGroup(group);
  judgeGroup(group);
  return task;
}

std::string Tasks::whereElse(ClusterSpec spec) {
  spec.node.clear();
  spec.task.card.clear();
  spec.task.ownerPid = 0;
  const Result<Spot> spot = ledger_.place(askOf(spec));
  if (!spot) return "; it fits nowhere else in the cluster either";
  std::string cards;
  for (const std::string& id : members_.cardIds(*spot)) cards += (cards.empty() ? "" : ",") + id;
  return "; it would fit on node " + members_.name(members_.memberOf(spot->node)) + " (" + cards +
         "): submit it to the scheduler";
}

void Tasks::assume(std::uint64_t task, Job job, Spot spot) {
  job.state = PlaceState::Assumed;
  job.again = false;
  job.held = false;
  job.member = members_.memberOf(spot.node);
  job.cards = members_.cardIds(spot);
  job.nodeTask = 0;
  job.token.clear();
  job.reason.clear();
  job.making.reset();
  if (const Groups::Group* group = groups_.find(groupOf(job.spec))) {
    job.groupStarted = job.groupStarted || group->hasStarted();
  }
  put(task, std::move(job), std::move(spot));
  rounds_.after([this, task](Turn&) {
    waiting_.count(Waiting::Decided::Placed, Reason::Fits);
    orderBind(task);
  });
}

// `story`: what became of it before, if anything did; why it fits nowhere its shape knows.
void Tasks::letWait(std::uint64_t task, Job job, const std::string& story) {
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
  rounds_.after([this, task](Turn&) {
    beginsToWait(task);
    answerAskers(task);  // with "waiting"
  });
}

// Where what was decided since has not given it a place.
void Tasks::beginsToWait(std::uint64_t task) {
  const auto found = jobs_.find(task);
  if (found == jobs_.end() || !waiting_.queue().contains(task)) return;
  waiting_.count(Waiting::Decided::Waits, waiting_.why(task, found->second).reason);
  rounds_.note("task-waits", task, "", waiting_.reason(task, found->second));
}

// Somebody who waits on one node for his task has gone by now, or asks again.
void Tasks::placeAgain(std::uint64_t task, const std::string& reason, Elsewhere when,
                       std::optional<MemberId> avoided) {
  Job job = jobs_.at(task);
  if (job.forwarded || job.adopted) return erase(task, reason);
  releaseMove(task);
  ++job.epoch;
  job.boundUnixMs = 0;
  job.phase = TaskPhase::Pending;
  letWait(task, job, reason);  // gives back what it held, before another place is looked for
  if (const std::string group = groupOf(job.spec); !group.empty()) {
    const bool placed = when == Elsewhere::Now && placeGroup(group, avoided);
    const bool refused = when == Elsewhere::Later || avoided;
    if (!placed && refused) groups_.pause(group, rounds_.now() + options_.refusedPause);
    return;
  }
  if (when == Elsewhere::Later) return;
  const Result<Spot> spot = choose(task, job, avoided);
  if (spot) assume(task, std::move(job), *spot);
}

void Tasks::beginEnd(std::uint64_t task, bool again, const std::string& reason) {
  Job job = jobs_.at(task);
  job.state = PlaceState::Ending;
  job.again = again;
  job.reason = reason;
  std::optional<Spot> spot;
  if (const Spot* held = ledger_.spot(TaskId{task})) spot = *held;
  put(task, std::move(job), std::move(spot));
  rounds_.after([this, task](Turn&) {
    answerAskers(task);
    orderEnd(task);
  });
}

void Tasks::nodeEnded(std::uint64_t task, const std::string& reason) {
  const Job& job = jobs_.at(task);
  const bool neverHeld = job.state != PlaceState::Ending && job.boundUnixMs == 0 && !job.held;
  const bool known = job.state == PlaceState::Ending && !job.reason.empty();
  const std::string why = known ? job.reason : reason;
  if (job.again || neverHeld) return placeAgain(task, why, Elsewhere::Now);
  erase(task, why);
}

void Tasks::releaseMove(std::uint64_t task) {
  const auto found = moves_.find(task);
  if (found == moves_.end()) return;
  freed_.gain(found->second.node);
  ledger_.release(TaskId{task | kMoveBit});
  moves_.erase(found);
}

void Tasks::keepForMove(std::uint64_t task, const Spot& spot) {
  ledger_.bind(TaskId{task | kMoveBit}, spot, jobs_.at(task).spec.application);
  moves_.emplace(task, spot);
}

// --- orders ---

void Tasks::orderBind(std::uint64_t task) {
  const auto found = jobs_.find(task);
  if (found == jobs_.end()) return;
  Job& job = found->second;
  if (job.state != PlaceState::Assumed && job.state != PlaceState::Bound) return;
  members_.tell(*job.member, [task, epoch = job.epoch, spec = job.spec.task,
                              cards = job.cards](schema::ToMember::Builder message) {
    auto bind = message.initBind();
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

void Tasks::orderEnd(std::uint64_t task) {
  const auto found = jobs_.find(task);
  if (found == jobs_.end() || found->second.state != PlaceState::Ending) return;
  Job& job = found->second;
  if (QGPU_PLANTED(EndUntold)) return;
  orderEndOf(*job.member, job.adopted ? 0 : task, job.epoch, job.nodeTask, job.reason);
  expectAnswer(task, job);
}

void Tasks::expectAnswer(std::uint64_t task, Job& job) {
  job.answerBy = rounds_.now() + options_.assumeMax;
  overdue_.push_back({job.answerBy, task});
}

void Tasks::orderEndOf(MemberId member, std::uint64_t task, std::uint32_t epoch,
                       std::uint64_t nodeTask, const std::string& reason) {
  members_.tell(member, [=](schema::ToMember::Builder message) {
    auto end = message.initEnd();
    end.setTask(task);
    end.setEpoch(epoch);
    end.setNodeTask(nodeTask);
    end.setReason(reason);
  });
}

void Tasks::onOverdue() {
  while (!overdue_.empty() && overdue_.front().at <= rounds_.now() && !rounds_.full()) {
    const Overdue due = overdue_.front();
    overdue_.pop_front();
    const auto found = jobs_.find(due.task);
    if (found == jobs_.end() || found->second.answerBy != due.at) continue;  // ordered again
    const Job& job = found->second;
    if (job.state == PlaceState::Assumed) {
      QGPU_MARK(AssumeExpired);
      rounds_.note("assume-expired", due.task, members_.name(*job.member),
                   "its node has not confirmed it in time");
      beginEnd(due.task, !job.forwarded, "not confirmed in time by its node");
    } else if (job.state == PlaceState::Ending) {
      QGPU_MARK(EndOrderedAgain);
      rounds_.after([this, task = due.task](Turn&) { orderEnd(task); });
    }
  }
  freed_.gainDue(rounds_.now());
  groups_.pausesOver(rounds_.now());
}

// --- who waits ---

// Only the nodes that gained room, and on each only the shapes that fit it.
void Tasks::wakeWaiting() {
  std::size_t tried = 0;
  while (!freed_.empty() && !rounds_.full() && tried < kShapesPerTurn) {
    const auto entry = freed_.nodes().begin();
    if (!wakeFor(entry->first, entry->second, tried)) return;
    if (std::exchange(entry->second.again, false)) {
      entry->second.upTo.reset();
    } else {
      freed_.nodes().erase(entry);
    }
  }
}

// False: the bound of this turn stopped it; the rest follows in a later one.
bool Tasks::wakeFor(NodeId node, FreedRoom::Wake& wake, std::size_t& tried) {
  const MemberId member = members_.memberOf(node);
  const std::string& name = members_.name(member);
  while (std::optional<WaitQueue::Candidate> next = waiting_.queue().next(name, wake.upTo)) {
    if (tried >= kShapesPerTurn || rounds_.full()) return false;
    ++tried;
    const std::optional<WaitQueue::Place> before = std::exchange(wake.upTo, next->place);
    if (!ledger_.fitsOn(node, *next->ask)) continue;
    if (!next->ask->group.empty()) {
      const std::string group = next->ask->group;
      tried += groups_.find(group)->size;
      placeGroup(group);
      continue;
    }
    // A task that may not go to this node now is passed over, and the one behind it is tried.
    while (next && places_.holdsOlder(member, next->place.task)) {
      next = waiting_.queue().behind(next->place);
    }
    if (!next) continue;
    const std::uint64_t task = next->place.task;
    const bool oldest = next->place == wake.upTo;
    const Job& job = jobs_.at(task);
    const Result<Spot> spot = choose(task, job);
    if (!spot) continue;
    assume(task, job, *spot);
    if (!oldest) wake.upTo = before;  // others of its shape are behind it
  }
  return true;
}

// --- groups ---

Status Tasks::checkGroup(const Job& job) const {
  const Groups::Group* group = groups_.find(groupOf(job.spec));
  if (group == nullptr || group->size == job.spec.groupSize) return ok();
  return fail(ErrorCode::Conflict, "group '" + job.spec.group + "' is of " +
                                       std::to_string(group->size) + " tasks, not of " +
                                       std::to_string(job.spec.groupSize) +
                                       ": ask for that size, or wait until its tasks have ended");
}

void Tasks::settleGroups() {
  while (groups_.anyChanged() && !rounds_.full()) settleGroup(groups_.takeChanged());
}

void Tasks::settleGroup(const std::string& key) {
  while (!rounds_.full() && placeGroup(key)) continue;
  const Groups::Group* group = groups_.find(key);
  if (group == nullptr) return;
  if (!group->hasStarted() && group->bound >= group->size) {
    startGroup(*group);
  } else if (group->torn() && !QGPU_PLANTED(GroupTorn)) {
    giveBack(*group);
  }
  judgeGroup(key);
}

// Why it waits, which others of the group decide as well.
void Tasks::judgeGroup(const std::string& key) {
  const Groups::Group* group = groups_.find(key);
  if (group == nullptr) return;
  std::set<WaitQueue::Key> judged;
  std::size_t seen = 0;
  for (const std::uint64_t task : group->waiting) {
    if (seen++ == group->size) return;
    const ClusterAsk ask = askOf(jobs_.at(task).spec);
    if (judged.insert(WaitQueue::keyOf(ask)).second) waiting_.judge(ask);
  }
}

// Those that are due, all or none. False: none, and nothing has changed.
bool Tasks::placeGroup(const std::string& key, std::optional<MemberId> avoided) {
  const Groups::Group* group = groups_.find(key);
  if (group == nullptr || rounds_.now() < group->pausedUntil) return false;
  std::vector<GroupMember> members;
  for (const std::uint64_t task : groups_.due(*group)) {
    members.push_back({TaskId{task}, askOf(jobs_.at(task).spec)});
  }
  if (members.empty()) return false;
  const GroupFit fit = fitTogether(ledger_, members, [&](const GroupMember& member) {
    return places_.place(raw(member.task), member.ask, avoided);
  });
  if (fit.spots.empty()) return false;
  for (std::size_t i = 0; i < members.size(); ++i) {
    const std::uint64_t task = raw(members[i].task);
    assume(task, jobs_.at(task), fit.spots[i]);
  }
  return true;
}

// From now on they are told where they are, and with what token.
void Tasks::startGroup(const Groups::Group& group) {
  const std::set<std::uint64_t> placed = group.placed;
  for (const std::uint64_t task : placed) {
    Job job = jobs_.at(task);
    job.groupStarted = true;
    std::optional<Spot> spot;
    if (const Spot* held = ledger_.spot(TaskId{task})) spot = *held;
    put(task, std::move(job), std::move(spot));
    rounds_.after([this, task, member = *jobs_.at(task).member](Turn&) {
      rounds_.note("task-bound", task, members_.name(member), "its group's nodes hold all of it");
      answerAskers(task);
    });
  }
}

void Tasks::giveBack(const Groups::Group& group) {
  QGPU_MARK(GroupGivenBack);
  const std::set<std::uint64_t> placed = group.placed;
  const std::string why = "given back: " + std::to_string(placed.size()) + " of " +
                          std::to_string(group.size) + " tasks of its group have a place";
  for (const std::uint64_t task : placed) beginEnd(task, true, why);
}

// --- who asked ---

void Tasks::replyAssigned(const Asker& asker, std::uint64_t task) {
  const Job* job = known(task);
  if (job == nullptr) {
    return rounds_.replyFailed(
        asker, fail(ErrorCode::NotFound, "task " + std::to_string(task) + " ended long ago"));
  }
  rounds_.reply(asker, [this, task, job = *job](schema::ClusterReply::Builder answer) {
    writeAssigned(task, job, answer.initAssigned());
  });
}

Status Tasks::addAsker(std::uint64_t task, const Asker& asker) {
  const Job* job = known(task);
  if (job != nullptr && job->askers.size() >= kAskersMax) {
    return fail(ErrorCode::Overloaded, "too many wait for this task already");
  }
  rounds_.after([this, asker, task](Turn&) {
    Job* living = find(task);
    if (living == nullptr) return replyAssigned(asker, task);
    living->askers.push_back(asker);
    answerAskers(task);
  });
  return ok();
}

void Tasks::answerAskers(std::uint64_t task) {
  const auto found = jobs_.find(task);
  if (found == jobs_.end() || found->second.state == PlaceState::Assumed) return;
  Job& job = found->second;
  if (job.state == PlaceState::Bound && job.tokenDue) return;  // answered with it
  if (job.state == PlaceState::Bound && job.awaitsGroup() && !QGPU_PLANTED(GroupToldEarly)) return;
  if (job.state == PlaceState::Ending && !job.again) return;  // answered at its end
  for (const Asker& asker : std::exchange(job.askers, {})) {
    replyAssigned(asker, task);
    if (QGPU_PLANTED(AnsweredTwice)) replyAssigned(asker, task);
  }
}

void Tasks::writeAssigned(std::uint64_t task, const Job& job,
                          schema::Assigned::Builder builder) const {
  builder.setTask(task);
  builder.setEpoch(job.epoch);
  const bool early = job.awaitsGroup() && !QGPU_PLANTED(GroupToldEarly);
  if (!job.member || job.boundUnixMs == 0 || job.again || early) {
    builder.setReason(waiting_.reason(task, job));
    return builder.setWaiting(true);
  }
  const MemberFacts& facts = members_.at(*job.member).facts;
  builder.setNode(facts.ledger.name);
  writeTexts(job.cards, builder.initCards(static_cast<unsigned>(job.cards.size())));
  builder.setNodeTask(job.nodeTask);
  builder.setToken(job.token);
  std::vector<std::string> environment = facts.environment;
  for (const Variables& part : {Variables{{"QGPU_TOKEN", job.token}}, cardVariables(job.cards)}) {
    for (std::string& variable : assignments(part)) environment.push_back(std::move(variable));
  }
  writeTexts(environment, builder.initEnvironment(static_cast<unsigned>(environment.size())));
}

// --- rows ---

void Tasks::persist(const Round& round, Turn& turn) const {
  for (const auto& [task, before] : round.jobs) persistTask(task, round, turn);
  persistForgotten(round, turn);
}

// What has ended is kept for its request alone.
void Tasks::persistTask(std::uint64_t task, const Round& round, Turn& turn) const {
  const RowKey key{RowKind::ClusterTask, task};
  const auto living = jobs_.find(task);
  const auto over = round.ended.find(task);
  if (living == jobs_.end() && over->second.spec.task.requestId.empty()) {
    if (!round.jobs.at(task).job) return;  // begun and ended in one round
    turn.persist(key, [](schema::Row::Builder row) { row.setErased(); });
    return;
  }
  const Job& job = living != jobs_.end() ? living->second : over->second;
  if (QGPU_PLANTED(SubmitNotStored) && job.state == PlaceState::Waiting) return;
  turn.persist(key, [&](schema::Row::Builder row) { writeRow(task, job, row.initClusterTask()); });
}

void Tasks::writeDurable(std::uint64_t task, const Job& job,
                         schema::ClusterTask::Builder facts) const {
  facts.setId(task);
  facts.setEpoch(job.epoch);
  writeClusterSpec(job.spec, facts.initSpec());
  facts.setState(static_cast<schema::PlaceState>(job.state));
  if (job.member) facts.setNode(members_.name(*job.member));
  writeTexts(job.cards, facts.initCards(static_cast<unsigned>(job.cards.size())));
  facts.setNodeTask(job.nodeTask);
  facts.setSubmittedUnixMs(job.submittedUnixMs);
  facts.setBoundUnixMs(job.boundUnixMs);
  facts.setReason(job.reason);
}

void Tasks::writeRow(std::uint64_t task, const Job& job,
                     schema::ClusterTaskRow::Builder row) const {
  writeDurable(task, job, row.initTask());
  row.setRequestId(job.spec.task.requestId);
  row.setUid(job.spec.task.ownerUid);
  row.setToken(job.token);
  row.setAgain(job.again);
  row.setAdopted(job.adopted);
  row.setForwarded(job.forwarded);
  row.setGroupStarted(job.groupStarted);
  row.setEndedUnixMs(job.endedUnixMs);
  if (!job.making) return;
  auto making = row.initMaking();
  making.setNode(members_.name(job.making->member));
  const std::vector<std::string>& cards = job.making->cards;
  writeTexts(cards, making.initCards(static_cast<unsigned>(cards.size())));
  auto victims = making.initVictims(static_cast<unsigned>(job.making->victims.size()));
  for (unsigned i = 0; i < victims.size(); ++i) {
    victims[i].setTask(job.making->victims[i].first);
    victims[i].setEpoch(job.making->victims[i].second);
  }
}

// The rows of those that endedOrder_ will have no room for.
void Tasks::persistForgotten(const Round& round, Turn& turn) const {
  const std::size_t kept = endedOrder_.size() + round.ended.size();
  const std::size_t over = kept > options_.endedKept ? kept - options_.endedKept : 0;
  for (std::size_t i = 0; i < std::min(over, endedOrder_.size()); ++i) {
    if (jobs_.contains(endedOrder_[i])) continue;  // it lives again since this round
    if (ended_.at(endedOrder_[i]).spec.task.requestId.empty()) continue;
    turn.persist({RowKind::ClusterTask, endedOrder_[i]},
                 [](schema::Row::Builder row) { row.setErased(); });
  }
}

void Tasks::undo(const Round& round) {
  for (const auto& [task, before] : round.jobs) {
    const auto found = jobs_.find(task);
    if (found == jobs_.end()) continue;
    unlist(task, found->second);
    jobs_.erase(found);
  }
  for (const auto& [key, owner] : round.requests) {
    if (owner == 0) {
      requests_.erase(key);
    } else {
      requests_[key] = owner;
    }
  }
  // Nobody was told of a number of this round; one that a node named is unknown here again.
  nextTask_ = round.nextTask;
  for (const auto& [task, before] : round.jobs) {
    releaseMove(task);
    maker_->isUndone(task);
    if (!before.job) continue;
    const Job& job = jobs_[task] = *before.job;
    std::optional<Spot> spot;
    if (before.spot && job.member) spot = members_.spotOf(*job.member, job.spec, job.cards);
    list(task, job, spot);
    // What had made the round look at it was taken off its list.
    if (job.answerBy != Nanos(0) && job.answerBy <= rounds_.now()) {
      overdue_.push_front({job.answerBy, task});
    }
  }
}

void Tasks::choosePriority(Score priority) {
  if (!rounds_.open().priority) rounds_.open().priority = priority_;
  loadPriority(priority);
}

void Tasks::loadPriority(Score priority) {
  priority_ = priority;
  ledger_.setPriority(priority);
}

void Tasks::loadNumbers(std::uint64_t first, std::uint64_t next) {
  firstTask_ = first;
  nextTask_ = std::max(nextTask_, next);
}

void Tasks::load(const std::vector<StoredRow>& rows) {
  std::map<std::uint64_t, Job> ended;
  for (const StoredRow& stored : rows) {
    const schema::Row::Reader row = readRow(stored);
    if (!row.isClusterTask()) continue;
    const std::uint64_t id = stored.key.id;
    numberAbove(id);
    Job job = readJob(row.getClusterTask());
    if (job.endedUnixMs != 0) {
      ended.emplace(id, std::move(job));
    } else {
      loadTask(id, std::move(job));
    }
  }
  loadEnded(std::move(ended));
}

Job Tasks::readJob(schema::ClusterTaskRow::Reader row) const {
  const auto stored = row.getTask();
  Job job;
  job.epoch = stored.getEpoch();
  job.spec = readClusterSpec(stored.getSpec());
  job.state = readState(stored.getState());
  job.again = row.getAgain();
  job.adopted = row.getAdopted();
  job.forwarded = row.getForwarded();
  job.groupStarted = row.getGroupStarted();
  job.cards = readTexts(stored.getCards(), kNodeCardsMax);
  job.nodeTask = stored.getNodeTask();
  job.token = text(row.getToken());
  job.submittedUnixMs = stored.getSubmittedUnixMs();
  job.boundUnixMs = stored.getBoundUnixMs();
  job.endedUnixMs = row.getEndedUnixMs();
  job.reason = text(stored.getReason());
  if (job.boundUnixMs != 0) job.phase = TaskPhase::Bound;
  job.member = members_.find(text(stored.getNode()));
  const auto making = row.getMaking();
  const std::optional<MemberId> host = members_.find(text(making.getNode()));
  if (!host || making.getVictims().size() == 0) return job;
  RoomMaking& room = job.making.emplace();
  room.member = *host;
  room.cards = readTexts(making.getCards(), kNodeCardsMax);
  for (const auto victim : making.getVictims()) {
    room.victims.emplace_back(victim.getTask(), victim.getEpoch());
  }
  return job;
}

// Where nobody can hold it, it waits.
void Tasks::loadTask(std::uint64_t id, Job job) {
  if (!job.member) job.state = PlaceState::Waiting;
  if (job.state == PlaceState::Assumed) QGPU_MARK(RestartedMidBind);
  if (job.state == PlaceState::Ending) QGPU_MARK(RestartedMidEnd);
  if (!job.spec.task.requestId.empty()) {
    requests_[{job.spec.task.ownerUid, job.spec.task.requestId}] = id;
  }
  list(id, job, std::nullopt);
  jobs_.emplace(id, std::move(job));
}

// As they ended. A request that was used again belongs to the task that lives.
void Tasks::loadEnded(std::map<std::uint64_t, Job> ended) {
  std::set<std::pair<std::uint64_t, std::uint64_t>> order;
  for (const auto& [id, job] : ended) order.emplace(job.endedUnixMs, id);
  for (const auto& [endedAt, id] : order) {
    Job& job = ended.at(id);
    job.phase = TaskPhase::Exited;
    const RequestKey key{job.spec.task.ownerUid, job.spec.task.requestId};
    const auto [request, isNew] = requests_.emplace(key, id);
    if (!isNew && !jobs_.contains(request->second)) request->second = id;
    keepEnded(id, std::move(job));
  }
}

}  // namespace qgpu
