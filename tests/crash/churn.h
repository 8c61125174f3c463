#pragma once
// Clients that bind and end tasks all the time through the admin socket, whatever happens to the
// manager behind it. A request that was not answered is sent again with the same request id, as a
// careful client does; everything asked and promised is written down in Bindings. One of them also
// changes the policy of a card.

#include <atomic>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/crash/daemon.h"

namespace qgpu::crash {

class Churn {
 public:
  struct Plan {
    std::size_t clients = 4;
    std::string card;  // theirs; it must have room for all of them
    std::uint64_t seed = 1;
    std::string label = "c";  // of their tasks' names
  };

  Churn(const Daemon& daemon, Bindings& bindings, Plan plan);
  ~Churn() { stop(); }
  Churn(const Churn&) = delete;
  Churn& operator=(const Churn&) = delete;

  // Throws what a client found wrong.
  void check() const;
  // Requests under way get their answer, so the manager should live.
  void stop();
  // Policies that the card may have now: the acknowledged one, and one that was asked for.
  std::set<std::string> policies() const;
  std::uint64_t repeats() const { return repeats_; }  // same request, same answer

 private:
  using Prng = std::mt19937_64;
  void client(std::size_t number);
  void life(const Wish& wish, Prng& prng);
  void choosePolicy(Prng& prng);
  // Sends until it is answered or stop(); null then. `resent`: an answer went missing before.
  Json persist(const std::string& line, bool& resent);
  void complain(const std::string& what);

  const Daemon& daemon_;
  Bindings& bindings_;
  const Plan plan_;
  std::atomic<bool> stopping_{false};
  std::atomic<std::uint64_t> repeats_{0};
  mutable std::mutex mutex_;
  std::optional<std::string> wrong_;
  std::set<std::string> policies_;
  std::vector<std::thread> threads_;  // last: they use the rest
};

}  // namespace qgpu::crash
