#pragma once
// A sign of life of a loop, which any thread may look at: the loop sets it again and again as long
// as it turns. /healthz and systemd's watchdog look whether a loop stands still (health.h). Made
// and ended on the loop's thread, or while the loop does not run.

#include <atomic>
#include <cstdint>

#include "runtime/loop.h"

namespace qgpu {

class LoopBeat {
 public:
  static constexpr Nanos kEvery = seconds(1);  // between signs

  // `loop` outlives it.

  explicit LoopBeat(Loop& loop, Nanos every = kEvery) : loop_(loop), every_(every) { beat(); }
  ~LoopBeat() { loop_.cancel(timer_); }
  LoopBeat(const LoopBeat&) = delete;
  LoopBeat& operator=(const LoopBeat&) = delete;

  // Since the loop turned last; some `every` on a loop that lives.
  Nanos silentFor() const {
    return monotonicNow() - Nanos(beatAt_.load(std::memory_order_relaxed));
  }

 private:
  void beat() {
    beatAt_.store(monotonicNow().value, std::memory_order_relaxed);
    timer_ = loop_.after(every_, [this] { beat(); });
  }

  Loop& loop_;
  const Nanos every_;
  std::atomic<std::int64_t> beatAt_{0};
  Loop::TimerKey timer_ = 0;
};

}  // namespace qgpu
