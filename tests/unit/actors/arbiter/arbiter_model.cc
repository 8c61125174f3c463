#include "tests/unit/actors/arbiter/arbiter_model.h"

#include <algorithm>

namespace qgpu {

ArbiterModel::ArbiterModel(ArbiterConfig config, std::vector<ModelTask> tasks, std::uint64_t seed,
                           Nanos jitter)
    : config_(config),
      tasks_(std::move(tasks)),
      states_(tasks_.size()),
      random_(seed * 0x9e3779b97f4a7c15ull + 1),
      jitter_(jitter),
      arbiter_(config, Nanos(0)),
      checker_(config, Nanos(0)) {
  for (std::size_t i = 0; i < tasks_.size(); ++i) {
    states_[i].submitAt = tasks_[i].startAt;
    tell(ArbiterEvent::Kind::Join, i, now_);
  }
}

void ArbiterModel::tell(ArbiterEvent::Kind kind, std::size_t index, Nanos since,
                        std::uint32_t epoch) {
  ArbiterEvent event;
  event.kind = kind;
  if (index < tasks_.size()) event.task = tasks_[index].spec.id;
  if (kind == ArbiterEvent::Kind::Join) event.spec = tasks_[index].spec;
  event.now = now_;
  event.since = since;
  event.epoch = epoch;
  const std::string failure = checker_.run(arbiter_, event, out_);
  if (failure_.empty() && !failure.empty()) failure_ = failure + " at " + describe(event);
  obey();
}

Nanos ArbiterModel::charged(std::size_t index) const {
  const auto view = arbiter_.task(tasks_[index].spec.id, now_);
  return view->used + view->overrun;
}

Nanos ArbiterModel::vary(Nanos base) {
  if (jitter_ == Nanos(0)) return base;
  random_ = random_ * 6364136223846793005ull + 1442695040888963407ull;
  return base + Nanos(static_cast<std::int64_t>(random_ >> 33) % jitter_.value);
}

bool ArbiterModel::pausedAt(std::size_t index, Nanos at) const {
  return at >= tasks_[index].pauseAt && at < tasks_[index].resumeAt;
}

Nanos ArbiterModel::nextEvent() const {
  Nanos next = arbiter_.nextDeadline();
  for (std::size_t i = 0; i < tasks_.size(); ++i) {
    const State& state = states_[i];
    next = std::min(next, state.settleAt);
    if (!state.working) next = std::min(next, state.submitAt);
    if (state.working && runs(state)) next = std::min(next, now_ + state.left);
  }
  return std::max(next, now_);
}

void ArbiterModel::runUntil(Nanos end) {
  for (Nanos next = nextEvent(); next <= end; next = nextEvent()) {
    advance(next);
    step();
  }
  advance(end);
}

// Kernels of open gates run; online kernels share the hardware freely, so each runs at full speed.
void ArbiterModel::advance(Nanos to) {
  for (State& state : states_) {
    if (!state.working || !runs(state)) continue;
    const Nanos span = (state.open ? to : std::min(to, state.runsUntil)) - now_;
    state.left -= span;
    state.worked += span;
  }
  now_ = to;
}

// Everything that is due at now_, told to the arbiter one event at a time.
void ArbiterModel::step() {
  for (std::size_t i = 0; i < tasks_.size(); ++i) {
    State& state = states_[i];
    if (state.settleAt <= now_) {
      const Nanos at = state.settleAt;
      state.settleAt = kNever;
      tell(ArbiterEvent::Kind::Settled, i, at, state.settleEpoch);
    }
    if (state.working && state.left <= Nanos(0)) {
      state.working = false;
      state.runsUntil = now_;
      const Nanos gap = tasks_[i].gap == Nanos(0) ? Nanos(0) : vary(tasks_[i].gap);
      state.submitAt = now_ + gap;
      if (pausedAt(i, state.submitAt)) state.submitAt = tasks_[i].resumeAt;
      if (tasks_[i].gap > Nanos(0) || state.submitAt > now_) {
        state.wants = false;
        tell(ArbiterEvent::Kind::Quiet, i, now_);
      }
    }
    if (!state.working && state.submitAt <= now_) {
      state.working = true;
      state.left = std::max(vary(tasks_[i].kernel), Nanos(1));
      if (!state.wants) {
        state.wants = true;
        tell(ArbiterEvent::Kind::Busy, i, now_);
      }
    }
  }
  if (arbiter_.nextDeadline() <= now_) {
    tell(ArbiterEvent::Kind::Expire, tasks_.size(), now_);
  }
}

void ArbiterModel::obey() {
  for (const GateDecision& order : out_.gates) {
    ++orders_;
    for (std::size_t i = 0; i < tasks_.size(); ++i) {
      if (tasks_[i].spec.id != order.task) continue;
      State& state = states_[i];
      state.open = order.kind == GateDecision::Kind::Open;
      if (state.open) continue;
      // What is left of the kernel ends by itself where the hold has the patience.
      const bool ends = state.working && state.left <= order.patience;
      state.settleAt = now_ + (ends ? state.left : order.patience + vary(tasks_[i].settle));
      state.runsUntil = now_ + order.patience;
      state.settleEpoch = order.epoch;
    }
  }
}

}  // namespace qgpu
