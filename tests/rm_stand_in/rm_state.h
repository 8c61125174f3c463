#pragma once
// NVIDIA's kernel driver without a card: what it knows of clients, objects and channels, in a file
// that all processes of a test map, $QGPU_DRIVER_ROOT/rm.state.SIZE. It is for work that one
// process takes off the card and another has there, and for memory that several hold; what one
// alone has is tests/cuda_stand_in/kernel.h's too. librm_stand_in.so, preloaded, stands in front
// of libc's ioctl() and answers what is asked of $QGPU_DRIVER_ROOT/dev/nvidiactl as the driver
// does, with dma-bufs that are open files of dev/dmabuf; who opens /dev/nvidia* gets the files
// there. The stand-in libcuda runs its kernels only while their channels may.
//
// Its laws: a client belongs to the open file that made it, and a call on it from another is
// refused, whoever asks; but whoever has a client may take any channel of a card off the hardware,
// by name. A disabled channel stops running at once, or only when the step `commit` was made as
// well. What is of a process that died is gone. Memory is held until its last name is gone, in
// whatever process, and by a file that it was exported to until nobody has that open. The lock is
// held for moments, and taken over from the dead.

#include <atomic>
#include <cstdint>

namespace qgpu::rm_stand_in {

enum class Commit : std::uint32_t { kNone, kRestart, kPreempt, kNever };

// What a name stands for of it: duplicates have the same number.
struct Memory {
  std::uint64_t number;  // 0: none of the card
  std::uint64_t bytes;   // in whole pages; 0: this is no memory
  std::uint32_t place;   // as the driver tells it
};

struct Object {
  std::uint32_t client, parent, handle, objectClass;
  Memory memory;
  std::uint32_t engine;
  std::uint32_t device;                    // that it lies beneath; ~0: none
  std::uint32_t file;                      // of a client
  std::int32_t pid;                        // whose it is; 0: this place is free
  std::atomic<std::uint32_t> disabled;     // so often, and it runs after as many enables
  std::atomic<std::uint32_t> stopped;      // disabled, and committed
  std::atomic<std::uint64_t> timesliceUs;  // of a group
};

inline constexpr std::uint64_t kDefaultTimesliceUs = 1'024;

// An object in a file, at an index.
struct Exported {
  std::uint32_t file, index;  // file 0: this place is free
  Memory memory;
};

struct State {
  static constexpr std::uint32_t kObjects = 4096, kExported = 256;
  std::atomic<std::int32_t> lock;  // the pid that has it
  std::uint32_t nextFile, nextClient;
  Commit commit;                                           // what this card needs
  std::atomic<std::uint32_t> refuseDisable, refuseEnable;  // so many of the next calls fail
  std::atomic<std::uint32_t> refusal;                      // the status of such; 0: one that stays
  std::atomic<std::uint32_t> refuseTimeslice;
  std::atomic<std::uint32_t> keepFrees;  // not 0: what frees something does not return yet
  std::atomic<std::uint64_t> disables, enables, restarts, preempts;
  std::uint64_t lastMemory;
  std::atomic<std::uint32_t> refuseSizes;  // so many of the next questions for a size fail
  Object objects[kObjects];
  Exported exported[kExported];
  std::atomic<std::uint64_t> queryNs;  // how long a question about a stream takes
};

// Makes what is missing below QGPU_DRIVER_ROOT: the state, and the files of /dev.
void prepare();
// Maps the state; null where there is none.
State* state();

// What living processes and open files hold of the card, each byte once: 64 KiB at least for each
// memory.
std::uint64_t heldBytes(const State& all);
// What is gone of the card: also what the driver takes for itself beneath each group of channels,
// of which no call tells.
inline constexpr std::uint64_t kOwnBytes = 48 << 20;
std::uint64_t goneBytes(const State& all);

// For the stand-in libcuda: whether a channel is here, and whether its work may run now.
bool knows(const State& all, std::uint32_t client, std::uint32_t channel);
bool mayRun(const State& all, std::uint32_t client, std::uint32_t channel);

// For whoever waits until a manager has heard of a process's channels: all of them are off.
bool areOff(const State& all, std::int32_t pid);

}  // namespace qgpu::rm_stand_in
