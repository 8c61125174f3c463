#include "runtime/testing/fixture.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <set>
#include <tuple>
#include <utility>

#include "runtime/check.h"
#include "runtime/dispatcher.h"

namespace qgpu::testing {

// --- Probe ---

void Probe::handle(schema::Envelope::Reader message, Turn& turn) {
  received_.push_back({turn.sender(), turn.now(), flatten(message)});
}

std::size_t Probe::count(schema::Envelope::Which which) const {
  return static_cast<std::size_t>(
      std::count_if(received_.begin(), received_.end(),
                    [&](const Received& r) { return r.message().which() == which; }));
}

// --- MemoryJournal ---

void MemoryJournal::append(std::vector<StoredRow> rows, Committed done) {
  batches_.push_back({std::move(rows), std::move(done)});
}

void MemoryJournal::commitNext() {
  Batch batch = std::move(batches_.front());
  batches_.pop_front();
  for (StoredRow& row : batch.rows) rows_[row.key] = std::move(row.words);
  ++commits_;
  batch.done(ok());
}

void MemoryJournal::failNext(Error error) {
  const Batch batch = std::move(batches_.front());
  batches_.pop_front();
  batch.done(Status(std::move(error)));
}

void MemoryJournal::decideAutomatically() {
  while (automatic_ && !batches_.empty()) {
    if (failure_) {
      failNext(*failure_);
    } else {
      commitNext();
    }
  }
}

// --- Fixture ---

Fixture::Fixture(std::uint64_t seed) : random_(seed), seed_(seed) {}

Fixture::~Fixture() {
  for (const Pending& left : pending()) {
    ADD_FAILURE() << "left over: message " << static_cast<int>(left.which) << " from "
                  << static_cast<std::uint32_t>(left.from) << " to "
                  << static_cast<std::uint32_t>(left.to);
  }
  EXPECT_EQ(journal_.waiting(), 0U) << "batches that nobody decided";
}

ActorId Fixture::add(Actor& actor) {
  const ActorId id = reserve();
  attach(id, actor);
  return id;
}

ActorId Fixture::reserve() {
  const auto id = static_cast<ActorId>(++lastActor_);
  Resident& resident = actors_[id];
  resident.mailboxMax = kMailboxMax;
  resident.prng = Prng(seed_ * 0x9e3779b97f4a7c15ULL + lastActor_);
  return id;
}

void Fixture::remove(ActorId id) {
  timers_.eraseIf([&](const Timer& timer) { return timer.actor == id; });
  std::erase_if(pending_, [&](const InFlight& m) { return m.timer != 0 && m.message.to == id; });
  actors_.erase(id);
}

// --- delivery ---

std::vector<Fixture::Pending> Fixture::pending() const {
  std::vector<Pending> all;
  for (const InFlight& m : pending_) {
    const auto which = readEnvelope(m.message.words.data()).which();
    all.push_back({m.message.from, m.message.to, m.lane, which});
  }
  return all;
}

bool Fixture::deliver(ActorId from, ActorId to) {
  for (const Lane lane : {Lane::Control, Lane::Ordinary}) {
    for (std::size_t i = 0; i < pending_.size(); ++i) {
      const InFlight& m = pending_[i];
      if (m.lane != lane || m.message.from != from || m.message.to != to) continue;
      deliverAt(i);
      return true;
    }
  }
  return false;
}

bool Fixture::deliverOne() {
  if (pending_.empty()) return false;
  const auto urgent = std::find_if(pending_.begin(), pending_.end(),
                                   [](const InFlight& m) { return m.lane == Lane::Control; });
  const auto next = urgent == pending_.end() ? pending_.begin() : urgent;
  deliverAt(static_cast<std::size_t>(next - pending_.begin()));
  return true;
}

bool Fixture::deliverRandom() {
  std::set<std::tuple<ActorId, ActorId, Lane>> seen;
  std::vector<std::size_t> heads;
  for (std::size_t i = 0; i < pending_.size(); ++i) {
    const InFlight& m = pending_[i];
    if (seen.emplace(m.message.from, m.message.to, m.lane).second) heads.push_back(i);
  }
  if (heads.empty()) return false;
  deliverAt(heads[random_.next() % heads.size()]);
  return true;
}

std::size_t Fixture::run(std::size_t limit) {
  std::size_t turns = 0;
  while (turns < limit && deliverOne()) ++turns;
  EXPECT_TRUE(pending_.empty()) << "still busy after " << limit << " turns";
  return turns;
}

std::size_t Fixture::runRandom(std::size_t limit) {
  std::size_t turns = 0;
  while (turns < limit && deliverRandom()) ++turns;
  EXPECT_TRUE(pending_.empty()) << "still busy after " << limit << " turns";
  return turns;
}

void Fixture::deliverAt(std::size_t index) {
  const InFlight in = std::move(pending_[index]);
  pending_.erase(pending_.begin() + static_cast<std::ptrdiff_t>(index));
  const auto found = actors_.find(in.message.to);
  if (found == actors_.end() || found->second.actor == nullptr) return;
  if (in.lane == Lane::Ordinary) --found->second.mailbox;
  record(in);
  const ActorId self = in.message.to;
  turnOf_ = self;
  Turn turn(*this, self, in.message.from, now_, found->second.prng);
  found->second.actor->handle(readEnvelope(in.message.words.data()), turn);
  turnOf_ = ActorId::kNobody;
  endTurn(self);
  journal_.decideAutomatically();
}

void Fixture::endTurn(ActorId self) {
  if (!turnRows_.empty()) {
    gate_.open(self);
    journal_.append(std::exchange(turnRows_, {}),
                    [this, self](const Status& status) { commitDone(self, status); });
  }
  for (OwnedMessage& message : std::exchange(turnSends_, {})) {
    if (gate_.closed(self)) {
      gate_.hold(self, std::move(message));
    } else {
      enqueueOrdinary(std::move(message));
    }
  }
}

void Fixture::commitDone(ActorId self, const Status& status) {
  std::vector<OwnedMessage> messages = gate_.resolve(self);
  if (status.ok()) {
    for (OwnedMessage& message : messages) enqueueOrdinary(std::move(message));
    return;
  }
  for (const OwnedMessage& message : messages) {
    const auto to = actors_.find(message.to);
    if (to != actors_.end()) --to->second.mailbox;
  }
  tellUrgent(ActorId::kNobody, self, [&](schema::Envelope::Builder envelope) {
    tellFailedCommit(envelope, status.error().message, messages);
  });
}

void Fixture::enqueueOrdinary(OwnedMessage message) {
  pending_.push_back({std::move(message), Lane::Ordinary, 0});
}

// FNV-1a over who, to whom, what and when.
void Fixture::record(const InFlight& delivered) {
  const auto which = readEnvelope(delivered.message.words.data()).which();
  for (const std::uint64_t part :
       {static_cast<std::uint64_t>(delivered.message.from),
        static_cast<std::uint64_t>(delivered.message.to), static_cast<std::uint64_t>(which),
        static_cast<std::uint64_t>(now_.value)}) {
    trace_ = (trace_ ^ part) * 1099511628211ULL;
  }
}

// --- time ---

void Fixture::advance(Nanos by) {
  const Nanos until = now_ + by;
  while (const std::optional<Nanos> next = timers_.next()) {
    if (*next > until) break;
    now_ = std::max(now_, *next);
    fireDue();
    run();
  }
  now_ = until;
}

void Fixture::advanceOnly(Nanos by) {
  now_ += by;
  fireDue();
}

void Fixture::fireDue() {
  while (auto due = timers_.popDue(now_)) {
    const ActorId self = due->value.actor;
    pending_.push_back({{self, self, std::move(due->value.words)}, Lane::Control, due->id});
  }
}

// --- TurnHost ---

capnp::MessageBuilder* Fixture::beginSend(ActorId from, ActorId to, Lane lane) {
  QGPU_CHECK(to != ActorId::kNobody, "a message has a receiver");
  const auto found = actors_.find(to);
  if (lane == Lane::Ordinary) {
    if (found == actors_.end() || found->second.mailbox >= found->second.mailboxMax) {
      return nullptr;
    }
    ++found->second.mailbox;
  }
  sendFrom_ = from;
  sendTo_ = to;
  sendLane_ = lane;
  return scratch_.begin();
}

void Fixture::finishSend() {
  OwnedMessage message{sendFrom_, sendTo_, scratch_.finish<schema::Envelope>()};
  if (sendLane_ == Lane::Control) {
    pending_.push_back({std::move(message), Lane::Control, 0});
  } else if (turnOf_ == sendFrom_ && turnOf_ != ActorId::kNobody) {
    turnSends_.push_back(std::move(message));
  } else if (gate_.closed(sendFrom_)) {
    gate_.hold(sendFrom_, std::move(message));
  } else {
    enqueueOrdinary(std::move(message));
  }
}

capnp::MessageBuilder* Fixture::beginTimer(ActorId self, Nanos delay, TimerId& id) {
  timerBuilt_ = timers_.add(now_ + delay, Timer{self, {}});
  id = static_cast<TimerId>(timerBuilt_);
  return scratch_.begin();
}

void Fixture::finishTimer() {
  timers_.find(timerBuilt_)->words = scratch_.finish<schema::Envelope>();
}

void Fixture::cancelTimer(ActorId self, TimerId id) {
  const auto raw = static_cast<std::uint64_t>(id);
  if (timers_.cancel(raw)) return;
  std::erase_if(pending_,
                [&](const InFlight& m) { return m.timer == raw && m.message.to == self; });
}

capnp::MessageBuilder* Fixture::beginPersist(ActorId self, RowKey key) {
  QGPU_CHECK(turnOf_ == self, "rows are persisted within the actor's own turn");
  rowKey_ = key;
  return scratch_.begin();
}

void Fixture::finishPersist() {
  turnRows_.push_back(StoredRow{rowKey_, scratch_.finish<schema::Row>()});
}

}  // namespace qgpu::testing
