#include <algorithm>

#include "tests/sim/checkers/card_book.h"

namespace qgpu::sim {
void CardBook::restartShares() {
  for (Seat& seat : seats_) {
    seat.excess = seat.lag = 0;
    seat.waited = Nanos(0);
    seat.indebted = seat.late || seat.owes;
    seat.slackBefore = slack_;
    seat.othersBefore = others_ - joins_;
  }
}

// What a task may count on while it wants the card, in permille of it; 0: nothing.
std::int64_t CardBook::weight(const Seat& seat) const {
  if (policyPending_ || policy_ == Policy::FixedShare || others_ == 0) return 0;
  if (policy_ == Policy::BestEffort) return 1000 / others_;
  return shares_ <= 1000 ? seat.share : seat.share * 1000 / shares_;
}

void CardBook::judgeShares(Nanos now) {
  const Nanos settling = phase_ == Phase::Settling ? now - seats_[holder_].holdAt : Nanos(0);
  // A slice ends in a turn of the card: who had it while its loop stood still has that time to its
  // account, also if it wants the card anew only after it.
  const Nanos turn = sliceMax_ + latest_ + std::max(longestSettle_, settling);
  for (std::size_t i = 0; i < seats_.size(); ++i) {
    const Seat& seat = seats_[i];
    if (seat.online() || seat.exclusive) continue;
    if (sure(Policy::FixedShare)) judgeCap(seat, i == holder_, now);
    if (seat.wants && !seat.indebted && !policyPending_) judgeLag(seat, turn);
  }
}

// A4 over every window: D = used - share x t; D - min D <= one slice + one settling time. `excess`
// is D - min D. The settling time is the longest that this task took: what it runs over is paid
// back, so no more than one of them is ever outstanding.
void CardBook::judgeCap(const Seat& seat, bool isHolder, Nanos now) {
  if (isHolder && seat.open && seat.excess > (sliceMax_ + kTurn).value * 1000) {
    violated("A4", name(seat) + " goes on beyond its share");
  }
  const bool ends = seat.late || (isHolder && phase_ == Phase::Settling);
  const Nanos settling = std::max(seat.longestRun, ends ? now - seat.holdAt : Nanos(0));
  const Nanos bound = sliceMax_ + settling + latest_ + kTurn;
  if (seat.excess <= bound.value * 1000) return;
  violated("A4", name(seat) + " used " + std::to_string(seat.excess / 1000) +
                     " ns more than its share of some window; " + std::to_string(bound.value) +
                     " are allowed");
}

// A5: a backlogged task lags behind its share by a turn of each of the others at the most, and one
// more in windows that begin when its own slice has just ended; A8: and waits at a stretch for as
// long as these take for what it is ahead of them. A task that joins starts beside the others, so
// it may come in between once; one that wakes has a slice of saved credit.
void CardBook::judgeLag(const Seat& seat, Nanos turn) {
  const std::int64_t turns = seat.othersBefore + joins_;  // who was here, and all who came
  const Nanos slack = slack_ - seat.slackBefore;
  const Nanos credit = sliceMax_ * turns;
  const std::int64_t lagMax = (turn * (turns + 1) + credit + slack).value * 1000;
  if (weight(seat) > 0 && seat.lag > lagMax) {
    violated(policy_ == Policy::BurstShare ? "A5" : "A8",
             name(seat) + " lags " + std::to_string(seat.lag / 1000) + " ns behind its share; " +
                 std::to_string(lagMax / 1000) + " are allowed");
  }
  const bool equal = policy_ == Policy::BestEffort;
  const std::int64_t own = equal ? 1000 : seat.share;
  if (own == 0) return;
  const std::int64_t all = equal ? 1000 * turns : std::max<std::int64_t>(shares_, 1000);
  const Nanos waitMax = Nanos(mulDiv((turn * turns + credit).value, all, own)) + slack;
  if (seat.waited > waitMax) {
    violated("A8", name(seat) + " wants the card and may have it, and did not get it for " +
                       std::to_string(seat.waited.value) + " ns");
  }
}

}  // namespace qgpu::sim
