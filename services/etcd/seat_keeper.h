#pragma once
// A Seat (store/etcd/seat.h) on a thread of its own, so that a lease is kept alive whatever the
// loops do. What changes is told on a loop.

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "store/etcd/seat.h"

namespace qgpu {

class SeatKeeper {
 public:
  // Runs a closure on the loop; called from the keeper's thread.
  using Post = std::function<void(std::function<void()>)>;
  struct Calls {                                     // each on the loop
    std::function<void(KvCondition guard)> seated;   // once
    std::function<void(std::string why)> lost;       // once, and last
    std::function<void(std::string address)> other;  // who acts, when that changes; empty: nobody
    std::function<void(Status health)> health;       // etcd stopped answering, or answers again
  };

  SeatKeeper(std::unique_ptr<Kv> kv, SeatOptions options, Post post, Calls calls);
  // Gives the seat back and joins the thread.
  ~SeatKeeper();
  SeatKeeper(const SeatKeeper&) = delete;
  SeatKeeper& operator=(const SeatKeeper&) = delete;

  // Seated, and nobody else can be: to be asked before anything is said that others rely on and
  // that is no change of the store. From any thread.
  bool holds() const;

 private:
  void run();
  void tell();

  const std::unique_ptr<Kv> kv_;
  const Post post_;
  const Calls calls_;
  Seat seat_;
  std::atomic<std::int64_t> heldUntil_{0};
  Seat::State told_ = Seat::State::Waiting;
  std::optional<std::string> toldOther_;
  bool toldHealth_ = true;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace qgpu
