#pragma once
// The session of a node with its scheduler: the connection, hello and welcome, beats and the lease.
//
//   Down -> Gathering -> Greeting -> (Admitting ->) Member <-> LeaseOver;  TurnedAway;  all -> Down
//
// A session belongs to one connection. What is said in it is numbered without gaps; where a message
// can't leave, the connection is dropped, and the next hello tells everything again, so nothing
// else has to be repeated.
//
// The lease runs from the moment when the last beat that the scheduler saw had left, on this
// node's clock. Without it nothing new is bound: neither what the scheduler orders nor what
// somebody here asks for; what is bound runs on.
//
// Who calls: MemberActor (link, messages, ticks), the other parts of the member (what they say, and
// whether they may). Kept here: C1 (lower terms are refused, the highest is stored before it is
// obeyed; nothing is bound without a lease), A10 (messages of another session are dropped).

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "actors/member/member_context.h"
#include "schema/cluster.capnp.h"

namespace qgpu {

enum class MemberState : std::uint8_t {
  Down,        // no connection
  Gathering,   // connected; the node is asked what it has
  Greeting,    // hello is said
  Admitting,   // welcome; a term higher than any before is stored first
  Member,      // in a session, and its lease lives
  LeaseOver,   // in a session; nothing new is bound (C1)
  TurnedAway,  // by this scheduler; it is asked again later
};
bool mayMove(MemberState from, MemberState to);

class MemberSession {
 public:
  static constexpr Nanos kBeatMin = millis(10);  // whatever a scheduler says

  // Who is told where a session begins and where a connection is over; MemberActor is.
  class Owner {
   public:
    virtual void onEntered(Turn& turn) = 0;
    virtual void onLeft(const std::string& why) = 0;

   protected:
    ~Owner() = default;
  };

  MemberSession(MemberContext& member, Owner& owner) : member_(member), owner_(owner) {}

  // --- where it stands ---
  MemberState state() const { return state_; }
  const std::string& standing() const { return standing_; }  // for people
  bool inSession() const;
  // Whether something new may be bound. The timer of the lease may come late, the clock does not.
  bool mayBind(Turn& turn) const;
  std::uint64_t attempt() const { return attempt_; }  // number of the connection
  // Heard only if this is still the connection then.
  MemberContext::Heard ofThisAttempt(MemberContext::Heard heard) const;
  std::uint64_t termSeen() const { return termSeen_; }
  void noteTerm(std::uint64_t term) { termSeen_ = std::max(termSeen_, term); }
  std::uint64_t dropped() const { return dropped_; }  // messages of another session or term
  Nanos leaseFrom() const { return leaseFrom_; }      // what was said before has arrived

  // --- the connection ---
  void onLinkUp(Turn& turn);
  void onLinkDown(const std::string& why);
  void dropLink(const std::string& why, Turn& turn);

  // --- what is said ---
  void say(const std::function<void(schema::FromMember::Builder)>& fill, Turn& turn);
  // When it left; nothing where it does not leave, and then the connection is dropped.
  std::optional<Nanos> sayHello(const std::function<void(schema::MemberHello::Builder)>& fill,
                                Turn& turn);

  // --- what is heard ---
  // True where it is of this session, and for the other parts.
  bool onToMember(schema::ToMember::Reader message, Turn& turn);
  // Of another connection it is of no concern any more.
  void onTick(MemberTick kind, std::uint64_t attempt, Turn& turn);

 private:
  void moveTo(MemberState to, const std::string& standing);
  void leave(const std::string& why);
  bool leaseLives(Turn& turn) const;
  void onWelcome(schema::ToMember::Reader message, Turn& turn);
  void onTermStored(schema::Reply::Reader reply, Turn& turn);
  void onTurnedAway(schema::Failure::Reader failure, Turn& turn);
  void enter(Turn& turn);
  void onBeatDue(Turn& turn);
  void onBeatSeen(std::uint64_t stamp, Turn& turn);
  void onLeaseDue(Turn& turn);
  void overLease(Turn& turn);
  void later(Turn& turn, Nanos delay, MemberTick kind) const {
    MemberContext::later(turn, delay, kind, attempt_);
  }

  MemberContext& member_;
  Owner& owner_;
  MemberState state_ = MemberState::Down;
  std::string standing_;
  std::uint64_t attempt_ = 0;
  std::uint64_t nonce_ = 0;
  Nanos helloAt_{0};
  std::uint64_t session_ = 0;
  std::uint64_t seq_ = 0;  // of the last message that was sent
  std::uint64_t sessionTerm_ = 0;
  std::uint64_t termSeen_ = 0;
  Nanos lease_{0};
  Nanos beatEvery_{0};
  Nanos beatSaidAt_{0};
  Nanos leaseFrom_{0};
  std::uint64_t dropped_ = 0;
};

}  // namespace qgpu
