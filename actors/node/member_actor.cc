// The session with the scheduler: hello, welcome, beats and the lease.
#include "actors/node/member_actor.h"

#include <algorithm>

#include "runtime/planted.h"
#include "schema/envelope.actor.h"

namespace qgpu {
namespace {

std::string lifetime(Nanos duration) { return std::to_string(duration / millis(1)) + " ms"; }

}  // namespace

MemberActor::MemberActor(MemberOptions options, MemberPeers peers)
    : options_(std::move(options)), peers_(peers) {}

void MemberActor::handle(schema::Envelope::Reader message, Turn& turn) {
  dispatch(*this, message, turn);
  finishTurn(turn);
}

void MemberActor::finishTurn(Turn& turn) {
  pumpOrders(turn);
  outbox_.flush(turn);
  if (outbox_.empty() || resendArmed_) return;
  resendArmed_ = true;
  tick(turn, kResend, TickKind::Resend, 0);
}

TimerId MemberActor::tick(Turn& turn, Nanos delay, TickKind kind, std::uint64_t value) {
  return turn.after(delay, [kind, value](schema::Envelope::Builder envelope) {
    auto tick = envelope.initTick();
    tick.setKind(static_cast<std::uint32_t>(kind));
    tick.setValue(value);
  });
}

// A tick of another connection is of no concern any more.
void MemberActor::onTick(schema::Tick::Reader tick, Turn& turn) {
  const bool current = tick.getValue() == attempt_;
  switch (TickKind{tick.getKind()}) {
    case TickKind::Join:
      if (current && state_ != MemberState::Down && !inSession()) {
        dropLink("no welcome within " + lifetime(options_.joinMax), turn);
      } else if (current && state_ == MemberState::Admitting) {
        dropLink("the scheduler's term can't be stored", turn);
      }
      break;
    case TickKind::Beat:
      if (current) onBeatDue(turn);
      break;
    case TickKind::Lease:
      if (current) onLeaseDue(turn);
      break;
    case TickKind::LeaseDrop:
      if (current && state_ == MemberState::LeaseOver && !leaseLives(turn)) {
        dropLink("the scheduler sees no beats", turn);
      }
      break;
    case TickKind::Retry:
      if (current && state_ == MemberState::TurnedAway) dropLink("asking again", turn);
      break;
    case TickKind::Forward:
      forwardArmed_ = false;
      onForwardDue(turn);
      break;
    case TickKind::Batch:
      batchArmed_ = false;
      askDue(turn);
      break;
    case TickKind::Refresh:
      if (!current || !inSession()) break;
      askCards(Compare::Use);
      askTasks(Compare::Use);
      this->tick(turn, options_.refreshEvery, TickKind::Refresh, attempt_);
      break;
    case TickKind::EndAgain:
      for (MemberOrder& order : endsAgain_) orders_.push_back(std::move(order));
      endsAgain_.clear();
      break;
    case TickKind::Resend: resendArmed_ = false; break;
  }
}

// --- the state table ---

void MemberActor::moveTo(MemberState to, const std::string& standing) {
  if (to != state_) {
    QGPU_CHECK(mayMove(state_, to), "the state table of a member has no such move");
    state_ = to;
  }
  if (standing == standing_) return;
  standing_ = standing;
  askNode({}, [standing](schema::Request::Builder request) { request.setStanding(standing); });
}

bool MemberActor::inSession() const {
  return state_ == MemberState::Admitting || state_ == MemberState::Member ||
         state_ == MemberState::LeaseOver;
}

bool MemberActor::leaseLives(Turn& turn) const { return turn.now() < leaseFrom_ + lease_; }

// The timer of the lease may come late, the clock does not.
bool MemberActor::mayBind(Turn& turn) const {
  if (QGPU_PLANTED(LeaseIgnored) && inSession()) return true;
  return state_ == MemberState::Member && leaseLives(turn);
}

// --- the connection ---

void MemberActor::onLinkUp(capnp::Void, Turn& turn) {
  if (turn.sender() != peers_.link) return;
  leave("connected anew");
  ++attempt_;
  gathered_ = false;
  info_.clear();
  cards_.clear();
  tasksKnown_ = false;
  moveTo(MemberState::Gathering, "joining");
  tick(turn, options_.joinMax, TickKind::Join, attempt_);
  gather();
}

void MemberActor::onLinkDown(capnp::Text::Reader why, Turn& turn) {
  if (turn.sender() != peers_.link) return;
  const std::string said = text(why).substr(0, 120);
  leave(said);
  moveTo(MemberState::Down, "no scheduler: " + said);
}

void MemberActor::dropLink(const std::string& why, Turn& turn) {
  if (state_ == MemberState::Down) return;
  turn.sendUrgent(peers_.link,
                  [&](schema::Envelope::Builder envelope) { envelope.setLinkDown(why); });
  leave(why);
}

// Orders that the node has not heard of are forgotten: the next hello shows that they were not
// carried out. Whoever forwarded a bind does not wait for the next session.
void MemberActor::leave(const std::string& why) {
  if (state_ == MemberState::Down) return;
  moveTo(MemberState::Down, "no scheduler: " + why);
  session_ = 0;
  for (const MemberOrder& order : orders_) {
    if (order.kind != MemberOrder::Kind::Place) continue;
    KnownTask& known = known_.at(order.task);
    if (order.held) known.step = KnownTask::Step::Held;
    else if (known.over != 0) markOver(order.task, known.over, known.why);
    else known_.erase(order.task);
  }
  orders_.clear();
  endsAgain_.clear();
  while (!forwards_.empty()) {
    QGPU_MARK(ForwardCutOff);
    failForward(forwards_.begin()->first,
                {errorName(ErrorCode::Unavailable),
                 "the connection to the scheduler is over (" + why +
                     "); what was asked may still happen"});
  }
}

void MemberActor::say(const Say& fill, Turn& turn) {
  if (!inSession()) return;
  const SendResult sent = turn.send(peers_.link, [&](schema::Envelope::Builder envelope) {
    auto word = envelope.initFromMember();
    word.setSession(session_);
    word.setSeq(seq_ + 1);
    fill(word);
  });
  if (sent == SendResult::Sent) ++seq_;
  else dropLink("what this node has to say does not leave", turn);
}

void MemberActor::sayHello(Turn& turn) {
  nonce_ = turn.random();
  helloAt_ = turn.now();
  const SendResult sent = turn.send(peers_.link, [&](schema::Envelope::Builder envelope) {
    auto hello = envelope.initFromMember().initHello();
    hello.setTermSeen(termSeen_);
    hello.setNonce(nonce_);
    writeFacts(hello.initFacts());
    auto tasks = hello.initTasks(static_cast<unsigned>(told_.size() + ended_.size()));
    unsigned i = 0;
    for (const auto& [task, record] : told_) writeHeld(record, tasks[i++]);
    for (const Ended& over : ended_) writeHeld(over.record, tasks[i++]);
  });
  if (sent == SendResult::Refused) return dropLink("the hello does not leave", turn);
  for (Ended& over : ended_) over.saidAt = helloAt_;
  moveTo(MemberState::Greeting, "joining");
}

// --- words of the scheduler ---

void MemberActor::onToMember(schema::ToMember::Reader word, Turn& turn) {
  if (turn.sender() != peers_.link) return;
  if (word.isWelcome()) return onWelcome(word, turn);
  if (word.isTurnedAway() && state_ == MemberState::Greeting) {
    return onTurnedAway(word.getTurnedAway(), turn);
  }
  // Of this connection, and not of a session: it ends here as well, whoever closes it first.
  const bool linkOver = word.isTurnedAway() && word.getSession() == 0;
  if (linkOver && state_ != MemberState::Down && state_ != MemberState::TurnedAway) {
    return dropLink(readFault(word.getTurnedAway()).message.substr(0, 120), turn);
  }
  if (!inSession() || word.getSession() != session_ || word.getTerm() != sessionTerm_) {
    ++dropped_;
    return;
  }
  switch (word.which()) {
    case schema::ToMember::BEAT_SEEN: return onBeatSeen(word.getBeatSeen(), turn);
    case schema::ToMember::BIND: return onBindOrder(word.getBind(), turn);
    case schema::ToMember::END: return onEndOrder(word.getEnd(), turn);
    case schema::ToMember::FORWARDED: return onForwarded(word.getForwarded(), turn);
    case schema::ToMember::MARK: return onMarkOrder(word.getMark(), turn);
    case schema::ToMember::TURNED_AWAY:   // the session is over for the scheduler
      return dropLink(readFault(word.getTurnedAway()).message.substr(0, 120), turn);
    default: return;
  }
}

void MemberActor::onWelcome(schema::ToMember::Reader word, Turn& turn) {
  const auto welcome = word.getWelcome();
  if (state_ != MemberState::Greeting || welcome.getNonce() != nonce_ || word.getSession() == 0) {
    ++dropped_;
    return;
  }
  if (word.getTerm() < termSeen_) {
    return dropLink("its term is " + std::to_string(word.getTerm()) + ", and a later one, " +
                        std::to_string(termSeen_) + ", was here",
                    turn);
  }
  session_ = word.getSession();
  seq_ = 0;
  sessionTerm_ = word.getTerm();
  lease_ = Nanos(std::min(bounded(welcome.getLeaseNs()), seconds(600).value));
  beatEvery_ = std::max(kBeatMin, Nanos(std::min(bounded(welcome.getBeatNs()),
                                                 seconds(600).value)));
  leaseFrom_ = helloAt_;
  if (sessionTerm_ == termSeen_ || QGPU_PLANTED(TermNotStored)) return enterSession(turn);
  moveTo(MemberState::Admitting, "joining");
  Pending pending;
  pending.about = About::Term;
  pending.attempt = attempt_;
  askNode(pending, [term = sessionTerm_](schema::Request::Builder request) {
    request.setClusterTerm(term);
  });
}

void MemberActor::onTurnedAway(schema::Failure::Reader failure, Turn& turn) {
  const Fault why = readFault(failure);
  moveTo(MemberState::TurnedAway, "turned away: " + why.message.substr(0, 120));
  tick(turn, options_.retryAfter, TickKind::Retry, attempt_);
}

void MemberActor::enterSession(Turn& turn) {
  if (leaseLives(turn)) {
    moveTo(MemberState::Member, "joined: term " + std::to_string(sessionTerm_));
  } else {
    overLease(turn);
  }
  onBeatDue(turn);
  onLeaseDue(turn);
  sayEnded(turn);
  if (!inSession()) return;
  tick(turn, options_.refreshEvery, TickKind::Refresh, attempt_);
  cardsDue_ = true;   // whatever changed since they were asked for the hello
  tasksDue_ = true;
  askDue(turn);
}

// --- beats and the lease ---

void MemberActor::onBeatDue(Turn& turn) {
  if (!inSession()) return;
  beatSaidAt_ = turn.now();
  say([this](schema::FromMember::Builder word) {
    word.setBeat(static_cast<std::uint64_t>(beatSaidAt_.value));
  }, turn);
  if (inSession()) tick(turn, beatEvery_, TickKind::Beat, attempt_);
}

// The stamp is this node's own. What was said before that beat has arrived before it.
void MemberActor::onBeatSeen(std::uint64_t stamp, Turn& turn) {
  const Nanos at(bounded(stamp));
  if (at > beatSaidAt_ || at < leaseFrom_) {
    ++dropped_;
    return;
  }
  leaseFrom_ = at;
  while (!ended_.empty() && ended_.front().saidAt < at) ended_.pop_front();
  if (state_ == MemberState::LeaseOver && leaseLives(turn)) {
    QGPU_MARK(LeaseBack);
    moveTo(MemberState::Member, "joined: term " + std::to_string(sessionTerm_));
    onLeaseDue(turn);
  }
}

void MemberActor::onLeaseDue(Turn& turn) {
  if (state_ != MemberState::Member) return;
  if (!leaseLives(turn)) return overLease(turn);
  tick(turn, leaseFrom_ + lease_ - turn.now(), TickKind::Lease, attempt_);
}

void MemberActor::overLease(Turn& turn) {
  QGPU_MARK(LeaseOver);
  moveTo(MemberState::LeaseOver,
         "lease over: the scheduler has seen no beat of this node for " + lifetime(lease_));
  tick(turn, options_.leaseOverMax, TickKind::LeaseDrop, attempt_);
}

}  // namespace qgpu
