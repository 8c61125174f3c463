#pragma once
// The network between schedulers and their nodes, and the adapters at both ends of it (Links and
// SchedulerLink of services/api/rpc), without sockets: connections that are made anew with a pause,
// in which words are in order and none is missing, until they break. A node has one connection at a
// time, and finds the scheduler that acts as a manager does (address_round.h).
//
// What the seed may let happen: words take up to seconds; a connection breaks, some of what is in
// flight is lost, the rest is late, and its two ends hear of that at different times, so that words
// of an old connection arrive while a later one is in use; a direction is silent and what was said
// waits; a word arrives a second time, out of order, also by a later connection.

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/actor.h"
#include "services/api/rpc/address_round.h"
#include "tests/sim/cluster/cluster_options.h"
#include "tests/sim/cluster/cluster_site.h"

namespace qgpu::sim {

enum class Way : std::uint8_t { Up, Down };  // to the scheduler, to the node

// What a world knows of its schedulers, by number.
struct SchedulerFacts {
  // How it refuses whom it does not serve; nothing where it acts.
  std::function<std::optional<Error>(std::size_t scheduler)> refusal;
  // It acts, and no other can: it may hear nodes and answer clients.
  std::function<bool(std::size_t scheduler)> holds;
};

class Net {
 public:
  using Say = std::function<void(const std::string&)>;
  // Sites outlive it; schedulers and nodes are numbered as they are given. A scheduler's address is
  // the name of its site.
  Net(const ClusterOptions& options, std::vector<Site*> schedulers, std::vector<Site*> nodes,
      SchedulerFacts facts, Dice dice, Say say);
  Net(const Net&) = delete;
  Net& operator=(const Net&) = delete;

  // --- processes: their adapter's address, and whom it speaks to ---
  Actor& linksEnd(std::size_t scheduler) { return *schedulers_[scheduler].actor; }
  Actor& nodeEnd(std::size_t node) { return *ends_[node].actor; }
  void schedulerUp(std::size_t scheduler, ActorId links, ActorId actor);
  void nodeUp(std::size_t node, ActorId link, ActorId member);
  // `silently`: its machine is gone too, so nobody tells the other side.
  void schedulerDown(std::size_t scheduler, bool silently);
  void nodeDown(std::size_t node, bool silently);

  // --- faults ---
  void cut(std::size_t node);
  void block(std::size_t scheduler, std::size_t node, Way way, bool blocked);
  // Everything passes from now on; what broke is told within a second.
  void heal();

  // Whose connection that is or was.
  std::optional<std::size_t> nodeOf(std::uint32_t link) const;
  std::uint64_t words() const { return words_; }

 private:
  struct Item {
    enum class Kind : std::uint8_t { Words, Up, Fin };
    Kind kind = Kind::Words;
    Words words;  // of FromMember or ToMember
    Nanos at{0};  // of the world, not before
    std::string why;
    bool local = false;  // known at this end, whatever the network does
  };
  struct Direction {
    std::deque<Item> queue;  // in flight, arrived or held back
    bool ended = false;      // a Fin is in the queue, or was
    bool open = true;        // the receiver still takes what comes
    bool retry = false;      // a timer is set, since its mailbox was full
    Nanos heard{0};
    Nanos last{0};
  };
  struct Connection {
    std::size_t scheduler = 0;
    std::size_t node = 0;
    Nanos since{0};
    Direction up;
    Direction down;
  };
  struct SchedulerState {
    Site* site = nullptr;
    std::unique_ptr<Actor> actor;
    ActorId links{};  // nobody: none acts here
    ActorId scheduler{};
    std::uint32_t life = 0;
    std::vector<std::array<bool, 2>> blocked;  // by node and way
  };
  struct NodeState {
    std::unique_ptr<Actor> actor;
    std::optional<AddressRound> round;
    ActorId link{};  // nobody: no manager runs
    ActorId member{};
    std::uint32_t life = 0;
    std::uint32_t connection = 0;  // in use, by its number; 0: none
    bool closing = false;          // it ends it; what is said goes nowhere
  };
  class LinksEnd final : public Actor {
   public:
    LinksEnd(Net& net, std::size_t scheduler) : net_(net), scheduler_(scheduler) {}
    void handle(schema::Envelope::Reader message, Turn& turn) override;

   private:
    Net& net_;
    const std::size_t scheduler_;
  };
  class NodeEnd final : public Actor {
   public:
    NodeEnd(Net& net, std::size_t node) : net_(net), node_(node) {}
    void handle(schema::Envelope::Reader message, Turn& turn) override;

   private:
    Net& net_;
    const std::size_t node_;
  };

  bool single() const { return schedulers_.size() == 1; }
  Nanos delay();
  bool blocked(const Connection& connection, Way way) const;
  Site& receiver(const Connection& connection, Way way);
  Connection* find(std::uint32_t link);
  Direction& direction(Connection& connection, Way way) {
    return way == Way::Up ? connection.up : connection.down;
  }
  void connectLater(std::size_t node);
  void connect(std::size_t node, std::uint32_t life);
  void failed(std::size_t node, std::uint32_t life, const std::string& why, Nanos after);
  void isOver(std::size_t node, const Connection& connection, const std::string& why);
  void put(std::uint32_t link, Way way, Item item, Nanos now, Nanos delay);
  void flush(std::uint32_t link, Way way);
  bool deliver(std::uint32_t link, Connection& connection, Way way, const Item& item);
  bool toScheduler(std::size_t scheduler, std::uint32_t link, const Item& item);
  bool toNode(std::size_t node, const Item& item);
  void repeatLater(std::uint32_t link, Way way, const Item& item);
  enum class Known : std::uint8_t { Here, ByNetwork };
  void fin(std::uint32_t link, Way way, const std::string& why, Nanos now, Nanos delay,
           Known known);
  void breakOff(Direction& direction, Nanos now);
  void fromNode(std::size_t node, schema::Envelope::Reader message);
  void fromScheduler(std::size_t scheduler, schema::ToMember::Reader words);
  void endAtNode(std::size_t node, const std::string& why);
  void endAtScheduler(std::uint32_t link);
  void watchNode(std::size_t node, std::uint32_t link);
  void sweep(std::size_t scheduler, std::uint32_t life);
  void forget(std::uint32_t link);

  const ClusterOptions& options_;
  const std::vector<Site*> nodes_;
  const SchedulerFacts facts_;
  Dice dice_;
  const Say say_;
  std::vector<SchedulerState> schedulers_;
  std::vector<NodeState> ends_;
  std::map<std::uint32_t, Connection> connections_;
  std::map<std::uint32_t, std::size_t> nodeOf_;
  std::uint32_t lastLink_ = 0;
  std::uint64_t words_ = 0;
  bool healed_ = false;
};

}  // namespace qgpu::sim
