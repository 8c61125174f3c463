#include "tests/sim/checkers.h"

namespace qgpu::sim {

struct Checkers::All {};

Checkers::Checkers() : all_(std::make_unique<All>()) {}
Checkers::~Checkers() = default;

void Checkers::join(Crowd&, Verdict&) {}

void Checkers::finish(Nanos) {}

}  // namespace qgpu::sim
