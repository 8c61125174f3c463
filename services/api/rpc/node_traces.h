#pragma once
// The RequestSink of a scheduler's client: what a card did is asked of its node, over the node's
// own link, and everything else of the scheduler actor. A scheduler keeps no trace, so one that
// nobody looks at costs nothing.
//
// Kept here: C2 (each question ends in one answer: the node's, why there is none, or a deadline),
// C5 (a bounded number is under way, refusal is visible), C7 (an answer has a bounded size).

#include <kj/async.h>
#include <kj/timer.h>
#include <string>

#include "services/api/commands/cluster_actor_client.h"
#include "services/api/rpc/links.h"

namespace qgpu {

// Beyond askedMax a question is refused as Overloaded.
struct NodeTracesLimits {
  std::size_t askedMax = 64;  // questions that wait for their nodes
  Nanos within = seconds(4);  // for an answer
};

// Between the ClusterActorClient of a scheduler daemon and its actor, on the main loop.
class NodeTraces final : public RequestSink, private kj::TaskSet::ErrorHandler {
 public:
  // `scheduler` and `timer` outlive this; it is asked for nothing before start().
  NodeTraces(RequestSink& scheduler, kj::Timer& timer, NodeTracesLimits limits = {})
      : scheduler_(scheduler), timer_(timer), limits_(limits) {}

  // `links` and `client`, which hears the answers, outlive stop(), or this.
  void start(Links& links, ClusterActorClient& client);
  // Questions under way are not answered any more.
  void stop() { asking_ = nullptr; }

  // A request of the client: `trace` goes to the node of its card, all others to the scheduler.
  // Refused where the scheduler's mailbox is full.
  SendResult send(Build build) override;

 private:
  struct Asking {
    Asking(Links& l, ClusterActorClient& c, kj::TaskSet::ErrorHandler& errors)
        : links(l), client(c), questions(errors) {}
    Links& links;
    ClusterActorClient& client;
    std::size_t open = 0;
    kj::TaskSet questions;  // last
  };

  SendResult ask(schema::ClusterRequest::Reader request);
  kj::Promise<void> question(std::uint64_t corr, const std::string& node, kj::StringPtr card,
                             std::uint64_t since);
  void refuse(std::uint64_t corr, const Error& why);
  void taskFailed(kj::Exception&& exception) override;

  RequestSink& scheduler_;
  kj::Timer& timer_;
  const NodeTracesLimits limits_;
  kj::Own<Asking> asking_;
};

}  // namespace qgpu
