#pragma once
// All checkers of one world.

#include <memory>

#include "tests/sim/crowd.h"

namespace qgpu::sim {

class Checkers {
 public:
  Checkers();
  ~Checkers();
  void join(Crowd& crowd, Verdict& verdict);
  // The run is over: what can be judged only as a whole.
  void finish(Nanos now);

 private:
  struct All;
  std::unique_ptr<All> all_;
};

}  // namespace qgpu::sim
