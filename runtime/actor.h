#pragma once
// An actor owns state and handles one message at a time, to completion. What it wants done it asks
// of the Turn; the dispatcher applies the effects after the handler returned. So an actor is the
// same code on a libuv loop, in a unit test with a manual clock, and in a simulated world.
//
// Kept here: C5 (mailboxes bounded, refusal visible), C6 (FIFO per sender, receiver and lane),
// D2 (ordinary sends of a turn that persisted leave after the commit), C8 (no turn after stop).

#include <capnp/message.h>
#include <cstdint>
#include <utility>

#include "runtime/journal.h"
#include "runtime/units.h"
#include "schema/envelope.capnp.h"
#include "schema/rows.capnp.h"

namespace qgpu {

// Address of an actor, or of an adapter that speaks the same messages (a gate port, a client).
// 0 is nobody: a send there is a bug.
enum class ActorId : std::uint32_t { kNobody = 0 };

enum class Lane : std::uint8_t {
  Control,   // slice decisions: reserved room, never refused
  Ordinary,  // bounded; an overflow is refused to the sender
};

enum class SendResult : std::uint8_t { Sent, Refused };

enum class TimerId : std::uint64_t { kNone = 0 };

// splitmix64: the only randomness that an actor may use.
class Prng {
 public:
  explicit Prng(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15ULL);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }

 private:
  std::uint64_t state_;
};

// What a Turn stands on; the dispatcher and the test fixture each bring one.
class TurnHost {
 public:
  // Builder of a message to `to`, or nullptr where the ordinary lane is full (never for Control).
  // It is valid until finishSend(), which must follow before any other call.
  virtual capnp::MessageBuilder* beginSend(ActorId from, ActorId to, Lane lane) = 0;
  virtual void finishSend() = 0;
  // A message to the actor itself once `delay` passed. Never refused; at most kTimersMax an actor.
  virtual capnp::MessageBuilder* beginTimer(ActorId self, Nanos delay, TimerId& id) = 0;
  virtual void finishTimer() = 0;
  virtual void cancelTimer(ActorId self, TimerId id) = 0;
  virtual capnp::MessageBuilder* beginPersist(ActorId self, RowKey key) = 0;
  virtual void finishPersist() = 0;

 protected:
  ~TurnHost() = default;
};

// Sends messages in the name of one actor or adapter. A message is filled in place, in the mailbox
// of the receiver: build(schema::Envelope::Builder) is called once, before send() returns.
class Sender {
 public:
  Sender(const Sender&) = delete;
  Sender& operator=(const Sender&) = delete;

  // In whose name; answers come there.
  ActorId self() const { return self_; }

  // On the ordinary lane. Refused when the receiver's mailbox is full: nothing was built then.
  template <typename Build>
  [[nodiscard]] SendResult send(ActorId to, Build&& build) {
    capnp::MessageBuilder* message = host_.beginSend(self_, to, Lane::Ordinary);
    if (message == nullptr) return SendResult::Refused;
    build(message->initRoot<schema::Envelope>());
    host_.finishSend();
    return SendResult::Sent;
  }

  // On the control lane: leaves at once and is never refused. Only for what implies no durable
  // fact: slices.
  template <typename Build>
  void sendUrgent(ActorId to, Build&& build) {
    build(host_.beginSend(self_, to, Lane::Control)->initRoot<schema::Envelope>());
    host_.finishSend();
  }

 protected:
  Sender(TurnHost& host, ActorId self) : host_(host), self_(self) {}
  ~Sender() = default;

  TurnHost& host_;

 private:
  ActorId self_;
};

// One handled message: what the actor knows of the world, and what it may ask of it. What it sends
// on the ordinary lane leaves after the commit if this turn persists anything (D2).
class Turn final : public Sender {
 public:
  Turn(TurnHost& host, ActorId self, ActorId sender, Nanos now, Prng& prng)
      : Sender(host, self), sender_(sender), now_(now), prng_(prng) {}

  // Loop time (CLOCK_MONOTONIC) at the start of this turn; the same throughout it.
  Nanos now() const { return now_; }
  // Who sent the message.
  ActorId sender() const { return sender_; }
  std::uint64_t random() { return prng_.next(); }

  // The message comes back to this actor, on the control lane, once `delay` has passed.
  template <typename Build>
  TimerId after(Nanos delay, Build&& build) {
    TimerId id{};
    build(host_.beginTimer(self(), delay, id)->initRoot<schema::Envelope>());
    host_.finishTimer();
    return id;
  }
  // An id that fired or was cancelled already is ignored; a cancelled message never arrives.
  void cancel(TimerId id) {
    if (id != TimerId::kNone) host_.cancelTimer(self(), id);
  }

  // build(schema::Row::Builder): the newest durable state under `key`. All rows of one turn are
  // committed together or not at all.
  template <typename Build>
  void persist(RowKey key, Build&& build) {
    build(host_.beginPersist(self(), key)->initRoot<schema::Row>());
    host_.finishPersist();
  }

 private:
  ActorId sender_;
  Nanos now_;
  Prng& prng_;
};

class Actor {
 public:
  virtual ~Actor() = default;
  virtual void handle(schema::Envelope::Reader message, Turn& turn) = 0;
};

}  // namespace qgpu
