#pragma once
// `qgpu-suspend-probe layout VERSION MAJOR UUID`: whether NVIDIA's kernel driver VERSION, which is
// newer than all that qgpu knows, lays its calls out as the known driver MAJOR does (rm_abi.h). It
// works on the card as any program does, and reads its own calls to the kernel driver in that
// layout, as libqgpu.so would. What is read must be what it did: each call has a form that the
// layout knows; memory of odd sizes is seen with its size, and its end is seen; and the driver
// itself names the same classes, parents and sizes when it is asked, and no object after its end.
// NVML must tell of as much. That a refusal is written where the layout looks for it is tried by
// calls of nobody's client.
//
// The verdict is one line on stdout: kAgrees, or why it does not. The driver may end this program
// or never answer: who starts it limits its time. Nothing of anybody else is touched, but others
// that take or free memory of the card at the same moment can make it differ.

#include "services/cards/suspend/call_watch.h"

namespace qgpu::suspend {

inline constexpr const char* kAgrees = "agrees";

// `calls` is passed all of this program's.
void tryLayout(CallWatch& calls, const std::string& version, const std::string& uuid);

}  // namespace qgpu::suspend
