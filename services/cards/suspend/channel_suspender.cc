#include "services/cards/suspend/channel_suspender.h"

#include <algorithm>

#include "runtime/planted.h"

namespace qgpu::suspend {

const char* nameOf(SuspendMethod method) {
  switch (method) {
    case SuspendMethod::kDisable:
      return "disable";
    case SuspendMethod::kDisableRestart:
      return "disable, restart";
    case SuspendMethod::kDisablePreempt:
      return "disable, preempt";
    case SuspendMethod::kSchedulingPreempt:
      return "disable scheduling, preempt";
  }
  return "";
}

// --- what is wanted ---

void ChannelSuspender::hold(Nanos now) {
  if (wanted_) return;
  wanted_ = true;
  reached_ = reachedAnew_ = false;
  againAfter_ = kAgainFirst;
  for (auto& [name, entry] : channels_) entry.taken = 0;
  beginAnew();
  noteStopped(now);
}

void ChannelSuspender::release(Nanos) {
  if (!wanted_) return;
  wanted_ = false;
  for (auto& [name, entry] : channels_) entry.given = 0;
  beginAnew();
}

void ChannelSuspender::beginAnew() {
  tries_ = gones_ = waits_ = 0;
  retryAt_ = Nanos(0);
  retryAfter_ = kRetryFirst;
}

void ChannelSuspender::again() {
  againAfter_ = kAgainFirst;
  maybeOn();
}

void ChannelSuspender::maybeOn() {
  if (!holds() || QGPU_PLANTED(UndoneKept)) return;
  reachedAnew_ = false;
  for (auto& [name, entry] : channels_) {
    if (entry.state == State::kOff) entry.state = State::kMaybe;
    entry.late = true;
  }
}

void ChannelSuspender::doubt(std::string why) {
  if (doubted()) return;
  doubt_ = std::move(why);
  beginAnew();
  std::erase_if(channels_, [](const auto& each) { return each.second.channel.dead; });
}

// --- what processes do ---

namespace {

bool names(std::uint32_t client, std::uint32_t name, const Channel& channel) {
  return channel.client == client &&
         (channel.channel == name || channel.group == name || client == name);
}

}  // namespace

void ChannelSuspender::made(const Channel& channel, bool touched) {
  const Name name{channel.client, channel.channel};
  const auto known = channels_.find(name);
  if (known == channels_.end() && channels_.size() == kChannelsMax) {
    return doubt("the task has more than " + std::to_string(kChannelsMax) + " channels");
  }
  const bool reached = known != channels_.end() && known->second.state != State::kOn;
  const bool ours = known != channels_.end() && !known->second.channel.dead &&
                    known->second.channel.process == channel.process;
  if (touched && ours) {  // told once more: what was counted of it holds
    if (reached) known->second.state = State::kMaybe;
    known->second.late = true;
    known->second.channel.fd = channel.fd;
    return;
  }
  // A name that comes again is a new channel, but what was said of the old one may still reach it.
  int offs = reached ? std::max(known->second.offs, 1) : 0;
  if (touched) offs = kOffsMax;
  channels_[name] = Entry{channel, offs != 0 ? State::kMaybe : State::kOn, offs};
}

void ChannelSuspender::ended(std::uint32_t client, std::uint32_t name) {
  std::erase_if(channels_,
                [&](const auto& each) { return names(client, name, each.second.channel); });
}

void ChannelSuspender::scheduled(std::uint32_t client, std::uint32_t name) {
  for (auto& [key, entry] : channels_) {
    if (!names(client, name, entry.channel)) continue;
    if (entry.state == State::kOff) entry.state = State::kMaybe;
    entry.late = true;
  }
}

// What was never proven may be anybody's. That it could not be is a doubt; that it was not even
// asked, as it died at once, is none.
void ChannelSuspender::processGone(std::uint32_t process) {
  bool unknown = false;
  for (auto& [name, entry] : channels_) {
    if (entry.channel.process != process || entry.channel.dead) continue;
    unknown = unknown || (entry.asked && !entry.named && !entry.channel.proven);
    const bool off = entry.state == State::kOff && entry.committed;
    entry.channel.dead = entry.channel.proven && !off && doubt_.empty();
  }
  std::erase_if(channels_, [process](const auto& each) {
    return each.second.channel.process == process && !each.second.channel.dead;
  });
  if (unknown) doubt("a process is dead that the driver could not be asked about");
}

// --- calls ---

template <typename Which>
bool ChannelSuspender::areOff(Which which) const {
  return std::all_of(channels_.begin(), channels_.end(), [&](const auto& each) {
    const Entry& entry = each.second;
    return !which(entry.channel) || (entry.state == State::kOff && entry.committed);
  });
}

bool ChannelSuspender::allOff() const {
  return areOff([](const Channel&) { return true; });
}

bool ChannelSuspender::computingOff() const {
  return holds() && !channels_.empty() &&
         areOff([](const Channel& channel) { return channel.computes(); });
}

template <typename Which>
bool ChannelSuspender::any(Which which) const {
  return std::any_of(channels_.begin(), channels_.end(),
                     [&](const auto& each) { return which(each.second); });
}

bool ChannelSuspender::free() const {
  if (asked_ && asked_->step == Step::kDisable) return false;
  return !any([](const Entry& entry) { return entry.state != State::kOn || entry.channel.dead; });
}

bool ChannelSuspender::has(std::uint32_t client, std::uint32_t channel) const {
  const auto found = channels_.find({client, channel});
  return found != channels_.end() && !found->second.channel.dead;
}

namespace {

// Leaves what one call may name.
void shorten(std::vector<Channel>& list, std::size_t ownersMax) {
  std::vector<std::pair<std::uint32_t, std::uint32_t>> owners;
  std::erase_if(list, [&](const Channel& each) {
    const std::pair owner(each.process, each.client);
    if (std::find(owners.begin(), owners.end(), owner) != owners.end()) return false;
    if (owners.size() == ownersMax) return true;
    owners.push_back(owner);
    return false;
  });
  if (list.size() > ChannelSuspender::kNamedMax) list.resize(ChannelSuspender::kNamedMax);
}

}  // namespace

std::vector<Channel> ChannelSuspender::chosen(bool disable) const {
  std::vector<Channel> list;
  for (const auto& [name, entry] : channels_) {
    if (entry.channel.dead) continue;
    if (disable ? entry.state != State::kOff : entry.state != State::kOn && !entry.stuck) {
      list.push_back(entry.channel);
    }
  }
  // Each once before any is enabled again: most run after the first.
  const auto given = [&](const Channel& each) {
    return disable ? 0 : channels_.at({each.client, each.channel}).given;
  };
  std::stable_sort(list.begin(), list.end(), [&](const Channel& a, const Channel& b) {
    return std::pair(given(a), !a.computes()) < std::pair(given(b), !b.computes());
  });
  // Of what is disabled, a call has what computes alone: copies would make it longer.
  if (disable && !list.empty() && list.front().computes()) {
    std::erase_if(list, [](const Channel& each) { return !each.computes(); });
  }
  shorten(list, kOwnersMax);
  return list;
}

// One that the driver refuses keeps nobody else off.
std::vector<Channel> ChannelSuspender::toEnable(Nanos now) {
  std::vector<Channel> list = chosen(false);
  if (list.empty() && now >= retryAt_ && any([](const Entry& entry) { return entry.stuck; })) {
    for (auto& [name, entry] : channels_) entry.stuck = false;
    waits_++;
    retryAfter_ = std::min(retryAfter_ * 2, kRetryMax);
    list = chosen(false);
  }
  if (singly_ && list.size() > 1) list.resize(1);
  return list;
}

// What one commit covers: a group; or by a restart all that an engine runs, since each has a
// runlist of its own.
ChannelSuspender::Name ChannelSuspender::committedBy(const Channel& channel) const {
  if (method_ == SuspendMethod::kDisableRestart && channel.engine != 0) return {0, channel.engine};
  return {channel.client, channel.group ? channel.group : channel.channel};
}

// The next channel whose group or engine is to be committed.
std::optional<Channel> ChannelSuspender::uncommitted() const {
  std::optional<Channel> found;
  for (const auto& [name, entry] : channels_) {
    if (entry.state != State::kOff || entry.committed || entry.channel.dead) continue;
    if (!found || (entry.channel.computes() && !found->computes())) found = entry.channel;
  }
  return found;
}

std::optional<Order> ChannelSuspender::ask(Step step, std::vector<Channel> channels) {
  asked_ = Order{step, std::move(channels)};
  for (const Channel& channel : asked_->channels) {
    Entry& entry = channels_.at({channel.client, channel.channel});
    entry.named = true;
    entry.late = false;
    entry.asked = entry.asked || step == Step::kProve;
    if (step == Step::kDisable) ++entry.offs;  // as it may have been, whatever is answered
    if (step != Step::kDisable && step != Step::kEnable) continue;
    if (step == Step::kEnable && QGPU_PLANTED(EnableTrusted)) continue;
    entry.state = State::kMaybe;
    entry.committed = false;
  }
  return asked_;
}

std::optional<Order> ChannelSuspender::next(Nanos now) {
  if (asked_) return std::nullopt;
  std::optional<Order> order;
  if (!staysOff()) {
    std::vector<Channel> touched = toEnable(now);
    if (!touched.empty()) order = ask(Step::kEnable, std::move(touched));
  } else if (holds()) {
    order = nextHeld(now);
  }
  return order ? order : nextDetached(now);
}

std::optional<Order> ChannelSuspender::nextHeld(Nanos now) {
  if (stopped() && now >= againAt_) {
    againAfter_ = std::min(againAfter_ * 2, kAgainMost);
    maybeOn();
  }
  if (now < retryAt_) return std::nullopt;
  std::vector<Channel> running = chosen(true);
  const std::optional<Channel> pending = uncommitted();
  const bool commitFirst =
      pending && (running.empty() || (pending->computes() && !running.front().computes()));
  if (commitFirst) return ask(commitStep(), {*pending});
  if (running.empty()) return std::nullopt;
  return ask(Step::kDisable, std::move(running));
}

// For what nobody waits.
std::optional<Order> ChannelSuspender::nextDetached(Nanos now) {
  std::vector<Channel> unproven;
  for (auto& [name, entry] : channels_) {
    if (entry.channel.dead && now >= reapAt_) return ask(Step::kDisable, {entry.channel});
    if (!entry.channel.proven && !entry.asked) unproven.push_back(entry.channel);
  }
  if (unproven.empty() || doubted() || now < proveAt_) return std::nullopt;
  shorten(unproven, 1);
  return ask(Step::kProve, std::move(unproven));
}

void ChannelSuspender::forget(const std::vector<Channel>& gone) {
  for (const Channel& channel : gone) channels_.erase({channel.client, channel.channel});
}

void ChannelSuspender::answered(Answer answer, const std::vector<Channel>& gone, Nanos now) {
  forget(gone);
  if (asked_) {
    switch (asked_->step) {
      case Step::kDisable:
        if (asked_->channels.front().dead) {
          onReaped(answer, now);
        } else {
          onDisabled(answer, !gone.empty(), now);
        }
        break;
      case Step::kProve:
        onProved(answer, now);
        break;
      case Step::kRestart:
      case Step::kPreempt:
        onCommitted(answer, !gone.empty(), now);
        break;
      case Step::kEnable:
        onEnabled(answer, !gone.empty(), now);
        break;
    }
    for (auto& [name, entry] : channels_) entry.named = false;
    asked_.reset();
  }
  noteStopped(now);
}

Nanos ChannelSuspender::retryAt() const {
  if (asked_) return kNever;
  const auto isDead = [](const Entry& entry) { return entry.channel.dead; };
  const auto isOff = [](const Entry& e) { return e.state != State::kOn && !e.channel.dead; };
  const auto isUnasked = [](const Entry& e) { return !e.channel.proven && !e.asked; };
  Nanos next = any(isDead) ? reapAt_ : kNever;
  if (!doubted() && any(isUnasked)) next = std::min(next, proveAt_);
  if (staysOff() && stopped()) next = std::min(next, againAt_);
  const bool runs = !areOff([](const Channel& channel) { return !channel.dead; });
  if (holds() && runs) next = std::min(next, retryAt_);
  if (!staysOff() && any(isOff)) next = std::min(next, retryAt_);
  return next;
}

void ChannelSuspender::noteStopped(Nanos now) {
  if (!stopped()) return;
  if (!std::exchange(reachedAnew_, true)) againAt_ = now + againAfter_;
  reached_ = true;
}

// Of a hold that is over it says nothing.
void ChannelSuspender::onNotTakenOff(Answer answer, const char* what, Nanos now) {
  if (!holds()) return;
  if (answer != Answer::kLater) {
    if (++tries_ == kTriesMax) doubt(what);
    return;
  }
  if (waits_ == kWaitsMax) return doubt(what);
  QGPU_MARK(DriverBusy);
  waits_++;
  retryAt_ = now + retryAfter_;
  retryAfter_ = retryAfter_ * 2;
}

void ChannelSuspender::onDisabled(Answer answer, bool someGone, Nanos now) {
  if (answer == Answer::kGone && someGone) {  // without them, at once
    QGPU_MARK(ChannelsEnded);
    if (++gones_ == kGonesMax) doubt("its channels end unsaid, one after the other");
    return;
  }
  if (answer != Answer::kDone) {
    return onNotTakenOff(answer, "the driver refused to disable channels", now);
  }
  beginAnew();
  bool often = false;
  for (auto& [name, entry] : channels_) {
    if (!entry.named) continue;
    entry.channel.proven = true;
    often = ++entry.taken >= kOffsMax || often;
    if (entry.late) continue;
    entry.state = State::kOff;
    entry.committed = method_ == SuspendMethod::kDisable;
  }
  if (often) doubt("its channels had to be disabled " + std::to_string(kOffsMax) + " times");
}

// Those that are gone were forgotten. A driver may let go of a dead process's files a little later.
void ChannelSuspender::onReaped(Answer answer, Nanos now) {
  const bool lost = answer == Answer::kDone && method_ != SuspendMethod::kDisable;
  if (answer == Answer::kFailed || answer == Answer::kLater || lost) {
    reapAt_ = now + kReapEvery;
    if (++reaps_ < kReapsMax) return;
    return doubt("a process is dead, and what it left on the card may run on");
  }
  reaps_ = 0;
  std::erase_if(channels_,
                [](const auto& each) { return each.second.channel.dead && each.second.named; });
}

void ChannelSuspender::onProved(Answer answer, Nanos now) {
  if (answer == Answer::kLater && ++proofs_ < kProofsMax) {
    proveAt_ = now + kProveEvery;
    for (auto& [name, entry] : channels_) entry.asked = entry.asked && !entry.named;
    return;
  }
  proofs_ = 0;
  // Its first disable asks again.
  if (answer == Answer::kFailed || answer == Answer::kLater) return;
  for (auto& [name, entry] : channels_) {
    entry.channel.proven = entry.channel.proven || entry.named;
  }
}

void ChannelSuspender::onCommitted(Answer answer, bool someGone, Nanos now) {
  if (answer == Answer::kGone && someGone) return;  // by another of its group, if there is one
  if (answer != Answer::kDone) {
    return onNotTakenOff(answer, "the driver refused to commit what was disabled", now);
  }
  beginAnew();
  const Name committed = committedBy(asked_->channels.front());
  for (auto& [name, entry] : channels_) {
    if (entry.state == State::kOff && committedBy(entry.channel) == committed) {
      entry.committed = true;
    }
  }
}

// Whatever it is that fails, a task is never left off the card.
void ChannelSuspender::onEnabled(Answer answer, bool someGone, Nanos now) {
  if (answer == Answer::kGone && someGone) return;  // without them, at once
  if (answer != Answer::kDone) {
    if (staysOff()) return;  // it is held anew
    const bool often = answer == Answer::kLater ? waits_ >= kWaitsMax : ++tries_ >= kTriesMax;
    if (often) doubt("the driver refused to enable channels again");
    singly_ = true;
    if (asked_->channels.size() > 1) return;  // one by one, at once
    for (auto& [name, entry] : channels_) entry.stuck = entry.stuck || entry.named;
    retryAt_ = now + retryAfter_;
    return;
  }
  tries_ = waits_ = 0;
  bool all = true;
  for (auto& [name, entry] : channels_) {
    if (entry.named) ++entry.given;
    if (entry.named && entry.offs > 0) entry.offs = QGPU_PLANTED(EnabledOnce) ? 0 : entry.offs - 1;
    if (entry.named && !entry.late && entry.offs == 0) {
      entry.state = State::kOn;
      entry.committed = false;
    }
    all = all && entry.state == State::kOn;
  }
  singly_ = singly_ && any([](const Entry& each) {
              return each.state != State::kOn && !each.stuck && each.given == 0;
            });
  if (!all) return;
  beginAnew();
}

}  // namespace qgpu::suspend
