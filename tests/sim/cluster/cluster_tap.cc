#include "tests/sim/cluster/cluster_tap.h"

#include <cstdio>

namespace qgpu::sim {

Tap::Tap(Verdict& verdict, ClusterCheck& check, std::optional<std::size_t> node, Nanos offset,
         NodeOf nodeOf)
    : check_(check),
      node_(node),
      offset_(offset),
      nodeOf_(std::move(nodeOf)),
      mail_(verdict),
      storage_(verdict, node ? StorageCheck::Rounds::AlwaysRows
                             : StorageCheck::Rounds::MayBeEmpty) {}

void Tap::boot(const Boot& boot, Addresses addresses, Nanos now) {
  at_ = addresses;
  line(now - offset_, "--- life " + std::to_string(boot.life) + ", rows " +
                          std::to_string(boot.rows.size()));
  mail_.onBoot(boot, now);
  storage_.onBoot(boot, now);
  if (node_) check_.nodeBoot(*node_, boot);
  else check_.schedulerBoot(boot);
}

void Tap::onPhase(Phase phase, Nanos now) {
  mail_.onPhase(phase, now);
  storage_.onPhase(phase, now);
}

void Tap::onEnd(Ending ending, Nanos now) {
  line(now - offset_, "--- ends");
  mail_.onEnd(ending, now);
  storage_.onEnd(ending, now);
  if (node_) check_.nodeEnd(*node_);
  else check_.schedulerEnd();
}

void Tap::onSent(const Carried& message, Nanos now) {
  mail_.onSent(message, now);
  storage_.onSent(message, now);
  if (node_) sentOnNode(message, now - offset_);
  else sentAtScheduler(message, now - offset_);
}

void Tap::sentOnNode(const Carried& message, Nanos now) {
  if (message.from != at_.member) return;
  if (message.to == at_.actor && message.message.isRequest()) {
    check_.memberAsks(*node_, message.message.getRequest(), now);
  }
  if (message.to == at_.link && message.message.isFromMember()) {
    check_.memberSays(*node_, message.message.getFromMember());
  }
}

void Tap::sentAtScheduler(const Carried& message, Nanos now) {
  if (message.to == at_.actor && message.message.isClusterRequest()) {
    check_.schedulerAsked(message.message.getClusterRequest());
  }
  if (message.from != at_.actor) return;
  if (message.message.isClusterReply()) {
    check_.schedulerReplies(message.message.getClusterReply());
  }
  if (!message.message.isToMember()) return;
  const auto words = message.message.getToMember();
  if (const auto node = nodeOf_(words.getLink())) check_.schedulerSays(*node, words, now);
}

void Tap::onRefused(ActorId from, ActorId to, Nanos now) {
  mail_.onRefused(from, to, now);
  if (trace_) line(now - offset_, who(from) + " -> " + who(to) + " refused: mailbox full");
}

void Tap::onTurn(const Carried& message, Nanos now) {
  mail_.onTurn(message, now);
  storage_.onTurn(message, now);
  if (trace_) {
    line(now - offset_, who(message.from) + (message.lane == Lane::Control ? " => " : " -> ") +
                            who(message.to) + " " + kj::str(message.message).cStr());
  }
  if (node_ || message.to != at_.actor || !message.message.isFromMember()) return;
  const auto words = message.message.getFromMember();
  if (const auto node = nodeOf_(words.getLink())) {
    check_.schedulerHears(*node, words.getLink(), words, now - offset_);
  }
}

void Tap::onAppended(std::uint64_t batch, ActorId self, const std::vector<StoredRow>& rows,
                     Nanos now) {
  storage_.onAppended(batch, self, rows, now);
  if (trace_) {
    std::string text = "batch " + std::to_string(batch) + ":";
    for (const StoredRow& row : rows) {
      const auto reader = capnp::readMessageUnchecked<schema::Row>(row.words.data());
      text += " " + std::to_string(row.key.id) + kj::str(reader).cStr();
    }
    line(now - offset_, text);
  }
  if (node_) check_.nodeAppended(*node_, batch, rows, now - offset_);
  else check_.schedulerAppended(batch, rows, now - offset_);
}

void Tap::onAnswered(std::uint64_t batch, const Status& status, Nanos now) {
  storage_.onAnswered(batch, status, now);
  if (trace_) {
    line(now - offset_, "batch " + std::to_string(batch) +
                            (status.ok() ? " committed" : " failed: " + status.error().message));
  }
  if (node_) check_.nodeAnswered(*node_, batch, status.ok());
  else check_.schedulerAnswered(batch, status.ok());
}

std::string Tap::who(ActorId id) const {
  if (id == ActorId::kNobody) return "nobody";
  if (id == at_.actor) return node_ ? "node" : "scheduler";
  if (id == at_.link) return node_ ? "link" : "links";
  if (id == at_.member) return "member";
  return "#" + std::to_string(static_cast<unsigned>(id));
}

void Tap::line(Nanos now, const std::string& text) const {
  if (!trace_) return;
  std::printf("%14.6f s  %s: %s\n", static_cast<double>(now.value) / 1e9,
              node_ ? ("n" + std::to_string(*node_)).c_str() : "sched", text.c_str());
}

}  // namespace qgpu::sim
