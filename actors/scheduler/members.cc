// What nodes say. Their words are taken in order within rounds; beats alone are answered at once,
// since nothing durable follows from them and a lease must not wait for a disk.
#include <algorithm>

#include "actors/base/tenant_environment.h"
#include "actors/scheduler/scheduler_actor.h"
#include "runtime/planted.h"

namespace qgpu {
namespace {

constexpr std::uint64_t kTermMax = std::uint64_t{1} << 31;   // sessions keep 32 bits for it
constexpr std::uint64_t kTaskMax = std::uint64_t{1} << 62;

Words wordsOf(schema::FromMember::Reader reader) {
  Words words(reader.totalSize().wordCount + 1);
  capnp::copyToUnchecked(reader, kj::arrayPtr(words.data(), words.size()));
  return words;
}

schema::FromMember::Reader readWords(const Words& words) {
  return capnp::readMessageUnchecked<schema::FromMember>(words.data());
}

}  // namespace

// --- what arrives ---

void SchedulerActor::onFromMember(schema::FromMember::Reader words, Turn& turn) {
  const std::uint32_t link = words.getLink();
  if (!words.isHello() && !words.isLost()) {
    switch (membership_.arrived(link, words.getSession(), words.getSeq())) {
      case Membership::Word::Stale: QGPU_MARK(StaleWords); return;
      case Membership::Word::Gap:
        turnAway(link, fail(ErrorCode::Conflict, "words of this session were lost: start anew"));
        return closeLink(link);
      case Membership::Word::Taken: break;
    }
    if (words.isBeat()) return onBeat(link, words.getSession(), words.getBeat(), turn);
  }
  if (words.isForward() && !storageOk_) {
    return tellForwarded(*membership_.memberOf(link), words.getForward().getCorr(),
                         fail(ErrorCode::Unavailable, "storage failed (" + storageText_ + ")"));
  }
  if (words_.size() >= kWordsMax) {
    turnAway(link, fail(ErrorCode::Overloaded, "too many nodes speak at once: try again later"));
    return closeLink(link);
  }
  words_.push_back({wordsOf(words), turn.now()});
}

void SchedulerActor::onBeat(std::uint32_t link, std::uint64_t session, std::uint64_t ns,
                            Turn& turn) {
  if (membership_.beat(link, turn.now())) {
    const MemberId member = *membership_.memberOf(link);
    setLife(member, NodeLife::Alive);
    note("node-alive", 0, at(member).facts.ledger.name, "it beats again");
  }
  turn.sendUrgent(peers_.links, [&](schema::Envelope::Builder envelope) {
    auto seen = envelope.initToMember();
    seen.setLink(link);
    seen.setSession(session);
    seen.setTerm(term_);
    seen.setBeatSeen(ns);
  });
}

void SchedulerActor::takeWords(Turn& turn) {
  while (started_ && !words_.empty() && !roundFull()) {
    Heard heard = std::move(words_.front());
    words_.pop_front();
    const schema::FromMember::Reader reader = readWords(heard.words);
    onWords(reader, heard.at, turn);
    if (!reader.isForward()) round_->words.push_back(std::move(heard));
  }
}

void SchedulerActor::onWords(schema::FromMember::Reader words, Nanos heardAt, Turn& turn) {
  const std::uint32_t link = words.getLink();
  if (words.isHello()) return onHello(link, words.getHello(), heardAt);
  if (words.isLost()) return closeLink(link);
  const std::optional<MemberId> member = membership_.memberOf(link);
  if (!member || membership_.session(*member) != words.getSession()) return;
  switch (words.which()) {
    case schema::FromMember::FACTS: {
      Result<MemberFacts> facts = readMemberFacts(words.getFacts());
      if (!facts || facts->ledger.name != at(*member).facts.ledger.name) return;
      return takeFacts(*member, std::move(*facts));
    }
    case schema::FromMember::TASKS:
      for (const auto entry : words.getTasks()) onHeld(*member, readHeld(entry));
      return;
    case schema::FromMember::BOUND: return onBound(*member, words.getBound(), turn);
    case schema::FromMember::REFUSED: return onRefused(*member, words.getRefused());
    case schema::FromMember::FORWARD: return onForward(*member, words.getForward(), turn);
    default: return;
  }
}

void SchedulerActor::refuseForwards(const Error& error) {
  std::deque<Heard> kept;
  for (Heard& heard : words_) {
    const schema::FromMember::Reader reader = readWords(heard.words);
    const std::optional<MemberId> member = membership_.memberOf(reader.getLink());
    if (!reader.isForward()) {
      kept.push_back(std::move(heard));
    } else if (member) {
      tellForwarded(*member, reader.getForward().getCorr(), error);
    }
  }
  words_ = std::move(kept);
}

// --- sessions ---

void SchedulerActor::tell(MemberId member, std::function<void(schema::ToMember::Builder)> fill) {
  const std::uint64_t session = membership_.session(member);
  if (session == 0) return;   // its next hello makes up for it
  const std::uint32_t link = membership_.link(member);
  outbox_.put(peers_.links, [link, session, term = term_,
                             fill = std::move(fill)](schema::Envelope::Builder envelope) {
    auto words = envelope.initToMember();
    words.setLink(link);
    words.setSession(session);
    words.setTerm(term);
    fill(words);
  });
}

void SchedulerActor::turnAway(std::uint32_t link, const Error& error) {
  const std::optional<MemberId> member = membership_.memberOf(link);
  const std::uint64_t session = member ? membership_.session(*member) : 0;
  outbox_.put(peers_.links, [=, term = term_](schema::Envelope::Builder envelope) {
    auto words = envelope.initToMember();
    words.setLink(link);
    words.setSession(session);
    words.setTerm(term);
    words.initTurnedAway().setCode(errorName(error.code));
    words.getTurnedAway().setMessage(error.message);
  });
}

void SchedulerActor::closeLink(std::uint32_t link) {
  const std::optional<MemberId> member = membership_.close(link);
  if (!member) return;
  note("node-disconnected", 0, at(*member).facts.ledger.name,
       "its connection is over; it is lost after the fence time");
  setLife(*member, membership_.life(*member));
}

void SchedulerActor::setLife(MemberId member, NodeLife life) {
  ClusterMember& node = at(member);
  node.sinceUnixMs = static_cast<std::uint64_t>(options_.unixMsAtZero() + now_ / millis(1));
  if (!node.node) return;
  ledger_.setLife(*node.node, life);
  if (life == NodeLife::Alive) gain(*node.node);
}

// A later term was seen, so another scheduler acted since this one's store was written. Nobody is
// served until a higher term than that is committed here (C1).
void SchedulerActor::standDown(std::uint64_t termSeen) {
  const Error error = fail(ErrorCode::Conflict, "term " + std::to_string(termSeen) +
                                                    " was seen, and this is term " +
                                                    std::to_string(term_));
  for (const std::uint32_t link : membership_.links()) {
    turnAway(link, error);
    closeLink(link);
  }
  note("stood-down", 0, "", error.message);
  term_ = termSeen;
  started_ = false;
}

Result<MemberId> SchedulerActor::memberFor(const std::string& name, Nanos heardAt) {
  const auto found = names_.find(name);
  if (found != names_.end()) return found->second;
  if (members_.size() >= Membership::kMembersMax) {
    return fail(ErrorCode::Overloaded, "a cluster has at most " +
                                           std::to_string(Membership::kMembersMax) + " nodes");
  }
  const MemberId member = membership_.add(heardAt);
  members_.emplace_back().facts.ledger.name = name;
  names_.emplace(name, member);
  return member;
}

// A lease runs from the hello, however long that waited for the storage: what is older has none.
void SchedulerActor::onHello(std::uint32_t link, schema::MemberHello::Reader hello,
                             Nanos heardAt) {
  if (hello.getTermSeen() > kTermMax || hello.getTasks().size() > kHeldMax) {
    return turnAway(link, fail(ErrorCode::InvalidArgument, "a hello of this term and this many "
                                                           "tasks is refused"));
  }
  Result<MemberFacts> facts = readMemberFacts(hello.getFacts());
  if (!facts) return turnAway(link, facts.error());
  if (hello.getTermSeen() > term_) {
    turnAway(link, fail(ErrorCode::Unavailable, "this scheduler raises its term: try again"));
    return standDown(hello.getTermSeen());
  }
  if (now_ - heardAt > options_.times.lease) {
    return turnAway(link, fail(ErrorCode::Unavailable, "its hello waited for the storage for "
                                                       "longer than a lease: say it again"));
  }
  const Result<MemberId> member = memberFor(facts->ledger.name, heardAt);
  if (!member) return turnAway(link, member.error());
  const std::uint32_t before = membership_.session(*member) == 0 ? link : membership_.link(*member);
  const Result<std::uint64_t> session =
      membership_.open(*member, link, facts->incarnation, heardAt);
  if (!session) return turnAway(link, session.error());
  if (before != link) {
    QGPU_MARK(SessionTakenOver);
    turnAway(before, fail(ErrorCode::Conflict, "a later session took over"));
  }
  const std::size_t place = static_cast<std::size_t>(*member);
  if (place >= membersStored_) round_->members = std::max(round_->members, place + 1);
  forgetOlder(*member);
  takeFacts(*member, std::move(*facts));
  setLife(*member, NodeLife::Alive);
  after([this, member = *member, nonce = hello.getNonce()](Turn&) {
    tell(member, [this, nonce](schema::ToMember::Builder words) {
      auto welcome = words.initWelcome();
      welcome.setNonce(nonce);
      welcome.setLeaseNs(static_cast<std::uint64_t>(options_.times.lease.value));
      welcome.setBeatNs(static_cast<std::uint64_t>(options_.times.beat.value));
    });
    tellMarks(member);
    note("node-joined", 0, at(member).facts.ledger.name, at(member).facts.version);
  });
  std::set<std::uint64_t> said;
  for (const auto entry : hello.getTasks()) {
    if (const auto task = onHeld(*member, readHeld(entry))) said.insert(*task);
  }
  reconcile(*member, said);
}

void SchedulerActor::takeFacts(MemberId member, MemberFacts facts) {
  ClusterMember& node = at(member);
  node.facts = std::move(facts);
  const NodeId id = ledger_.setNode(node.facts.ledger).first;
  if (!node.node) {
    QGPU_CHECK(static_cast<std::size_t>(id) == memberOfNode_.size(), "nodes are numbered in order");
    node.node = id;
    memberOfNode_.push_back(member);
  }
  ledger_.setLife(id, membership_.life(member));
  applyMarks(member);
  for (const auto& [task, claim] : claims_) {
    if (claim.member == member) keepHost(task);
  }
  gain(id);
}

// --- what a node holds ---

// What the scheduler believes there and the node did not name is over, or was never begun.
void SchedulerActor::reconcile(MemberId member, const std::set<std::uint64_t>& said) {
  const std::set<std::uint64_t> believed = at(member).jobs;
  for (const std::uint64_t task : believed) {
    if (!said.contains(task)) {
      nodeEnded(task, "its node says that it is over");
      continue;
    }
    const Job& job = jobs_.at(task);
    if (job.state == PlaceState::Assumed) {   // the answer, and with it the token, was lost
      after([this, task](Turn&) { orderBind(task); });
    } else if (job.state == PlaceState::Ending) {
      after([this, task](Turn&) { orderEnd(task); });
    }
  }
}

// The task that it is here, where it goes on; nothing where it is over or its end is ordered.
std::optional<std::uint64_t> SchedulerActor::onHeld(MemberId member, const Held& held) {
  if (held.ended) olderGone(member, held.clusterTask, held.epoch);
  std::optional<std::uint64_t> task;
  if (held.clusterTask != 0) {
    if (jobs_.contains(held.clusterTask)) task = held.clusterTask;
  } else if (const auto found = at(member).adopted.find(held.nodeTask);
             found != at(member).adopted.end()) {
    task = found->second;
  }
  if (!task) {
    if (held.ended) return std::nullopt;
    if (held.clusterTask == 0) return adopt(member, held, nextTask_);
    const bool later = held.clusterTask >= nextTask_ && held.clusterTask < kTaskMax;
    if (later || held.clusterTask < firstTask_) {
      return adopt(member, held, held.clusterTask);   // this store never numbered it
    }
  } else if (held.clusterTask == 0 || held.epoch == jobs_.at(*task).epoch) {
    if (jobs_.at(*task).member == member) {
      if (!held.ended) return stillHeld(member, *task, held), task;
      nodeEnded(*task, "its node says that it is over");
      return std::nullopt;
    }
  } else if (held.epoch > jobs_.at(*task).epoch && !held.ended) {
    return takeLater(member, *task, held), task;
  }
  if (held.ended || QGPU_PLANTED(UnknownTaskKept)) return std::nullopt;
  QGPU_MARK(OrphanEnded);
  noteOlder(member, held);
  after([this, member, held](Turn&) {
    orderEndOf(member, held.clusterTask, held.epoch, held.nodeTask, "decided otherwise since");
  });
  return std::nullopt;
}

// The store is older than this decision: the node that has the later epoch is right (P3).
void SchedulerActor::takeLater(MemberId member, std::uint64_t task, const Held& held) {
  Job job = jobs_.at(task);
  if (job.member && *job.member != member) {
    after([this, from = *job.member, task, epoch = job.epoch, old = job.nodeTask](Turn&) {
      orderEndOf(from, task, epoch, old, "a later decision was made");
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
  const std::optional<Spot> spot = spotOf(at(member), job.spec, job.cards);
  put(task, std::move(job), spot);
}

void SchedulerActor::stillHeld(MemberId member, std::uint64_t task, const Held& held) {
  Job& job = jobs_.at(task);
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
    const std::optional<Spot> spot = spotOf(at(member), now.spec, now.cards);
    return put(task, std::move(now), spot);
  }
  if (ledger_.spot(TaskId{task}) != nullptr) return;
  // As the row has it, so there is nothing to commit: only the index was built anew.
  if (const std::optional<Spot> spot = spotOf(at(member), job.spec, job.cards)) {
    ledger_.bind(TaskId{task}, *spot, job.spec.application);
  }
}

std::uint64_t SchedulerActor::adopt(MemberId member, const Held& held, std::uint64_t task) {
  nextTask_ = std::max(nextTask_, task + 1);
  Job job;
  job.adopted = held.clusterTask == 0;
  job.epoch = held.epoch;
  job.spec.task = held.spec;
  if (job.adopted || held.spec.ownerPid != 0) job.spec.node = at(member).facts.ledger.name;
  job.state = PlaceState::Bound;
  job.member = member;
  job.cards = held.cards;
  job.nodeTask = held.nodeTask;
  job.submittedUnixMs = static_cast<std::uint64_t>(options_.unixMsAtZero() + now_ / millis(1));
  job.boundUnixMs = job.submittedUnixMs;
  job.phase = held.phase;
  job.figures = held.figures;
  job.held = true;
  const std::optional<Spot> spot = spotOf(at(member), job.spec, job.cards);
  put(task, std::move(job), spot);
  after([this, task, member](Turn&) {
    note("task-adopted", task, at(member).facts.ledger.name, "bound before its node joined");
  });
  return task;
}

// --- answers to orders ---

void SchedulerActor::onBound(MemberId member, schema::MemberBound::Reader bound, Turn& turn) {
  const std::uint64_t task = bound.getTask();
  const auto found = jobs_.find(task);
  if (found == jobs_.end() || found->second.member != member ||
      found->second.epoch != bound.getEpoch()) {
    after([this, member, task, epoch = bound.getEpoch(), nodeTask = bound.getNodeTask()](Turn&) {
      orderEndOf(member, task, epoch, nodeTask, "decided otherwise since");
    });
    return;
  }
  const bool first = found->second.state == PlaceState::Assumed;
  if (!first && (found->second.state != PlaceState::Bound || !found->second.token.empty())) return;
  Job job = found->second;
  job.state = PlaceState::Bound;
  job.held = true;
  job.nodeTask = bound.getNodeTask();
  job.token = text(bound.getToken()).substr(0, kNameMax);
  if (!taskMayCarry("QGPU_TOKEN", job.token)) job.token.clear();
  if (first) job.boundUnixMs = std::max<std::uint64_t>(unixMs(turn), 1);
  if (first) job.phase = TaskPhase::Bound;
  const std::vector<std::string> cards = readTexts(bound.getCards(), kNodeCardsMax);
  if (!cards.empty()) job.cards = cards;
  const std::optional<Spot> spot = spotOf(at(member), job.spec, job.cards);
  put(task, std::move(job), spot);
  if (!first) return;
  after([this, task, member](Turn&) {
    note("task-bound", task, at(member).facts.ledger.name, "its node holds it");
    answerAskers(task);
  });
}

// Somewhere else at once where it fits, but not again and again: nodes that all refuse would be
// asked in turn for ever. The node that refused gets nothing more of what waits for a while, since
// its own account of its cards is on its way.
void SchedulerActor::onRefused(MemberId member, schema::MemberRefused::Reader refused) {
  const std::uint64_t task = refused.getTask();
  const auto found = jobs_.find(task);
  if (found == jobs_.end() || found->second.member != member ||
      found->second.epoch != refused.getEpoch()) {
    return;
  }
  const std::string why = "refused by node " + at(member).facts.ledger.name + ": " +
                          text(refused.getFailure().getMessage()).substr(0, 256);
  if (found->second.state == PlaceState::Ending) return nodeEnded(task, why);
  if (found->second.state != PlaceState::Assumed) return;
  QGPU_MARK(RefusedByNode);
  const NodeId node = *at(member).node;
  const bool gained = gained_.contains(node);
  const bool again = found->second.refusedAt != Nanos(0) &&
                     now_ - found->second.refusedAt < options_.refusedPause;
  found->second.refusedAt = now_;
  placeAgain(task, why, again ? Elsewhere::Later : Elsewhere::Now, member);
  after([this, task, why](Turn&) { note("task-refused", task, "", why); });
  if (gained) return;
  gained_.erase(node);
  pausing_.emplace_back(now_ + options_.refusedPause, node);
}

// --- local tasks ---

void SchedulerActor::onForward(MemberId member, schema::MemberForward::Reader forward,
                               Turn& turn) {
  const std::uint64_t corr = forward.getCorr();
  round_->forwards.emplace_back(member, corr);
  Job job;
  job.spec = readClusterSpec(forward.getSpec());
  job.spec.preempt = false;  // whoever asked there may have no right to it
  job.spec.node = at(member).facts.ledger.name;
  job.spec.task.ownerUid = forward.getUid();
  job.forwarded = true;
  const TaskSpec& spec = job.spec.task;
  const auto known = requests_.find({spec.ownerUid, spec.requestId});
  Result<std::uint64_t> task = std::uint64_t{0};
  if (spec.requestId.empty() || known == requests_.end()) {
    task = admit(std::move(job), turn);
  } else {
    task = known->second;
    const Job* same = this->task(*task);
    if (same == nullptr || same->member != member || !sameAsk(same->spec, job.spec)) {
      task = fail(ErrorCode::Conflict, "request '" + spec.requestId + "' was task " +
                                           std::to_string(*task) + ": use a new request id");
    } else {
      after([this, task = *task](Turn&) { orderBind(task); });
    }
  }
  after([this, member, corr, task](Turn&) { tellForwarded(member, corr, task); });
}

void SchedulerActor::tellForwarded(MemberId member, std::uint64_t corr,
                                   const Result<std::uint64_t>& result) {
  tell(member, [corr, result](schema::ToMember::Builder words) {
    auto forwarded = words.initForwarded();
    forwarded.setCorr(corr);
    if (result) return forwarded.setTask(*result);
    forwarded.initFailed().setCode(errorName(result.error().code));
    forwarded.getFailed().setMessage(result.error().message);
  });
}

// --- leases ---

void SchedulerActor::lookAtLeases() {
  for (const Membership::Moved& moved : membership_.due(now_, kDuePerLook)) {
    const ClusterMember& node = at(moved.member);
    const bool lost = moved.life == NodeLife::Lost;
    if (membership_.session(moved.member) != 0 && lost) {
      const std::uint32_t link = membership_.link(moved.member);
      turnAway(link, fail(ErrorCode::Unavailable, "its lease ran out long ago: say hello again"));
      membership_.close(link);
    }
    setLife(moved.member, moved.life);
    note(lost ? "node-lost" : "node-suspect", 0, node.facts.ledger.name,
         lost ? "not heard of for the fence time" : "its lease ran out");
    if (!lost) {
      QGPU_MARK(NodeSuspected);
      continue;
    }
    QGPU_MARK(NodeLost);
    for (const std::uint64_t task : node.jobs) losing_.emplace_back(moved.member, task);
  }
}

void SchedulerActor::loseTasks() {
  while (!losing_.empty() && !roundFull()) {
    const auto [member, task] = losing_.front();
    losing_.pop_front();
    const auto found = jobs_.find(task);
    if (membership_.life(member) != NodeLife::Lost || found == jobs_.end() ||
        found->second.member != member) {
      continue;
    }
    const Job& job = found->second;
    if (job.state == PlaceState::Ending) {
      nodeEnded(task, "its node is lost");
    } else if (!job.pinned()) {
      QGPU_MARK(PlacedAfterLoss);
      placeAgain(task, "its node is lost", Elsewhere::Now);
    } else if (job.state != PlaceState::Lost) {
      QGPU_MARK(LostWhilePinned);
      Job lost = job;
      lost.state = PlaceState::Lost;
      lost.reason = "its node is lost, and it may run nowhere else";
      put(task, std::move(lost), std::nullopt);
      after([this, lostTask = task](Turn&) { answerAskers(lostTask); });
    }
  }
}

}  // namespace qgpu
