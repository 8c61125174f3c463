#pragma once
// What a suspender's orders need of a driver.

#include <cstdint>
#include <string>
#include <vector>

#include "services/cards/suspend/channel_suspender.h"

namespace qgpu::suspend {

struct Outcome {
  Answer answer = Answer::kFailed;
  std::vector<Channel> gone;
  std::string why;  // it is not done: for people
};

// Of one card. All of it is called from one thread, and may block.
class Calls {
 public:
  virtual ~Calls() = default;

  // How a process's files of the driver are reached: its pidfd, which stays the caller's.
  virtual void process(std::uint32_t id, int pidfd) = 0;
  virtual void forget(std::uint32_t id) = 0;
  // With the scheduling alone where the method is such.
  virtual Outcome carryOut(const Order& order, SuspendMethod method) = 0;
};

}  // namespace qgpu::suspend
