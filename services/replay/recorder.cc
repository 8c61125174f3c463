#include "services/replay/recorder.h"

#include <utility>

namespace qgpu {
namespace {

std::uint32_t raw(ActorId id) {
  return static_cast<std::uint32_t>(id);
}

}  // namespace

Recorder::Recorder(TurnHost& host, RecordSink& sink, std::uint64_t seed, UnixMsAtZero date)
    : host_(host), sink_(sink), clock_(std::move(date)), unixMsAtZero_(clock_()), prng_(seed) {}

template <typename Build>
void Recorder::record(Build&& build) {
  if (sink_.takes()) sink_.put(recordOf(scratch_, std::forward<Build>(build)));
}

// The message is recorded before it is handled: where the actor ends the process, it is there.
void Recorder::handle(schema::Envelope::Reader message, Turn& turn) {
  unixMsAtZero_ = clock_();
  record([&](schema::Recorded::Builder to) {
    auto told = to.initTurn();
    told.setNowNs(turn.now().value);
    told.setUnixMsAtZero(unixMsAtZero_);
    told.setSender(raw(turn.sender()));
    told.setMessage(message);
  });
  Turn recorded(*this, turn.self(), turn.sender(), turn.now(), prng_);
  actor_->handle(message, recorded);
}

capnp::MessageBuilder* Recorder::beginSend(ActorId from, ActorId to, Lane lane) {
  building_ = host_.beginSend(from, to, lane);
  to_ = to;
  lane_ = lane;
  if (building_ == nullptr) {
    record([&](schema::Recorded::Builder did) { did.setRefused(raw(to)); });
  }
  return building_;
}

void Recorder::finishSend() {
  record([&](schema::Recorded::Builder did) {
    auto sent = did.initSent();
    sent.setTo(raw(to_));
    sent.setUrgent(lane_ == Lane::Control);
    sent.setMessage(building_->getRoot<schema::Envelope>().asReader());
  });
  host_.finishSend();
}

capnp::MessageBuilder* Recorder::beginTimer(ActorId self, Nanos delay, TimerId& id) {
  building_ = host_.beginTimer(self, delay, id);
  timer_ = id;
  delay_ = delay;
  return building_;
}

void Recorder::finishTimer() {
  record([&](schema::Recorded::Builder did) {
    auto timer = did.initTimer();
    timer.setId(static_cast<std::uint64_t>(timer_));
    timer.setDelayNs(delay_.value);
    timer.setMessage(building_->getRoot<schema::Envelope>().asReader());
  });
  host_.finishTimer();
}

void Recorder::cancelTimer(ActorId self, TimerId id) {
  record([&](schema::Recorded::Builder did) { did.setCancelled(static_cast<std::uint64_t>(id)); });
  host_.cancelTimer(self, id);
}

capnp::MessageBuilder* Recorder::beginPersist(ActorId self, RowKey key) {
  building_ = host_.beginPersist(self, key);
  key_ = key;
  return building_;
}

void Recorder::finishPersist() {
  record([&](schema::Recorded::Builder did) {
    auto stored = did.initStored();
    stored.setKind(static_cast<std::uint16_t>(key_.kind));
    stored.setId(key_.id);
    stored.setRow(building_->getRoot<schema::Row>().asReader());
  });
  host_.finishPersist();
}

}  // namespace qgpu
