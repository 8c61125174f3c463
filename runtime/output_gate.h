#pragma once
// The output gate: ordinary messages of an actor that wait for the commit of what it persisted.
// Each turn that persists opens a batch; the actor's later ordinary messages queue behind it, so
// that FIFO per receiver holds. Batches of one actor resolve in the order in which they opened.
//
// Kept here: D2 (nothing that implies a durable change leaves before its commit). Shared by the
// dispatcher and the test fixture, so that both gate alike.

#include <deque>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/check.h"
#include "runtime/message.h"
#include "runtime/planted.h"

namespace qgpu {

// Of all actors of one host. An actor without an open batch has an open gate and no entry here.
class OutputGate {
 public:
  // Whether ordinary messages of `actor` wait: hold() them instead of delivering them.
  bool closed(ActorId actor) const {
    return !batches_.empty() && batches_.contains(actor) && !QGPU_PLANTED(SendBeforeCommit);
  }

  // A turn of `actor` persisted: what it sends from now on waits for this batch.
  void open(ActorId actor) { batches_[actor].emplace_back(); }

  // A message of an actor whose gate is closed: it waits for the newest open batch.
  void hold(ActorId actor, OwnedMessage message) {
    const auto found = batches_.find(actor);
    QGPU_CHECK(found != batches_.end(), "only a closed gate holds messages");
    found->second.back().push_back(std::move(message));
  }

  // The oldest batch of `actor` is decided: the messages that waited for it, oldest first.
  std::vector<OwnedMessage> resolve(ActorId actor) {
    const auto found = batches_.find(actor);
    QGPU_CHECK(found != batches_.end(), "the journal answers each batch once");
    std::vector<OwnedMessage> messages = std::move(found->second.front());
    found->second.pop_front();
    if (found->second.empty()) batches_.erase(found);
    return messages;
  }

 private:
  std::unordered_map<ActorId, std::deque<std::vector<OwnedMessage>>> batches_;
};

// Fills storageHealth{ok = false} for an actor whose batch failed: why, and the replies that are
// dropped with it, so that it can answer each of them otherwise (C2).
inline void tellFailedCommit(schema::Envelope::Builder envelope, const std::string& why,
                             const std::vector<OwnedMessage>& dropped) {
  std::vector<std::pair<ActorId, std::uint64_t>> replies;
  for (const OwnedMessage& message : dropped) {
    const auto reader = readEnvelope(message.words.data());
    if (reader.isReply()) replies.emplace_back(message.to, reader.getReply().getCorr());
  }
  auto health = envelope.initStorageHealth();
  health.setOk(false);
  health.setText(why);
  auto unsent = health.initUnsent(static_cast<unsigned>(replies.size()));
  for (unsigned i = 0; i < unsent.size(); ++i) {
    unsent[i].setTo(static_cast<std::uint32_t>(replies[i].first));
    unsent[i].setCorr(replies[i].second);
  }
}

}  // namespace qgpu
