#pragma once
// `qgpu-suspend-probe check UUID VERSION MINOR RUNG PARENT`, the process behind a ProbeCheck: makes
// the self-test of one method on a child of its own, says the verdict on stdout in a line, and dies
// with PARENT. Apart from card_check.h, since the probe's own part speaks CUDA's names.

namespace qgpu::suspend {

int checkCard(int argc, char** argv);  // its exit status

}  // namespace qgpu::suspend
