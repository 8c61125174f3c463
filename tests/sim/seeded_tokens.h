#pragma once
// Tokens of a simulated node: drawn from the seed, so that a run can be repeated, and from dice of
// their own, so that no life of a manager repeats what another one gave (P6).

#include <cstdio>
#include <string>

#include "actors/node/node_options.h"
#include "tests/sim/host.h"

namespace qgpu::sim {

class SeededTokens final : public TokenSource {
 public:
  explicit SeededTokens(Dice dice) : dice_(dice) {}
  std::string next() override {
    char text[33];
    std::snprintf(text, sizeof text, "%016llx%016llx",
                  static_cast<unsigned long long>(dice_.word()),
                  static_cast<unsigned long long>(dice_.word()));
    return text;
  }

 private:
  Dice dice_;
};

}  // namespace qgpu::sim
