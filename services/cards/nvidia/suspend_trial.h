#pragma once
// How work is taken off each NVIDIA card: `rm` where the self-test (suspend/self_test.h) took
// work of its own off the card and put it back, else `gate`, with the reason for people. The
// test runs in a child process, as all that talks to a driver at the start: one that hangs or
// crashes costs its card `rm`, and never the daemon.

#include <string>
#include <string_view>
#include <vector>

#include "runtime/log.h"
#include "runtime/result.h"
#include "runtime/units.h"
#include "services/cards/cards.h"

namespace qgpu {

// Sets suspend, method and suspendWhy of NVIDIA's cards; others stay as they are. A card whose
// answer was kept is not tested again, but an old refusal is where `rm` is asked for by name. One
// of which nothing was seen for certain (its driver was not ready yet, its memory full, the machine
// too busy, the test out of time) is tested at each start.
void tryNvidiaSuspends(std::vector<Card>& cards, const SuspendTrial& trial, Log& log);

// Why this process may not take descriptors of its tenants, which `rm` takes; empty: it may. `self`
// is /proc/self/status, `yama` what /proc/sys/kernel/yama/ptrace_scope holds, empty without Yama.
// The capability is asked for whatever Yama says: without, the kernel allows it for the manager's
// own user alone, and tenants are anybody's.
std::string whyNoDescriptors(std::string_view self, std::string_view yama);

}  // namespace qgpu
