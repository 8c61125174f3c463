#pragma once
// The rounds of a Seat (store/etcd/seat_rounds.h) on a thread of their own, so that a lease is kept
// alive whatever the loops do. What changes is told on a loop.
//
// Each call of a round has a deadline of a second. gRPC measures it by the wall clock, and where
// that steps back, no call to an etcd that is silent ends any more: who acts would not know that
// its seat is lost. A round that takes too long therefore ends the process, which stands by in its
// next life.

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "store/etcd/seat_rounds.h"

namespace qgpu {

class SeatKeeper {
 public:
  using Post = SeatRounds::Post;  // called from the keeper's thread
  using Calls = SeatRounds::Calls;

  static constexpr Nanos kRoundMax = seconds(10);

  SeatKeeper(std::unique_ptr<Kv> kv, SeatOptions options, Post post, Calls calls,
             Nanos roundMax = kRoundMax);
  // Gives the seat back and joins the thread.
  ~SeatKeeper();
  SeatKeeper(const SeatKeeper&) = delete;
  SeatKeeper& operator=(const SeatKeeper&) = delete;

  // As Seat::ended(), with a round at once. From any thread.
  void ended(std::string identity);
  // As SeatRounds::holds(), now. From any thread.
  bool holds() const;

 private:
  void run();
  void watch(Nanos roundMax);

  const std::unique_ptr<Kv> kv_;
  SeatRounds rounds_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  std::optional<std::string> ended_;     // what the next round is told
  std::atomic<std::uint64_t> turns_{0};  // odd while a round is under way
  // Last: they use all of the above.
  std::thread thread_, watcher_;
};

}  // namespace qgpu
