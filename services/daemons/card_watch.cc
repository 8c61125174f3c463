#include "services/daemons/card_watch.h"

#include <unistd.h>
#include <utility>

namespace qgpu {
namespace {

constexpr std::size_t kLineMax = 1024;  // a child that goes mad fills no memory

bool mayPass(ErrorCode refusal) {
  return refusal == ErrorCode::Unavailable || refusal == ErrorCode::Overloaded;
}

Peer ourselves() {
  Peer peer;
  peer.uid = ::geteuid();
  peer.pid = static_cast<std::uint32_t>(::getpid());
  peer.mayChange = true;
  return peer;
}

}  // namespace

CardWatch::CardWatch(HealthWatch watch, NodeActorClient& actor, Log& log,
                     kj::LowLevelAsyncIoProvider& io, kj::Timer& timer, OnChange changed)
    : watch_(std::move(watch)),
      actor_(actor),
      log_(log),
      timer_(timer),
      changed_(std::move(changed)),
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
  changed_(change);
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
  // One at a time: it is the same for every illness.
  if (cordoning_.emplace(change.uuid, false).second) cordons_.add(cordon(change.uuid));
}

kj::Promise<void> CardWatch::cordon(const std::string& card) {
  return actor_.ask(ourselves(), [&](schema::Request::Builder request) { request.setCordon(card); })
      .then([this, card](Result<NodeActorClient::Answer> answer) {
        return onAnswer(card, answer ? ok() : Status(answer.error()));
      });
}

kj::Promise<void> CardWatch::onAnswer(const std::string& card, const Status& answer) {
  const bool again = !answer && mayPass(answer.error().code);
  if (!answer && !std::exchange(cordoning_[card], true)) {
    log_.error("card-not-cordoned",
               {{"card", card},
                {"why", answer.error().message},
                {"then", again ? "it is asked for until it is taken" : "qgpuctl cordon"}});
  }
  if (again) {
    return timer_.afterDelay(kAgain.value * kj::NANOSECONDS).then([this, card] {
      return cordon(card);
    });
  }
  cordoning_.erase(card);
  return kj::READY_NOW;
}

void CardWatch::taskFailed(kj::Exception&& failure) {
  log_.error("card-not-cordoned", {{"why", failure.getDescription().cStr()}});
}

}  // namespace qgpu
