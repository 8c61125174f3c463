#pragma once
// A cluster under the extender, as qgpu-scheduler puts it together: the real scheduler actor with
// its store on disk, the client, the extender and the HTTP server on one loop. Nodes and the API
// server are doubles: nodes take every order at once, and the API server keeps pods and fails as it
// is told.

#include <deque>
#include <functional>
#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/scheduler/scheduler_actor.h"
#include "runtime/dispatcher.h"
#include "runtime/kj/bridge.h"
#include "services/api/commands/cluster_actor_client.h"
#include "services/api/commands/node_link.h"
#include "services/base/net/http_server.h"
#include "services/kubernetes/extender/extender.h"
#include "store/store_journal.h"
#include "tests/unit/services/api/actor_client_fixture.h"

namespace qgpu::testing {

struct NodeShape {
  std::string name;
  std::size_t cards = 2;
  std::int64_t gib = 16;
  bool mixed = true;
  std::uint32_t tasksPerCard = 0;
  std::string model = "imaginary";
};

// All nodes and their connections. Card i of node n is GPU-n-i.
class PlainNodes final : public Actor {
 public:
  void handle(schema::Envelope::Reader message, Turn& turn) override;
  void writeFacts(const NodeShape& shape, schema::NodeFacts::Builder facts) const;

  struct BoundTask {
    std::string node;
    TaskSpec spec;
    std::vector<std::string> cards;
  };
  std::vector<NodeShape> shapes;             // link n is shapes[n - 1]
  std::map<std::uint64_t, BoundTask> tasks;  // by the scheduler's numbers
  std::size_t welcomed = 0;
  bool refuses = false;  // every bind

 private:
  struct Session {
    std::uint64_t session = 0;
    std::uint64_t seq = 0;
  };
  std::map<std::uint32_t, Session> sessions_;
  std::uint64_t lastTask_ = 0;
};

// Pods as the API server has them. The next calls fail with these codes, in turn.
class ApiDouble final : public ApiServer {
 public:
  struct Pod {
    std::string resourceVersion = "1";
    std::map<std::string, std::string> annotations;
    std::string node;
    std::string json;  // as it was created
  };
  kj::Promise<Result<std::string>> readPod(PodRef pod) override;
  kj::Promise<Status> annotatePod(PodRef pod, std::vector<AnnotationChange> changes,
                                  std::string resourceVersion) override;
  kj::Promise<Status> bindPod(PodRef pod, std::string node) override;
  void tellPod(PodEvent event) override { events.push_back(std::move(event)); }

  std::map<std::string, Pod> pods;  // by UID
  std::deque<std::optional<ErrorCode>> annotateFails;
  std::deque<std::optional<ErrorCode>> bindFails;  // Unavailable: it is bound all the same
  std::function<kj::Promise<void>()> meanwhile;    // done before the next annotation is answered
  std::function<void()> meanwhileRead = [] {};     // done once a pod was read
  std::vector<PodEvent> events;
  std::size_t busy = 0;  // calls under way, and the most there ever were
  std::size_t busiest = 0;

 private:
  kj::Promise<Status> later(Status status) { return delayed(std::move(status)); }
  template <typename Answer>
  kj::Promise<Answer> delayed(Answer answer) {
    busiest = std::max(busiest, ++busy);
    return kj::evalLater([this, answer = std::move(answer)]() {
      --busy;
      return answer;
    });
  }
};

class ExtenderWorld {
 public:
  explicit ExtenderWorld(std::vector<NodeShape> nodes, Score priority = Score::Binpack,
                         PodRules rules = {}, kj::Duration groupHold = PodGroups::kHold);
  ~ExtenderWorld() noexcept;

  // Serves until `done`; false where that takes too long.
  template <typename Done>
  [[nodiscard]] bool served(Done done) {
    const kj::TimePoint end = kj.timer().now() + 20 * kj::SECONDS;
    while (!done()) {
      if (kj.timer().now() > end) return false;
      kj.timer().afterDelay(100 * kj::MICROSECONDS).wait(kj.waitScope());
    }
    return true;
  }
  void join(NodeShape node);

  // One exchange over HTTP: the body of an answer with status 200.
  kj::Promise<std::string> posted(const std::string& verb, const std::string& body);
  std::string post(const std::string& verb, const std::string& body);

  // A pod with these containers: {"c": "memory=4 core=30"}. The first of a UID is the one that the
  // API server has, until create().
  struct PodSpec {
    std::string uid;
    std::map<std::string, std::string> containers;
    std::string appClass;
    std::string initContainers;  // JSON
    std::string owner;
    std::int32_t priority = 0;
    std::string models{};
    std::string group{};
    std::uint32_t groupSize = 0;
  };
  std::string pod(const PodSpec& spec);  // its JSON
  void create(const PodSpec& spec);      // at the API server, in place of what is there
  static std::string args(const std::string& pod, const std::vector<std::string>& nodes);
  std::string filter(const PodSpec& spec, const std::vector<std::string>& nodes);
  static std::string bindingArgs(const std::string& uid, const std::string& node);
  std::vector<std::string> names() const;
  std::size_t tasks() const { return scheduler.tasks(); }

  void sayHello(std::size_t node);

  TempFolder folder;
  Loop loop;
  ActorSystem system;
  Dispatcher actors{system, loop};
  KjBridge kj{loop};
  std::optional<StoreJournal> journal;
  ActorId schedulerId = actors.reserve();
  ActorId clientId = actors.reserve();
  ActorId nodesId = actors.reserve();
  PlainNodes nodes;
  SchedulerActor scheduler;
  NodeLink fromClient{actors, clientId, schedulerId};
  ClusterActorClient actor{fromClient, kj.timer()};
  ApiDouble api;
  Extender extender;
  std::unique_ptr<HttpServer> http;
};

}  // namespace qgpu::testing
