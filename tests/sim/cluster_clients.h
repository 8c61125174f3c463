#pragma once
// Who uses a cluster: people who submit tasks to the scheduler, let them live for a while, delete
// them, ask and operate; and people on a node, whose binds go through its member actor. They
// outlive processes: what one had not answered is asked again, under the same request id.

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "runtime/actor.h"
#include "tests/sim/cluster_options.h"
#include "tests/sim/cluster_site.h"

namespace qgpu::sim {

// What a client wants, under one request id.
struct Wish {
  std::string requestId;
  std::uint32_t taskClass = 2;   // as in schema/types
  std::int64_t gib = 1;
  std::uint32_t share = 0;
  std::uint32_t cards = 1;
  std::uint32_t uid = 0;
  std::uint32_t ownerPid = 0;
  std::string node;
  std::string card;
  std::string model;
  std::string application;
  std::uint64_t cpuMilli = 0;
  bool preempt = false;
  std::uint64_t task = 0;        // 0: no answer has named it yet
  bool asked = false;
  Nanos endAt = kNever;

  static Wish draw(const ClusterOptions& options, Dice& dice, const std::string& id);
  void write(schema::TaskSpec::Builder spec) const;
};

class ClusterClient final : public Actor {
 public:
  ClusterClient(Site& site, const ClusterOptions& options, std::vector<std::string> nodes,
                Dice dice);

  void connect(ActorId self, ActorId scheduler);
  void disconnect();
  // No new tasks and nobody who operates: what was cordoned is given free.
  void calm();
  void endAll() { ending_ = true; }
  bool satisfied() const { return asked_.empty(); }
  bool hasTasks() const { return !wishes_.empty(); }
  std::string waitsFor() const;
  std::uint64_t tasks() const { return tasks_; }   // that were bound or wait

  void handle(schema::Envelope::Reader message, Turn& turn) override;

 private:
  enum class What : std::uint8_t { Submit, Delete, Operate, Ask };
  struct Asked {
    What what = What::Ask;
    std::uint64_t wish = 0;
  };
  using Fill = std::function<void(schema::ClusterRequest::Builder)>;

  void act();
  void visit(std::uint64_t id, Wish& wish);
  void submit(std::uint64_t id, Wish& wish);
  void operate();
  void question();
  bool ask(Asked what, std::uint32_t uid, const Fill& fill);
  void onReply(const Asked& asked, schema::ClusterReply::Reader reply);

  Site& site_;
  const ClusterOptions& options_;
  const std::vector<std::string> nodes_;
  Dice dice_;
  ActorId self_ = ActorId::kNobody;
  ActorId scheduler_ = ActorId::kNobody;
  bool calm_ = false;
  bool ending_ = false;
  std::size_t toFree_ = 0;         // nodes that are not uncordoned yet
  std::uint64_t lastCorr_ = 0;
  std::uint64_t lastWish_ = 0;
  std::uint64_t tasks_ = 0;
  std::map<std::uint64_t, Wish> wishes_;
  std::map<std::uint64_t, Asked> asked_;
};

class NodeClient final : public Actor {
 public:
  NodeClient(Site& site, const ClusterOptions& options, std::uint32_t cards, Dice dice);

  void connect(ActorId self, ActorId node, ActorId member);
  void disconnect();
  void calm() { calm_ = true; }
  void endAll() { ending_ = true; }
  bool satisfied() const { return asked_.empty(); }
  bool hasTasks() const { return !wishes_.empty(); }

  void handle(schema::Envelope::Reader message, Turn& turn) override;

 private:
  enum class What : std::uint8_t { Bind, End, Other };
  struct Asked {
    What what = What::Other;
    std::uint64_t wish = 0;
  };
  using Fill = std::function<void(schema::Request::Builder)>;

  void act();
  void visit(std::uint64_t id, Wish& wish);
  bool ask(ActorId whom, Asked what, std::uint32_t uid, const Fill& fill);
  void wander();

  Site& site_;
  const ClusterOptions& options_;
  const std::uint32_t cards_;
  Dice dice_;
  ActorId self_ = ActorId::kNobody;
  ActorId node_ = ActorId::kNobody;
  ActorId member_ = ActorId::kNobody;
  bool calm_ = false;
  bool ending_ = false;
  std::uint64_t lastCorr_ = 0;
  std::uint64_t lastWish_ = 0;
  std::map<std::uint64_t, Wish> wishes_;
  std::map<std::uint64_t, Asked> asked_;
};

}  // namespace qgpu::sim
