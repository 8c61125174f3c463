#pragma once
// Freeze: on a card whose kernels run on the tenant's own CPU threads, a hold stops each driver
// thread mid-kernel (HAZARDS 2). The manager stores the gate word with FROZEN and sends
// freezeSignal() to each thread of slot.tids; the handler waits on the gate word and returns when
// the gate opens, or by itself when the manager is lost. Host threads are never stopped.
//
// The driver's threads are those that appear in /proc/self/task while the driver initialises its
// devices. Unless their number is what the driver announces, none is published and the card falls
// back to `gate`: a thread that is not known for certain is never stopped.
//
// Each published thread is bound to a CPU of its own. A slice begins with all of them woken from
// one place: Linux puts them on the CPU of who wakes them, and takes 2 to 5 ms to part them again,
// a fifth of a slice in which half of the card idles. A driver that has placed its threads itself
// (POCL_AFFINITY) is left alone.

#include <cstdint>

namespace qgpu::guest {

// The reserved signal, or 0 where the application already uses it.
std::uint32_t freezeSignal();

// The tids of this process at one moment. Plain data: it lives on the caller's stack.
struct ThreadList {
  static constexpr int kMost = 4096;
  std::uint32_t tid[kMost];
  int count = 0;  // kMost + 1: too many to tell
};
void listThreads(ThreadList& list);

// Lets the freeze signal reach threads that the calling thread starts: they inherit its mask.
// Returns the mask to give to restoreMask().
std::uint64_t admitFreezeSignal();
void restoreMask(std::uint64_t mask);

// Publishes the threads that are in `after` and not in `before`, if they are `expected`, and
// installs the handler. False: this process can't be frozen.
bool publishDriverThreads(const ThreadList& before, const ThreadList& after,
                          std::uint32_t expected);

// Takes the published threads back if the application took the signal for itself in the meantime:
// its handler must not get the manager's signals. Called now and then by the link thread.
void withdrawIfSignalWasTaken();

}  // namespace qgpu::guest
