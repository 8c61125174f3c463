#pragma once
// KJ (the promise library under Cap'n Proto RPC and kj-http) as a guest of a Loop: its events run
// in bounded turns before each sleep of the loop, its descriptors sit in the loop's EdgeSet, its
// timers on the loop's timerfd. There is no second event loop and no second thread.
//
//   KjBridge kj(loop);                 // on the thread that runs the loop
//   kj.io().getNetwork()...            // streams, listeners, pipes: as after kj::setupAsyncIo()
//   promise.detach(...) or a TaskSet   // while the loop runs
//   promise.wait(kj.waitScope());      // only outside Loop::run(): start and stop of a daemon
//
// Every KJ object that came from the bridge ends before it. Peer credentials of a Unix socket:
// ConnectionReceiver::acceptAuthenticated(). Keeps C8; ignores SIGPIPE for the process, without
// which a client that hangs up would end the daemon.

#include <atomic>
#include <kj/async-io.h>
#include <kj/async.h>
#include <kj/timer.h>

#include "runtime/loop.h"

namespace qgpu {

// The event port: where KJ's event queue meets the loop.
class KjPort final : public kj::EventPort, private LoopGuest {
 public:
  explicit KjPort(Loop& loop);
  KjPort(const KjPort&) = delete;
  KjPort& operator=(const KjPort&) = delete;
  ~KjPort();

  Loop& loop() { return loop_; }
  kj::Timer& timer() { return timer_; }
  kj::WaitScope& waitScope() { return waitScope_; }

  // kj::EventPort; called by KJ within a top-level .wait()
  bool wait() override;
  bool poll() override;
  void wake() const override;

 private:
  // LoopGuest
  void turn() override;
  bool maySleep() override;

  void drive(uv_run_mode mode);
  void drainExecutor();
  void armTimer();

  Loop& loop_;
  kj::TimerImpl timer_;
  mutable std::atomic<bool> woken_{false};
  bool inTurn_ = false;
  bool driving_ = false;  // KJ called us: it runs its queue itself
  Loop::TimerKey armedKey_ = 0;
  Nanos armedFor_ = kNever;
  kj::EventLoop events_;
  kj::WaitScope waitScope_;
};

class KjBridge {
 public:
  explicit KjBridge(Loop& loop);

  kj::AsyncIoProvider& io() { return *io_; }
  kj::LowLevelAsyncIoProvider& lowLevel() { return *lowLevel_; }
  kj::Timer& timer() { return port_.timer(); }
  kj::WaitScope& waitScope() { return port_.waitScope(); }
  Loop& loop() { return port_.loop(); }

 private:
  KjPort port_;
  kj::Own<kj::LowLevelAsyncIoProvider> lowLevel_;
  kj::Own<kj::AsyncIoProvider> io_;
};

}  // namespace qgpu
