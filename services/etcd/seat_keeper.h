#pragma once
// The rounds of a Seat (store/etcd/seat_rounds.h) on a thread of their own, so that a lease is kept
// alive whatever the loops do. What changes is told on a loop.

#include <condition_variable>
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

  SeatKeeper(std::unique_ptr<Kv> kv, SeatOptions options, Post post, Calls calls);
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

  const std::unique_ptr<Kv> kv_;
  SeatRounds rounds_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  std::optional<std::string> ended_;  // what the next round is told
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace qgpu
