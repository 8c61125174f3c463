#pragma once
// What the servers under fuzz stand on: KJ's event loop without a system, a clock that only the
// input moves, a scripted node and the real NodeActorClient. It stays over all inputs; checkIdle()
// shows that nothing of one input is left for the next.

#include <kj/async.h>
#include <kj/timer.h>

#include "services/api/commands/node_actor_client.h"
#include "services/base/net/listen.h"
#include "tests/fuzz/memory_io.h"
#include "tests/unit/services/api/scripted_node.h"

namespace qgpu::fuzz {

// A user without rights on the node, and the daemon's own.
inline constexpr uid_t kStranger = 4242;
inline constexpr uid_t kDaemon = 4711;

class Servers {
 public:
  Servers();

  // Runs everything that can run now.
  void run();
  // Moves the clock, so that deadlines pass.
  void advance(Nanos by);
  // A listener of a path that nobody can reach: its file is gone, its connections come from io.
  UnixListener listener();
  // The peer of an input: this process, as one of the users above.
  static ucred peer(bool mayChange);

  // C7: nothing that a stranger sent may have asked the node to change, nor in another's name.
  void checkAsked(bool mayChange) const;
  // Nothing of this input is left.
  void checkIdle();

 private:
  kj::EventLoop loop_;
  kj::WaitScope wait_;

 public:
  kj::TimerImpl timer;
  MemoryIo io;
  testing::ScriptedNode node;
  testing::ScriptedSink sink;
  NodeActorClient actor;
};

}  // namespace qgpu::fuzz
