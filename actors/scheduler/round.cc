#include "actors/scheduler/round.h"

#include "actors/base/codec.h"

namespace qgpu {

std::uint64_t Rounds::unixMs() const {
  return static_cast<std::uint64_t>(options_.unixMsAtZero() + now_ / millis(1));
}

void Rounds::note(EventKind kind, std::uint64_t task, const std::string& where,
                  const std::string& what) {
  feed_.note(EventRecord{0, unixMs(), kind.name(), task, where, what, "scheduler"});
}

void Rounds::audit(EventKind kind, const Who& who, std::uint64_t task, const std::string& where,
                   const std::string& what) {
  const std::string actor =
      who.name.empty() ? "uid " + std::to_string(who.uid) + " pid " + std::to_string(who.pid)
                       : "certificate " + who.name;
  round_->audits.push_back(
      EventRecord{feed_.take(), unixMs(), kind.name(), task, where, what, actor});
}

void Rounds::reply(const Asker& asker, std::function<void(schema::ClusterReply::Builder)> fill) {
  outbox().putWithin(asker.client, kRepliesPerClient,
                     [corr = asker.corr, fill = std::move(fill)](schema::Envelope::Builder e) {
                       auto answer = e.initClusterReply();
                       answer.setCorr(corr);
                       fill(answer);
                     });
}

void Rounds::replyFailed(const Asker& asker, const Error& error) {
  reply(asker, [error](schema::ClusterReply::Builder answer) {
    writeFailure(error, answer.initFailed());
  });
}

void Rounds::replyDone(const Asker& asker, const std::string& said) {
  reply(asker, [said](schema::ClusterReply::Builder answer) { answer.setDone(said); });
}

}  // namespace qgpu
