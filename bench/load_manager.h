#pragma once
// A manager of the benchmark's own, in a folder that is gone afterwards, and what it costs.

#include <cstdint>
#include <memory>
#include <string>
#include <sys/types.h>

#include "runtime/result.h"
#include "runtime/units.h"
#include "tests/testing/private_daemon.h"

namespace qgpu::bench {

// Returns once it answers. It ends with the object.
// NotFound: no such binary. Unavailable: it did not come up.
Result<std::unique_ptr<testing::PrivateDaemon>> startManager(const std::string& binary,
                                                             const std::string& cards);

// User and system time of a process since its start; its resident memory in KiB.
Nanos cpuTimeOf(pid_t pid);
std::uint64_t residentKib(pid_t pid);

}  // namespace qgpu::bench
