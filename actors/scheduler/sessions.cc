#include "actors/scheduler/sessions.h"

#include <algorithm>
#include <memory>

#include "actors/base/codec.h"
#include "actors/base/tenant_variables.h"
#include "runtime/planted.h"

namespace qgpu {
namespace {

constexpr std::uint64_t kTermMax = std::uint64_t{1} << 31;  // sessions keep 32 bits for it
constexpr std::uint64_t kTaskMax = std::uint64_t{1} << 62;

schema::FromMember::Reader readMessage(const Words& words) {
  return capnp::readMessageUnchecked<schema::FromMember>(words.data());
}

}  // namespace

// --- what arrives ---

void Sessions::onFromMember(schema::FromMember::Reader said, Turn& turn) {
  const std::uint32_t link = said.getLink();
  if (!said.isHello() && !said.isLost()) {
    switch (members_.membership().arrived(link, said.getSession(), said.getSeq())) {
      case Membership::Arrival::Stale:
        QGPU_MARK(StaleWords);
        return;
      case Membership::Arrival::Gap:
        members_.turnAway(
            link, fail(ErrorCode::Conflict, "messages of this session were lost: start anew"));
        return closeLink(link);
      case Membership::Arrival::Taken:
        break;
    }
    if (said.isBeat()) return onBeat(link, said.getSession(), said.getBeat(), turn);
  }
  if (said.isForward() && !rounds_.shell().storageOk()) {
    return tellForwarded(
        *members_.membership().memberOf(link), said.getForward().getCorr(),
        fail(ErrorCode::Unavailable, "storage failed (" + rounds_.shell().storageText() + ")"));
  }
  if (heard_.size() >= kHeardMax) {
    members_.turnAway(link,
                      fail(ErrorCode::Overloaded, "too many nodes speak at once: try again later"));
    return closeLink(link);
  }
  heard_.push_back({flatten(said), turn.now()});
}

void Sessions::onBeat(std::uint32_t link, std::uint64_t session, std::uint64_t ns, Turn& turn) {
  if (members_.membership().beat(link, turn.now())) {
    const MemberId member = *members_.membership().memberOf(link);
    members_.setLife(member, NodeLife::Alive);
    rounds_.note("node-alive", 0, members_.name(member), "it beats again");
  }
  turn.sendUrgent(peers_.links, [&](schema::Envelope::Builder envelope) {
    auto seen = envelope.initToMember();
    seen.setLink(link);
    seen.setSession(session);
    seen.setTerm(members_.term());
    seen.setBeatSeen(ns);
  });
}

void Sessions::take() {
  while (members_.started() && !heard_.empty() && !rounds_.full()) {
    Heard heard = std::move(heard_.front());
    heard_.pop_front();
    const schema::FromMember::Reader reader = readMessage(heard.message);
    onMessage(reader, heard.at);
    if (!reader.isForward()) rounds_.open().messages.push_back(std::move(heard));
  }
}

void Sessions::onMessage(schema::FromMember::Reader said, Nanos heardAt) {
  const std::uint32_t link = said.getLink();
  if (said.isHello()) return onHello(link, said.getHello(), heardAt);
  if (said.isLost()) return closeLink(link);
  const std::optional<MemberId> member = members_.membership().memberOf(link);
  if (!member || members_.membership().session(*member) != said.getSession()) return;
  switch (said.which()) {
    case schema::FromMember::FACTS: {
      Result<MemberFacts> facts = readMemberFacts(said.getFacts());
      if (!facts || facts->ledger.name != members_.name(*member)) return;
      return takeFacts(*member, std::move(*facts));
    }
    case schema::FromMember::TASKS:
      for (const auto entry : said.getTasks()) {
        if (const auto task = onHeld(*member, readHeld(entry))) askForToken(*task);
      }
      return;
    case schema::FromMember::BOUND:
      return onBound(*member, said.getBound());
    case schema::FromMember::REFUSED:
      return onRefused(*member, said.getRefused());
    case schema::FromMember::FORWARD:
      return onForward(*member, said.getForward());
    default:
      return;
  }
}

void Sessions::refuseForwards(const Error& error) {
  std::deque<Heard> kept;
  for (Heard& heard : heard_) {
    const schema::FromMember::Reader reader = readMessage(heard.message);
    const std::optional<MemberId> member = members_.membership().memberOf(reader.getLink());
    if (!reader.isForward()) {
      kept.push_back(std::move(heard));
    } else if (member) {
      tellForwarded(*member, reader.getForward().getCorr(), error);
    }
  }
  heard_ = std::move(kept);
}

// --- sessions ---

void Sessions::closeLink(std::uint32_t link) {
  const std::optional<MemberId> member = members_.membership().close(link);
  if (!member) return;
  rounds_.note("node-disconnected", 0, members_.name(*member),
               "its connection is over; it is lost after the fence time");
  members_.setLife(*member, members_.membership().life(*member));
}

// A later term was seen, so another scheduler acted since this one's store was written; or this
// term, by a node that was never welcomed here: the other one began on a new store as well.
bool Sessions::actedElsewhere(std::uint64_t termSeen, const std::string& name) const {
  if (termSeen != members_.term()) return termSeen > members_.term();
  const std::optional<MemberId> member = members_.find(name);
  return !member || !members_.at(*member).node;
}

// Nobody is served until a higher term than that is committed here (C1).
void Sessions::standDown(std::uint64_t termSeen) {
  const Error error = fail(ErrorCode::Conflict, "term " + std::to_string(termSeen) +
                                                    " was seen elsewhere, and this is term " +
                                                    std::to_string(members_.term()));
  for (const std::uint32_t link : members_.membership().links()) {
    members_.turnAway(link, error);
    closeLink(link);
  }
  rounds_.note("stood-down", 0, "", error.message);
  members_.standDown(termSeen);
}

// A lease runs from the hello, however long that waited for the storage: what is older has none.
void Sessions::onHello(std::uint32_t link, schema::MemberHello::Reader hello, Nanos heardAt) {
  const auto turnAway = [&](ErrorCode code, const char* why) {
    members_.turnAway(link, fail(code, why));
  };
  if (hello.getTermSeen() > kTermMax || hello.getTasks().size() > kHeldMax) {
    return turnAway(ErrorCode::InvalidArgument,
                    "a hello of this term and this many tasks is refused");
  }
  Result<MemberFacts> facts = readMemberFacts(hello.getFacts());
  if (!facts) return members_.turnAway(link, facts.error());
  if (actedElsewhere(hello.getTermSeen(), facts->ledger.name)) {
    turnAway(ErrorCode::Unavailable, "this scheduler raises its term: try again");
    return standDown(hello.getTermSeen());
  }
  if (rounds_.now() - heardAt > options_.times.lease) {
    return turnAway(ErrorCode::Unavailable,
                    "its hello waited for the storage for longer than a lease: say it again");
  }
  const Result<MemberId> member = members_.memberFor(facts->ledger.name, heardAt);
  if (!member) return members_.turnAway(link, member.error());
  const std::uint32_t before =
      members_.membership().session(*member) == 0 ? link : members_.membership().link(*member);
  const Result<std::uint64_t> session =
      members_.membership().open(*member, link, facts->incarnation, heardAt);
  if (!session) return members_.turnAway(link, session.error());
  if (before != link) {
    QGPU_MARK(SessionTakenOver);
    members_.turnAway(before, fail(ErrorCode::Conflict, "a later session took over"));
  }
  members_.joined(*member);
  places_.forgetOlder(*member);
  takeFacts(*member, std::move(*facts));
  members_.setLife(*member, NodeLife::Alive);
  rounds_.after([this, member = *member, nonce = hello.getNonce()](Turn&) {
    members_.tell(member, [this, nonce](schema::ToMember::Builder message) {
      auto welcome = message.initWelcome();
      welcome.setNonce(nonce);
      welcome.setLeaseNs(static_cast<std::uint64_t>(options_.times.lease.value));
      welcome.setBeatNs(static_cast<std::uint64_t>(options_.times.beat.value));
    });
    drains_.tellMarks(member);
    rounds_.note("node-joined", 0, members_.name(member), members_.at(member).facts.version);
  });
  std::set<std::uint64_t> said;
  for (const auto entry : hello.getTasks()) {
    if (const auto task = onHeld(*member, readHeld(entry))) said.insert(*task);
  }
  reconcile(*member, said);
}

void Sessions::takeFacts(MemberId member, MemberFacts facts) {
  members_.takeFacts(member, std::move(facts));
  evictions_.keepHosts(member);
}

// --- what a node holds ---

// What the scheduler believes there and the node did not name is over, or was never begun.
void Sessions::reconcile(MemberId member, const std::set<std::uint64_t>& said) {
  const std::set<std::uint64_t> believed = members_.at(member).jobs;
  for (const std::uint64_t task : believed) {
    if (!said.contains(task)) {
      ++over_;
      tasks_.nodeEnded(task, "its node says that it is over");
      continue;
    }
    Job& job = *tasks_.find(task);
    // Also of an earlier life of this scheduler, or asked for in vain.
    if (job.state == PlaceState::Bound && job.token.empty() && startsPrograms(member, job)) {
      job.tokenDue = true;
    }
    askForToken(task);
    if (job.state == PlaceState::Assumed) {  // the answer, and with it the token, was lost
      rounds_.after([this, task](Turn&) { tasks_.orderBind(task); });
    } else if (job.state == PlaceState::Ending) {
      rounds_.after([this, task](Turn&) { tasks_.orderEnd(task); });
    }
  }
}

// The task that it is here, where it goes on; nothing where it is over or its end is ordered.
std::optional<std::uint64_t> Sessions::onHeld(MemberId member, const HeldTask& held) {
  if (held.ended) places_.olderGone(member, held.clusterTask, held.epoch);
  std::optional<std::uint64_t> task;
  if (held.clusterTask != 0) {
    if (tasks_.find(held.clusterTask) != nullptr) task = held.clusterTask;
  } else if (const auto found = members_.at(member).adopted.find(held.nodeTask);
             found != members_.at(member).adopted.end()) {
    task = found->second;
  }
  if (!task) {
    if (held.ended) return std::nullopt;
    if (held.clusterTask == 0) return adopt(member, held, tasks_.nextNumber());
    // This store never numbered it, or did so before it was copied. What is over as far as it knows
    // lives by a later decision alone.
    const bool later = held.clusterTask >= tasks_.nextNumber() && held.clusterTask < kTaskMax;
    const bool other = later || held.clusterTask < tasks_.firstNumber();
    if (other && !tasks_.isOver(held.clusterTask, held.epoch)) {
      return adopt(member, held, held.clusterTask);
    }
  } else if (!tasks_.at(*task).member && held.epoch == tasks_.at(*task).epoch && !held.ended) {
    return takeLater(member, *task, held), task;  // the store has it from before it was placed
  } else if (held.clusterTask == 0 || held.epoch == tasks_.at(*task).epoch) {
    if (tasks_.at(*task).member == member) {
      if (!held.ended) return stillHeld(member, *task, held), task;
      tasks_.nodeEnded(*task, "its node says that it is over");
      return std::nullopt;
    }
  } else if (held.epoch > tasks_.at(*task).epoch && !held.ended) {
    return takeLater(member, *task, held), task;
  }
  if (held.ended || QGPU_PLANTED(UnknownTaskKept)) return std::nullopt;
  QGPU_MARK(OrphanEnded);
  places_.noteOlder(member, held);
  rounds_.after([this, member, held](Turn&) {
    tasks_.orderEndOf(member, held.clusterTask, held.epoch, held.nodeTask,
                      "decided otherwise since");
  });
  return std::nullopt;
}

// The store is older than this decision: the node that has the later epoch is right (P3).
void Sessions::takeLater(MemberId member, std::uint64_t task, const HeldTask& held) {
  Job job = tasks_.at(task);
  if (job.member && *job.member != member) {
    rounds_.after([this, from = *job.member, task, epoch = job.epoch, old = job.nodeTask](Turn&) {
      tasks_.orderEndOf(from, task, epoch, old, "a later decision was made");
    });
  }
  job.epoch = held.epoch;
  job.member = member;
  job.nodeTask = held.nodeTask;
  job.cards = held.cards;
  job.state = PlaceState::Bound;
  job.again = false;
  job.held = true;
  job.boundUnixMs = std::max<std::uint64_t>(job.boundUnixMs, 1);
  job.reason.clear();
  job.making.reset();
  job.groupStarted = !job.spec.group.empty();  // as far as anybody knows
  job.phase = held.phase;
  job.figures = held.figures;
  job.usedNs = held.usedNs;
  job.heldNs = held.heldNs;
  job.token.clear();
  job.tokenDue = true;
  const std::optional<Spot> spot = members_.spotOf(member, job.spec, job.cards);
  tasks_.put(task, std::move(job), spot);
  ++later_;
  noteTaken(member, task, held, "placed there by a later decision than the store has");
}

void Sessions::stillHeld(MemberId member, std::uint64_t task, const HeldTask& held) {
  Job& job = *tasks_.find(task);
  job.phase = held.phase;
  job.figures = held.figures;
  job.usedNs = held.usedNs;
  job.heldNs = held.heldNs;
  job.held = true;
  const bool back = job.state == PlaceState::Lost;
  if (back) QGPU_MARK(BackFromLoss);
  if (back || job.cards != held.cards) {
    Job now = job;
    if (back) now.state = now.boundUnixMs == 0 ? PlaceState::Assumed : PlaceState::Bound;
    now.cards = held.cards;
    const std::optional<Spot> spot = members_.spotOf(member, now.spec, now.cards);
    return tasks_.put(task, std::move(now), spot);
  }
  if (ledger_.spot(TaskId{task}) != nullptr) return;
  // As the row has it, so there is nothing to commit: only the index was built anew.
  if (const std::optional<Spot> spot = members_.spotOf(member, job.spec, job.cards)) {
    ledger_.bind(TaskId{task}, *spot, job.spec.application);
  }
}

std::uint64_t Sessions::adopt(MemberId member, const HeldTask& held, std::uint64_t task) {
  tasks_.numberAbove(task);
  Job job;
  job.adopted = held.clusterTask == 0;
  job.epoch = held.epoch;
  job.spec.task = held.spec;
  if (job.adopted || held.spec.ownerPid != 0) job.spec.node = members_.name(member);
  if (!job.adopted) job.spec.task.card.clear();  // it stands in each order, asked for or not
  job.state = PlaceState::Bound;
  job.member = member;
  job.cards = held.cards;
  job.nodeTask = held.nodeTask;
  job.submittedUnixMs = rounds_.unixMs();
  job.boundUnixMs = job.submittedUnixMs;
  job.phase = held.phase;
  job.figures = held.figures;
  job.held = true;
  job.tokenDue = !job.adopted;
  const std::optional<Spot> spot = members_.spotOf(member, job.spec, job.cards);
  const bool alone = job.adopted;
  const auto same = tasks_.ofRequest(held.spec.ownerUid, held.spec.requestId);
  tasks_.put(task, std::move(job), spot);
  if (same) dropDouble(*same, task);
  if (!alone) ++unknown_;
  noteTaken(member, task, held,
            alone ? "bound before its node joined" : "placed there, which the store did not know");
  return task;
}

// The same request was asked again of this store, which did not know of the task then.
void Sessions::dropDouble(std::uint64_t other, std::uint64_t task) {
  const Job* job = tasks_.find(other);
  if (other == task || job == nullptr || job->state != PlaceState::Waiting) return;
  tasks_.erase(other, "its request is task " + std::to_string(task) + ", which runs");
}

// Containers of pods are started without one, and their nodes tell of no variables for it.
bool Sessions::startsPrograms(MemberId member, const Job& job) const {
  return !job.adopted && !members_.at(member).facts.environment.empty();
}

// What a program of the cluster is started with stands in its node's answer to the order to bind
// it, so that one is repeated.
void Sessions::askForToken(std::uint64_t task) {
  if (!tasks_.at(task).tokenDue) return;
  rounds_.after([this, task](Turn&) { tasks_.orderBind(task); });
}

void Sessions::noteTaken(MemberId member, std::uint64_t task, const HeldTask& held,
                         const char* why) {
  std::string cards;
  for (const std::string& card : held.cards) cards += (cards.empty() ? "" : ",") + card;
  rounds_.after([this, task, member, text = held.spec.name + " on " + cards + ": " + why](Turn&) {
    rounds_.note("task-adopted", task, members_.name(member), text);
  });
}

std::string Sessions::gathered() const {
  return std::to_string(members_.membership().alive()) +
         " nodes said what they hold: " + std::to_string(unknown_) +
         " tasks were unknown here and are taken over, " + std::to_string(later_) +
         " are where a later decision put them, " + std::to_string(over_) +
         " that were known are over";
}

// --- answers to orders ---

void Sessions::onBound(MemberId member, schema::MemberBound::Reader bound) {
  const std::uint64_t task = bound.getTask();
  Job* found = tasks_.find(task);
  if (found == nullptr || found->member != member || found->epoch != bound.getEpoch()) {
    rounds_.after(
        [this, member, task, epoch = bound.getEpoch(), nodeTask = bound.getNodeTask()](Turn&) {
          tasks_.orderEndOf(member, task, epoch, nodeTask, "decided otherwise since");
        });
    return;
  }
  const bool first = found->state == PlaceState::Assumed;
  if (!first && (found->state != PlaceState::Bound || !found->token.empty())) return;
  Job job = *found;
  job.state = PlaceState::Bound;
  job.held = true;
  job.nodeTask = bound.getNodeTask();
  job.token = text(bound.getToken()).substr(0, kNameMax);
  if (!taskMayCarry("QGPU_TOKEN", job.token)) job.token.clear();
  job.tokenDue = false;
  if (first) job.boundUnixMs = std::max<std::uint64_t>(rounds_.unixMs(), 1);
  if (first) job.phase = TaskPhase::Bound;
  const std::vector<std::string> cards = readTexts(bound.getCards(), kNodeCardsMax);
  if (!cards.empty()) job.cards = cards;
  const std::optional<Spot> spot = members_.spotOf(member, job.spec, job.cards);
  const bool tells = first && !job.awaitsGroup();  // else as the group starts
  tasks_.put(task, std::move(job), spot);
  rounds_.after([this, task, member, tells](Turn&) {
    if (tells) rounds_.note("task-bound", task, members_.name(member), "its node holds it");
    tasks_.answerAskers(task);
  });
}

// Somewhere else at once where it fits, but not again and again: nodes that all refuse would be
// asked in turn for ever. The node that refused gets nothing more of what waits for a while, since
// its own account of its cards is on its way.
void Sessions::onRefused(MemberId member, schema::MemberRefused::Reader refused) {
  const std::uint64_t task = refused.getTask();
  Job* found = tasks_.find(task);
  if (found == nullptr || found->member != member || found->epoch != refused.getEpoch()) {
    return;
  }
  const std::string why = "refused by node " + members_.name(member) + ": " +
                          text(refused.getFailure().getMessage()).substr(0, 256);
  if (found->state == PlaceState::Ending) return tasks_.nodeEnded(task, why);
  if (std::exchange(found->tokenDue, false)) {  // it has none, and nobody waits for it any more
    rounds_.after([this, task](Turn&) { tasks_.answerAskers(task); });
  }
  if (found->state != PlaceState::Assumed) return;
  QGPU_MARK(RefusedByNode);
  const NodeId node = *members_.at(member).node;
  const bool gained = freed_.gained(node);
  const bool again =
      found->refusedAt != Nanos(0) && rounds_.now() - found->refusedAt < options_.refusedPause;
  found->refusedAt = rounds_.now();
  tasks_.placeAgain(task, why, again ? Tasks::Elsewhere::Later : Tasks::Elsewhere::Now, member);
  rounds_.after([this, task, why](Turn&) { rounds_.note("task-refused", task, "", why); });
  if (gained) return;
  freed_.forget(node);
  freed_.gainLater(node, rounds_.now() + options_.refusedPause);
}

// --- local tasks ---

void Sessions::onForward(MemberId member, schema::MemberForward::Reader forward) {
  const std::uint64_t corr = forward.getCorr();
  rounds_.open().forwards.emplace_back(member, corr);
  Job job;
  job.spec = readClusterSpec(forward.getSpec());
  job.spec.preempt = false;  // whoever asked there may have no right to it
  job.spec.group.clear();    // nor does he wait for others
  job.spec.groupSize = 0;
  job.spec.node = members_.name(member);
  job.spec.task.ownerUid = forward.getUid();
  job.forwarded = true;
  const TaskSpec& spec = job.spec.task;
  const std::optional<std::uint64_t> known = tasks_.ofRequest(spec.ownerUid, spec.requestId);
  Result<std::uint64_t> task = std::uint64_t{0};
  if (!known) {
    task = tasks_.admit(std::move(job));
  } else {
    task = *known;
    const Job* same = tasks_.find(*task);
    if (same == nullptr || same->member != member || !sameAsk(same->spec, job.spec)) {
      task = fail(ErrorCode::Conflict, "request '" + spec.requestId + "' was task " +
                                           std::to_string(*task) + ": use a new request id");
    } else {
      rounds_.after([this, task = *task](Turn&) { tasks_.orderBind(task); });
    }
  }
  rounds_.after([this, member, corr, task](Turn&) { tellForwarded(member, corr, task); });
}

void Sessions::tellForwarded(MemberId member, std::uint64_t corr,
                             const Result<std::uint64_t>& result) {
  members_.tell(member, [corr, result](schema::ToMember::Builder message) {
    auto forwarded = message.initForwarded();
    forwarded.setCorr(corr);
    if (result) return forwarded.setTask(*result);
    writeFailure(result.error(), forwarded.initFailed());
  });
}

// --- leases ---

void Sessions::lookAtLeases() {
  for (const Membership::Moved& moved : members_.membership().due(rounds_.now(), kDuePerLook)) {
    const ClusterMember& node = members_.at(moved.member);
    const bool lost = moved.life == NodeLife::Lost;
    if (members_.membership().session(moved.member) != 0 && lost) {
      const std::uint32_t link = members_.membership().link(moved.member);
      members_.turnAway(
          link, fail(ErrorCode::Unavailable, "its lease ran out long ago: say hello again"));
      members_.membership().close(link);
    }
    members_.setLife(moved.member, moved.life);
    rounds_.note(lost ? EventKind("node-lost") : EventKind("node-suspect"), 0,
                 node.facts.ledger.name,
                 lost ? "not heard of for the fence time" : "its lease ran out");
    if (!lost) {
      QGPU_MARK(NodeSuspected);
      continue;
    }
    QGPU_MARK(NodeLost);
    for (const std::uint64_t task : node.jobs) losing_.emplace_back(moved.member, task);
  }
}

// What had made the round look at a task of a lost node was taken off the list.
void Sessions::undo(const Round& round) {
  for (const auto& [task, before] : round.jobs) {
    if (!before.job || !before.job->member) continue;
    const MemberId member = *before.job->member;
    if (members_.membership().life(member) == NodeLife::Lost) losing_.emplace_back(member, task);
  }
}

void Sessions::takeAgain(Round& round) {
  heard_.insert(heard_.begin(), round.messages.begin(), round.messages.end());
}

void Sessions::loseTasks() {
  while (!losing_.empty() && !rounds_.full()) {
    const auto [member, task] = losing_.front();
    losing_.pop_front();
    Job* found = tasks_.find(task);
    if (members_.membership().life(member) != NodeLife::Lost || found == nullptr ||
        found->member != member) {
      continue;
    }
    const Job& job = *found;
    if (job.state == PlaceState::Ending) {
      tasks_.nodeEnded(task, "its node is lost");
    } else if (!job.pinned()) {
      QGPU_MARK(PlacedAfterLoss);
      tasks_.placeAgain(task, "its node is lost", Tasks::Elsewhere::Now);
    } else if (job.state != PlaceState::Lost) {
      QGPU_MARK(LostWhilePinned);
      Job lost = job;
      lost.state = PlaceState::Lost;
      lost.reason = "its node is lost, and it may run nowhere else";
      tasks_.put(task, std::move(lost), std::nullopt);
      rounds_.after([this, lostTask = task](Turn&) { tasks_.answerAskers(lostTask); });
    }
  }
}

}  // namespace qgpu
