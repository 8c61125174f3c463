#pragma once
// What a scheduler of several may hear and say only while no other one can act: all that is no
// change of the store. A change is stored only for who is seated, so it needs no more than its
// commit. `holds`: seated, and nobody else can be.
//
// Kept here: C1.

#include <capnp/message.h>
#include <functional>
#include <utility>

#include "runtime/actor.h"
#include "services/api/commands/cluster_actor_client.h"
#include "services/api/commands/schema_names.h"

namespace qgpu {

// What nodes say reaches the actor: it answers beats, by which a node knows that it still has its
// lease. A refusal holds the nodes' streams up.
class WordsWhileSeated final : public RequestSink {
 public:
  // `inner` outlives it.
  WordsWhileSeated(RequestSink& inner, std::function<bool()> holds)
      : inner_(inner), holds_(std::move(holds)) {}
  SendResult send(Build build) override {
    return holds_() ? inner_.send(kj::mv(build)) : SendResult::Refused;
  }

 private:
  RequestSink& inner_;
  const std::function<bool()> holds_;
};

// What the actor answers reaches clients: whoever lost the seat may know nothing of a task that
// there is, or still have one that has ended. In place of its client at the client's address.
class AnswersWhileSeated final : public Actor {
 public:
  // `client` outlives it.
  AnswersWhileSeated(ClusterActorClient& client, std::function<bool()> holds)
      : client_(client), holds_(std::move(holds)) {}
  void handle(schema::Envelope::Reader message, Turn& turn) override {
    if (!message.isClusterReply() || holds_()) return client_.handle(message, turn);
    capnp::MallocMessageBuilder builder;
    auto reply = builder.initRoot<schema::ClusterReply>();
    reply.setCorr(message.getClusterReply().getCorr());
    auto failed = reply.initFailed();
    failed.setCode(errorName(ErrorCode::Unavailable));
    failed.setMessage(
        "another scheduler may act by now, and what was asked may still happen: "
        "ask again");
    client_.onReply(reply.asReader());
  }

 private:
  ClusterActorClient& client_;
  const std::function<bool()> holds_;
};

}  // namespace qgpu
