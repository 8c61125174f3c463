#pragma once
// `qgpu-suspend-probe check UUID VERSION MINOR METHOD PARENT`, the process behind a ProbeCheck. It
// makes the self-test of one suspend method on a child of its own, prints the verdict as one line
// on stdout, and ends when PARENT does. It is apart from card_check.h since it uses names of CUDA.

namespace qgpu::suspend {

int checkCard(int argc, char** argv);  // its exit status

}  // namespace qgpu::suspend
