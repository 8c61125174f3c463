#pragma once
// Stands between an actor and its host, and tells a sink what the actor is told and what it does.
// It decides nothing and holds nothing back: the actor's turns, and what its host makes of them,
// are the same with it and without it.
//
// What an actor may know of the world comes by its turn, so a turn that is told again does the same
// again: its message, sender and time; the wall clock as it was set, read once a turn; random
// numbers, from a seed that is recorded; and what the host answered, a full mailbox or the number
// of a timer, which stands with what the turn did. A replay (replay.h) is this class over a host
// that answers as the recorded one did.

#include <cstdint>

#include "actors/base/asker.h"
#include "runtime/actor.h"
#include "runtime/message.h"
#include "schema/recording.capnp.h"

namespace qgpu {

// Takes records: each a flat message with a schema::Recorded root. The same story gives the same
// bytes.
class RecordSink {
 public:
  // False: it takes no more, so that none need be made.
  virtual bool takes() const = 0;
  virtual void put(Words record) = 0;

 protected:
  ~RecordSink() = default;
};

// A record of its own, as put() takes it.
template <typename Build>
Words recordOf(ScratchBuilder& scratch, Build&& build) {
  build(scratch.begin()->initRoot<schema::Recorded>());
  return scratch.finish<schema::Recorded>();
}

class Recorder final : public Actor, private TurnHost {
 public:
  // `host`: of the actor, which outlives this, as `sink` does. `date`: of a daemon, its clock.
  Recorder(TurnHost& host, RecordSink& sink, std::uint64_t seed, UnixMsAtZero date);
  ~Recorder() noexcept override = default;

  // For the actor, in the place of the clock itself.
  UnixMsAtZero date() const {
    return [this] { return unixMsAtZero_; };
  }
  // Once, before the first turn.
  void attach(Actor& actor) { actor_ = &actor; }

  void handle(schema::Envelope::Reader message, Turn& turn) override;

 private:
  // TurnHost
  capnp::MessageBuilder* beginSend(ActorId from, ActorId to, Lane lane) override;
  void finishSend() override;
  capnp::MessageBuilder* beginTimer(ActorId self, Nanos delay, TimerId& id) override;
  void finishTimer() override;
  void cancelTimer(ActorId self, TimerId id) override;
  capnp::MessageBuilder* beginPersist(ActorId self, RowKey key) override;
  void finishPersist() override;

  template <typename Build>
  void record(Build&& build);

  TurnHost& host_;
  RecordSink& sink_;
  const UnixMsAtZero clock_;
  std::int64_t unixMsAtZero_;
  Prng prng_;
  Actor* actor_ = nullptr;
  ScratchBuilder scratch_;

  // Between begin and finish.
  capnp::MessageBuilder* building_ = nullptr;
  ActorId to_{};
  Lane lane_ = Lane::Ordinary;
  TimerId timer_{};
  Nanos delay_{0};
  RowKey key_;
};

}  // namespace qgpu
