#include "actors/placement/what_if.h"

#include <utility>

#include "runtime/check.h"

namespace qgpu {
namespace {

// Imagined tasks have numbers that no task has.
constexpr std::uint64_t kImagined = std::uint64_t{3} << 62;

WhatIf::Levels levelsOf(const ClusterLedger& ledger) {
  const ClusterSums sums = ledger.sums();
  WhatIf::Levels levels;
  levels.fragments = ledger.fragmentPermille();
  // A card's tasks take from one pool only: ordinary ones from the first, offline ones from the
  // second, and online ones from none.
  if (sums.cards != 0) levels.allocated = (sums.ordinary + sums.greedy).value / sums.cards;
  return levels;
}

}  // namespace

ClusterLedger copyOfNode(const ClusterLedger& ledger, NodeId node) {
  ClusterLedger copy{ClusterLedger::Options{}};
  const NodeId only = copy.setNode(ledger.facts(node)).first;
  copy.setLife(only, ledger.life(node));
  copy.setCordoned(only, ledger.cordoned(node));
  for (const TaskId task : ledger.tasksOn(node)) {
    Spot spot = *ledger.spot(task);
    spot.node = only;
    copy.bind(task, spot, "");
  }
  return copy;
}

WhatIf::WhatIf(const ClusterLedger& ledger) : trial_(ledger.clone()), before_(levelsOf(ledger)) {}

WhatIf WhatIf::place(const ClusterLedger& ledger, const ClusterAsk& ask, std::uint32_t count) {
  QGPU_CHECK(count >= 1 && count <= kCountMax, "the caller has checked how many are asked");
  WhatIf trial(ledger);
  trial.ask_ = ask;
  trial.count_ = count;
  return trial;
}

WhatIf WhatIf::drain(const ClusterLedger& ledger, NodeId node, std::optional<std::size_t> card,
                     std::vector<Mover> movers) {
  WhatIf trial(ledger);
  if (card) {
    trial.trial_.setMark(node, *card, CardMark::Draining);
  } else {
    trial.trial_.setCordoned(node, true);
  }
  trial.drained_.emplace(node, card);
  trial.movers_ = std::move(movers);
  return trial;
}

WhatIf WhatIf::evict(const ClusterLedger& ledger, TaskId task, const ClusterAsk& ask,
                     const Eviction& eviction, std::vector<Mover> victims) {
  WhatIf trial(ledger);
  for (const TaskId victim : eviction.victims) trial.trial_.release(victim);
  trial.trial_.bind(task, eviction.spot, ask.application);
  trial.landed_.push_back({task, eviction.spot, eviction.victims});
  trial.movers_ = std::move(victims);
  return trial;
}

bool WhatIf::step(std::size_t tasks) {
  for (std::size_t n = 0; n < tasks; ++n) {
    const bool went = placed_ < count_ ? placeOne() : moveOne();
    if (!went) break;
  }
  if (placed_ < count_ || next_ < movers_.size()) return false;
  after_ = levelsOf(trial_);
  return true;
}

// Where one fits no more, none of those that are left does.
bool WhatIf::placeOne() {
  Result<Spot> spot = trial_.place(ask_);
  if (!spot) {
    stay_.push_back({TaskId{0}, count_ - placed_, spot.error().message});
    placed_ = count_;
    return true;
  }
  trial_.bind(TaskId{kImagined | placed_}, *spot, ask_.application);
  landed_.push_back({TaskId{0}, std::move(*spot), {}});
  ++placed_;
  return true;
}

// That what is drained takes no new tasks is no news, and to uncordon it no help.
std::string WhatIf::whyStays(const ClusterAsk& ask, const Error& error) const {
  if (!drained_ || error.code != ErrorCode::Cordoned) return error.message;
  const Error elsewhere = trial_.refusalWithout(ask, drained_->first, drained_->second);
  if (elsewhere.code != ErrorCode::Infeasible) return elsewhere.message;
  return "no other card of the cluster would do for it, even if it were empty";
}

// Its new place is chosen while it holds the old one, as in earnest.
bool WhatIf::moveOne() {
  if (next_ >= movers_.size()) return false;
  Mover& mover = movers_[next_++];
  if (!mover.stays.empty()) {
    stay_.push_back({mover.task, 1, std::move(mover.stays)});
    return true;
  }
  Result<Spot> spot = trial_.place(mover.ask);
  if (!spot) {
    stay_.push_back({mover.task, 1, whyStays(mover.ask, spot.error())});
    return true;
  }
  trial_.release(mover.task);
  trial_.bind(mover.task, *spot, mover.ask.application);
  landed_.push_back({mover.task, std::move(*spot), {}});
  return true;
}

}  // namespace qgpu
