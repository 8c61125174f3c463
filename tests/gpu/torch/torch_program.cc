#include "tests/gpu/torch/torch_program.h"

namespace qgpu::gpu {

Json torchResult(Child& child, std::string& why) {
  constexpr int kNone = 77, kNoPython = 127;
  const std::optional<int> status = child.wait(std::chrono::seconds(180));
  if (status == kNone || status == kNoPython) {
    why = status == kNone ? child.output() : "there is no python3";
    return nullptr;
  }
  return resultOf(child, "PyTorch");
}

}  // namespace qgpu::gpu
