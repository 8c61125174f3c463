#pragma once
// A node's claims as tasks: what kubelet prepares is read at the API server, since kubelet tells a
// claim's name alone, and bound by the node's actor, under a request id of its own: a claim that is
// prepared again, by kubelet for each pod that shares it or after a crash of anybody, finds the
// tasks that are there.
//
// Claims are prepared and taken back one after the other, so that two calls for one can't bind
// twice.
//
// Kept here: C5 (calls that wait are bounded), C7 (what came is copied and checked first).

#include <functional>
#include <kj/async.h>
#include <string>
#include <string_view>
#include <vector>

#include "services/api/commands/node_actor_client.h"
#include "services/kubernetes/claims/claim.h"
#include "services/kubernetes/client/api_client.h"

namespace qgpu {

// What one request of a claim got.
struct PreparedPart {
  std::string request;
  std::vector<ClaimDevice> devices;
  std::vector<std::string> cards;  // ids, in the order of `devices`
  bool admin = false;              // no task: it looks at them
  std::uint64_t task = 0;
  std::string token;
};

struct PreparedClaim {
  ClaimUsers users;
  std::vector<PreparedPart> parts;
};

// The ids of a task's cards, which it names joined by commas.
std::vector<std::string> cardsIn(std::string_view joined);

class ClaimTasks {
 public:
  static constexpr std::size_t kWaitingMax = 256;
  // The begin of request ids of claims' tasks.
  static constexpr const char* kRequestStart = "claim:";

  // `mixed`: whether online and offline tasks may run on this node. All outlive it; calls that are
  // under way when it ends fail.
  ClaimTasks(NodeActorClient& actor, ApiClient& api, std::string node, std::function<bool()> mixed);
  ClaimTasks(const ClaimTasks&) = delete;
  ClaimTasks& operator=(const ClaimTasks&) = delete;

  kj::Promise<Result<PreparedClaim>> prepare(Peer peer, ClaimName claim);
  kj::Promise<Status> unprepare(Peer peer, std::string uid);
  // Who uses the claim of a task, by the task's name and request id. NotFound: the claim is gone,
  // or the name too long to tell whose task it is.
  kj::Promise<Result<ClaimUsers>> usersOf(std::string task, std::string requestId);

 private:
  struct Bound;
  struct Work;
  struct Turn;

  template <typename T, typename Do>
  kj::Promise<Result<T>> inTurn(Do&& work);
  kj::Promise<ApiAnswer> read(std::string_view nameSpace, std::string_view name);
  kj::Promise<Status> look(Work& work);
  kj::Promise<Status> readTasks(Work& work);
  kj::Promise<Status> readCards(Work& work);
  kj::Promise<Status> bindFrom(Work& work, std::size_t at);
  kj::Promise<Status> replace(Work& work, std::size_t at, const Bound& bound);
  kj::Promise<Status> end(Peer peer, std::uint64_t task);

  NodeActorClient& actor_;
  ApiClient& api_;
  const std::string node_;
  const std::function<bool()> mixed_;
  std::size_t waiting_ = 0;
  kj::Promise<void> last_ = kj::READY_NOW;  // ends with the call before
  kj::Canceler under_;  // last: what is under way ends with us, whoever waits for it
};

}  // namespace qgpu
