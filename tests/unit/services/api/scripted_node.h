#pragma once
// A node for the tests of the clients: it answers every request as a small node would, without
// actors behind it, and remembers what it was asked. ScriptedSink carries the messages over KJ's
// event loop, so that answers come later, as they do in the daemon.

#include <deque>
#include <kj/async.h>
#include <optional>
#include <string>
#include <vector>

#include "schema/envelope.capnp.h"
#include "services/api/commands/node_actor_client.h"

namespace qgpu::testing {

struct Asked {
  schema::Request::Which which{};
  std::uint32_t uid = 0;
  std::uint32_t pid = 0;
  bool mayChange = false;
  std::string text;  // card, level, or name of a bound task
  std::string requestId;
  std::uint64_t number = 0;  // task, since, or watch on and off
  std::uint32_t ownerPid = 0;
  std::uint64_t ownerStart = 0;
  std::uint32_t ownerUid = 0;
  std::uint32_t sharePermille = 0;
  std::uint64_t memBytes = 0;
};

class ScriptedNode {
 public:
  std::vector<Asked> asked;
  std::optional<Error> failNext;  // the answer to the next request
  std::optional<Error> failBind;  // the answer to the next request to bind
  std::string cluster = "none";   // how the node stands with its scheduler
  std::string storage = "ok";
  std::string taskName = "train";
  std::string note;
  std::vector<std::uint64_t> eventSeqs;      // what `events` tells
  std::size_t eventsPerReply = 256;          // the oldest ones
  std::uint64_t traceNowNs = 9'000'000'000;  // of the next trace; a second later each time
  std::string eventActor = "uid 0 pid 12";
  const char* eventKind = "task-bound";
  std::string card = "sim-0";  // that a bind gets
  std::string attachSocket = "/run/qgpu/attach.sock";

  void answer(schema::Request::Reader request, schema::Reply::Builder reply);
  void fillEvent(schema::Event::Builder event, std::uint64_t seq) const;

 private:
  void remember(schema::Request::Reader request);
  void fillInfo(schema::NodeInfo::Builder info) const;
  void fillCards(schema::Reply::Builder reply) const;
  void fillTasks(schema::Reply::Builder reply) const;
  void fillTrace(schema::CardTrace::Builder trace);
};

// Delivers requests to a ScriptedNode and its answers to a client, each in a KJ event of its own.
class ScriptedSink final : public RequestSink, private kj::TaskSet::ErrorHandler {
 public:
  explicit ScriptedSink(ScriptedNode& node) : node_(node), tasks_(*this) {}

  NodeActorClient* actor = nullptr;  // set once it exists
  bool full = false;                 // the mailbox refuses
  bool silent = false;               // the node never answers

  SendResult send(Build build) override;
  void tellEvent(std::uint64_t seq);

 private:
  void taskFailed(kj::Exception&& exception) override {
    kj::throwFatalException(kj::mv(exception));
  }
  ScriptedNode& node_;
  kj::TaskSet tasks_;
};

}  // namespace qgpu::testing
