#include "actors/member/member_session.h"

#include <algorithm>
#include <array>
#include <utility>

#include "runtime/planted.h"

namespace qgpu {
namespace {

constexpr std::size_t kWhyMax = 120;  // bytes of a sentence about a connection

constexpr std::uint8_t bit(MemberState state) {
  return static_cast<std::uint8_t>(1u << static_cast<unsigned>(state));
}

constexpr std::uint8_t kLeases = bit(MemberState::Member) | bit(MemberState::LeaseOver);
constexpr std::uint8_t kDown = bit(MemberState::Down);

// By the state that is left: the set of states that may follow.
constexpr std::array<std::uint8_t, 7> kNext = {
    /* Down       */ bit(MemberState::Gathering),
    /* Gathering  */ bit(MemberState::Greeting) | kDown,
    /* Greeting   */ bit(MemberState::Admitting) | bit(MemberState::TurnedAway) | kLeases | kDown,
    /* Admitting  */ kLeases | kDown,
    /* Member     */ bit(MemberState::LeaseOver) | kDown,
    /* LeaseOver  */ bit(MemberState::Member) | kDown,
    /* TurnedAway */ kDown,
};

std::string lifetime(Nanos duration) {
  return std::to_string(duration / millis(1)) + " ms";
}

Nanos readDuration(std::uint64_t ns) {
  return Nanos(std::min(bounded(ns), seconds(600).value));
}

}  // namespace

bool mayMove(MemberState from, MemberState to) {
  return (kNext[static_cast<std::size_t>(from)] & bit(to)) != 0;
}

// --- where it stands ---

void MemberSession::moveTo(MemberState to, const std::string& standing) {
  if (to != state_) {
    QGPU_CHECK(mayMove(state_, to), "the state table of a member has no such move");
    state_ = to;
  }
  if (standing == standing_) return;
  standing_ = standing;
  member_.askNode([standing](schema::Request::Builder request) { request.setStanding(standing); });
}

bool MemberSession::inSession() const {
  return state_ == MemberState::Admitting || state_ == MemberState::Member ||
         state_ == MemberState::LeaseOver;
}

bool MemberSession::leaseLives(Turn& turn) const {
  return turn.now() < leaseFrom_ + lease_;
}

bool MemberSession::mayBind(Turn& turn) const {
  if (QGPU_PLANTED(LeaseIgnored) && inSession()) return true;
  return state_ == MemberState::Member && leaseLives(turn);
}

MemberContext::Heard MemberSession::ofThisAttempt(MemberContext::Heard heard) const {
  return [this, attempt = attempt_, heard = std::move(heard)](schema::Reply::Reader reply,
                                                              Turn& turn) {
    if (attempt == attempt_) heard(reply, turn);
  };
}

// --- the connection ---

void MemberSession::onLinkUp(Turn& turn) {
  leave("connected anew");
  ++attempt_;
  moveTo(MemberState::Gathering, "joining");
  later(turn, member_.options().joinMax, MemberTick::Join);
}

void MemberSession::onLinkDown(const std::string& why) {
  const std::string said = why.substr(0, kWhyMax);
  leave(said);
  moveTo(MemberState::Down, "no scheduler: " + said);
}

void MemberSession::dropLink(const std::string& why, Turn& turn) {
  if (state_ == MemberState::Down) return;
  turn.sendUrgent(member_.peers().link,
                  [&](schema::Envelope::Builder envelope) { envelope.setLinkDown(why); });
  leave(why);
}

void MemberSession::leave(const std::string& why) {
  if (state_ == MemberState::Down) return;
  moveTo(MemberState::Down, "no scheduler: " + why);
  session_ = 0;
  owner_.onLeft(why);
}

// --- what is said ---

void MemberSession::say(const std::function<void(schema::FromMember::Builder)>& fill, Turn& turn) {
  if (!inSession()) return;
  const SendResult sent = turn.send(member_.peers().link, [&](schema::Envelope::Builder envelope) {
    auto message = envelope.initFromMember();
    message.setSession(session_);
    message.setSeq(seq_ + 1);
    fill(message);
  });
  if (sent == SendResult::Sent)
    ++seq_;
  else
    dropLink("what this node has to say does not leave", turn);
}

std::optional<Nanos> MemberSession::sayHello(
    const std::function<void(schema::MemberHello::Builder)>& fill, Turn& turn) {
  nonce_ = turn.random();
  helloAt_ = turn.now();
  const SendResult sent = turn.send(member_.peers().link, [&](schema::Envelope::Builder envelope) {
    auto hello = envelope.initFromMember().initHello();
    hello.setTermSeen(termSeen_);
    hello.setNonce(nonce_);
    fill(hello);
  });
  if (sent == SendResult::Refused) {
    dropLink("the hello does not leave", turn);
    return std::nullopt;
  }
  moveTo(MemberState::Greeting, "joining");
  return helloAt_;
}

// --- what is heard ---

bool MemberSession::onToMember(schema::ToMember::Reader message, Turn& turn) {
  if (message.isWelcome()) {
    onWelcome(message, turn);
    return false;
  }
  if (message.isTurnedAway() && state_ == MemberState::Greeting) {
    onTurnedAway(message.getTurnedAway(), turn);
    return false;
  }
  const bool known =
      inSession() && message.getSession() == session_ && message.getTerm() == sessionTerm_;
  // Of this connection, and not of a session: it ends here as well, whoever closes it first.
  const bool linkOver = message.isTurnedAway() && message.getSession() == 0 &&
                        state_ != MemberState::Down && state_ != MemberState::TurnedAway;
  if (linkOver || (known && message.isTurnedAway())) {
    dropLink(Fault(message.getTurnedAway()).message.substr(0, kWhyMax), turn);
    return false;
  }
  if (!known)
    ++dropped_;
  else if (message.isBeatSeen())
    onBeatSeen(message.getBeatSeen(), turn);
  return known;
}

void MemberSession::onWelcome(schema::ToMember::Reader message, Turn& turn) {
  const auto welcome = message.getWelcome();
  if (state_ != MemberState::Greeting || welcome.getNonce() != nonce_ ||
      message.getSession() == 0) {
    ++dropped_;
    return;
  }
  if (message.getTerm() < termSeen_) {
    return dropLink("its term is " + std::to_string(message.getTerm()) + ", and a later one, " +
                        std::to_string(termSeen_) + ", was here",
                    turn);
  }
  session_ = message.getSession();
  seq_ = 0;
  sessionTerm_ = message.getTerm();
  lease_ = readDuration(welcome.getLeaseNs());
  beatEvery_ = std::max(kBeatMin, readDuration(welcome.getBeatNs()));
  leaseFrom_ = helloAt_;
  if (sessionTerm_ == termSeen_ || QGPU_PLANTED(TermNotStored)) return enter(turn);
  moveTo(MemberState::Admitting, "joining");
  member_.askNode(
      [term = sessionTerm_](schema::Request::Builder request) { request.setClusterTerm(term); },
      ofThisAttempt([this](schema::Reply::Reader reply, Turn& now) { onTermStored(reply, now); }));
}

void MemberSession::onTermStored(schema::Reply::Reader reply, Turn& turn) {
  if (state_ != MemberState::Admitting) return;
  if (reply.isFailed()) {
    return dropLink("its term can't be stored: " + Fault(reply.getFailed()).message, turn);
  }
  termSeen_ = sessionTerm_;
  enter(turn);
}

void MemberSession::onTurnedAway(schema::Failure::Reader failure, Turn& turn) {
  moveTo(MemberState::TurnedAway, "turned away: " + Fault(failure).message.substr(0, kWhyMax));
  later(turn, member_.options().retryAfter, MemberTick::Retry);
}

void MemberSession::enter(Turn& turn) {
  if (leaseLives(turn)) {
    moveTo(MemberState::Member, "joined: term " + std::to_string(sessionTerm_));
  } else {
    overLease(turn);
  }
  onBeatDue(turn);
  onLeaseDue(turn);
  owner_.onEntered(turn);
}

void MemberSession::onTick(MemberTick kind, std::uint64_t attempt, Turn& turn) {
  if (attempt != attempt_) return;
  switch (kind) {
    case MemberTick::Join:
      if (state_ == MemberState::Admitting) {
        dropLink("the scheduler's term can't be stored", turn);
      } else if (!inSession()) {
        dropLink("no welcome within " + lifetime(member_.options().joinMax), turn);
      }
      return;
    case MemberTick::Beat:
      return onBeatDue(turn);
    case MemberTick::Lease:
      return onLeaseDue(turn);
    case MemberTick::LeaseDrop:
      if (state_ == MemberState::LeaseOver && !leaseLives(turn)) {
        dropLink("the scheduler sees no beats", turn);
      }
      return;
    case MemberTick::Retry:
      if (state_ == MemberState::TurnedAway) dropLink("asking again", turn);
      return;
    default:
      return;
  }
}

// --- beats and the lease ---

void MemberSession::onBeatDue(Turn& turn) {
  if (!inSession()) return;
  beatSaidAt_ = turn.now();
  say(
      [this](schema::FromMember::Builder message) {
        message.setBeat(static_cast<std::uint64_t>(beatSaidAt_.value));
      },
      turn);
  if (inSession()) later(turn, beatEvery_, MemberTick::Beat);
}

// The stamp is this node's own. What was said before that beat has arrived before it.
void MemberSession::onBeatSeen(std::uint64_t stamp, Turn& turn) {
  const Nanos at(bounded(stamp));
  if (at > beatSaidAt_ || at < leaseFrom_) {
    ++dropped_;
    return;
  }
  leaseFrom_ = at;
  if (state_ == MemberState::LeaseOver && leaseLives(turn)) {
    QGPU_MARK(LeaseBack);
    moveTo(MemberState::Member, "joined: term " + std::to_string(sessionTerm_));
    onLeaseDue(turn);
  }
}

void MemberSession::onLeaseDue(Turn& turn) {
  if (state_ != MemberState::Member) return;
  if (!leaseLives(turn)) return overLease(turn);
  later(turn, leaseFrom_ + lease_ - turn.now(), MemberTick::Lease);
}

void MemberSession::overLease(Turn& turn) {
  QGPU_MARK(LeaseOver);
  moveTo(MemberState::LeaseOver,
         "lease over: the scheduler has seen no beat of this node for " + lifetime(lease_));
  later(turn, member_.options().leaseOverMax, MemberTick::LeaseDrop);
}

}  // namespace qgpu
