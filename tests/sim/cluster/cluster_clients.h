#pragma once
// Who uses a cluster: people who submit tasks to a scheduler, whichever acts, let them live for a
// while, delete them, ask and operate; and people on a node, whose binds go through its member
// actor. They outlive processes: what one had not answered is asked again, under the same request
// id.

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/actor.h"
#include "tests/sim/cluster/cluster_net.h"
#include "tests/sim/cluster/cluster_options.h"
#include "tests/sim/cluster/cluster_site.h"

namespace qgpu::sim {

// What a client wants, under one request id.
struct Wish {
  std::string requestId;
  std::uint32_t taskClass = 2;  // as in schema/types
  std::int64_t mib = 1024;
  std::uint32_t share = 0;
  std::uint32_t cards = 1;
  std::uint32_t uid = 0;
  std::uint32_t ownerPid = 0;
  std::string node;
  std::string card;
  std::string model;
  std::string application;
  std::string group;
  std::uint32_t groupSize = 0;
  std::uint64_t cpuMilli = 0;
  bool preempt = false;
  std::uint64_t task = 0;  // 0: no answer has named it yet
  bool asked = false;
  Nanos endAt = kNever;

  static Wish draw(const ClusterOptions& options, Dice& dice, const std::string& id);
  void write(schema::TaskSpec::Builder spec) const;
};

// Somebody who asks the actors of one process, wants tasks of them, and forgets what he asked when
// that process is gone.
class AskingClient : public Actor {
 public:
  void endAll() { ending_ = true; }
  bool satisfied() const { return asked_.empty(); }
  bool hasTasks() const { return !wishes_.empty(); }

 protected:
  enum class What : std::uint8_t { Bind, End, Operate, Ask };
  struct Asked {
    What what = What::Ask;
    std::uint64_t wish = 0;
    std::size_t door = 0;  // at which scheduler
    Nanos at{0};           // of the world
  };

  AskingClient(const ClusterOptions& options, Dice dice) : options_(options), dice_(dice) {}

  // False: the mailbox is full. `make` makes the request in an envelope.
  template <typename Make>
  bool ask(Site& site, ActorId self, ActorId whom, Asked what, std::uint32_t uid, Make&& make) {
    const std::uint64_t corr = ++lastCorr_;
    what.at = site.now();
    const SendResult sent = site.host.send(self, whom, [&](schema::Envelope::Builder envelope) {
      auto request = make(envelope);
      request.setCorr(corr);
      request.setPeerUid(uid);
      request.setPeerPid(1);
      request.setMayChange(uid == 0);
    });
    if (sent == SendResult::Refused) return false;
    asked_[corr] = what;
    return true;
  }
  // What was asked under this number; nothing where nobody waits for the answer.
  std::optional<Asked> answered(std::uint64_t corr);
  // Nobody answers these any more, so their wishes are asked for again.
  template <typename Which>
  void forget(Which&& which) {
    std::erase_if(asked_, [&](const auto& entry) {
      const Asked& asked = entry.second;
      if (!which(asked)) return false;
      if (const auto wish = wishes_.find(asked.wish); wish != wishes_.end()) {
        wish->second.asked = false;
      }
      return true;
    });
  }

  const ClusterOptions& options_;
  Dice dice_;
  bool calm_ = false;
  bool ending_ = false;
  std::uint64_t lastCorr_ = 0;
  std::uint64_t lastWish_ = 0;
  std::map<std::uint64_t, Wish> wishes_;
  std::map<std::uint64_t, Asked> asked_;
};

// People and programs at the schedulers. They ask at one of them, are sent on by one that stands
// by, and go to another one where nobody answers.
class ClusterClient final : public AskingClient {
 public:
  ClusterClient(std::vector<Site*> schedulers, SchedulerFacts facts, const ClusterOptions& options,
                std::vector<std::string> nodes, Dice dice);

  // That scheduler acts from now on, or does not run any more.
  void connect(std::size_t scheduler, ActorId self, ActorId actor);
  void disconnect(std::size_t scheduler);
  // No new tasks and nobody who operates: what was cordoned is given free.
  void calm();
  std::string waitsFor() const;
  std::uint64_t tasks() const { return tasks_; }  // that were bound or wait

  void handle(schema::Envelope::Reader message, Turn& turn) override;

 private:
  using Fill = std::function<void(schema::ClusterRequest::Builder)>;
  struct Door {
    Site* site = nullptr;
    ActorId self = ActorId::kNobody;
    ActorId scheduler = ActorId::kNobody;
  };

  std::size_t nextDoor();
  void act();
  void visit(std::uint64_t id, Wish& wish);
  void submit(std::uint64_t id, Wish& wish);
  void submitGroup();
  void operate();
  void question();
  bool ask(Asked what, std::uint32_t uid, const Fill& fill);
  void onReply(const Asked& asked, schema::ClusterReply::Reader reply);

  const SchedulerFacts facts_;
  const std::vector<std::string> nodes_;
  Dice groupDice_;  // so that other wishes are the same without groups
  std::vector<Door> doors_;
  std::size_t at_ = 0;      // the door, on whose loop act() runs
  std::size_t toFree_ = 0;  // nodes that are not uncordoned yet
  std::uint64_t tasks_ = 0;
};

// People and programs on a node.
class NodeClient final : public AskingClient {
 public:
  NodeClient(Site& site, const ClusterOptions& options, std::uint32_t cards, Dice dice);

  void connect(ActorId self, ActorId node, ActorId member);
  void disconnect();
  void calm() { calm_ = true; }

  void handle(schema::Envelope::Reader message, Turn& turn) override;

 private:
  using Fill = std::function<void(schema::Request::Builder)>;

  void act();
  void visit(std::uint64_t id, Wish& wish);
  bool ask(ActorId whom, Asked what, std::uint32_t uid, const Fill& fill);
  void wander();

  Site& site_;
  const std::uint32_t cards_;
  ActorId self_ = ActorId::kNobody;
  ActorId node_ = ActorId::kNobody;
  ActorId member_ = ActorId::kNobody;
};

}  // namespace qgpu::sim
