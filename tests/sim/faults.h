#pragma once
// What goes wrong around a node, now and then, of the classes that its seed has: the manager dies,
// the power fails, the disk is full, slow or broken, a loop stands still. What tenants do wrong is
// part of their plans (guest.h).

#include <functional>
#include <vector>

#include "tests/sim/host.h"
#include "tests/sim/options.h"

namespace qgpu::sim {

// What a world lets happen to it.
struct FaultActions {
  std::function<void(Ending)> end;  // the manager, after the step that runs
  std::function<void(bool full)> fillDisk;
  std::function<void(std::uint64_t times)> breakDisk;  // that many I/Os fail
  std::function<void()> failSync;
  std::function<void(bool slow)> slowDisk;
  std::function<void()> loseDatabase;  // and the manager with it
};

class Faults {
 public:
  Faults(Host& host, const Options& options, Dice dice, FaultActions actions);

  // Nothing more goes wrong, and what was broken is mended by the world.
  void stop() { stopped_ = true; }

 private:
  void schedule();
  void strike();
  void forAWhile(const std::function<void(bool)>& fault);

  Host& host_;
  const Options& options_;
  Dice dice_;
  const FaultActions actions_;
  std::vector<Fault> mine_;  // of the seed's classes, those that happen here
  bool stopped_ = false;
};

}  // namespace qgpu::sim
