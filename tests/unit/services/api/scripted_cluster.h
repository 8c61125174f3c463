#pragma once
// A scheduler for the tests of the clients: it answers every request as a small cluster would,
// without actors behind it, and remembers what it was asked. Its answers come later, over KJ's
// event loop, as they do in the daemon.

#include <kj/async.h>
#include <memory>
#include <optional>
#include <vector>

#include "services/api/commands/cluster_actor_client.h"

namespace qgpu::testing {

class ScriptedCluster final : public RequestSink, private kj::TaskSet::ErrorHandler {
 public:
  ScriptedCluster() : tasks_(*this) {}

  ClusterActorClient* actor = nullptr;  // set once it exists
  std::optional<Error> failNext;        // the answer to the next request
  bool waits = false;                   // a submitted task fits nowhere
  std::uint64_t pages = 1;              // of the list of tasks
  bool stuck = false;                   // its page tells itself as the next one
  std::string storage = "ok";

  SendResult send(Build build) override;

  std::size_t asked() const { return asked_.size(); }
  schema::ClusterRequest::Reader last() const {
    return asked_.back()->getRoot<schema::Envelope>().asReader().getClusterRequest();
  }

 private:
  void answer(schema::ClusterRequest::Reader request, schema::ClusterReply::Builder reply);
  void taskFailed(kj::Exception&& exception) override {
    kj::throwFatalException(kj::mv(exception));
  }

  std::vector<std::unique_ptr<capnp::MallocMessageBuilder>> asked_;
  kj::TaskSet tasks_;
};

}  // namespace qgpu::testing
