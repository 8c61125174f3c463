#pragma once
// One cluster in the deterministic fixture: the real scheduler; the client is a probe, and nodes
// and their connections are played by one double that does what a manager does, or as little of it
// as a test wants.

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "actors/scheduler/scheduler_actor.h"
#include "runtime/testing/fixture.h"

namespace qgpu::testing {

// A manager, as far as a scheduler can tell.
struct NodeDouble {
  std::string name;
  std::size_t cards = 2;
  std::int64_t gib = 16;
  bool mixed = true;
  std::string model = "imaginary";
  std::string cardStart = "sim-";  // of the ids of its cards
  std::uint64_t cpuMilli = 0;
  std::uint32_t maxTasksPerCard = 0;
  std::uint32_t incarnation = 1;
  std::uint64_t reportUnixMs = 0;  // of each card

  bool answers = true;  // orders to bind; false: says nothing
  bool ends = true;     // orders to end
  std::string refuses;  // not empty: every bind, and why

  std::uint32_t link = 0;  // 0: not connected
  std::uint64_t session = 0;
  std::uint64_t seq = 0;
  std::uint64_t term = 0;
  std::uint64_t termSeen = 0;
  Nanos leaseFrom{0};
  std::string turnedAway;  // code of the last time
  struct Task {
    std::uint64_t clusterTask = 0;
    std::uint32_t epoch = 0;
    TaskSpec spec;
    std::vector<std::string> cards;
  };
  std::map<std::uint64_t, Task> tasks;  // by its own numbers
  std::uint64_t lastTask = 0;

  const Task* find(std::uint64_t clusterTask) const;
};

// All connections: hears toMember, plays the nodes.
class LinksDouble final : public Actor {
 public:
  void handle(schema::Envelope::Reader message, Turn& turn) override;

  using Fill = std::function<void(schema::FromMember::Builder)>;
  using Send = std::function<void(const Fill&)>;
  void answerBind(NodeDouble& node, schema::OrderBind::Reader bind, const Send& send);
  void answerEnd(NodeDouble& node, schema::OrderEnd::Reader end, const Send& send);

  std::map<std::string, NodeDouble> nodes;
  Probe heard;
  NodeDouble* byLink(std::uint32_t link);
};

struct ClusterOptions {
  std::vector<StoredRow> rows;
  std::uint64_t seed = 1;
  Score priority = Score::Binpack;
  std::uint64_t firstTask = 1;
  std::size_t endedKept = 8'192;
  bool rebuilds = false;
  std::int64_t reportMsMax = 0;
  UnixMsAtZero unixMsAtZero = [] { return std::int64_t{0}; };
};

class ClusterWorld {
 public:
  explicit ClusterWorld(ClusterOptions options = {});

  void start();
  void run();
  // Another scheduler on what is stored; every connection is over.
  void restart();
  // Time passes; nodes that are connected beat on the way.
  void pass(Nanos time);

  // --- nodes ---
  NodeDouble& add(const std::string& name, std::size_t cards = 2, std::int64_t gib = 16);
  NodeDouble& node(const std::string& name) { return links.nodes.at(name); }
  void connect(const std::string& name);                      // by a new link, and says hello
  void disconnect(const std::string& name);                   // and the scheduler hears of it
  void cut(const std::string& name) { node(name).link = 0; }  // and it does not
  void say(const std::string& name, const LinksDouble::Fill& fill);  // within the session
  void sayHello(NodeDouble& node);
  void sayHeld(const std::string& name, std::uint64_t nodeTask, bool ended);

  // --- the client ---
  struct As {
    std::uint32_t uid = 0;
    bool mayChange = true;
  };
  using Fill = std::function<void(schema::ClusterRequest::Builder)>;
  std::uint64_t send(const Fill& fill, As as = {0, true});
  std::uint64_t ask(const Fill& fill, As as = {0, true});  // and runs
  std::size_t answers(std::uint64_t corr) const;
  schema::ClusterReply::Reader reply(std::uint64_t corr) const;
  std::string code(std::uint64_t corr) const;  // of a failure, else "ok"
  std::string message(std::uint64_t corr) const;
  std::string order(const Fill& fill, As as = {0, true}) { return code(ask(fill, as)); }

  static ClusterSpec spec(TaskClass taskClass, std::int64_t gib, std::int64_t percent,
                          const std::string& node = "");
  static Fill submit(const ClusterSpec& spec);
  std::uint64_t submitted(const ClusterSpec& spec, As as = {0, true});  // the task's number
  PlaceState state(std::uint64_t task) const;
  std::string placeOf(std::uint64_t task) const;  // its node, or ""
  std::size_t holders(std::uint64_t task) const;  // nodes that hold it now

  std::vector<StoredRow> rows();
  std::size_t taskRows();   // of tasks that live
  std::size_t endedRows();  // of those that ended

  Fixture fixture;
  Probe actor;
  LinksDouble links;
  std::unique_ptr<SchedulerActor> scheduler;
  ActorId clientId{}, linksId{}, schedulerId{};

 private:
  const bool random_;
  std::uint64_t lastCorr_ = 0;
  std::uint32_t lastLink_ = 0;
};

}  // namespace qgpu::testing
