#include "tests/sim/cluster/cluster_tap.h"

#include <cstdio>

namespace qgpu::sim {

Tap::Tap(Verdict& verdict, ClusterCheck& check, StorageCheck& storage, Of of, std::size_t number,
         Nanos offset, NodeOf nodeOf)
    : verdict_(verdict),
      check_(check),
      storage_(storage),
      of_(of),
      number_(number),
      offset_(offset),
      nodeOf_(std::move(nodeOf)),
      mail_(verdict) {}

void Tap::boot(const Boot& boot, Addresses addresses, Nanos now) {
  at_ = addresses;
  line(now - offset_,
       "--- life " + std::to_string(boot.life) + ", rows " + std::to_string(boot.rows.size()));
  mail_.onBoot(boot, now);
  storage_.onBoot(boot, now);
  if (isNode())
    check_.nodeBoot(number_, boot);
  else
    check_.schedulerBoot(number_, boot);
}

void Tap::onPhase(Phase phase, Nanos now) {
  mail_.onPhase(phase, now);
  if (stores()) storage_.onPhase(phase, now);
}

void Tap::onEnd(Ending ending, Nanos now) {
  line(now - offset_, "--- ends");
  mail_.onEnd(ending, now);
  if (stores()) storage_.onEnd(ending, now);
  if (isNode())
    check_.nodeEnd(number_);
  else
    check_.schedulerEnd(number_);
}

void Tap::onSent(const Carried& message, Nanos now) {
  mail_.onSent(message, now);
  if (stores()) storage_.onSent(message, now);
  if (isNode())
    sentOnNode(message, now - offset_);
  else
    sentAtScheduler(message, now - offset_);
}

void Tap::sentOnNode(const Carried& message, Nanos now) {
  if (message.from != at_.member) return;
  if (message.to == at_.actor && message.message.isRequest()) {
    check_.memberAsks(number_, message.message.getRequest(), now);
  }
  if (message.to == at_.link && message.message.isFromMember()) {
    check_.memberSays(number_, message.message.getFromMember());
  }
}

void Tap::sentAtScheduler(const Carried& message, Nanos now) {
  if (message.to == at_.actor && message.message.isClusterRequest()) {
    check_.schedulerAsked(number_, message.message.getClusterRequest());
  }
  if (message.from != at_.actor) return;
  if (message.message.isClusterReply()) {
    check_.schedulerReplies(number_, message.message.getClusterReply());
  }
  if (!message.message.isToMember()) return;
  const auto words = message.message.getToMember();
  if (const auto node = nodeOf_(words.getLink())) check_.schedulerSays(number_, *node, words, now);
}

void Tap::onRefused(ActorId from, ActorId to, Nanos now) {
  mail_.onRefused(from, to, now);
  if (trace_) line(now - offset_, who(from) + " -> " + who(to) + " refused: mailbox full");
}

void Tap::onTurn(const Carried& message, Nanos now) {
  mail_.onTurn(message, now);
  if (stores()) storage_.onTurn(message, now);
  if (trace_) {
    line(now - offset_, who(message.from) + (message.lane == Lane::Control ? " => " : " -> ") +
                            who(message.to) + " " + kj::str(message.message).cStr());
  }
  if (isNode() || message.to != at_.actor || !message.message.isFromMember()) return;
  const auto words = message.message.getFromMember();
  if (const auto node = nodeOf_(words.getLink())) {
    check_.schedulerHears(*node, words.getLink(), words, now - offset_);
  }
}

void Tap::onAppended(std::uint64_t batch, ActorId self, const std::vector<StoredRow>& rows,
                     Nanos now) {
  if (stores()) storage_.onAppended(batch, self, rows, now);
  if (trace_) {
    std::string text = "batch " + std::to_string(batch) + ":";
    for (const StoredRow& row : rows) {
      const auto reader = capnp::readMessageUnchecked<schema::Row>(row.words.data());
      text += " " + std::to_string(row.key.id) + kj::str(reader).cStr();
    }
    line(now - offset_, text);
  }
  if (isNode())
    check_.nodeAppended(number_, batch, rows, now - offset_);
  else if (stores())
    check_.schedulerAppended(batch, rows, now - offset_);
}

void Tap::onAnswered(std::uint64_t batch, const Status& status, Nanos now) {
  if (stores()) storage_.onAnswered(batch, status, now);
  if (trace_) {
    line(now - offset_, "batch " + std::to_string(batch) +
                            (status.ok() ? " committed" : " failed: " + status.error().message));
  }
  if (isNode()) return check_.nodeAnswered(number_, batch, status.ok());
  if (stores()) return check_.schedulerAnswered(batch, status.ok());
  if (!status.ok() || batch <= followed_) return;
  verdict_.violated("C1",
                    "a scheduler that another one followed is told that it has changed the "
                    "store, and that one did not find it");
}

std::string Tap::who(ActorId id) const {
  if (id == ActorId::kNobody) return "nobody";
  if (id == at_.actor) return isNode() ? "node" : "scheduler";
  if (id == at_.link) return isNode() ? "link" : "links";
  if (id == at_.member) return "member";
  return "#" + std::to_string(static_cast<unsigned>(id));
}

void Tap::line(Nanos now, const std::string& text) const {
  if (!trace_) return;
  std::printf("%14.6f s  %s: %s\n", static_cast<double>(now.value) / 1e9,
              ((isNode() ? "n" : "s") + std::to_string(number_)).c_str(), text.c_str());
}

}  // namespace qgpu::sim
