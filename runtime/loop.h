#pragma once
// A Loop is one libuv loop on one thread: file descriptors, timers finer than a millisecond, and
// guests (the actor dispatcher, KJ) that get a bounded turn before each sleep. No other event loop
// exists in a daemon.
//
// Everything is called from the thread that runs the loop (or before it runs), but for stop(),
// wake() and post(). Kept here: HAZARDS 1 (a doorbell is watched for its edge and never read),
// HAZARDS 24 (post() takes a priority-inheriting mutex only), C8 (every handle is closed).

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <sys/epoll.h>
#include <unordered_map>
#include <uv.h>
#include <vector>

#include "runtime/pi_mutex.h"
#include "runtime/timer_queue.h"
#include "runtime/units.h"

namespace qgpu {

// CLOCK_MONOTONIC.
Nanos monotonicNow();

// Who runs on a loop beside its callbacks. turn() does a bounded amount of work before each sleep.
class LoopGuest {
 public:
  virtual void turn() = 0;
  // Asked after every guest had its turn. False: has work, the loop polls without sleeping.
  // True: whatever brings work from another thread must call Loop::wake() from now on.
  virtual bool maySleep() = 0;

 protected:
  ~LoopGuest() = default;
};

class EdgeSet;

// Watching one descriptor ends when this is destroyed (before the descriptor is closed).
class FdWatch {
 public:
  FdWatch() = default;
  FdWatch(FdWatch&& other) noexcept { *this = std::move(other); }
  FdWatch& operator=(FdWatch&& other) noexcept;
  ~FdWatch() { reset(); }
  void reset();
  bool active() const { return set_ != nullptr; }

 private:
  friend class EdgeSet;
  FdWatch(EdgeSet& set, int fd, std::uint64_t id) : set_(&set), fd_(fd), id_(id) {}
  EdgeSet* set_ = nullptr;
  int fd_ = -1;
  std::uint64_t id_ = 0;
};

// One epoll set nested in the loop. Its callbacks get the EPOLL* bits that arrived. A callback may
// drop any watch, its own too; events of a dropped watch are forgotten.
class EdgeSet {
 public:
  using Callback = std::function<void(std::uint32_t events)>;

  explicit EdgeSet(uv_loop_t& uv);
  EdgeSet(const EdgeSet&) = delete;
  EdgeSet& operator=(const EdgeSet&) = delete;
  ~EdgeSet();

  // Each edge once: `events` | EPOLLET. Never reads the descriptor. A doorbell wants EPOLLIN.
  [[nodiscard]] FdWatch watchEdge(int fd, std::uint32_t events, Callback callback);
  // As long as the condition lasts: for sockets and pidfds, whose callback must clear it.
  [[nodiscard]] FdWatch watchLevel(int fd, std::uint32_t events, Callback callback);

  void close();  // before the loop closes; every watch is gone by then

 private:
  friend class FdWatch;
  FdWatch add(int fd, std::uint32_t events, Callback callback);
  void remove(int fd, std::uint64_t id);
  void fire();

  static constexpr int kEventsPerTurn = 64;
  int epoll_ = -1;
  uv_poll_t poll_{};
  std::unordered_map<std::uint64_t, std::unique_ptr<Callback>> watches_;
  std::vector<std::unique_ptr<Callback>> dropped_;  // while one of them may be running
  bool firing_ = false;
  std::uint64_t lastId_ = 0;
};

class Loop {
 public:
  using TimerKey = std::uint64_t;  // 0: none

  Loop();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;
  // Everything that was given to the loop (guests, watches) is gone by then.
  ~Loop();

  // Until stop(). A stop() before run() counts.
  void run();
  void stop();  // any thread
  // One iteration without sleeping, outside run(): for tests, and for the last words of a daemon.
  void poll();
  bool stopping() const { return stopping_.load(std::memory_order_relaxed); }
  // Ends a sleep: guests get a turn. Any thread.
  void wake();
  // `work` runs on this loop, in order. Any thread. Work that was posted after the loop's last
  // iteration is destroyed without running (C8).
  void post(std::function<void()> work);

  Nanos now() const { return monotonicNow(); }

  // `work` runs once at or after `at` (CLOCK_MONOTONIC); resolution is that of timerfd.
  TimerKey at(Nanos at, std::function<void()> work);
  TimerKey after(Nanos delay, std::function<void()> work) {
    return at(now() + delay, std::move(work));
  }
  void cancel(TimerKey key);

  EdgeSet& fds() { return fds_; }
  uv_loop_t& uv() { return *uv_; }

  void addGuest(LoopGuest& guest) { guests_.push_back(&guest); }
  void removeGuest(LoopGuest& guest);

 private:
  struct UvLoop : uv_loop_t {  // first member: initialised before the handles, closed after them
    UvLoop();
  };
  void beforeSleep();
  void watchWakes();
  void runPosted();
  void fireTimers();
  void armTimerFd();

  std::unique_ptr<UvLoop> uv_;
  EdgeSet fds_;
  uv_prepare_t prepare_{};
  uv_idle_t idle_{};
  bool idling_ = false;
  std::vector<LoopGuest*> guests_;
  std::atomic<bool> stopping_{false};

  // Not a uv_async: its receiver spins while the sender is between two stores, and a real-time
  // receiver that preempted its sender there spins until the sender finds another CPU.
  int wakeFd_ = -1;
  uv_poll_t wakePoll_{};  // not in fds_: a nested epoll costs every wake a microsecond or two

  int timerFd_ = -1;
  FdWatch timerWatch_;
  Nanos armedFor_ = kNever;
  TimerQueue<std::function<void()>> timers_;

  PiMutex postedMutex_;
  std::vector<std::function<void()>> posted_;
};

}  // namespace qgpu
