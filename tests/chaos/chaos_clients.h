#pragma once
// Who asks a cluster while it is harmed: threads that submit and delete, list, look at single
// tasks, cordon, ask nodes what they hold and schedulers who acts, each at any scheduler's admin
// socket or, through qgpuctl, over TLS. A submit or delete without a certain answer is asked again,
// with the same request id, until it has one. All that was asked and answered is the history.

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/chaos/history.h"

namespace qgpu::chaos {

// Where they find the cluster; each is called from any of the threads.
struct Doors {
  std::vector<std::string> schedulers, managers;  // admin sockets
  std::vector<std::string> nodes;                 // names, of the managers in this order
  std::function<std::vector<std::string>(std::vector<std::string> words)> ctl;  // its command line
};

class ChaosClients {
 public:
  ChaosClients(Doors doors, std::uint64_t seed);
  ~ChaosClients();
  ChaosClients(const ChaosClients&) = delete;
  ChaosClients& operator=(const ChaosClients&) = delete;

  // Nothing new is asked from now on; what has no certain answer is asked on. `resting()`: nobody
  // waits for anything any more.
  void rest() { rests_ = true; }
  bool resting() const { return busy_ == 0; }
  void goOn() { rests_ = false; }
  // Takes every cordon back; whether that was acknowledged for all.
  bool uncordonAll();

  // What was asked and answered so far.
  History history() const {
    const std::lock_guard lock(history_mutex_);
    return history_;
  }

 private:
  class Writer;
  using Pace = std::chrono::milliseconds;

  void start(std::uint64_t seed, Pace pace, std::function<void(std::uint64_t random)> turn);
  bool wait(Pace pace);  // until then, or the end; whether it goes on
  template <typename T>
  void record(std::vector<T> History::*where, T what) {
    const std::lock_guard lock(history_mutex_);
    (history_.*where).push_back(std::move(what));
  }

  void list(std::uint64_t random);
  void get(std::uint64_t random);
  void cordonOrLook(std::uint64_t random);
  bool cordon(std::size_t node, bool is, const std::string& socket);
  void askTerms(std::uint64_t random);
  void askHeld(std::uint64_t random);
  void askOutside(std::uint64_t random);

  const Doors doors_;
  mutable std::mutex history_mutex_;
  History history_;
  std::mutex known_mutex_;
  std::vector<std::pair<std::string, std::uint64_t>> known_;  // lately acknowledged
  std::mutex mutex_;
  std::condition_variable wake_;
  std::atomic<bool> rests_ = false, ends_ = false;
  std::atomic<std::size_t> busy_ = 0;
  std::vector<std::unique_ptr<Writer>> writers_;
  std::vector<std::thread> threads_;
};

}  // namespace qgpu::chaos
