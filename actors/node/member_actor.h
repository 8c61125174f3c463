#pragma once
// The member actor: a node's part in a cluster. Towards the node actor it is a client: it asks what
// the node has, carries out what the scheduler ordered, and answers local binds, which it forwards.
// Towards the scheduler it speaks FromMember and hears ToMember, through a link that connects.
//
//   Down -> Gathering -> Greeting -> (Admitting ->) Member <-> LeaseOver;  TurnedAway;  all -> Down
//
// A session belongs to one connection. What is said in it is numbered without gaps; where a word
// can't leave, the connection is dropped, and the next hello tells everything again, so nothing
// else has to be repeated. A hello waits until the node has answered every bind of sessions before:
// what it does not name is not on this node and will not be (P3).
//
// The lease runs from the moment when the last beat that the scheduler saw had left, on this
// node's clock. Without it nothing new is bound: neither what the scheduler orders nor what
// somebody here asks for; what is bound runs on (C1).
//
// Kept here: C1 (lower terms are refused, the highest is stored before it is obeyed), C2 (each
// forwarded bind has one answer), C5 (queues bounded), P3, P6 (one effect and one answer for each
// task and epoch; a stale epoch changes nothing), A10 (words of another session are dropped).

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "actors/base/asker.h"
#include "actors/base/outbox.h"
#include "actors/node/member_parts.h"
#include "runtime/actor.h"
#include "runtime/message_words.h"

namespace qgpu {

class MemberActor final : public Actor {
 public:
  static constexpr std::size_t kForwardsMax = 256;     // local binds that wait for the scheduler
  static constexpr std::size_t kOrdersMax = 4'096;     // that wait for the node
  static constexpr std::size_t kAtNodeMax = 64;        // that the node works on
  static constexpr std::size_t kOverKept = 1'024;      // tasks that ended or were refused
  static constexpr std::size_t kEndedKept = 1'024;     // of which the scheduler may not know yet
  static constexpr std::size_t kTasksPerWord = 64;     // in one message after the hello
  static constexpr Nanos kResend = millis(20);         // of what a full mailbox refused
  static constexpr Nanos kBeatMin = millis(10);        // whatever a scheduler says

  MemberActor(MemberOptions options, MemberPeers peers);

  void handle(schema::Envelope::Reader message, Turn& turn) override;

  MemberState state() const { return state_; }
  std::uint64_t termSeen() const { return termSeen_; }
  std::uint64_t dropped() const { return dropped_; }   // words of another session or term
  std::size_t forwards() const { return forwards_.size(); }

  // --- messages; see schema/envelope.capnp for who sends them ---
  void onTick(schema::Tick::Reader tick, Turn& turn);
  void onLinkUp(capnp::Void, Turn& turn);
  void onLinkDown(capnp::Text::Reader why, Turn& turn);
  void onToMember(schema::ToMember::Reader word, Turn& turn);
  void onRequest(schema::Request::Reader request, Turn& turn);
  void onReply(schema::Reply::Reader reply, Turn& turn);
  void onEventTold(schema::Event::Reader event, Turn& turn);
  void onUnexpected(schema::Envelope::Which, Turn&) {}

 private:
  enum class TickKind : std::uint32_t {
    Join, Beat, Lease, LeaseDrop, Retry, Forward, Batch, Refresh, EndAgain, Resend
  };
  enum class About : std::uint8_t { Nothing, Info, Cards, Tasks, Term, Order };
  // What a reply of the node is the answer to.
  struct Pending {
    About about = About::Nothing;
    std::uint64_t attempt = 0;
    Compare compare = Compare::States;
    MemberOrder order;
  };
  struct Forward {
    Asker asker;
    Nanos until;
    std::uint64_t task = 0;      // what became of it; 0: nothing yet
  };
  struct Ended {
    HeldRecord record;
    Nanos saidAt = kNever;       // never: not yet
  };
  using Fill = std::function<void(schema::Request::Builder)>;
  using Say = std::function<void(schema::FromMember::Builder)>;

  // The session (member_actor.cc).
  void moveTo(MemberState to, const std::string& standing);
  bool inSession() const;
  bool leaseLives(Turn& turn) const;
  bool mayBind(Turn& turn) const;
  void leave(const std::string& why);
  void dropLink(const std::string& why, Turn& turn);
  void say(const Say& fill, Turn& turn);
  void sayHello(Turn& turn);
  void onWelcome(schema::ToMember::Reader word, Turn& turn);
  void onTurnedAway(schema::Failure::Reader failure, Turn& turn);
  void enterSession(Turn& turn);
  void onBeatDue(Turn& turn);
  void onBeatSeen(std::uint64_t stamp, Turn& turn);
  void onLeaseDue(Turn& turn);
  void overLease(Turn& turn);
  TimerId tick(Turn& turn, Nanos delay, TickKind kind, std::uint64_t value);
  void finishTurn(Turn& turn);

  // Orders and forwards (member_orders.cc).
  void onBindOrder(schema::OrderBind::Reader order, Turn& turn);
  void onEndOrder(schema::OrderEnd::Reader order, Turn& turn);
  void onMarkOrder(schema::OrderMark::Reader order, Turn& turn);
  void onForwarded(schema::MemberForwarded::Reader word, Turn& turn);
  void askAgain(std::uint64_t task, KnownTask& known);
  void pumpOrders(Turn& turn);
  void sendOrder(MemberOrder order);
  void onOrderReply(const Pending& pending, schema::Reply::Reader reply, Turn& turn);
  void onPlaced(const MemberOrder& order, schema::Bound::Reader bound, Turn& turn);
  void onNotPlaced(const MemberOrder& order, const Fault& why, Turn& turn);
  void onEndReply(const MemberOrder& order, schema::Reply::Reader reply, Turn& turn);
  void sayBound(std::uint64_t task, const KnownTask& known, Turn& turn);
  void sayRefused(std::uint64_t task, std::uint32_t epoch, const Fault& why, Turn& turn);
  void sayTasks(const std::vector<HeldRecord>& records, Turn& turn);
  static void noteOver(KnownTask& known, std::uint32_t epoch, Fault why);
  void markOver(std::uint64_t task, std::uint32_t epoch, Fault why);
  void settleForwards(std::uint64_t task);
  void onForwardDue(Turn& turn);
  void failForward(std::uint64_t forward, const Fault& why);
  void replyFailed(const Asker& asker, const Fault& why);
  void replyBound(const Asker& asker, const KnownTask& known);

  // What the node says (member_view.cc).
  std::uint64_t askNode(Pending pending, const Fill& fill);
  void gather();
  void askCards(Compare compare);
  void askTasks(Compare compare);
  void askDue(Turn& turn);
  void tellCardsAgain(Turn& turn);
  void armBatch(Turn& turn);
  void onCards(const Pending& pending, schema::Reply::Reader reply, Turn& turn);
  void onTasks(const Pending& pending, schema::Reply::Reader reply, Turn& turn);
  bool isAsked(std::uint64_t task) const;
  void noteHeld(const HeldRecord& record);
  void noteEnded(std::uint64_t nodeTask);
  void sayEnded(Turn& turn);
  void helloIfWhole(Turn& turn);
  void writeFacts(schema::NodeFacts::Builder facts) const;

  const MemberOptions options_;
  const MemberPeers peers_;
  MemberState state_ = MemberState::Down;
  std::string standing_;

  std::uint64_t attempt_ = 0;        // number of the connection
  std::uint64_t nonce_ = 0;
  Nanos helloAt_{0};
  std::uint64_t session_ = 0;
  std::uint64_t seq_ = 0;            // of the last word said
  std::uint64_t sessionTerm_ = 0;
  std::uint64_t termSeen_ = 0;
  Nanos lease_{0};
  Nanos beatEvery_{0};
  Nanos beatSaidAt_{0};
  Nanos leaseFrom_{0};
  std::uint64_t dropped_ = 0;

  std::uint64_t lastCorr_ = 0;
  std::map<std::uint64_t, Pending> pending_;
  std::size_t ordersAtNode_ = 0;
  std::size_t placesAtNode_ = 0;
  std::deque<MemberOrder> orders_;
  std::vector<MemberOrder> endsAgain_;
  std::map<std::uint64_t, KnownTask> known_;     // by the scheduler's number
  std::uint64_t lastOver_ = 0;
  std::deque<std::pair<std::uint64_t, std::uint64_t>> over_;   // stamps and tasks, oldest first
  std::uint64_t lastForward_ = 0;
  std::map<std::uint64_t, Forward> forwards_;    // in the order of their deadlines
  bool forwardArmed_ = false;

  bool gathered_ = false;            // asked for in this attempt
  Words info_;                       // schema::Reply, as the node gave it; empty: not yet
  Words cards_;                      // the same of its cards
  bool tasksKnown_ = false;
  std::string statesTold_;           // digests of the cards
  std::string useTold_;
  std::map<std::uint64_t, HeldRecord> told_;     // by the node's number
  std::deque<Ended> ended_;
  bool cardsDue_ = false;
  bool tasksDue_ = false;
  bool batchArmed_ = false;
  bool tasksAsked_ = false;

  Outbox outbox_;
  bool resendArmed_ = false;
};

}  // namespace qgpu
