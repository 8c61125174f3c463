#pragma once
// A deterministic world for actors under test: a manual clock, every message in flight visible,
// delivery in the order that the test (or a seed) chooses, and a journal in memory whose commits
// succeed, fail or wait. It is a TurnHost, so the actors are the same binary code as in a daemon.
//
// The destructor fails the test for messages that nobody delivered and batches that nobody
// decided. Kept as in the dispatcher: C5, C6, D2, C8.

#include <compare>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/actor.h"
#include "runtime/message.h"
#include "runtime/output_gate.h"
#include "runtime/timer_queue.h"

namespace qgpu::testing {

// Collects what it is told; stands for an actor or client that the test plays itself.
class Probe final : public Actor {
 public:
  struct Received {
    ActorId from{};
    Nanos at;
    Words words;
    schema::Envelope::Reader message() const { return readEnvelope(words.data()); }
  };
  void handle(schema::Envelope::Reader message, Turn& turn) override;

  std::vector<Received>& received() { return received_; }
  std::size_t size() const { return received_.size(); }
  bool empty() const { return received_.empty(); }
  schema::Envelope::Reader operator[](std::size_t i) const { return received_.at(i).message(); }
  schema::Envelope::Reader last() const { return received_.back().message(); }
  // How many of this kind came.
  std::size_t count(schema::Envelope::Which which) const;
  void clear() { received_.clear(); }

 private:
  std::vector<Received> received_;
};

// Batches wait until they are decided; while commits are automatic, the fixture decides each one
// right after the turn that persisted.
class MemoryJournal final : public Journal {
 public:
  void append(std::vector<StoredRow> rows, Committed done) override;

  // Succeed (default), fail with `error`, or wait for commitNext() and failNext().
  void commitAutomatically() { automatic_ = true, failure_.reset(); }
  void failAutomatically(Error error) { automatic_ = true, failure_ = std::move(error); }
  void holdCommits() { automatic_ = false; }

  std::size_t waiting() const { return batches_.size(); }
  void commitNext();
  void failNext(Error error);

  // The newest committed row under `key`; throws std::out_of_range where there is none.
  schema::Row::Reader row(RowKey key) const {
    return capnp::readMessageUnchecked<schema::Row>(rows_.at(key).data());
  }
  bool has(RowKey key) const { return rows_.contains(key); }
  std::size_t size() const { return rows_.size(); }
  std::uint64_t commits() const { return commits_; }

 private:
  friend class Fixture;
  void decideAutomatically();
  struct Batch {
    std::vector<StoredRow> rows;
    Committed done;
  };
  bool automatic_ = true;
  std::optional<Error> failure_;
  std::deque<Batch> batches_;
  std::map<RowKey, Words> rows_;
  std::uint64_t commits_ = 0;
};

class Fixture final : public TurnHost {
 public:
  explicit Fixture(std::uint64_t seed = 1);
  Fixture(const Fixture&) = delete;
  Fixture& operator=(const Fixture&) = delete;
  ~Fixture();

  ActorId add(Actor& actor);
  ActorId reserve();
  void attach(ActorId id, Actor& actor) { actors_.at(id).actor = &actor; }
  void remove(ActorId id);
  // A smaller mailbox, to see refusals; it counts the ordinary messages of all senders.
  void setMailboxMax(ActorId id, std::size_t messages) { actors_.at(id).mailboxMax = messages; }

  // A message from outside any turn. `from` may be any address.
  template <typename Build>
  SendResult tell(ActorId from, ActorId to, Build&& build) {
    capnp::MessageBuilder* message = beginSend(from, to, Lane::Ordinary);
    if (message == nullptr) return SendResult::Refused;
    build(message->initRoot<schema::Envelope>());
    finishSend();
    return SendResult::Sent;
  }
  template <typename Build>
  void tellUrgent(ActorId from, ActorId to, Build&& build) {
    build(beginSend(from, to, Lane::Control)->initRoot<schema::Envelope>());
    finishSend();
  }

  // --- delivery ---

  struct Pending {
    ActorId from{};
    ActorId to{};
    Lane lane = Lane::Control;
    schema::Envelope::Which which{};
  };
  std::vector<Pending> pending() const;  // in the order of sending
  bool quiet() const { return pending_.empty(); }

  // The next message of this pair, control first. False: there is none.
  bool deliver(ActorId from, ActorId to);
  // As a dispatcher does: the oldest control message, else the oldest ordinary one.
  bool deliverOne();
  // Any message that FIFO per (sender, receiver, lane) allows; the seed decides.
  bool deliverRandom();
  // deliverOne() until nothing is pending. More than `limit` turns fail the test.
  std::size_t run(std::size_t limit = 100'000);
  std::size_t runRandom(std::size_t limit = 100'000);

  // --- time ---

  Nanos now() const { return now_; }
  // Moves the clock; stops at each timer on the way, delivers it and runs until quiet.
  void advance(Nanos by);
  // Moves the clock; timers that became due are pending, nothing is delivered.
  void advanceOnly(Nanos by);
  std::optional<Nanos> nextTimer() { return timers_.next(); }
  std::size_t timers() const { return timers_.size(); }

  MemoryJournal& journal() { return journal_; }
  // A hash over every delivery so far: equal seeds and inputs give equal hashes.
  std::uint64_t trace() const { return trace_; }
  // For a test that ends on purpose with messages in flight.
  void dropPending() { pending_.clear(); }

  // TurnHost
  capnp::MessageBuilder* beginSend(ActorId from, ActorId to, Lane lane) override;
  void finishSend() override;
  capnp::MessageBuilder* beginTimer(ActorId self, Nanos delay, TimerId& id) override;
  void finishTimer() override;
  void cancelTimer(ActorId self, TimerId id) override;
  capnp::MessageBuilder* beginPersist(ActorId self, RowKey key) override;
  void finishPersist() override;

 private:
  struct Resident {
    Actor* actor = nullptr;
    std::size_t mailboxMax = 0;
    std::size_t mailbox = 0;  // ordinary messages pending or held at a gate
    Prng prng{0};
  };
  struct InFlight {
    OwnedMessage message;
    Lane lane = Lane::Control;
    std::uint64_t timer = 0;  // 0: was sent
  };
  struct Timer {
    ActorId actor{};
    Words words;
  };

  void deliverAt(std::size_t index);
  void endTurn(ActorId self);
  void commitDone(ActorId self, const Status& status);
  void enqueueOrdinary(OwnedMessage message);
  void fireDue();
  void record(const InFlight& delivered);

  Prng random_;
  std::uint64_t seed_;
  Nanos now_ = seconds(1);
  std::uint32_t lastActor_ = 0;
  std::map<ActorId, Resident> actors_;
  std::deque<InFlight> pending_;
  TimerQueue<Timer> timers_;
  OutputGate gate_;
  MemoryJournal journal_;
  ScratchBuilder scratch_;

  ActorId sendFrom_{};
  ActorId sendTo_{};
  Lane sendLane_ = Lane::Control;
  TimerQueue<Timer>::Id timerBuilt_ = 0;
  RowKey rowKey_;
  ActorId turnOf_ = ActorId::kNobody;
  std::vector<OwnedMessage> turnSends_;
  std::vector<StoredRow> turnRows_;
  std::uint64_t trace_ = 14695981039346656037ULL;
};

}  // namespace qgpu::testing
