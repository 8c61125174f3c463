#pragma once
// A node without programs, for benches of a cluster: it takes every order at once, as a manager
// would, but has no disk, no card and no tenant. Beside it stand the real member actor and the real
// link, so that what reaches a scheduler is the real protocol.

#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "actors/base/codec.h"
#include "actors/base/outbox.h"
#include "runtime/actor.h"

namespace qgpu::bench {

struct NodeShape {
  std::string name;
  unsigned cards = 8;
  std::uint64_t cardGib = 128;
  std::uint32_t tasksPerCard = 100;
};

class PlainNode;

// What all nodes of a bench did; written by their loop, read by anybody.
struct NodeCounts {
  std::atomic<std::size_t> joined{0};
  std::atomic<std::uint64_t> placed{0};
  std::atomic<std::uint64_t> ended{0};
  std::atomic<std::uint64_t> twice{0};  // placed on a node while another one held the task
  std::unordered_map<std::uint64_t, const PlainNode*> holders;  // by the scheduler's numbers; the
                                                                // loop's alone
};

class PlainNode final : public Actor {
 public:
  PlainNode(NodeShape shape, NodeCounts& counts) : shape_(std::move(shape)), counts_(counts) {}

  void handle(schema::Envelope::Reader message, Turn& turn) override;

 private:
  struct PlainTask {
    TaskSpec spec;
    std::vector<std::string> cards;
  };
  using Reply = schema::Reply::Builder;

  void answer(schema::Request::Reader request, Reply reply);
  void place(schema::OrderBind::Reader order, Reply reply);
  std::uint64_t find(schema::OrderEnd::Reader order) const;
  void tellEnded(std::uint64_t task, ActorId member);
  void standing(const std::string& text);
  void writeInfo(schema::NodeInfo::Builder info) const;
  void writeCards(Reply reply) const;
  void writeTasks(Reply reply) const;

  const NodeShape shape_;
  NodeCounts& counts_;
  Outbox outbox_;  // thousands of nodes share one loop's rings
  bool resendArmed_ = false;
  bool joined_ = false;
  std::uint64_t term_ = 0;
  std::uint64_t lastTask_ = 0;
  std::map<std::uint64_t, PlainTask> tasks_;          // by its own numbers
  std::map<std::uint64_t, std::uint64_t> byCluster_;  // the scheduler's numbers to its own
};

}  // namespace qgpu::bench
