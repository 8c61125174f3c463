#pragma once
// How long an NVIDIA card runs one program's work before it looks for another's: a net beneath the
// holds. While an offline kernel runs on, since its card suspends by `gate` or the call that takes
// it off is late, the card itself goes over to an online program at the end of a slice, in the
// middle of the kernel, and an online kernel waits for slices instead of kernels. Where nobody
// else has work on the card nothing changes: a slice ends only where another waits.
//
// A process sets them itself for its groups of channels (services/guest/gate/channels.cc);
// the open kernel module (515 to 595) lets any process do that with its own groups, and hands
// the value to the card's firmware. The module sets its own default in the same way when it
// makes a group, and asks for no new runlist then: the group's entry is written when its first
// channel is scheduled. Its header says of later changes that they take effect at once.
// On an H200 with 580.159 a slice of 200 us set on a group that runs brought the start of a program
// beside its kernels of 10 ms from 1.58 to 0.20 ms at once; one set at the making brought nothing.
// So it is set once the group was scheduled too, and where the program sets another.
//
// Two processes of one task wait for each other's slices all the time, though, and each change
// costs that card some 200 us: two that keep it busy together made 50 % of what one makes with
// slices of 200 us, and 91 % with the driver's own. So an offline task of several processes has
// slices like those, and pays what it would pay without qgpu.

#include <cstdint>

#include "services/wire/gate_abi.h"

namespace qgpu {

// 200 us is what GPreempt (ATC '25) and gpu_ext ran batch work with on A100 and RTX 5090; a change
// of programs costs the card some 50 to 100 us there, so a shorter one would pay more than it
// gives.
inline constexpr std::uint64_t kOfflineTimesliceUs = 200;
// Of a task of several processes: as long as the driver's own, by what two made on the H200.
inline constexpr std::uint64_t kSeveralTimesliceUs = 2'000;
// Ten times the driver's own (1,024 us: kfifoChannelGroupGetDefaultTimeslice_GV100) and 50 of the
// above, so that few online kernels are interrupted. Those runs had a second, with one online
// program; here several share a card, and each waits for the others' slices.
inline constexpr std::uint64_t kOnlineTimesliceUs = 10'000;

// Of a task with so many processes; 0: what the driver gives.
constexpr std::uint64_t timesliceUsOf(qgpu_class taskClass, int processes) {
  switch (taskClass) {
    case QGPU_ONLINE:
      return kOnlineTimesliceUs;
    case QGPU_OFFLINE:
      return processes > 1 ? kSeveralTimesliceUs : kOfflineTimesliceUs;
    case QGPU_ORDINARY:
      break;
  }
  return 0;
}

}  // namespace qgpu
