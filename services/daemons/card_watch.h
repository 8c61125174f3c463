#pragma once
// What the manager does when a card of NVIDIA's falls ill: it says so, and takes no new tasks there
// (a cordon that it asks for itself), since whether what runs on it is still right only its owner
// can tell. A card that answers again stays cordoned until a person has looked.

#include <functional>
#include <kj/async-io.h>
#include <string>

#include "runtime/log.h"
#include "services/admin/node_door.h"
#include "services/cards/nvidia_health.h"

namespace qgpu {

class CardWatch {
 public:
  using Told = std::function<void(const HealthChange&)>;
  // All outlive this. `io` is the loop's, on which `door` is. `told` hears of each change.
  CardWatch(HealthWatch watch, NodeDoor& door, Log& log, kj::LowLevelAsyncIoProvider& io,
            Told told);

 private:
  kj::Promise<void> read();
  void onText(std::size_t bytes);
  void onChange(const HealthChange& change);

  HealthWatch watch_;
  NodeDoor& door_;
  Log& log_;
  Told told_;
  kj::Own<kj::AsyncInputStream> pipe_;
  char chunk_[512] = {};
  std::string line_;
  kj::Promise<void> reading_ = nullptr;
};

}  // namespace qgpu
