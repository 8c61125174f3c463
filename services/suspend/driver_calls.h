#pragma once
// The ladder's orders as calls to NVIDIA's kernel driver. Before a channel is disabled its process
// must prove that it is its own: the process's open file is duplicated for a moment (a longer hold
// would keep a dead process's memory on the card), and the driver answers for a client only through
// the client's own file. So a task that names another's channels stops nobody.
//
// Calls block: some hundred microseconds as a rule, more while the driver is busy with others.

#include <map>
#include <string>

#include "services/guest/rm_card.h"
#include "services/suspend/ladder.h"

namespace qgpu::suspend {

class DriverCalls {
 public:
  // `card` outlives this.
  explicit DriverCalls(rm::Card& card) : card_(card) {}

  // How a process's files of the driver are reached: its pidfd, which stays the caller's.
  void process(std::uint32_t id, int pidfd) { processes_[id] = pidfd; }
  void forget(std::uint32_t id) { processes_.erase(id); }

  struct Outcome {
    Answer answer = Answer::kFailed;
    std::vector<Channel> gone;
    std::string why;  // it is not done: for people
  };
  // With the scheduling alone where the rung is such.
  Outcome carryOut(const Order& order, Rung rung);

 private:
  class File;

  Outcome set(const Order& order, bool off, bool onlyScheduling);
  Outcome commit(const Order& order);
  Outcome strangers(const std::vector<Channel>& channels) const;
  Outcome refused(const std::vector<Channel>& channels, std::uint32_t status) const;

  rm::Card& card_;
  std::map<std::uint32_t, int> processes_;
};

}  // namespace qgpu::suspend
