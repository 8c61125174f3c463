#pragma once
// The timeslice of this process's work on an NVIDIA card, where the manager wants one
// (services/attach/pages/timeslices.h says which and why): each group of channels gets it as it is
// made, through the process's own file of the driver, before any of its channels can run. A driver
// that refuses costs the program nothing: it runs on with what the driver gives, and says so once.

#include "services/nvidia_abi/rm_events.h"

namespace qgpu::guest {

// By the thread that made the group, before the program knows it.
void giveTimeslice(const RmChannelEvent& group);

}  // namespace qgpu::guest
