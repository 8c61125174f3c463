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

 private:
  struct All;
  std::unique_ptr<All> all_;
};

}  // namespace qgpu::sim
