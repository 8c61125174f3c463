// What doors ask: questions are answered from the index, everything else becomes part of a round.
// Peers are as the kernel or TLS told the doors.
#include <algorithm>

#include "actors/scheduler/scheduler_actor.h"
#include "runtime/planted.h"

namespace qgpu {
namespace {

Who whoOf(schema::ClusterRequest::Reader request) {
  return {request.getPeerUid(), request.getPeerPid(), request.getMayChange(),
          text(request.getPeerName())};
}

Error unavailable(const std::string& why) {
  return fail(ErrorCode::Unavailable, "nothing can be stored now (" + why +
                                          "): try again when it can");
}

bool isQuestion(schema::ClusterRequest::Which which) {
  switch (which) {
    case schema::ClusterRequest::INFO:
    case schema::ClusterRequest::NODES:
    case schema::ClusterRequest::CARDS:
    case schema::ClusterRequest::TASKS:
    case schema::ClusterRequest::EXPLAIN:
    case schema::ClusterRequest::EXPLAIN_SPEC:
    case schema::ClusterRequest::WHAT_IF:
    case schema::ClusterRequest::PREEMPT:
    case schema::ClusterRequest::EVENTS:
    case schema::ClusterRequest::ASSIGNED:
    case schema::ClusterRequest::WATCH: return true;
    default: return false;
  }
}

bool openToAll(schema::ClusterRequest::Which which) {
  return which == schema::ClusterRequest::SUBMIT || which == schema::ClusterRequest::DELETE;
}

ListPart partOf(schema::ClusterRequest::Reader request) {
  if (!request.hasPage()) return {};
  const std::size_t most = request.getPage().getMost();
  const std::size_t limit = SchedulerActor::kPageMost;
  return {request.getPage().getAfter(), most == 0 ? limit : std::min(most, limit)};
}

std::string describe(const ClusterSpec& spec) {
  std::string said = spec.task.name + ": " + className(spec.task.taskClass) + ", " +
                     std::to_string(spec.task.mem / gibibytes(1)) + " GiB";
  if (spec.task.cards > 1) {
    said += ", " + std::to_string(spec.task.cards) + " whole cards";
  } else if (spec.task.taskClass != TaskClass::Online) {
    said += ", " + percentText(spec.task.share) + " percent";
  }
  return said;
}

}  // namespace

void SchedulerActor::onClusterRequest(schema::ClusterRequest::Reader request, Turn& turn) {
  const Asker asker{turn.sender(), request.getCorr()};
  if (asker.door == ActorId::kNobody) return;
  if (asked_.size() >= kRequestsMax || outbox_.size() > kOutboxMax) {
    return replyFailed(asker, fail(ErrorCode::Overloaded, std::to_string(asked_.size()) +
                                                              " requests wait already: try again "
                                                              "in a moment"));
  }
  Words words(request.totalSize().wordCount + 1);
  capnp::copyToUnchecked(request, kj::arrayPtr(words.data(), words.size()));
  asked_.push_back({asker.door, std::move(words)});
}

void SchedulerActor::takeRequests(Turn& turn) {
  while (!asked_.empty() && !roundFull()) {
    const Asked asked = std::move(asked_.front());
    asked_.pop_front();
    const auto request =
        capnp::readMessageUnchecked<schema::ClusterRequest>(asked.words.data());
    onAsked({asked.door, request.getCorr()}, request, turn);
  }
}

// Questions are answered when the round is committed, so that nobody reads what may be undone.
void SchedulerActor::onAsked(const Asker& asker, schema::ClusterRequest::Reader request,
                             Turn& turn) {
  if (isQuestion(request.which())) {
    round_->askers.push_back(asker);
    return onQuestion(asker, request, turn);
  }
  if (!request.getMayChange() && !openToAll(request.which())) {
    return replyFailed(asker, fail(ErrorCode::Denied,
                                   "uid " + std::to_string(request.getPeerUid()) +
                                       " may not change this cluster: become root, the daemon's "
                                       "user, or a member of group qgpu"));
  }
  if (!storageOk_) return replyFailed(asker, unavailable(storageText_));
  const Status done = onChange(asker, request, turn);
  if (!done) return replyFailed(asker, done.error());
  round_->askers.push_back(asker);
}

void SchedulerActor::onQuestion(const Asker& asker, schema::ClusterRequest::Reader request,
                                Turn&) {
  switch (request.which()) {
    case schema::ClusterRequest::INFO:
      return after([this, asker](Turn& turn) { replyInfo(asker, turn); });
    case schema::ClusterRequest::NODES:
      return after([this, asker, part = partOf(request)](Turn&) { replyNodes(asker, part); });
    case schema::ClusterRequest::CARDS:
      return after([this, asker, part = partOf(request)](Turn&) { replyCards(asker, part); });
    case schema::ClusterRequest::TASKS: {
      if (request.getTasks().size() == 0) {
        return after([this, asker, part = partOf(request)](Turn&) {
          replyAllTasks(asker, part);
        });
      }
      std::vector<std::uint64_t> ids;
      for (const std::uint64_t id : request.getTasks()) {
        if (ids.size() < kTasksMax) ids.push_back(id);
      }
      return after([this, asker, ids = std::move(ids)](Turn&) { replyTasks(asker, ids); });
    }
    case schema::ClusterRequest::ASSIGNED:
      return after([this, asker, who = whoOf(request), task = request.getAssigned()](Turn&) {
        tellAssigned(asker, who, task);
      });
    case schema::ClusterRequest::EXPLAIN:
      return after([this, asker, task = request.getExplain()](Turn&) {
        explainTask(asker, task);
      });
    case schema::ClusterRequest::EXPLAIN_SPEC:
      return after([this, asker, spec = readClusterSpec(request.getExplainSpec())](Turn&) {
        explainSpec(asker, spec);
      });
    case schema::ClusterRequest::EVENTS:
      return after([this, asker, since = request.getEvents()](Turn&) {
        replyEvents(asker, since);
      });
    case schema::ClusterRequest::WATCH:
      return after([this, asker, on = request.getWatch()](Turn&) { watch(asker, on); });
    default: return planQuestion(asker, request);
  }
}

Status SchedulerActor::onChange(const Asker& asker, schema::ClusterRequest::Reader request,
                                Turn& turn) {
  const Who who = whoOf(request);
  switch (request.which()) {
    case schema::ClusterRequest::SUBMIT:
      return submit(asker, who, readClusterSpec(request.getSubmit()), turn);
    case schema::ClusterRequest::DELETE: return remove(asker, who, request.getDelete(), turn);
    case schema::ClusterRequest::CORDON: {
      const Mark mark{CardMark::Cordoned, 0, "cordoned"};
      return markTarget(asker, who, request.getCordon(), mark, turn);
    }
    case schema::ClusterRequest::UNCORDON: {
      const Mark mark{CardMark::Ready, 0, "uncordoned"};
      return markTarget(asker, who, request.getUncordon(), mark, turn);
    }
    case schema::ClusterRequest::DRAIN: {
      const auto drain = request.getDrain();
      const std::uint64_t ms = std::min(drain.getTimeoutNs() / 1'000'000, +kDrainMsMax);
      const Mark mark{CardMark::Draining, unixMs(turn) + ms, "draining"};
      return markTarget(asker, who, drain.getTarget(), mark, turn);
    }
    case schema::ClusterRequest::PRIORITY:
      return choosePriority(asker, who, readScore(request.getPriority()), turn);
    case schema::ClusterRequest::SNAPSHOT: return permit(asker, who, "snapshot", turn);
    case schema::ClusterRequest::LOG_LEVEL:
      return permit(asker, who, "loglevel " + text(request.getLogLevel()).substr(0, 16), turn);
    default:
      return fail(ErrorCode::Unsupported, "this scheduler does not know that request");
  }
}

// --- tasks ---

Status SchedulerActor::submit(const Asker& asker, const Who& who, ClusterSpec spec, Turn& turn) {
  TaskSpec& task = spec.task;
  if (!who.mayChange) task.ownerUid = who.uid;
  if (!who.mayChange && spec.preempt) {
    return fail(ErrorCode::Denied, "uid " + std::to_string(who.uid) +
                                       " may not evict tasks of others: submit without preempt, or "
                                       "become root, the daemon's user, or a member of group qgpu");
  }
  const auto known = requests_.find({task.ownerUid, task.requestId});
  const bool isKnown = known != requests_.end() && !QGPU_PLANTED(SubmitTakenAgain);
  if (!task.requestId.empty() && isKnown) {
    return repeated(asker, known->second, spec);
  }
  Job job;
  job.spec = std::move(spec);
  job.askers.push_back(asker);
  std::string said = describe(job.spec);
  const Result<std::uint64_t> id = admit(std::move(job), turn);
  if (!id) return id.error();
  if (waiting_.contains(*id)) {
    said += std::string("; waits: ") + reasonName(whyOf(*id, jobs_.at(*id)).reason);
  }
  audit("task-submitted", who, *id, "", said, turn);
  return ok();
}

Status SchedulerActor::repeated(const Asker& asker, std::uint64_t task, const ClusterSpec& spec) {
  const Job* living = this->task(task);
  const auto over = ended_.find(task);
  const Job* job = living != nullptr ? living : over == ended_.end() ? nullptr : &over->second;
  // What ends in this very round is known as ended after it.
  if (job == nullptr) return fail(ErrorCode::Unavailable, "the task ends just now: ask again");
  if (!sameAsk(job->spec, spec)) {
    return fail(ErrorCode::Conflict, "request '" + spec.task.requestId + "' is task " +
                                         std::to_string(task) +
                                         " and asked for something else: use a new request id");
  }
  if (living == nullptr && job->boundUnixMs == 0) {
    return fail(ErrorCode::Conflict, "request '" + spec.task.requestId + "' was task " +
                                         std::to_string(task) + ", which ended before it was "
                                         "bound: use a new request id");
  }
  if (job->askers.size() >= kAskersMax) {
    return fail(ErrorCode::Overloaded, "too many wait for this task already");
  }
  after([this, asker, task](Turn&) {
    const auto found = jobs_.find(task);
    if (found == jobs_.end()) return replyAssigned(asker, task);
    found->second.askers.push_back(asker);
    answerAskers(task);
  });
  return ok();
}

// Whether it may be a task at all, and then the place that it gets: a node, or the queue. A task
// that somebody waits for on its node does not wait.
Result<std::uint64_t> SchedulerActor::admit(Job job, Turn& turn) {
  job.spec.task.clusterTask = 0;
  job.spec.task.clusterEpoch = 0;
  const ClusterAsk ask = askOf(job.spec);
  Status valid = checkClusterSpec(job.spec);
  if (valid) valid = ledger_.check(ask);
  if (!valid) {
    count(Decided::Refused, Reason::InvalidRequest);
    return valid.error();
  }
  if (jobs_.size() >= kTasksMax) {
    return fail(ErrorCode::Overloaded, std::to_string(jobs_.size()) + " tasks are here already");
  }
  job.epoch = 1;
  job.submittedUnixMs = unixMs(turn);
  const std::uint64_t task = nextTask_;
  const auto wait = [&]() -> Result<std::uint64_t> {
    if (waiting_.full()) {
      return fail(ErrorCode::Overloaded, std::to_string(waiting_.size()) +
                                             " tasks wait already: try again later");
    }
    ++nextTask_;
    letWait(task, std::move(job), "");
    evictSoon(task);
    return task;
  };
  // What fits nowhere for an older task of the same shape fits nowhere for this one, unless that
  // one alone is kept off some node.
  if (!job.forwarded && gained_.empty() && olderAt_.empty() && waiting_.waitsAlike(ask)) {
    return wait();
  }
  Result<Spot> spot = choose(task, job);
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
  if (!job.forwarded && (mayCome || (known && nodesMissing()))) return wait();
  count(Decided::Refused, judge(ask).reason);
  if (!job.forwarded) return error;
  return fail(error.code, error.message + whereElse(job.spec));
}

// Nodes that are known by name and have not said yet what they are, lost ones too: until then
// nobody knows what would fit the cluster.
bool SchedulerActor::nodesMissing() const {
  return std::any_of(members_.begin(), members_.end(),
                     [](const ClusterMember& member) { return !member.node; });
}

std::string SchedulerActor::whereElse(ClusterSpec spec) {
  spec.node.clear();
  spec.task.card.clear();
  spec.task.ownerPid = 0;
  const Result<Spot> spot = ledger_.place(askOf(spec));
  if (!spot) return "; it fits nowhere else in the cluster either";
  std::string cards;
  for (const std::string& id : cardIds(*spot)) cards += (cards.empty() ? "" : ",") + id;
  return "; it would fit on node " + at(memberOf(spot->node)).facts.ledger.name + " (" + cards +
         "): submit it to the scheduler";
}

// A token is for who owns the task, or may change anything.
void SchedulerActor::tellAssigned(const Asker& asker, const Who& who, std::uint64_t task) {
  const Job* job = this->task(task);
  if (job == nullptr) {
    return replyFailed(asker, fail(ErrorCode::NotFound, "no task " + std::to_string(task) +
                                                            " lives in this cluster"));
  }
  if (!who.mayChange && who.uid != job->spec.task.ownerUid) {
    return replyFailed(asker, fail(ErrorCode::Denied, "task " + std::to_string(task) +
                                                          " belongs to uid " +
                                                          std::to_string(
                                                              job->spec.task.ownerUid)));
  }
  replyAssigned(asker, task);
}

Status SchedulerActor::remove(const Asker& asker, const Who& who, std::uint64_t task, Turn& turn) {
  const auto found = jobs_.find(task);
  if (found == jobs_.end()) {
    return fail(ErrorCode::NotFound, "no task " + std::to_string(task) + " in this cluster");
  }
  const Job& job = found->second;
  if (!who.mayChange && who.uid != job.spec.task.ownerUid) {
    return fail(ErrorCode::Denied, "task " + std::to_string(task) + " belongs to uid " +
                                       std::to_string(job.spec.task.ownerUid) +
                                       ": only it, root or group qgpu may end it");
  }
  audit("task-deleted", who, task, "", describe(job.spec), turn);
  const std::string name = "task " + std::to_string(task);
  std::string said = name + " ended";
  const bool held = job.state != PlaceState::Waiting && job.state != PlaceState::Lost;
  if (!held || QGPU_PLANTED(EndedBeforeNode)) {
    erase(task, "deleted");
  } else {
    said = name + " ends: node " + at(*job.member).facts.ledger.name + " is told";
    beginEnd(task, false, "deleted");
  }
  after([this, asker, said](Turn&) { replyDone(asker, said); });
  return ok();
}

// --- the rest ---

Status SchedulerActor::choosePriority(const Asker& asker, const Who& who, Score score,
                                      Turn& turn) {
  if (score == Score::ClassDefault) {
    return fail(ErrorCode::InvalidArgument, "a priority is binpack, spread or fgd");
  }
  if (!round_->priority) round_->priority = priority_;
  priority_ = score;
  ledger_.setPriority(score);
  audit("priority-changed", who, 0, "", scoreName(score), turn);
  after([this, asker, score](Turn&) {
    replyDone(asker, std::string("ordinary tasks are placed by ") + scoreName(score));
  });
  return ok();
}

Status SchedulerActor::permit(const Asker& asker, const Who& who, const std::string& what,
                              Turn& turn) {
  audit("permitted", who, 0, "", what, turn);
  after([this, asker, what](Turn&) { replyDone(asker, what); });
  return ok();
}

// One entry for each door: a door passes events on to its own watchers.
void SchedulerActor::watch(const Asker& asker, bool on) {
  if (!on) {
    watchers_.erase(asker.door);
  } else if (watchers_.size() < kWatchersMax) {
    watchers_.insert(asker.door);
  } else if (!watchers_.contains(asker.door)) {
    return replyFailed(asker, fail(ErrorCode::Overloaded, std::to_string(watchers_.size()) +
                                                              " doors watch already"));
  }
  replyDone(asker, on ? "events from now on" : "no more events");
}

}  // namespace qgpu
