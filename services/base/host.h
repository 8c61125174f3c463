#pragma once
// What every daemon of ours asks of the machine before it serves and while it does: signals that
// end it, descriptors, the wall clock's offset, random numbers.

#include <cstdint>
#include <filesystem>
#include <functional>

#include "runtime/log.h"
#include "runtime/loop.h"
#include "runtime/units.h"

namespace qgpu {

// SIGTERM and SIGINT end a daemon cleanly. Blocked here, in this thread and in those it starts, so
// that serveUntilEnded() alone takes them.
void blockEndSignals();

// Runs `loop` until one of them comes. Where systemd started the daemon (NOTIFY_SOCKET is set) it
// is told when the daemon serves and when it ends.
// `onSignal` ends the loop, at once by default.
void serveUntilEnded(Loop& loop, Log& log, const std::function<void()>& onSignal = nullptr);

// The watchdog of systemd, where it runs one for this daemon (WATCHDOG_USEC is set), waits anew.
void feedWatchdog();

// A task costs three descriptors, each process two and each connection one: the soft limit is for
// programs that use select(), which nobody here does.
void raiseDescriptorLimit();

// What this machine has in all, whoever uses it.
struct HostRoom {
  std::int64_t cpuMilli = 0;  // thousandths of a core, those that are online
  Bytes mem{0};               // as MemTotal of /proc/meminfo
};
HostRoom hostRoom();

// Where this program and those that it starts lie: build/bin or PREFIX/bin.
std::filesystem::path folderOfBinaries();

// libqgpu.so beside the binaries: build/lib or PREFIX/lib. Empty where there is none.
std::string guestLibrary();

// Which build of this program it is, as the linker has noted it, hexadecimal; empty: it has not.
std::string buildId();

// CLOCK_REALTIME in ms when CLOCK_MONOTONIC was 0, by the clock as it is set now.
std::int64_t unixMsAtZero();

// 64 bits that nobody guesses; ends the process where the kernel gives none.
std::uint64_t randomWord();

}  // namespace qgpu
