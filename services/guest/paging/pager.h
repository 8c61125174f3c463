#pragma once
// The thread of this process that moves its memory off the card and back, as the gate page says,
// and what waits for it. PagedMemory says each step, a front end does it by its driver, and the
// slot tells the manager what became of it. docs/internals/paging.md.
//
// It is there in processes of tasks whose memory may leave, once a front end has one that can do
// the steps. The manager counts on a process from its first answer on, which begin() stores.
//
// Locks: the pager's own is held for a few instructions. While a step is done another one is, which
// Still takes too; a thread that holds it makes no call that waits for memory to be there.

#include <atomic>
#include <cstdint>

#include "services/guest/gate/sys.h"
#include "services/guest/paging/paged_memory.h"

namespace qgpu::guest::pager {

using Chunk = PagedMemory::Chunk;

// A front end's half. Called by one thread at a time. False: it could not be done.
struct Mover {
  bool (*isIdle)();  // the driver says that nothing runs or is queued which may touch a chunk; it
                     // does not wait
  bool (*copyOut)(Chunk);
  bool (*release)(Chunk);
  bool (*make)(Chunk);
  bool (*copyIn)(Chunk);
  void (*dropCopy)(Chunk);
  void (*gone)(Chunk);  // it has nothing left
  void (*tend)();       // now and then, while no step is done
  void (*forgetInChild)();
};

// In an attached process, before its first chunk. False: there is no thread to be had, and so no
// chunks.
bool begin(const Mover& mover);

// Whether any chunk was ever made here: what follows is for such processes.
extern std::atomic<bool> active;

// Before a call that begins work or names an address, and after it. False: what it may touch is
// away, or is about to be.
bool enter();
void leave();
// Until enter() may succeed. False: the task is gone, its calls fail.
bool waitUntilIn();
bool enterOrWait();  // both, until it is entered

// The memory of a call, from here to its end; it waits first. Nothing where no chunk is.
class OnCard {
 public:
  OnCard() : held_(active.load(std::memory_order_relaxed)) {
    if (held_) [[unlikely]]
      there_ = enterOrWait();
  }
  ~OnCard() {
    if (held_ && there_) leave();
  }
  OnCard(const OnCard&) = delete;
  OnCard& operator=(const OnCard&) = delete;
  bool there() const { return there_; }

 private:
  const bool held_;
  bool there_ = true;
};

// No step is being done. Nothing where no chunk is.
class Still {
 public:
  Still();
  ~Still();
  Still(const Still&) = delete;
  Still& operator=(const Still&) = delete;

 private:
  const bool held_;
};

// --- within an enter() ---
// kNone: no memory for the record.
Chunk add(std::uint64_t bytes);

// --- at any time ---
// The program freed it: returns when nothing of these is left on the card or the host, or the
// driver does not give it up.
void freed(const Chunk* chunks, std::uint32_t count);
// Work began whose end nobody can tell: nothing leaves from now on.
void neverIdle();
// The limit of now is too low for so many bytes more: waits for room, and tells the manager so. The
// room is nobody's yet. False: none will come, since the task or the manager is gone.
bool waitForRoom(std::uint64_t bytes);

}  // namespace qgpu::guest::pager
