#include <algorithm>

#include "tests/sim/checkers/card_book.h"

namespace qgpu::sim {
namespace {

using Order = schema::GateOrder::Order;

}  // namespace

// --- orders ---

void CardBook::ordered(schema::GateOrder::Reader order, Nanos now) {
  const std::uint64_t task = order.getTask();
  if (order.getOrder() == Order::CLOSE) {
    if (task == leftNow_) return;
    return violated("A12", "task " + std::to_string(task) + " is closed though it has not left");
  }
  const std::size_t at = find(task);
  if (order.getOrder() == Order::HASTEN) return hastened(at, order.getEpoch(), now);
  if (order.getEpoch() == 0) {  // the word that makes the port speak of a task
    if (at != kNone && task == joinedNow_ && order.getOrder() == Order::HOLD) return;
    return violated("A10", "an order without an epoch for task " + std::to_string(task));
  }
  if (order.getEpoch() <= lastEpoch_) {
    violated("A10",
             "epoch " + std::to_string(order.getEpoch()) + " after " + std::to_string(lastEpoch_));
  }
  lastEpoch_ = order.getEpoch();
  if (at == kNone) {
    return violated("A10", "an order for task " + std::to_string(task) + ", which is not here");
  }
  Seat& seat = seats_[at];
  if (!reaches_) violated("A10", name(seat) + ": an order where nothing had happened");
  // Any word may make the card see that a slice has run long enough; but not that one is over.
  if (stale_ && order.getOrder() == Order::OPEN) {
    violated("A10", name(seat) + ": an order because of a stale word");
  }
  ++switches_;
  ++seat.orders;
  if (order.getOrder() == Order::HOLD) {
    return heldUp(at, order.getEpoch(), Nanos(static_cast<std::int64_t>(order.getPatienceNs())),
                  now);
  }
  const bool same =
      seat.open && seat.notify == order.getNotify() && seat.contended == order.getContended();
  if (same) violated("A12", name(seat) + ": an order that changes nothing");
  if (!seat.online()) opened(at, order.getNotify(), now);
  seat.open = true;
  seat.notify = order.getNotify();
  seat.contended = order.getContended();
}

void CardBook::opened(std::size_t at, bool notify, Nanos now) {
  Seat& seat = seats_[at];
  if (onlineActive_ && !seat.exclusive) {
    violated("A3", name(seat) + " is granted while online is active");
  }
  if (seat.quarantined) violated("A11", name(seat) + " is granted in quarantine");
  if (holder_ != kNone && holder_ != at) {
    return violated("A1", name(seat) + " is granted while " + name(seats_[holder_]) +
                              (phase_ == Phase::Settling ? " settles" : " has the card"));
  }
  if (holder_ == at && phase_ == Phase::Settling) {
    violated("A12", name(seat) + " is granted before its hold ended");
  }
  if (holder_ == at && notify && phase_ == Phase::Running) {
    if (seat.wants) violated("A7", name(seat) + " loses its slice though it has work");
    if (lingerEnd_ > now && diedNow_ != seat.task) {
      violated("A7", name(seat) + " loses its slice before its linger is over");
    }
    phase_ = Phase::Parked;
    lingerEnd_ = kNever;
  }
  if (holder_ == at && phase_ != Phase::Free) return;
  holder_ = at;
  phase_ = notify ? Phase::Parked : Phase::Running;
  sliceAt_ = last_;
  workFrom_ = last_ + resumeCost_;
  lingerEnd_ = kNever;
  seat.late = seat.owes = false;  // what still runs of it is now its own slice
  seat.waited = Nanos(0);
}

// Under which a slice is not cut short (A12): only online, death, the cap or an owner may do so.
bool CardBook::protects(const Seat& seat, Nanos now) const {
  if (!seat.wants || seat.notify || onlineActive_ || diedNow_ == seat.task) return false;
  if (policyPending_ || policy_ == Policy::FixedShare) return false;
  if (policy_ == Policy::BurstShare && seat.share == 0) return false;
  return now - sliceAt_ < sliceMin_;
}

void CardBook::heldUp(std::size_t at, std::uint32_t epoch, Nanos patience, Nanos now) {
  Seat& seat = seats_[at];
  ++holds_;
  if (seat.online()) return violated("A2", name(seat) + " is online and held");
  if (!seat.open) violated("A12", name(seat) + " is held twice");
  if (seat.exclusive) violated("A2", name(seat) + " has whole cards and is held");
  if (protects(seat, now)) violated("A12", name(seat) + " is held before the least slice");
  const std::int64_t over = seat.excess - (sliceMax_ + lateNow_ + kTurn).value * 1000;
  if (sure(Policy::FixedShare) && over > 1000) {
    violated("A4", name(seat) + " is held " + std::to_string(over / 1000) + " ns too late");
  }
  seat.open = seat.notify = seat.contended = false;
  seat.holdEpoch = epoch;
  seat.holdAt = now;
  if (patience > patience_) violated("A4", name(seat) + " may run on for longer than agreed");
  if (patience > Nanos(0) && onlineActive_) {
    violated("A3", name(seat) + " may run on though online wants the card");
  }
  workFrom_ = std::min(workFrom_, now);
  stopAt_ = now + patience;
  if (diedNow_ == seat.task) return free();  // nothing is left to settle
  phase_ = Phase::Settling;
  lingerEnd_ = kNever;
  const Nanos bound = std::max(settleMax_, seat.longestSettle * settleFactor_);
  constexpr std::int64_t kFactorMax = 10;  // HAZARDS 4, capped so that no task moves it at will
  settleEnd_ = now + std::min(bound, settleMax_ * kFactorMax);
}

// Online waits: what the holder may run on for is over.
void CardBook::hastened(std::size_t at, std::uint32_t epoch, Nanos now) {
  if (at == kNone || at != holder_ || phase_ != Phase::Settling || epoch != seats_[at].holdEpoch) {
    return violated("A10", "a hold is hastened that is none, or over");
  }
  if (!onlineActive_) violated("A12", name(seats_[at]) + " is hastened and nobody is online");
  if (now >= stopAt_) violated("A12", name(seats_[at]) + " is hastened twice, or late");
  stopAt_ = now;
}

// --- the end of a turn ---

void CardBook::end(Nanos now) {
  if (reaches_) {
    policyMoves(now);
    judgeOnline();
    if (onlineActive_ && phase_ == Phase::Settling && now < stopAt_) {
      violated("A3", name(seats_[holder_]) + " runs on though online wants the card");
    }
    if (!onlineActive_) judgeWork(now);
    judgeBorrower(now);
    judgeShares(now);
    const std::size_t dead = diedNow_ == 0 ? kNone : find(diedNow_);
    if (dead != kNone && dead == holder_ && !seats_[dead].exclusive) {
      violated("A11", name(seats_[dead]) + " is dead and still has the card");
    }
  }
  due_ = nextDue(now);
}

// What was chosen is in force once no slice is under way, or its slice must be over.
void CardBook::policyMoves(Nanos now) {
  if (!policyPending_) return;
  const bool over = phase_ == Phase::Running && now >= policyAt_ + sliceMax_;
  if (slicing() && !over) return;
  const bool changed = policyUnsure_ || policyNext_ != policy_;
  const bool capped = !policyUnsure_ && changed && policyNext_ == Policy::FixedShare;
  policy_ = policyNext_;
  policyPending_ = policyUnsure_ = false;
  if (!changed) return;
  restartShares();
  if (!capped) return;
  // Credit and debt from before are a slice at the most; what came since was charged in full.
  const std::int64_t cap = (sliceMax_ + (now - policyAt_)).value * 1000;
  for (Seat& seat : seats_) seat.level = std::min(seat.level, cap);
}

void CardBook::judgeOnline() {
  for (std::size_t i = 0; i < seats_.size(); ++i) {
    const Seat& seat = seats_[i];
    if (!seat.online()) {
      if (seat.open && !seat.exclusive && onlineActive_) {
        violated("A3", name(seat) + " is open beside active online");
      }
      continue;
    }
    if (!seat.open) violated("A2", name(seat) + " is online and shut");
    if (seat.wants && seat.notify) violated("A3", name(seat) + " works and its gate still rings");
    if (!onlineActive_ && !seat.notify) {
      violated("A3", name(seat) + " is idle and its gate does not ring");
    }
  }
}

bool CardBook::willing(std::size_t at) const {
  const Seat& seat = seats_[at];
  return seat.wants && !seat.online() && !seat.quarantined && at != holder_;
}

bool CardBook::capMayApply() const {
  return policy_ == Policy::FixedShare || (policyPending_ && policyNext_ == Policy::FixedShare) ||
         policyUnsure_;
}

// Surely: a whole slice fits beneath the cap, however long the slices are now.
bool CardBook::hasRoom(const Seat& seat) const {
  return !capMayApply() || (seat.share > 0 && seat.level <= seat.share * sliceMax_.value);
}

bool CardBook::anyoneWaits() const {
  for (std::size_t i = 0; i < seats_.size(); ++i) {
    if (willing(i) && hasRoom(seats_[i])) return true;
  }
  return false;
}

void CardBook::judgeWork(Nanos now) {
  const Seat* const holds = holder();
  if (holds != nullptr && began_ && holds->notify && phase_ == Phase::Running) {
    violated("A7", name(*holds) + " works and its gate still rings");
  }
  bool wanted = onlineHere_ > 0;
  for (std::size_t i = 0; i < seats_.size(); ++i) {
    if (!willing(i)) continue;
    wanted = true;
    if (!hasRoom(seats_[i])) continue;
    if (holds == nullptr) violated("A7", "idle though " + name(seats_[i]) + " wants it");
    if (phase_ == Phase::Parked) {
      violated("A7", name(seats_[i]) + " waits for " + name(*holds) + ", which wants nothing");
    }
    if (phase_ == Phase::Running && lingerEnd_ <= now) violated("A7", "the linger is over");
  }
  if (holds == nullptr || !holds->open || holds->exclusive) return;
  if (wanted && !holds->contended) {
    violated("A11", name(*holds) + " is not told that others want the card: it may settle long");
  }
  if (sure(Policy::FixedShare) && holds->share == 0) {
    violated("A4", name(*holds) + " has no share and is open under fixed-share");
  }
}

// Under burst-share who lives on idle time gives way to an owner.
void CardBook::judgeBorrower(Nanos now) {
  const Seat* const holds = holder();
  const bool borrows = sure(Policy::BurstShare) && !onlineActive_ && holds != nullptr &&
                       holds->open && !holds->exclusive && holds->share == 0;
  bool owner = false;
  for (std::size_t i = 0; borrows && i < seats_.size(); ++i) {
    owner = owner || (willing(i) && seats_[i].share > 0);
  }
  if (!owner) {
    ownerWaits_ = kNever;
  } else if (ownerWaits_ == kNever) {
    ownerWaits_ = now;
  } else if (now - ownerWaits_ > sliceMax_ + lateNow_) {
    violated("A6", name(*holds) + " lives on idle time and keeps an owner out");
  }
}

// --- time ---

Nanos CardBook::nextDue(Nanos now) const {
  Nanos due = phase_ == Phase::Settling ? settleEnd_ : kNever;
  if (onlineActive_) return std::min(due, onlineEnd());
  const bool capped = sure(Policy::FixedShare);
  if (phase_ == Phase::Running) {
    const Seat& seat = seats_[holder_];
    due = std::min(due, lingerEnd_);
    if (seat.wants && anyoneWaits()) due = std::min(due, now + sliceMax_);
    if (capped && !seat.exclusive && seat.share < 1000 && seat.wants) {
      const std::int64_t room = std::max<std::int64_t>(sliceMax_.value * 1000 - seat.excess, 0);
      due = std::min(due, now + Nanos(room / (1000 - seat.share) + 1));
    }
  }
  if (!capped || slicing()) return due;
  for (std::size_t i = 0; i < seats_.size(); ++i) {
    const Seat& seat = seats_[i];
    if (!willing(i) || seat.share == 0 || seat.late) continue;
    const std::int64_t over = seat.level - seat.share * sliceMax_.value;
    if (over > 0) due = std::min(due, now + Nanos(over / seat.share + 1));
  }
  return due;
}

void CardBook::overdue(Nanos now) {
  const Nanos due = due_;
  due_ = kNever;           // once is enough
  if (tick_ != 0) return;  // it was woken; its loop has no turns
  const std::string what = std::to_string((now - due).value) + " ns after its time nobody woke it";
  if (phase_ == Phase::Settling) return violated("A11", "it waits too long to settle: " + what);
  if (onlineActive_) return violated("A7", "online is idle: " + what);
  const bool capped = sure(Policy::FixedShare) && phase_ == Phase::Running;
  violated(capped ? "A4" : "A7", (capped ? "its holder is at its cap: " : "") + what);
}

}  // namespace qgpu::sim
