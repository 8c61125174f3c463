#pragma once
// What one card must look like, kept from the messages that its actor was given and the orders that
// it sent, and the judgement of each of its turns: A1, A2, A3, A6, A7, A10, A11 and A12 by orders,
// A4, A5 and A8 by shares, A9 by its reports.
//
// It is a second account of the rules of DESIGN 5, written apart from the arbiter: it takes no
// decision, it follows those that were taken and says where one breaks a rule. Time is measured at
// turns of the card, so a loop that stalls makes no card late; that the card asked to be woken in
// time is seen by its timers, which a stall does not hold up.

#include <cstdint>
#include <string>
#include <vector>

#include "tests/sim/watch.h"

namespace qgpu::sim {

constexpr Nanos kTurn = micros(2);  // a timer fires after the turn that is under way

// A task on a card.
struct Seat {
  std::uint64_t task = 0;
  Class taskClass = Class::Ordinary;
  std::int64_t share = 0;  // permille
  bool exclusive = false;
  bool wants = false;
  bool open = false, notify = false, contended = false;  // as ordered
  bool quarantined = false;
  bool late = false;  // ran beyond its settle bound; lateEpoch has not settled yet
  std::uint32_t lateEpoch = 0;
  std::uint32_t holdEpoch = 0;  // of the last hold, until its end was told; 0: none
  Nanos holdAt{0};
  std::uint32_t orders = 0;
  Nanos reportedAt{0};        // newest stamp of it
  Nanos quietSince = kNever;  // kNever: never had work
  Nanos usualGap = kNever;
  Nanos longestSettle{0};  // in time
  Nanos longestRun{0};     // from a hold to its end, however late
  // Accounts.
  Nanos used{0}, debt{0}, held{0};
  std::int64_t level = 0;   // charged - share x time, never below 0: ns x permille
  std::int64_t excess = 0;  // D - min D of A4 since the policy began: ns x permille
  // Since it began to want the card, or since the policy changed.
  Nanos waited{0};        // willing, and without the card
  std::int64_t lag = 0;   // behind its share: ns x permille
  bool indebted = false;  // ran late in that time: what it lacks is its own
  bool owes = false;      // ran late, and has not been granted since
  Nanos slackBefore{0};
  std::int64_t othersBefore = 0;  // how many there were then, less all that had ever joined

  bool online() const { return taskClass == Class::Online; }
};

class CardBook {
 public:
  CardBook(const Boot& boot, std::uint32_t index, Verdict& verdict, Nanos now);

  // --- in the order in which it happens ---
  void sent(const Carried& message, Nanos now);   // to the card
  void begin(const Carried& message, Nanos now);  // its turn
  void ordered(schema::GateOrder::Reader order, Nanos now);
  void reported(schema::CardReport::Reader report, Nanos now);
  void end(Nanos now);

  // When it must have been woken at the latest; kNever: nothing waits for time.
  Nanos due() const { return due_; }
  // That time has passed.
  void overdue(Nanos now);

  bool onlineActive() const { return onlineActive_; }
  const std::vector<Seat>& seats() const { return seats_; }

 private:
  enum class Phase : std::uint8_t { Free, Running, Parked, Settling };
  // Switch: what a slice takes to begin. It is told as idle, and is nobody's share.
  enum class Label : std::uint8_t { Used, Idle, Online, Switch };
  static bool charges(Label label) { return label == Label::Used || label == Label::Online; }
  static constexpr std::size_t kNone = SIZE_MAX;

  std::size_t find(std::uint64_t task) const;
  Seat* holder() { return holder_ == kNone ? nullptr : &seats_[holder_]; }
  bool slicing() const { return phase_ == Phase::Running || phase_ == Phase::Settling; }

  // What came in: card_book.cc.
  void joined(schema::Joined::Reader joined, Nanos now);
  void left(std::size_t at, Nanos now);
  void busy(std::size_t at, std::uint64_t stamp, Nanos now);
  void quiet(std::size_t at, std::uint64_t stamp, Nanos now);
  void settled(std::size_t at, schema::Settled::Reader settled, Nanos now);
  void died(std::size_t at, Nanos now);
  void told(std::size_t at, const Carried& message, Nanos now);
  void timePassed(Nanos now);
  void free();
  void lateness(const Carried& message, Nanos now);
  Nanos stampOf(Seat& seat, std::uint64_t stamp, Nanos now);
  Nanos onlineEnd() const;
  template <typename Each>
  void eachSpan(Nanos from, Nanos to, Each&& each) const;
  void advance(Nanos to);
  void account(Seat& seat, Nanos span, bool isHolder, Label label);

  // What was decided: card_judge.cc.
  void opened(std::size_t at, bool notify, Nanos now);
  void heldUp(std::size_t at, std::uint32_t epoch, Nanos patience, Nanos now);
  void hastened(std::size_t at, std::uint32_t epoch, Nanos now);
  bool protects(const Seat& seat, Nanos now) const;
  bool willing(std::size_t at) const;
  bool hasRoom(const Seat& seat) const;
  bool sure(Policy policy) const { return !policyPending_ && policy_ == policy; }
  bool capMayApply() const;
  bool anyoneWaits() const;
  void judgeOnline();
  void judgeWork(Nanos now);
  void judgeBorrower(Nanos now);
  void policyMoves(Nanos now);
  Nanos nextDue(Nanos now) const;

  // Shares and accounts: card_shares.cc.
  void restartShares();
  std::int64_t weight(const Seat& seat) const;
  void judgeShares(Nanos now);
  void judgeCap(const Seat& seat, bool isHolder, Nanos now);
  void judgeLag(const Seat& seat, Nanos turn);
  void judgeTask(schema::TaskShare::Reader share, Nanos now, Nanos slack);

  void violated(const char* invariant, const std::string& what);
  std::string name(const Seat& seat) const;

  Verdict& verdict_;
  const std::uint32_t index_;
  const Nanos onlineIdle_, sliceMin_, sliceMax_, lingerMax_, settleMax_;
  const std::int64_t settleFactor_;
  const Nanos patience_, resumeCost_;
  const Nanos start_;

  std::vector<Seat> seats_;
  Policy policy_;  // in force, unless policyMoves_
  Policy policyNext_;
  bool policyPending_ = false;  // chosen, and perhaps not in force yet
  bool policyUnsure_ = false;   // several were chosen meanwhile
  Nanos policyAt_{0};

  Phase phase_ = Phase::Free;
  std::size_t holder_ = kNone;  // of a non-online gate that is open or settles
  Nanos sliceAt_{0};
  Nanos workFrom_{0};  // the slice is charged from here
  Nanos lingerEnd_ = kNever;
  Nanos stopAt_{0};           // of the hold that settles: work may end by itself until then
  Nanos settleEnd_ = kNever;  // settling counts as over
  bool onlineActive_ = false;
  std::uint32_t onlineWanting_ = 0;
  std::uint32_t onlineHere_ = 0;
  std::int64_t others_ = 0;  // tasks that are not online, and their shares
  std::int64_t shares_ = 0;
  Nanos lastOnline_{0};
  Nanos ownerWaits_ = kNever;  // A6: since when an owner waits for a borrower

  Nanos last_;  // the accounts are up to here
  Nanos used_{0}, idle_{0}, online_{0};
  std::uint64_t holds_ = 0, overruns_ = 0, switches_ = 0;
  std::int64_t joins_ = 0;  // of tasks that are not online
  Nanos longestSettle_{0};  // of any task: from a hold until the card went on
  Nanos slack_{0};          // how late the card heard of things, in all
  std::uint32_t lastEpoch_ = 0;

  // This turn.
  bool hindsight_ = false;  // online was idle for longer than the card could know
  bool reaches_ = false;    // the message may change something
  bool stale_ = false;      // it is of an old epoch and must change nothing
  std::uint64_t joinedNow_ = 0, leftNow_ = 0, diedNow_ = 0;
  bool policyNow_ = false;
  bool began_ = false;  // a parked task began a slice

  Nanos due_ = kNever;
  std::uint64_t tick_ = 0;  // serial of a timer that fired and was not handled; 0: none
  Nanos tickAt_{0};
  Nanos lateNow_{0};  // how long it had been waiting when this turn began
  Nanos latest_{0};   // ... any turn
  struct Waiting {
    std::uint64_t serial;
    Nanos at;
  };
  std::vector<Waiting> mail_;  // sent to the card and not handled
};

}  // namespace qgpu::sim
