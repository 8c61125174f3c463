#include "services/daemons/card_watch.h"

#include <unistd.h>
#include <utility>

namespace qgpu {
namespace {

constexpr std::size_t kLineMax = 1024;  // a child that goes mad fills no memory

Peer ourselves() {
  Peer peer;
  peer.uid = ::geteuid();
  peer.pid = static_cast<std::uint32_t>(::getpid());
  peer.mayChange = true;
  return peer;
}

}  // namespace

CardWatch::CardWatch(HealthWatch watch, NodeDoor& door, Log& log, kj::LowLevelAsyncIoProvider& io,
                     Told told)
    : watch_(std::move(watch)),
      door_(door),
      log_(log),
      told_(std::move(told)),
      pipe_(io.wrapInputFd(watch_.fd())) {
  reading_ = read().eagerlyEvaluate([this](kj::Exception&& failure) {
    log_.error("card-watch-ended", {{"why", failure.getDescription().cStr()}});
  });
}

kj::Promise<void> CardWatch::read() {
  return pipe_->tryRead(chunk_, 1, sizeof chunk_).then([this](std::size_t n) -> kj::Promise<void> {
    if (n == 0) {
      log_.error("card-watch-ended",
                 {{"why",
                   "the process that watches the cards was ended; ill cards stay unknown until "
                   "the manager is started again"}});
      return kj::READY_NOW;
    }
    onText(n);
    return read();
  });
}

void CardWatch::onText(std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; i++) {
    if (chunk_[i] != '\n') {
      if (line_.size() < kLineMax) line_ += chunk_[i];
      continue;
    }
    const auto change = parseHealthLine(std::exchange(line_, {}));
    if (change) onChange(*change);
  }
}

void CardWatch::onChange(const HealthChange& change) {
  told_(change);
  switch (change.kind) {
    case HealthChange::Kind::Answers:
      return log_.info("card-answers-again", {{"card", change.uuid}, {"then", "qgpuctl uncordon"}});
    case HealthChange::Kind::ProgramFault:
      return log_.info("program-fault", {{"card", change.uuid}, {"why", change.why}});
    case HealthChange::Kind::Note:
      return log_.info("card-notes", {{"card", change.uuid}, {"what", change.why}});
    case HealthChange::Kind::Blind:
      return log_.error(
          "card-watch-blind",
          {{"why", change.why}, {"then", "ill cards stay unknown; it is tried again; see dmesg"}});
    case HealthChange::Kind::Sees:
      return log_.info("card-watch-sees", {{"why", change.why}});
    case HealthChange::Kind::Ill:
      break;
  }
  log_.error("card-ill", {{"card", change.uuid}, {"why", change.why}});
  door_.ask(ourselves(), [&](schema::Request::Builder request) { request.setCordon(change.uuid); })
      .then([this, card = change.uuid](Result<NodeDoor::Answer> answer) {
        if (!answer) {
          log_.error("card-not-cordoned", {{"card", card}, {"why", answer.error().message}});
        }
      })
      .detach([](kj::Exception&&) {});
}

}  // namespace qgpu
