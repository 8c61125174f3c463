#pragma once
// What the manager does when a card of NVIDIA's falls ill: it says so, and takes no new tasks there
// (a cordon that it asks for itself), since whether what runs on it is still right only its owner
// can tell. A card that answers again stays cordoned until a person has looked. A cordon that the
// node can't take now (its disk is full, its mailbox too) is asked for until it is taken.

#include <functional>
#include <kj/async-io.h>
#include <kj/timer.h>
#include <map>
#include <string>

#include "runtime/log.h"
#include "services/api/commands/node_actor_client.h"
#include "services/cards/health.h"

namespace qgpu {

class CardWatch final : private kj::TaskSet::ErrorHandler {
 public:
  static constexpr Nanos kAgain = seconds(5);  // before a refused cordon is asked for again

  using OnChange = std::function<void(const HealthChange&)>;
  // All outlive this. `io` is the loop's, on which `actor` is. `changed` hears of each change.
  CardWatch(HealthWatch watch, NodeActorClient& actor, Log& log, kj::LowLevelAsyncIoProvider& io,
            kj::Timer& timer, OnChange changed);

 private:
  kj::Promise<void> read();
  void onText(std::size_t bytes);
  void onChange(const HealthChange& change);
  kj::Promise<void> cordon(const std::string& card);
  kj::Promise<void> onAnswer(const std::string& card, const Status& answer);
  void taskFailed(kj::Exception&& failure) override;

  HealthWatch watch_;
  NodeActorClient& actor_;
  Log& log_;
  kj::Timer& timer_;
  OnChange changed_;
  kj::Own<kj::AsyncInputStream> pipe_;
  char chunk_[512] = {};
  std::string line_;
  std::map<std::string, bool> cordoning_;  // cards, and whether a refusal was told
  kj::TaskSet cordons_{*this};
  kj::Promise<void> reading_ = nullptr;
};

}  // namespace qgpu
