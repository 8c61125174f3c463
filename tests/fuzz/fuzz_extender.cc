// The extender's bodies, as kube-scheduler or anybody on the machine may send them. Layout, again
// and again until the input ends: VERB (1 byte: filter, priorities, bind, preempt), SIZE (2 bytes),
// then the body. Verbs see what those before them did: a pod that was filtered can be bound, on a
// real scheduler with three nodes and an API server that takes everything.
//
// Promises: C7 (each answer is JSON of its type whatever came; questions change nothing), names are
// told once and were asked about, scores are 0 to 10 and 10 at most once, a bind that succeeded has
// its tasks and one that did not has none (P1, P2 hold on every card).

#include <deque>
#include <kj/async.h>
#include <kj/timer.h>
#include <set>
#include <simdjson.h>

#include "services/kubernetes/extender/extender.h"
#include "tests/fuzz/target.h"
#include "tests/unit/actors/scheduler/scheduler_world.h"

namespace qgpu::fuzz {
namespace {

using simdjson::dom::element;
using testing::ClusterWorld;

// What the client sends goes to the scheduler of the fixture, and its replies back.
class Sink final : public RequestSink {
 public:
  explicit Sink(ClusterWorld& world) : world_(world) {}
  SendResult send(Build build) override {
    return world_.fixture.tell(world_.clientId, world_.schedulerId,
                               [&](schema::Envelope::Builder envelope) { build(envelope); });
  }

 private:
  ClusterWorld& world_;
};

// Takes everything, at once, and has each pod as filter was told of it last.
struct Taker final : ApiServer {
  kj::Promise<Result<std::string>> readPod(PodRef) override { return Result<std::string>(pod); }
  kj::Promise<Status> annotatePod(PodRef, std::vector<AnnotationChange>, std::string) override {
    return ok();
  }
  kj::Promise<Status> bindPod(PodRef, std::string) override {
    ++bound;
    return ok();
  }
  void tellPod(PodEvent) override {}
  std::uint64_t bound = 0;
  std::string pod;
};

struct World {
  World()
      : wait(loop),
        timer(kj::origin<kj::TimePoint>()),
        sink(cluster),
        actor(sink, timer),
        extender(actor, *cluster.scheduler, timer, {}, 1) {
    cluster.start();
    for (const char* name : {"a", "b", "c"}) cluster.add(name);
    extender.setApi(api);
  }

  // Both loops, until nothing moves.
  void run() {
    for (int quiet = 0; quiet < 2;) {
      loop.run();
      cluster.run();
      quiet = cluster.actor.empty() ? quiet + 1 : 0;
      for (std::size_t i = 0; i < cluster.actor.size(); ++i) {
        if (cluster.actor[i].isClusterReply()) actor.onReply(cluster.actor[i].getClusterReply());
      }
      cluster.actor.clear();
      cluster.links.heard.clear();
    }
  }

  kj::EventLoop loop;
  kj::WaitScope wait;
  kj::TimerImpl timer;
  ClusterWorld cluster;
  Sink sink;
  ClusterActorClient actor;
  Taker api;
  Extender extender;
};

class Answer {
 public:
  explicit Answer(const std::string& text) {
    require(parser_.parse(text).get(root_) == simdjson::SUCCESS, "C7: an answer is JSON");
  }
  const element& root() const { return root_; }

 private:
  simdjson::dom::parser parser_;
  element root_;
};

// Names that were asked about: what the reader makes of the body.
std::multiset<std::string> namesOf(std::string body) {
  WireReader reader;
  const Result<ExtenderArgs> args = reader.args(body);
  if (!args) return {};
  return {args->names.begin(), args->names.end()};
}

std::string podOf(std::string body) {
  WireReader reader;
  const Result<ExtenderArgs> args = reader.args(body);
  return args ? std::string(args->pod) : std::string();
}

void checkFilter(const std::string& body, const std::string& text) {
  const Answer answer(text);
  std::multiset<std::string> names = namesOf(body);
  const auto tell = [&](std::string_view name) {
    const auto at = names.find(std::string(name));
    require(at != names.end(), "a name is told once, and was asked about");
    names.erase(at);
  };
  std::string_view error;
  require(answer.root()["Error"].get(error) == simdjson::SUCCESS, "filter has an Error");
  simdjson::dom::array fitting;
  if (answer.root()["NodeNames"].get(fitting) == simdjson::SUCCESS) {
    for (const element name : fitting) {
      std::string_view told;
      require(name.get(told) == simdjson::SUCCESS, "names are texts");
      tell(told);
    }
  }
  simdjson::dom::object failed, unresolvable;
  require(answer.root()["FailedNodes"].get(failed) == simdjson::SUCCESS &&
              answer.root()["FailedAndUnresolvableNodes"].get(unresolvable) == simdjson::SUCCESS,
          "reasons are maps");
  for (const auto entry : failed) {
    std::string_view why;
    require(entry.value.get(why) == simdjson::SUCCESS && !why.empty(), "a reason is said");
    tell(entry.key);
  }
  for (const auto entry : unresolvable) {
    std::string_view why, again;
    require(entry.value.get(why) == simdjson::SUCCESS &&
                failed.at_key(entry.key).get(again) == simdjson::SUCCESS && why == again,
            "what is unresolvable has failed, for the same reason");
  }
}

void checkPriorities(const std::string& text) {
  const Answer answer(text);
  simdjson::dom::array list;
  require(answer.root().get(list) == simdjson::SUCCESS, "priorities are a list");
  int winners = 0;
  for (const element one : list) {
    std::int64_t score = -1;
    require(one["Score"].get(score) == simdjson::SUCCESS && one["Score"].is_int64(),
            "a score is an integer");
    require(score >= 0 && score <= kExtenderScoreMax, "a score is 0 to 10");
    winners += score == kExtenderScoreMax ? 1 : 0;
  }
  require(winners <= 1, "one winner");
}

void checkBind(World& world, const std::string& text, std::uint64_t boundBefore,
               std::size_t tasksBefore) {
  const Answer answer(text);
  std::string_view error;
  require(answer.root()["Error"].get(error) == simdjson::SUCCESS, "bind has an Error");
  if (error.empty()) return;
  require(world.api.bound == boundBefore, "what failed is not bound");
  require(world.cluster.scheduler->tasks() == tasksBefore, "what failed has no tasks");
}

void checkCards(const ClusterLedger& ledger) {
  for (std::uint32_t node = 0; node < ledger.nodes(); ++node) {
    for (std::size_t i = 0; i < ledger.facts(NodeId{node}).cards.size(); ++i) {
      const CardRoom& card = ledger.room(NodeId{node}, i);
      require(card.memBound <= card.mem && card.tasks <= card.tasksMax, "P1: memory and slots");
      require(card.ordinary <= kWholeCard && card.greedy <= kWholeCard, "P2: shares");
    }
  }
}

void serve(World& world, Input in) {
  while (!in.empty()) {
    const std::uint8_t verb = in.byte() % 4;
    const std::string body = in.text(in.number<std::uint16_t>());
    const ClusterLedger& ledger = world.cluster.scheduler->ledger();
    const std::uint64_t before = ledger.digest();
    if (verb == 2) {
      const std::uint64_t bound = world.api.bound;
      const std::size_t tasks = world.cluster.scheduler->tasks();
      std::optional<std::string> said;
      auto promise = world.extender.bind(body)
                         .then([&](std::string text) { said = std::move(text); })
                         .eagerlyEvaluate(nullptr);
      world.run();
      require(said.has_value(), "C2: a bind has an answer");
      checkBind(world, *said, bound, tasks);
      checkCards(ledger);
      continue;
    }
    if (verb == 0) {
      world.api.pod = podOf(body);
      checkFilter(body, world.extender.filter(body));
    }
    if (verb == 1) checkPriorities(world.extender.priorities(body));
    if (verb == 3) Answer(world.extender.preempt(body));
    require(ledger.digest() == before, "questions change nothing");
  }
}

}  // namespace
}  // namespace qgpu::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace qgpu::fuzz;
  World world;
  serve(world, Input(data, size));
  return 0;
}
