#include "tests/sim/checkers/card_book.h"

#include <algorithm>

namespace qgpu::sim {
namespace {

// The usual gap moves by a quarter of what a new one differs (DESIGN 5.5: "its usual gap").
constexpr std::int64_t kGapPart = 4;
constexpr std::size_t kTasksMax = 1024;  // of one card, as the card actor's header says

Nanos toNanos(std::uint64_t word) {
  return Nanos(static_cast<std::int64_t>(std::min<std::uint64_t>(word, INT64_MAX)));
}

}  // namespace

CardBook::CardBook(const Boot& boot, std::uint32_t index, Verdict& verdict, Nanos now)
    : verdict_(verdict),
      index_(index),
      onlineIdle_(boot.onlineIdle),
      sliceMin_(boot.sliceMin),
      sliceMax_(boot.sliceMax),
      lingerMax_(boot.lingerMax),
      settleMax_(boot.settleMax),
      settleFactor_(boot.settleFactor),
      patience_(boot.patience),
      resumeCost_(boot.resumeCost),
      start_(now),
      policy_(boot.policy),
      policyNext_(boot.policy),
      last_(now) {}

void CardBook::violated(const char* invariant, const std::string& what) {
  verdict_.violated(invariant, "card " + std::to_string(index_) + ": " + what);
}

std::string CardBook::name(const Seat& seat) const {
  return "task " + std::to_string(seat.task);
}

std::size_t CardBook::find(std::uint64_t task) const {
  for (std::size_t i = 0; i < seats_.size(); ++i) {
    if (seats_[i].task == task) return i;
  }
  return kNone;
}

// --- what comes in ---

void CardBook::sent(const Carried& message, Nanos now) {
  if (message.timer) {  // it has one timer: an older tick that was not handled was cancelled
    std::erase_if(mail_, [this](const Waiting& mail) { return mail.serial == tick_; });
    tick_ = message.serial;
    tickAt_ = now;
  }
  mail_.push_back({message.serial, now});
}

// What the card could not know yet is nobody's fault; it is added up once, where waits overlap.
void CardBook::lateness(const Carried& message, Nanos now) {
  for (std::size_t i = 0; i < mail_.size(); ++i) {
    if (mail_[i].serial != message.serial) continue;
    slack_ += std::max(Nanos(0), now - std::max(mail_[i].at, last_));
    mail_[i] = mail_.back();
    mail_.pop_back();
    return;
  }
}

void CardBook::begin(const Carried& message, Nanos now) {
  lateness(message, now);
  stale_ = false;
  joinedNow_ = leftNow_ = diedNow_ = 0;
  policyNow_ = began_ = false;
  const bool nothingDue = tick_ == 0 && due_ > now;
  lateNow_ = tick_ == 0 ? Nanos(0) : now - tickAt_;
  latest_ = std::max(latest_, lateNow_);
  if (message.timer && message.serial == tick_) tick_ = 0;
  reaches_ = true;
  const schema::Envelope::Reader& m = message.message;
  switch (m.which()) {
    case schema::Envelope::TICK:
      advance(now);
      break;
    case schema::Envelope::JOINED:
      joined(m.getJoined(), now);
      break;
    case schema::Envelope::POLICY_CHOSEN:
      advance(now);
      policyUnsure_ = policyUnsure_ || policyPending_;
      policyPending_ = policyNow_ = true;
      policyNext_ = static_cast<Policy>(m.getPolicyChosen().getPolicy());
      policyAt_ = now;
      break;
    case schema::Envelope::LEFT:
      told(find(m.getLeft().getTask()), message, now);
      break;
    case schema::Envelope::BUSY:
      told(find(m.getBusy().getTask()), message, now);
      break;
    case schema::Envelope::QUIET:
      told(find(m.getQuiet().getTask()), message, now);
      break;
    case schema::Envelope::SETTLED:
      told(find(m.getSettled().getTask()), message, now);
      break;
    case schema::Envelope::OWNER_DIED:
      told(find(m.getOwnerDied().getTask()), message, now);
      break;
    case schema::Envelope::RETIRED_LATE:
      told(find(m.getRetiredLate().getTask()), message, now);
      break;
    default:
      reaches_ = false;
  }
  stale_ = stale_ && nothingDue;
  if (reaches_) timePassed(now);
}

// News of a task; of one that is not here they change nothing.
void CardBook::told(std::size_t at, const Carried& message, Nanos now) {
  const schema::Envelope::Reader& m = message.message;
  if (at == kNone) {
    reaches_ = false;
    return;
  }
  switch (m.which()) {
    case schema::Envelope::LEFT:
      return left(at, now);
    case schema::Envelope::BUSY:
      return busy(at, m.getBusy().getSinceNs(), now);
    case schema::Envelope::QUIET:
      return quiet(at, m.getQuiet().getSinceNs(), now);
    case schema::Envelope::SETTLED:
      return settled(at, m.getSettled(), now);
    case schema::Envelope::OWNER_DIED:
      return died(at, now);
    default:
      break;
  }
  advance(now);  // retired late
  stale_ = !seats_[at].quarantined;
  seats_[at].quarantined = false;
}

void CardBook::joined(schema::Joined::Reader joined, Nanos now) {
  const bool ill = joined.getTask() == 0 || joined.getActor() == 0;
  if (ill || seats_.size() >= kTasksMax || find(joined.getTask()) != kNone) {
    reaches_ = false;
    return;
  }
  advance(now);
  Seat seat;
  seat.task = joinedNow_ = joined.getTask();
  const auto word = static_cast<std::uint16_t>(joined.getClass());
  seat.taskClass = word <= 2 ? static_cast<Class>(word) : Class::Ordinary;
  seat.share = std::min<std::int64_t>(joined.getSharePermille(), kWholeCard.value);
  seat.exclusive = joined.getExclusive();
  seat.reportedAt = now;
  if (seat.online()) {
    ++onlineHere_;
  } else {
    ++others_, ++joins_;
    shares_ += seat.share;
  }
  seats_.push_back(seat);
}

void CardBook::free() {
  phase_ = Phase::Free;
  holder_ = kNone;
  lingerEnd_ = settleEnd_ = kNever;
}

// It holds nothing, wants nothing and owes nothing further.
void CardBook::died(std::size_t at, Nanos now) {
  advance(now);
  Seat& seat = seats_[at];
  diedNow_ = seat.task;
  if (seat.late || (at == holder_ && phase_ == Phase::Settling)) {
    seat.longestRun = std::max(seat.longestRun, now - seat.holdAt);
    if (!seat.late) longestSettle_ = std::max(longestSettle_, now - seat.holdAt);
  }
  seat.late = seat.quarantined = false;
  seat.holdEpoch = 0;
  if (seat.wants) {
    if (seat.online()) --onlineWanting_, lastOnline_ = now;
    seat.wants = false;
    seat.quietSince = now;
  }
  if (at != holder_) return;
  if (phase_ == Phase::Settling) free();
  if (phase_ == Phase::Running && seat.exclusive) phase_ = Phase::Parked;  // its gate stays open
}

void CardBook::left(std::size_t at, Nanos now) {
  died(at, now);
  diedNow_ = 0;
  leftNow_ = seats_[at].task;
  if (seats_[at].online()) {
    --onlineHere_;
  } else {
    --others_;
    shares_ -= seats_[at].share;
    if (seats_[at].open) ++holds_, ++switches_;  // its end is a close, not a hold
  }
  if (at == holder_) free();
  seats_.erase(seats_.begin() + static_cast<std::ptrdiff_t>(at));
  if (holder_ != kNone && holder_ > at) --holder_;
}

// A stamp of a gate: not before the one before, not after now.
Nanos CardBook::stampOf(Seat& seat, std::uint64_t stamp, Nanos now) {
  return seat.reportedAt = std::clamp(toNanos(stamp), std::min(seat.reportedAt, now), now);
}

void CardBook::busy(std::size_t at, std::uint64_t stamp, Nanos now) {
  Seat& seat = seats_[at];
  const Nanos since = stampOf(seat, stamp, now);
  const bool woke = !seat.wants;
  const bool back = at == holder_ && woke;
  advance(back ? std::max(since, last_) : now);  // what it left idle ends when its work came
  if (woke && seat.quietSince != kNever) {
    const Nanos gap = std::max(since - seat.quietSince, Nanos(0));
    Nanos& usual = seat.usualGap;
    usual = usual == kNever ? gap : usual + (gap - usual) / kGapPart;
  }
  if (woke) {
    seat.waited = Nanos(0);
    seat.lag = 0;
    seat.indebted = seat.late || seat.owes;
    seat.slackBefore = slack_;
    seat.othersBefore = others_ - joins_;
  }
  seat.wants = true;
  if (seat.online()) {
    onlineWanting_ += woke ? 1 : 0;
    lastOnline_ = std::max(lastOnline_, since);
    onlineActive_ = true;
  } else if (at == holder_) {
    lingerEnd_ = kNever;
    if (phase_ == Phase::Parked) {
      phase_ = Phase::Running;
      sliceAt_ = workFrom_ = last_;
      began_ = true;
      lateNow_ = std::max(lateNow_, now - sliceAt_);  // it began before it was told
      latest_ = std::max(latest_, lateNow_);
    }
  }
  advance(now);
}

void CardBook::quiet(std::size_t at, std::uint64_t stamp, Nanos now) {
  Seat& seat = seats_[at];
  const Nanos since = stampOf(seat, stamp, now);
  if (seat.wants && at == holder_ && phase_ == Phase::Running) {
    const Nanos gap = std::min(seat.usualGap, lingerMax_);
    lingerEnd_ = since + std::min(lingerMax_, gap * 2);
    slack_ += now - since;
  }
  if (seat.online() && seat.wants) --onlineWanting_;
  if (seat.online() && onlineActive_) lastOnline_ = std::max(lastOnline_, since);
  hindsight_ = seat.online() && seat.wants;
  advance(now);
  hindsight_ = false;
  if (seat.wants) seat.quietSince = since;
  seat.wants = false;
}

void CardBook::settled(std::size_t at, schema::Settled::Reader settled, Nanos now) {
  Seat& seat = seats_[at];
  const std::uint32_t epoch = settled.getEpoch();
  const bool current = epoch != 0 && seat.holdEpoch == epoch;
  const Nanos bounded =
      std::clamp(toNanos(settled.getAtNs()), current ? std::min(seat.holdAt, now) : now, now);
  const Nanos stopped = std::max(bounded, last_);
  slack_ += now - stopped;  // idle until it was told
  if (current) seat.holdEpoch = 0;
  if (at == holder_ && phase_ == Phase::Settling && current) {
    advance(stopped);
    seat.longestSettle = std::max(seat.longestSettle, stopped - seat.holdAt);
    seat.longestRun = std::max(seat.longestRun, stopped - seat.holdAt);
    longestSettle_ = std::max(longestSettle_, now - seat.holdAt);
    free();
  } else if (seat.late && epoch == seat.lateEpoch) {
    advance(stopped);
    seat.longestRun = std::max(seat.longestRun, stopped - seat.holdAt);
    seat.late = seat.quarantined = false;
  } else {
    stale_ = true;
  }
  advance(now);
}

// Online that fell silent long enough is idle; a settling that took too long is over for the card.
void CardBook::timePassed(Nanos now) {
  if (onlineEnd() <= now) onlineActive_ = false;
  if (phase_ != Phase::Settling || now < settleEnd_) return;
  Seat& seat = seats_[holder_];
  seat.late = seat.quarantined = seat.indebted = seat.owes = true;
  seat.lateEpoch = seat.holdEpoch;
  longestSettle_ = std::max(longestSettle_, now - seat.holdAt);
  ++overruns_;
  free();
}

// --- time ---

Nanos CardBook::onlineEnd() const {
  return onlineActive_ && onlineWanting_ == 0 ? lastOnline_ + onlineIdle_ : kNever;
}

// Spans of one label each (A9: online before used before idle). each(span, label).
template <typename Each>
void CardBook::eachSpan(Nanos from, Nanos to, Each&& each) const {
  const Nanos online = onlineActive_ ? onlineEnd() : Nanos(0);
  const Nanos slice = phase_ == Phase::Running    ? lingerEnd_
                      : phase_ == Phase::Settling ? kNever
                                                  : Nanos(0);
  while (from < to) {
    Nanos until = to;
    Label label = Label::Idle;
    if (from < online) {
      label = Label::Online;
      until = std::min(to, online);
    } else if (from < workFrom_) {
      label = Label::Switch;
      until = std::min(to, workFrom_);
    } else if (from < slice) {
      label = Label::Used;
      until = std::min(to, slice);
    }
    each(until - from, label);
    from = until;
  }
}

void CardBook::advance(Nanos to) {
  if (to <= last_) return;
  eachSpan(last_, to, [&](Nanos span, Label label) {
    (label == Label::Online ? online_ : label == Label::Used ? used_ : idle_) += span;
    for (std::size_t i = 0; i < seats_.size(); ++i) {
      if (!seats_[i].online()) account(seats_[i], span, i == holder_, label);
    }
  });
  last_ = to;
}

void CardBook::account(Seat& seat, Nanos span, bool isHolder, Label label) {
  const bool slice = isHolder && slicing() && charges(label);
  const bool charged = slice || seat.late;
  if (slice && label == Label::Used) {
    seat.used += span;
  } else if (charged) {
    seat.debt += span;
  }
  const std::int64_t rise = span.value * ((charged ? 1000 : 0) - seat.share);
  seat.level = std::max<std::int64_t>(0, seat.level + rise);
  seat.excess = std::max<std::int64_t>(0, seat.excess + rise);
  if (!seat.wants) return;
  if (!seat.open) seat.held += span;
  const bool counts = !seat.quarantined && label != Label::Online && !hindsight_;
  const std::int64_t due = counts && label != Label::Switch ? span.value * weight(seat) : 0;
  seat.lag = std::max<std::int64_t>(0, seat.lag + due - (charged ? span.value * 1000 : 0));
  if (counts && !isHolder && hasRoom(seat)) seat.waited += span;
}

// --- reports ---

void CardBook::reported(schema::CardReport::Reader report, Nanos now) {
  constexpr Nanos kPerSwitch = micros(1);  // A9
  const Nanos slack = kPerSwitch * static_cast<std::int64_t>(switches_ + 1);
  Nanos used = used_, idle = idle_, online = online_;
  eachSpan(last_, now, [&](Nanos span, Label label) {
    (label == Label::Online ? online : label == Label::Used ? used : idle) += span;
  });
  const auto status = report.getStatus();
  const Nanos told[] = {toNanos(status.getUsedNs()), toNanos(status.getIdleNs()),
                        toNanos(status.getOnlineNs())};
  const Nanos sum = told[0] + told[1] + told[2];
  if (sum - (now - start_) > slack || (now - start_) - sum > slack) {
    violated("A9", "used, idle and online are " + std::to_string(sum.value) + " ns after " +
                       std::to_string((now - start_).value));
  }
  const Nanos own[] = {used, idle, online};
  const char* const names[] = {"used", "idle", "online"};
  for (int i = 0; i < 3; ++i) {
    if (told[i] - own[i] <= slack && own[i] - told[i] <= slack) continue;
    violated("A9", std::string(names[i]) + " is told as " + std::to_string(told[i].value) +
                       " ns, its gates and news say " + std::to_string(own[i].value));
  }
  if (status.getOnlineActive() != onlineActive_) violated("A3", "online activity is told wrongly");
  if (status.getHolds() != holds_) violated("A12", "holds are counted wrongly");
  if (status.getOverruns() != overruns_) violated("A11", "overruns are counted wrongly");
  for (const auto share : report.getShares()) judgeTask(share, now, slack);
}

void CardBook::judgeTask(schema::TaskShare::Reader share, Nanos now, Nanos slack) {
  const std::size_t at = find(share.getTask());
  if (at == kNone) return violated("A9", "an account of a task that is not here");
  const Seat& seat = seats_[at];
  Nanos used = seat.used, debt = seat.debt, held = seat.held;
  eachSpan(last_, now, [&](Nanos span, Label label) {
    const bool slice = at == holder_ && slicing() && charges(label);
    if (slice && label == Label::Used) {
      used += span;
    } else if (slice || seat.late) {
      debt += span;
    }
    if (seat.wants && !seat.open && !seat.online()) held += span;
  });
  const auto check = [&](const char* what, Nanos told, Nanos own) {
    if (told - own <= slack && own - told <= slack) return;
    violated("A9", name(seat) + ": " + what + " is told as " + std::to_string(told.value) +
                       " ns, gates and news say " + std::to_string(own.value));
  };
  check("used", toNanos(share.getUsedNs()), used);
  check("overrun", toNanos(share.getOverrunNs()), debt);
  check("held", toNanos(share.getHeldNs()), held);
  if (share.getQuarantined() != seat.quarantined) {
    violated("A11", name(seat) + ": its quarantine is told wrongly");
  }
}

}  // namespace qgpu::sim
