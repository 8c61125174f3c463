#pragma once
// The rounds of a Seat (store/etcd/seat_rounds.h) on a thread of their own, so that a lease is kept
// alive whatever the loops do. What changes is told on a loop.

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "store/etcd/seat_rounds.h"

namespace qgpu {

class SeatKeeper {
 public:
  using Post = SeatRounds::Post;  // called from the keeper's thread
  using Calls = SeatRounds::Calls;

  SeatKeeper(std::unique_ptr<Kv> kv, SeatOptions options, Post post, Calls calls);
  // Gives the seat back and joins the thread.
  ~SeatKeeper();
  SeatKeeper(const SeatKeeper&) = delete;
  SeatKeeper& operator=(const SeatKeeper&) = delete;

  // As SeatRounds::holds(), now. From any thread.
  bool holds() const;

 private:
  void run();

  const std::unique_ptr<Kv> kv_;
  SeatRounds rounds_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace qgpu
