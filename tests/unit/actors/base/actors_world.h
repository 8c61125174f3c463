#pragma once
// One node in the deterministic fixture: the real node actor and task actors; the client, the cards
// and the attach server are played by probes that the test reads.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "actors/card/task_actor.h"
#include "actors/node/node_actor.h"
#include "runtime/testing/fixture.h"

namespace qgpu::testing {

// Answers taskKnown as the attach server does, and remembers everything.
class AttachDouble final : public Actor {
 public:
  void handle(schema::Envelope::Reader message, Turn& turn) override;

  Probe heard;
  std::string failing;  // not empty: pages can't be made, and why
  bool silent = false;  // says nothing at all

 private:
  void tellUse(Turn& turn);
};

// Remembers what it hears and answers for reports.
class CardDouble final : public Actor {
 public:
  explicit CardDouble(std::uint32_t index) : index_(index) {}
  void handle(schema::Envelope::Reader message, Turn& turn) override;

  Probe heard;
  bool silent = false;

 private:
  const std::uint32_t index_;
};

class CountingTokens final : public TokenSource {
 public:
  std::string next() override;

 private:
  std::uint64_t last_ = 0;
};

struct WorldOptions {
  std::size_t cards = 2;
  std::vector<std::string> ids;  // of the cards, in their order; none: sim-0, sim-1 and so on
  std::int64_t gib = 8;
  std::size_t slots = 16;
  bool mixed = true;
  bool labelled = false;  // its label says whether it is
  Policy policy = Policy::BestEffort;
  std::uint32_t tasksMax = 8;
  std::uint32_t incarnation = 1;
  std::uint64_t seed = 1;
  std::vector<StoredRow> rows;
  std::vector<StoredRow> survivors;
  std::uint64_t lastTask = 0;
  std::vector<std::uint64_t> living;
  schema::Suspend suspend = schema::Suspend::GATE;  // of each card
  bool member = false;  // an address for a member actor, which the test attaches
};

// Who asks.
struct WorldPeer {
  std::uint32_t uid = 0;
  bool mayChange = true;
  std::uint32_t pid = 12;
};

class World {
 public:
  explicit World(WorldOptions options = {});

  void start();
  // Everything in flight, in the order that the seed chooses if it is not 1.
  void run();

  // --- the client ---
  static constexpr std::uint32_t kPid = 1;  // of the manager
  using As = WorldPeer;
  using Fill = std::function<void(schema::Request::Builder)>;
  // Sends and runs; returns the correlation id.
  std::uint64_t ask(const Fill& fill, As as = {0, true});
  std::uint64_t send(const Fill& fill, As as = {0, true});
  bool answered(std::uint64_t corr) const;
  std::size_t answers(std::uint64_t corr) const;
  schema::Reply::Reader reply(std::uint64_t corr) const;
  std::string code(std::uint64_t corr) const;  // of a failure, else "ok"
  std::string message(std::uint64_t corr) const;

  // --- shorthands; they run, and give the failure's code or "ok" ---
  static TaskSpec spec(TaskClass taskClass, std::int64_t gib, std::int64_t percent,
                       std::string card = "");
  static Fill bind(const TaskSpec& spec);
  std::uint64_t bound(const TaskSpec& spec, As as = {0, true});  // the task's id
  std::string order(const Fill& fill, As as = {0, true}) { return code(ask(fill, as)); }

  // --- the tenants, as the attach server tells of them ---
  void attached(std::uint64_t task, std::uint32_t slot = 0);
  void gone(std::uint64_t task, std::uint32_t slot = 0, bool last = true);
  void ownerGone(std::uint64_t task);
  void incarnationSeen(std::uint32_t value);

  // What the store would load now.
  std::vector<StoredRow> rows();
  std::size_t taskRows();
  std::uint32_t storedIncarnation();

  Fixture fixture;
  Probe actor;
  AttachDouble attach;
  std::vector<std::unique_ptr<CardDouble>> cards;
  std::vector<std::unique_ptr<TaskActor>> tasks;
  CountingTokens tokens;
  std::unique_ptr<NodeActor> node;
  ActorId clientId{}, attachId{}, nodeId{}, memberId{};
  std::vector<ActorId> cardIds, taskIds;

 private:
  ActorId actorOf(std::uint64_t task) const;
  const bool random_;
  std::uint64_t lastCorr_ = 0;
};

// Messages of one kind that a probe heard.
std::vector<schema::Envelope::Reader> heard(const Probe& probe, schema::Envelope::Which which);

}  // namespace qgpu::testing
