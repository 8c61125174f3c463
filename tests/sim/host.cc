#include "tests/sim/host.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "runtime/check.h"

namespace qgpu::sim {
namespace {

constexpr std::size_t kNoHome = 2;  // in Resident::mail: sent by nobody who lives on a loop

std::uint64_t queueKey(ActorId from, ActorId to, Lane lane) {
  return static_cast<std::uint64_t>(from) << 33 | static_cast<std::uint64_t>(to) << 1 |
         static_cast<std::uint64_t>(lane);
}

Carried carried(ActorId from, ActorId to, Lane lane, const std::uint64_t serial, bool timer,
                const Words& words) {
  return {from, to, lane, timer, serial, readEnvelope(words.data())};
}

}  // namespace

Nanos Dice::magnitude(Nanos low, Nanos high) {
  const auto bits = [](Nanos t) {
    const auto value = static_cast<std::uint64_t>(std::max<std::int64_t>(t.value, 1));
    return static_cast<std::int64_t>(std::bit_width(value));
  };
  const std::int64_t floor = std::int64_t{1} << (between(bits(low), bits(high)) - 1);
  return std::clamp(Nanos(between(floor, 2 * floor - 1)), low, high);
}

Host::Host(HostOptions options, Watch& watch)
    : options_(options), watch_(watch), dice_(options.seed), now_(options.start) {}

Host::~Host() = default;

// --- who is here ---

ActorId Host::reserve(Home home) {
  const auto id = static_cast<std::uint32_t>(first_ + residents_.size());
  Resident& entry = residents_.emplace_back();
  entry.home = home;
  entry.prng = Prng(options_.seed * 0x9e3779b97f4a7c15ULL + id);
  return ActorId{id};
}

void Host::attach(ActorId id, Actor& actor) {
  resident(id).actor = &actor;
}

ActorId Host::add(Actor& actor, Home home) {
  const ActorId id = reserve(home);
  attach(id, actor);
  return id;
}

void Host::clearManager() {
  QGPU_CHECK(turnOf_ == ActorId::kNobody, "a manager ends between two turns");
  ++life_;
  first_ += static_cast<std::uint32_t>(residents_.size());
  residents_.clear();
  queueIndex_.clear();
  queues_.clear();
  ready_.clear();
  stalledUntil_ = {};
  actorTimers_ = {};
  firedTimers_.clear();
  managerTimers_ = {};
  gate_ = {};
  heldSerials_.clear();
  journal_ = nullptr;
}

Host::Resident& Host::resident(ActorId id) {
  const auto raw = static_cast<std::uint32_t>(id);
  QGPU_CHECK(raw >= first_ && raw - first_ < residents_.size(), "an actor of this life");
  return residents_[raw - first_];
}

std::size_t Host::homeOf(ActorId id) const {
  const auto raw = static_cast<std::uint32_t>(id);
  if (raw < first_ || raw - first_ >= residents_.size()) return kNoHome;
  return static_cast<std::size_t>(residents_[raw - first_].home);
}

// --- mail ---

std::uint32_t Host::queueOf(ActorId from, ActorId to, Lane lane) {
  const auto next = static_cast<std::uint32_t>(queues_.size());
  const auto [entry, isNew] = queueIndex_.try_emplace(queueKey(from, to, lane), next);
  if (isNew) queues_.push_back({from, to, lane, SIZE_MAX, {}});
  return entry->second;
}

void Host::put(ActorId from, ActorId to, Lane lane, Mail mail) {
  watch_.onSent(carried(from, to, lane, mail.serial, mail.timer != 0, mail.words), now_);
  const std::uint32_t queue = queueOf(from, to, lane);
  queues_[queue].mail.push_back(std::move(mail));
  if (queues_[queue].readyAt == SIZE_MAX) makeReady(queue);
}

void Host::makeReady(std::uint32_t queue) {
  queues_[queue].readyAt = ready_.size();
  ready_.push_back(queue);
}

void Host::unready(std::uint32_t queue) {
  const std::size_t at = std::exchange(queues_[queue].readyAt, SIZE_MAX);
  ready_[at] = ready_.back();
  queues_[ready_[at]].readyAt = at;
  ready_.pop_back();
  queues_[queue].readyAt = SIZE_MAX;
}

std::optional<std::uint32_t> Host::choose() {
  if (ready_.empty()) return std::nullopt;
  const std::size_t from = dice_.below(ready_.size());
  for (std::size_t i = 0; i < ready_.size(); ++i) {
    const std::uint32_t queue = ready_[(from + i) % ready_.size()];
    const std::size_t home = homeOf(queues_[queue].to);
    if (home == kNoHome || stalledUntil_[home] <= now_) return queue;
  }
  return std::nullopt;
}

void Host::deliver(std::uint32_t index) {
  const ActorId from = queues_[index].from;
  const ActorId to = queues_[index].to;
  const Lane lane = queues_[index].lane;
  Mail mail = std::move(queues_[index].mail.front());
  queues_[index].mail.pop_front();
  if (queues_[index].mail.empty()) unready(index);
  const bool timer = mail.timer != 0;
  if (timer && firedTimers_.erase(mail.timer) == 0) return;  // cancelled in the meantime
  Resident& receiver = resident(to);
  if (lane == Lane::Ordinary) --receiver.mail[homeOf(from)];
  if (receiver.actor == nullptr) return;
  const Carried message = carried(from, to, lane, mail.serial, timer, mail.words);
  ++turns_;
  mix(static_cast<std::uint64_t>(to) << 32 | static_cast<std::uint64_t>(message.message.which()));
  mix(static_cast<std::uint64_t>(now_.value));
  watch_.onTurn(message, now_);
  turnOf_ = to;
  {
    Turn turn(*this, to, from, now_, receiver.prng);
    receiver.actor->handle(message.message, turn);
  }
  turnOf_ = ActorId::kNobody;
  endTurn(to);
  watch_.onTurnEnd(to, now_);
  now_ += dice_.between(options_.turnMin, options_.turnMax);
}

void Host::endTurn(ActorId self) {
  if (!turnRows_.empty()) {
    gate_.open(self);
    const std::uint64_t batch = ++batches_;
    watch_.onAppended(batch, self, turnRows_, now_);
    journal_->append(std::exchange(turnRows_, {}),
                     [this, self, batch, life = life_](const Status& status) {
                       if (life == life_) commitDone(self, batch, status);
                     });
  }
  for (HeldBack& send : turnSends_) hold(std::move(send.message), send.serial);
  turnSends_.clear();
}

// An ordinary message after its turn: into the mailbox, or behind the gate.
void Host::hold(OwnedMessage message, std::uint64_t serial) {
  if (!gate_.closed(message.from)) {
    return put(message.from, message.to, Lane::Ordinary, {std::move(message.words), serial, 0});
  }
  heldSerials_.emplace(message.words.data(), serial);
  gate_.hold(message.from, std::move(message));
}

void Host::commitDone(ActorId self, std::uint64_t batch, const Status& status) {
  watch_.onAnswered(batch, status, now_);
  std::vector<OwnedMessage> messages = gate_.resolve(self);
  for (OwnedMessage& message : messages) {
    const auto held = heldSerials_.find(message.words.data());
    const std::uint64_t serial = held->second;
    heldSerials_.erase(held);
    if (status.ok()) {
      put(message.from, message.to, Lane::Ordinary, {std::move(message.words), serial, 0});
    } else {
      --resident(message.to).mail[homeOf(message.from)];
    }
  }
  if (status.ok()) return;
  sendUrgent(ActorId::kNobody, self, [&](schema::Envelope::Builder envelope) {
    tellFailedCommit(envelope, status.error().message, messages);
  });
}

// --- time ---

Host::Key Host::at(Scope scope, Nanos when, std::function<void()> work) {
  auto& timers = scope == Scope::Manager ? managerTimers_ : worldTimers_;
  return timers.add(std::max(when, now_), std::move(work));
}

void Host::cancel(Scope scope, Key key) {
  if (key != 0) (scope == Scope::Manager ? managerTimers_ : worldTimers_).cancel(key);
}

void Host::stall(Home home, Nanos until) {
  Nanos& stalled = stalledUntil_[static_cast<std::size_t>(home)];
  stalled = std::max(stalled, until);
}

std::optional<Nanos> Host::nextTimer() {
  std::optional<Nanos> first;
  std::optional<Nanos> manager = managerTimers_.next();
  if (manager) manager = std::max(*manager, stalledUntil_[static_cast<std::size_t>(Home::Card)]);
  for (const std::optional<Nanos>& next : {actorTimers_.next(), manager, worldTimers_.next()}) {
    if (next && (!first || *next < *first)) first = next;
  }
  return first;
}

// Everything that is due: actors' timers become mail, others run.
void Host::fireDue() {
  while (auto due = actorTimers_.popDue(now_)) {
    firedTimers_.insert(due->id);
    const ActorId self = due->value.actor;
    put(self, self, Lane::Control, {std::move(due->value.words), ++serial_, due->id});
  }
  if (stalledUntil_[static_cast<std::size_t>(Home::Card)] <= now_) {
    if (auto due = managerTimers_.popDue(now_)) {
      ++fired_;
      return due->value();
    }
  }
  if (auto due = worldTimers_.popDue(now_)) {
    ++fired_;
    due->value();
  }
}

std::optional<Nanos> Host::nextEvent() {
  std::optional<Nanos> next;
  for (const std::uint32_t queue : ready_) {
    const std::size_t home = homeOf(queues_[queue].to);
    const Nanos at = home == kNoHome ? now_ : std::max(now_, stalledUntil_[home]);
    if (at == now_) return at;
    next = std::min(next.value_or(kNever), at);
  }
  if (const std::optional<Nanos> timer = nextTimer()) {
    next = std::min(next.value_or(kNever), std::max(*timer, now_));
  }
  return next;
}

bool Host::step(Nanos until) {
  const std::optional<Nanos> timer = nextTimer();
  if (timer && *timer <= now_) {
    fireDue();
    return true;
  }
  if (now_ > until) return false;
  if (const std::optional<std::uint32_t> queue = choose()) {
    deliver(*queue);
    return true;
  }
  Nanos next = timer.value_or(kNever);
  if (!ready_.empty()) {  // mail waits for a loop that is stalled
    for (const Nanos stalled : stalledUntil_) {
      if (stalled > now_) next = std::min(next, stalled);
    }
  }
  if (next > until) {
    now_ = std::max(now_, until);
    return false;
  }
  now_ = next;
  return true;
}

void Host::mix(std::uint64_t word) {
  hash_ = (hash_ ^ word) * 1099511628211ULL;
  hash_ ^= hash_ >> 29;
}

// --- TurnHost ---

capnp::MessageBuilder* Host::beginSend(ActorId from, ActorId to, Lane lane) {
  QGPU_CHECK(to != ActorId::kNobody, "a message has a receiver");
  if (lane == Lane::Ordinary) {
    if (homeOf(to) == kNoHome) return nullptr;
    std::uint32_t& mail = resident(to).mail[homeOf(from)];
    if (mail >= options_.mailboxMax) {
      watch_.onRefused(from, to, now_);
      return nullptr;
    }
    ++mail;
  }
  sendFrom_ = from;
  sendTo_ = to;
  sendLane_ = lane;
  return scratch_.begin();
}

void Host::finishSend() {
  const std::uint64_t serial = ++serial_;
  OwnedMessage message{sendFrom_, sendTo_, scratch_.finish<schema::Envelope>()};
  if (sendLane_ == Lane::Control) {
    if (homeOf(sendTo_) == kNoHome) return;  // of an earlier life
    put(sendFrom_, sendTo_, Lane::Control, {std::move(message.words), serial, 0});
  } else if (turnOf_ == sendFrom_ && turnOf_ != ActorId::kNobody) {
    turnSends_.push_back({std::move(message), serial});
  } else {
    hold(std::move(message), serial);
  }
}

capnp::MessageBuilder* Host::beginTimer(ActorId self, Nanos delay, TimerId& id) {
  timerBuilt_ = actorTimers_.add(now_ + delay, ActorTimer{self, {}});
  id = static_cast<TimerId>(timerBuilt_);
  return scratch_.begin();
}

void Host::finishTimer() {
  actorTimers_.find(timerBuilt_)->words = scratch_.finish<schema::Envelope>();
}

void Host::cancelTimer(ActorId, TimerId id) {
  const auto raw = static_cast<std::uint64_t>(id);
  if (!actorTimers_.cancel(raw)) firedTimers_.erase(raw);
}

capnp::MessageBuilder* Host::beginPersist(ActorId self, RowKey key) {
  QGPU_CHECK(turnOf_ == self, "rows are persisted within the actor's own turn");
  rowKey_ = key;
  return scratch_.begin();
}

void Host::finishPersist() {
  turnRows_.push_back(StoredRow{rowKey_, scratch_.finish<schema::Row>()});
}

}  // namespace qgpu::sim
