#include "actors/scheduler/requests.h"

#include <algorithm>

#include "runtime/planted.h"

namespace qgpu {
namespace {

Who whoOf(schema::ClusterRequest::Reader request) {
  return {request.getPeerUid(), request.getPeerPid(), request.getMayChange(),
          text(request.getPeerName())};
}

Error unavailable(const std::string& why) {
  return fail(ErrorCode::Unavailable,
              "nothing can be stored now (" + why + "): try again when it can");
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
    case schema::ClusterRequest::WATCH:
    case schema::ClusterRequest::LIMITS:
    case schema::ClusterRequest::TOKENS:
      return true;
    default:
      return false;
  }
}

bool openToAll(schema::ClusterRequest::Which which) {
  return which == schema::ClusterRequest::SUBMIT || which == schema::ClusterRequest::DELETE;
}

ListPart partOf(schema::ClusterRequest::Reader request) {
  if (!request.hasPage()) return {};
  const std::size_t most = request.getPage().getMost();
  const std::size_t limit = Requests::kPageMost;
  return {request.getPage().getAfter(), most == 0 ? limit : std::min(most, limit)};
}

std::string describe(const ClusterSpec& spec) {
  std::string said =
      spec.task.name + ": " + className(spec.task.taskClass) + ", " + sizeText(spec.task.mem);
  if (spec.task.cards > 1) {
    said += ", " + std::to_string(spec.task.cards) + " whole cards";
  } else if (spec.task.taskClass != TaskClass::Online) {
    said += ", " + percentText(spec.task.share) + " percent";
  }
  return said;
}

}  // namespace

void Requests::onClusterRequest(schema::ClusterRequest::Reader request, Turn& turn) {
  const Asker asker{turn.sender(), request.getCorr()};
  if (asker.client == ActorId::kNobody) return;
  if (asked_.size() >= kRequestsMax || rounds_.outbox().size() > kOutboxMax) {
    return rounds_.replyFailed(asker,
                               fail(ErrorCode::Overloaded, std::to_string(asked_.size()) +
                                                               " requests wait already: try again "
                                                               "in a moment"));
  }
  asked_.push_back({asker.client, flatten(request)});
}

void Requests::take() {
  while (!asked_.empty() && !rounds_.full()) {
    const Asked asked = std::move(asked_.front());
    asked_.pop_front();
    const auto request = capnp::readMessageUnchecked<schema::ClusterRequest>(asked.words.data());
    onAsked({asked.client, request.getCorr()}, request);
  }
}

// Questions are answered when the round is committed, so that nobody reads what may be undone; and
// a change is refused then, since what refuses it may be undone too.
void Requests::onAsked(const Asker& asker, schema::ClusterRequest::Reader request) {
  if (isQuestion(request.which())) {
    rounds_.open().askers.push_back(asker);
    return onQuestion(asker, request);
  }
  if (!request.getMayChange() && !openToAll(request.which())) {
    return rounds_.replyFailed(
        asker,
        fail(ErrorCode::Denied, "uid " + std::to_string(request.getPeerUid()) +
                                    " may not change this cluster: become root, the daemon's "
                                    "user, or a member of group qgpu"));
  }
  if (!rounds_.shell().storageOk())
    return rounds_.replyFailed(asker, unavailable(rounds_.shell().storageText()));
  rounds_.open().askers.push_back(asker);
  const Status done = onChange(asker, request);
  if (done) return;
  rounds_.after([this, asker, error = done.error()](Turn&) { rounds_.replyFailed(asker, error); });
}

void Requests::onQuestion(const Asker& asker, schema::ClusterRequest::Reader request) {
  switch (request.which()) {
    case schema::ClusterRequest::INFO:
      return rounds_.after([this, asker](Turn&) {
        reports_.info(asker, startedAt_ ? rounds_.now() - *startedAt_ : Nanos(0));
      });
    case schema::ClusterRequest::NODES:
      return rounds_.after(
          [this, asker, part = partOf(request)](Turn&) { reports_.nodes(asker, part); });
    case schema::ClusterRequest::CARDS:
      return rounds_.after(
          [this, asker, part = partOf(request)](Turn&) { reports_.cards(asker, part); });
    case schema::ClusterRequest::TASKS: {
      if (request.getTasks().size() == 0) {
        return rounds_.after(
            [this, asker, part = partOf(request)](Turn&) { reports_.allTasks(asker, part); });
      }
      std::vector<std::uint64_t> ids;
      for (const std::uint64_t id : request.getTasks()) {
        if (ids.size() < Tasks::kTasksMax) ids.push_back(id);
      }
      return rounds_.after(
          [this, asker, ids = std::move(ids)](Turn&) { reports_.tasks(asker, ids); });
    }
    case schema::ClusterRequest::ASSIGNED:
      return rounds_.after([this, asker, who = whoOf(request), task = request.getAssigned()](
                               Turn&) { tellAssigned(asker, who, task); });
    case schema::ClusterRequest::EXPLAIN:
      return rounds_.after(
          [this, asker, task = request.getExplain()](Turn&) { reports_.explainTask(asker, task); });
    case schema::ClusterRequest::EXPLAIN_SPEC:
      return rounds_.after([this, asker, spec = readClusterSpec(request.getExplainSpec())](Turn&) {
        reports_.explainSpec(asker, spec);
      });
    case schema::ClusterRequest::EVENTS:
      return rounds_.after(
          [this, asker, since = request.getEvents()](Turn&) { reports_.events(asker, since); });
    case schema::ClusterRequest::WATCH:
      return rounds_.after([this, asker, on = request.getWatch()](Turn&) { watch(asker, on); });
    case schema::ClusterRequest::LIMITS:
      return rounds_.after([this, asker](Turn&) {
        rounds_.reply(asker, [this](schema::ClusterReply::Builder answer) {
          unsigned next = 0;
          auto add = [&, list = answer.initLimits(5)](const char* what, std::size_t now,
                                                      std::size_t most,
                                                      const char* beyond) mutable {
            auto limit = list[next++];
            limit.setWhat(what);
            limit.setNow(now);
            limit.setMost(most);
            limit.setBeyond(beyond);
          };
          add("nodes", members_.size(), Membership::kMembersMax, "a new node is refused");
          add("tasks", tasks_.all().size(), Tasks::kTasksMax, "a submit is refused");
          add("tasks that wait", waiting_.queue().size(), WaitQueue::kTasksMax,
              "a submit without room now is refused");
          add("requests that wait", asked_.size(), kRequestsMax, "one more is refused: ask again");
          add("messages that wait to leave", rounds_.outbox().size(), kOutboxMax,
              "every request is refused: try again");
        });
      });
    case schema::ClusterRequest::TOKENS:
      return rounds_.after([this, asker](Turn&) { tellTokens(asker, ""); });
    default:
      return plans_.ask(asker, request);
  }
}

Status Requests::onChange(const Asker& asker, schema::ClusterRequest::Reader request) {
  const Who who = whoOf(request);
  switch (request.which()) {
    case schema::ClusterRequest::SUBMIT:
      return submit(asker, who, readClusterSpec(request.getSubmit()));
    case schema::ClusterRequest::DELETE:
      return remove(asker, who, request.getDelete());
    case schema::ClusterRequest::CORDON: {
      const Drains::Mark mark{CardMark::Cordoned, 0, "cordoned"};
      return drains_.mark(asker, who, request.getCordon(), mark);
    }
    case schema::ClusterRequest::UNCORDON: {
      const Drains::Mark mark{CardMark::Ready, 0, "uncordoned"};
      return drains_.mark(asker, who, request.getUncordon(), mark);
    }
    case schema::ClusterRequest::DRAIN: {
      const auto drain = request.getDrain();
      const std::uint64_t ms = std::min(drain.getTimeoutNs() / 1'000'000, +Drains::kDrainMsMax);
      const Drains::Mark mark{CardMark::Draining, rounds_.unixMs() + ms, "draining"};
      return drains_.mark(asker, who, drain.getTarget(), mark);
    }
    case schema::ClusterRequest::PRIORITY:
      return choosePriority(asker, who, readScore(request.getPriority()));
    case schema::ClusterRequest::SNAPSHOT:
      return permit(asker, who, "snapshot");
    case schema::ClusterRequest::SAVE:
      return permit(asker, who, "snapshot save");
    case schema::ClusterRequest::INVITE:
      return invite(asker, who, request.getInvite());
    case schema::ClusterRequest::REVOKE:
      return revoke(asker, who, text(request.getRevoke()));
    case schema::ClusterRequest::ADMIT:
      return admit(asker, who, request.getAdmit());
    case schema::ClusterRequest::LOG_LEVEL:
      return permit(asker, who, "loglevel " + text(request.getLogLevel()).substr(0, 16));
    default:
      return fail(ErrorCode::Unsupported, "this scheduler does not know that request");
  }
}

// --- tasks ---

Status Requests::submit(const Asker& asker, const Who& who, ClusterSpec spec) {
  TaskSpec& task = spec.task;
  if (!who.mayChange) task.ownerUid = who.uid;
  if (!who.mayChange && spec.preempt) {
    return fail(ErrorCode::Denied, "uid " + std::to_string(who.uid) +
                                       " may not evict tasks of others: submit without preempt, or "
                                       "become root, the daemon's user, or a member of group qgpu");
  }
  const std::optional<std::uint64_t> known = tasks_.ofRequest(task.ownerUid, task.requestId);
  if (known && !QGPU_PLANTED(SubmitTakenAgain)) return repeated(asker, *known, spec);
  Job job;
  job.spec = std::move(spec);
  job.askers.push_back(asker);
  std::string said = describe(job.spec);
  const Result<std::uint64_t> id = tasks_.admit(std::move(job));
  if (!id) return id.error();
  if (waiting_.queue().contains(*id)) {
    said += std::string("; waits: ") + reasonName(waiting_.why(*id, tasks_.at(*id)).reason);
  }
  rounds_.audit("task-submitted", who, *id, "", said);
  return ok();
}

Status Requests::repeated(const Asker& asker, std::uint64_t task, const ClusterSpec& spec) {
  const Job* job = tasks_.known(task);
  // What ends in this very round is known as ended after it.
  if (job == nullptr) return fail(ErrorCode::Unavailable, "the task ends just now: ask again");
  if (!sameAsk(job->spec, spec)) {
    return fail(ErrorCode::Conflict, "request '" + spec.task.requestId + "' is task " +
                                         std::to_string(task) +
                                         " and asked for something else: use a new request id");
  }
  if (tasks_.find(task) == nullptr && job->boundUnixMs == 0) {
    return fail(ErrorCode::Conflict, "request '" + spec.task.requestId + "' was task " +
                                         std::to_string(task) +
                                         ", which ended before it was "
                                         "bound: use a new request id");
  }
  return tasks_.addAsker(task, asker);
}

// A token is for who owns the task, or may change anything.
void Requests::tellAssigned(const Asker& asker, const Who& who, std::uint64_t task) {
  const Job* job = tasks_.find(task);
  if (job == nullptr) {
    return rounds_.replyFailed(asker, fail(ErrorCode::NotFound, "no task " + std::to_string(task) +
                                                                    " lives in this cluster"));
  }
  if (!who.mayChange && who.uid != job->spec.task.ownerUid) {
    return rounds_.replyFailed(
        asker, fail(ErrorCode::Denied, "task " + std::to_string(task) + " belongs to uid " +
                                           std::to_string(job->spec.task.ownerUid)));
  }
  tasks_.replyAssigned(asker, task);
}

Status Requests::remove(const Asker& asker, const Who& who, std::uint64_t task) {
  const Job* found = tasks_.find(task);
  if (found == nullptr) {
    return fail(ErrorCode::NotFound, "no task " + std::to_string(task) + " in this cluster");
  }
  const Job& job = *found;
  if (!who.mayChange && who.uid != job.spec.task.ownerUid) {
    return fail(ErrorCode::Denied, "task " + std::to_string(task) + " belongs to uid " +
                                       std::to_string(job.spec.task.ownerUid) +
                                       ": only it, root or group qgpu may end it");
  }
  rounds_.audit("task-deleted", who, task, "", describe(job.spec));
  const std::string name = "task " + std::to_string(task);
  std::string said = name + " ended";
  const bool held = job.state != PlaceState::Waiting && job.state != PlaceState::Lost;
  if (!held || QGPU_PLANTED(EndedBeforeNode)) {
    tasks_.erase(task, "deleted");
  } else {
    said = name + " ends: node " + members_.name(*job.member) + " is told";
    tasks_.beginEnd(task, false, "deleted");
  }
  rounds_.after([this, asker, said](Turn&) { rounds_.replyDone(asker, said); });
  return ok();
}

// --- machines that join ---

// They go into the cluster's row with this round, and are undone with it.
JoinTokens& Requests::changeTokens() {
  Round& round = rounds_.open();
  if (!round.tokens) round.tokens = joinTokens_.all();
  return joinTokens_;
}

Status Requests::invite(const Asker& asker, const Who& who, schema::Invite::Reader invite) {
  const JoinToken token{text(invite.getId()), text(invite.getNode()), text(invite.getHash())};
  const Status made = changeTokens().make(token, invite.getTtlNs() / 1'000'000, rounds_.unixMs());
  if (!made) return made;
  rounds_.audit("token-created", who, 0, token.node, "token " + token.id);
  rounds_.after([this, asker, id = token.id](Turn&) { tellTokens(asker, id); });
  return ok();
}

Status Requests::revoke(const Asker& asker, const Who& who, const std::string& id) {
  const JoinToken* token = joinTokens_.find(id);
  const std::string node = token == nullptr ? "" : token->node;
  if (const Status done = changeTokens().revoke(id); !done) return done;
  rounds_.audit("token-revoked", who, 0, node, "token " + id);
  rounds_.after([this, asker, id](Turn&) { rounds_.replyDone(asker, "token " + id + " is gone"); });
  return ok();
}

// A guess costs nothing that is stored, and is told now and then; of a token that there is, a few
// tries are all.
Status Requests::admit(const Asker& asker, const Who& who, schema::Admission::Reader shown) {
  const std::string id = text(shown.getId()), node = text(shown.getNode());
  const JoinToken* token = joinTokens_.find(id);
  const std::uint32_t tries = token == nullptr ? 0 : token->triesLeft;
  std::vector<JoinToken> before = joinTokens_.all();
  const Status used = joinTokens_.use(id, text(shown.getHash()), node, rounds_.unixMs());
  const bool failedTry = token != nullptr && token->triesLeft != tries;
  Round& round = rounds_.open();
  if ((used || failedTry) && !round.tokens) round.tokens = std::move(before);
  if (used) {
    rounds_.audit("join-granted", who, 0, node, "a certificate, by token " + id);
    rounds_.after([this, asker](Turn&) { rounds_.replyDone(asker, "admitted"); });
  } else if (failedTry) {
    const bool guessed = used.error().code == ErrorCode::NotFound;
    rounds_.audit("join-refused", who, 0, token->node,
                  "token " + id + ", " + std::to_string(token->triesLeft) +
                      " tries left: " + (guessed ? "a wrong secret" : "for another node"));
  } else if (!refusedAt_ || rounds_.now() - *refusedAt_ >= kGuessesToldEvery) {
    refusedAt_ = rounds_.now();
    rounds_.note("join-refused", 0, "", "with a token that is none, or good no more");
  }
  return used;
}

// The one of this id; without any, all.
void Requests::tellTokens(const Asker& asker, const std::string& id) {
  std::vector<JoinToken> told;
  for (const JoinToken& token : joinTokens_.all()) {
    if (id.empty() || token.id == id) told.push_back(token);
  }
  rounds_.reply(asker, [now = rounds_.unixMs(), told](schema::ClusterReply::Builder answer) {
    auto list = answer.initTokens(static_cast<unsigned>(told.size()));
    for (unsigned i = 0; i < list.size(); ++i) {
      list[i].setId(told[i].id);
      list[i].setNode(told[i].node);
      list[i].setState(JoinTokens::stateOf(told[i], now));
      list[i].setTriesLeft(told[i].triesLeft);
      list[i].setUntilUnixMs(told[i].untilUnixMs);
    }
  });
}

// --- the rest ---

Status Requests::choosePriority(const Asker& asker, const Who& who, Score score) {
  if (score == Score::ClassDefault) {
    return fail(ErrorCode::InvalidArgument, "a priority is binpack, spread or fgd");
  }
  tasks_.choosePriority(score);
  rounds_.audit("priority-changed", who, 0, "", scoreName(score));
  rounds_.after([this, asker, score](Turn&) {
    rounds_.replyDone(asker, std::string("ordinary tasks are placed by ") + scoreName(score));
  });
  return ok();
}

Status Requests::permit(const Asker& asker, const Who& who, const std::string& what) {
  rounds_.audit("permitted", who, 0, "", what);
  rounds_.after([this, asker, what](Turn&) { rounds_.replyDone(asker, what); });
  return ok();
}

void Requests::watch(const Asker& asker, bool on) {
  if (const Status done = rounds_.feed().watch(asker.client, on); !done) {
    return rounds_.replyFailed(asker, done.error());
  }
  rounds_.replyDone(asker, on ? "events from now on" : "no more events");
}

}  // namespace qgpu
