#pragma once
// Who asks an actor for something, and where the answer goes. Clients (admin socket, RPC, HTTP)
// fill it from what the kernel or TLS told them, never from what the peer said of itself.

#include <cstdint>
#include <functional>
#include <string>

#include "runtime/actor.h"

namespace qgpu {

// The wall clock at loop time 0, in ms. Asked for each date, since somebody may set the clock while
// a daemon runs.
using UnixMsAtZero = std::function<std::int64_t()>;

// Where an answer goes: the actor of the client, and its own number of the question.
struct Asker {
  ActorId client{};
  std::uint64_t corr = 0;
};

// Who asked. `mayChange`: root, the daemon's user, or a member of group qgpu.
struct Who {
  std::uint32_t uid = 0;
  std::uint32_t pid = 0;
  bool mayChange = false;
  std::string name{};  // of its certificate; empty where the kernel told who it is
};

}  // namespace qgpu
