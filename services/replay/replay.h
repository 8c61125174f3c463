#pragma once
// A recorded life of a scheduler once more, offline: the same actor is told the same, and what it
// does is compared with what was recorded, byte by byte. No socket, store, clock or thread takes
// part.

#include <capnp/serialize.h>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>

#include "actors/scheduler/scheduler_actor.h"
#include "services/replay/began.h"
#include "services/replay/recorder.h"
#include "services/replay/recording_file.h"

namespace qgpu {

// What a replay has seen up to where it is.
struct Replayed {
  std::uint64_t turns = 0;
  std::uint64_t orders = 0;  // told to nodes: to take a task, to end one
  std::uint64_t rows = 0;    // stored
  std::int64_t firstUnixMs = 0;
  std::int64_t lastUnixMs = 0;
  std::string ended;       // why the recording is over; empty: it goes on, or was ...
  bool cut = false;        // ... not ended by its writer
  std::string difference;  // the first, in words; empty: none
};

class SchedulerReplay final : private TurnHost, private RecordSink {
 public:
  // The actor as it was before its first turn. Errors: damage, and Corrupt where the file does not
  // begin as a recording does. One that was cut before its first turn has none.
  static Result<std::unique_ptr<SchedulerReplay>> open(std::unique_ptr<RecordingReader> from);

  const RecordedLife& life() const { return life_; }

  // Turns until `untilUnixMs`, the first difference, or the end. Corrupt: damage, with its place;
  // what was before it was replayed.
  Status run(std::int64_t untilUnixMs = std::numeric_limits<std::int64_t>::max());
  const Replayed& seen() const { return seen_; }

  // What the scheduler would have answered here, a flat message with a schema::ClusterReply root.
  // Nothing is compared afterwards. A commit that is under way where the recording ends is taken
  // for done. NotFound: it ends before the scheduler can answer all the same.
  using Fill = std::function<void(schema::ClusterRequest::Builder)>;
  Result<Words> ask(const Fill& fill);

 private:
  explicit SchedulerReplay(std::unique_ptr<RecordingReader> from) : from_(std::move(from)) {}
  Status load();
  void turn();
  void give(schema::Envelope::Reader message, ActorId sender, Nanos now);
  void heard(schema::Envelope::Reader message);
  void differs(const std::string& how);
  void count(schema::Recorded::Reader record);

  // RecordSink
  bool takes() const override { return !asks_; }
  void put(Words record) override;

  // TurnHost
  capnp::MessageBuilder* beginSend(ActorId from, ActorId to, Lane lane) override;
  void finishSend() override;
  capnp::MessageBuilder* beginTimer(ActorId self, Nanos delay, TimerId& id) override;
  void finishTimer() override { scratch_.finish<schema::Envelope>(); }
  void cancelTimer(ActorId, TimerId) override {}
  capnp::MessageBuilder* beginPersist(ActorId, RowKey) override { return scratch_.begin(); }
  void finishPersist() override { scratch_.finish<schema::Row>(); }

  const std::unique_ptr<RecordingReader> from_;
  RecordedLife life_;
  std::int64_t unixMsAtZero_ = 0;  // of the turn
  std::optional<Recorder> recorder_;
  std::unique_ptr<SchedulerActor> actor_;
  ScratchBuilder scratch_;
  ActorId to_{};
  std::string turnText_;  // of the turn, for a difference in it
  Nanos now_{0};
  Replayed seen_;
  bool asks_ = false;
  Words answer_;
  std::deque<Words> own_;  // what the actor told itself and has not heard yet
};

}  // namespace qgpu
