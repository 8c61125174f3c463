#pragma once
// A driver of NVIDIA's that is newer than all that qgpu knows (rm_abi.h) may lay its calls out as
// the newest known one does. That is not assumed: it is tried on each such card, on a program of
// our own (suspend/layout_program.h), at the manager's start. A card that agrees in everything has
// its tenants' memory counted where the driver is asked for it, and may be tried for `rm`; on any
// other nothing changes. The program has a process of its own: one that hangs or crashes costs the
// card that, and never the daemon.
//
// What agreed is kept in the run dir for the card, the version of its driver and that of qgpu. What
// did not is tried at each start, since others' work may have been the cause.

#include <vector>

#include "runtime/log.h"
#include "services/cards/cards.h"

namespace qgpu {

inline constexpr const char* kLayoutsFile = "layouts";  // in the run dir

// Sets layoutSeen, memoryCounted and counting of NVIDIA's cards whose driver is newer; others stay
// as they are.
void tryNvidiaLayouts(std::vector<Card>& cards, const SuspendTrial& trial, Log& log);

}  // namespace qgpu
