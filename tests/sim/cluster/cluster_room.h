#pragma once
// What is on a node beside its node actor: cards, task actors, the attach server. One double plays
// all of them with their part of the protocol (head of schema/envelope.capnp) and none of their
// work: no card is arbitrated and no gate driven. Some tasks get processes, which leave or are
// killed, and some owners die.

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "actors/node/node_actor.h"
#include "tests/sim/cluster/cluster_options.h"
#include "tests/sim/cluster/cluster_site.h"

namespace qgpu::sim {

class RoomDouble final : public Actor {
 public:
  RoomDouble(Site& site, const ClusterOptions& options, Dice dice)
      : site_(site), options_(options), dice_(dice) {}

  // Addresses for `cards` cards and `slots` tasks on the host of this life.
  NodePeers settle(ActorId node, std::size_t cards, std::size_t slots);
  void calm() { calm_ = true; }

  void handle(schema::Envelope::Reader message, Turn& turn) override;

  // Tasks that cards know, by the node's number.
  std::set<std::uint64_t> onCard(std::size_t card) const { return cards_.at(card); }
  bool busy() const { return !waiting_.empty(); }

 private:
  struct RoomTask {
    std::size_t slot = 0;
    std::uint32_t processes = 0;
  };
  struct Said {
    ActorId from{};
    std::function<void(schema::Envelope::Builder)> build;
  };

  void say(ActorId from, std::function<void(schema::Envelope::Builder)> build);
  void flush();
  void fact(std::uint64_t task);
  void setProcesses(std::uint64_t task, std::uint32_t processes);
  void atAttach(schema::Envelope::Reader message);
  void atSlot(std::size_t slot, schema::Envelope::Reader message);
  void atCard(std::size_t card, schema::Envelope::Reader message);
  void live(schema::TaskKnown::Reader known);

  Site& site_;
  const ClusterOptions& options_;
  Dice dice_;
  ActorId node_{};
  NodePeers peers_;
  bool calm_ = false;
  bool armed_ = false;
  std::vector<std::uint64_t> slots_;        // the task of each; 0: none
  std::map<std::uint64_t, RoomTask> held_;  // by task
  std::vector<std::set<std::uint64_t>> cards_;
  std::deque<Said> waiting_;
};

}  // namespace qgpu::sim
