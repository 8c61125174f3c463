#pragma once
// NVIDIA's kernel driver without a card: what it knows of clients, objects and channels, in a file
// that all processes of a test map, $QGPU_DRIVER_ROOT/rm.state. It is for work that one process
// takes off the card and another has there; memory and its sizes, which end with their process, are
// tests/cuda_stand_in/kernel.h's. librm_stand_in.so, preloaded, stands in front of libc's ioctl()
// and answers what is asked of $QGPU_DRIVER_ROOT/dev/nvidiactl as the driver does; the stand-in
// libcuda runs its kernels only while their channels may.
//
// Its laws: a client belongs to the open file that made it, and a call on it from another is
// refused, whoever asks; but whoever has a client may take any channel of a card off the hardware,
// by name. A disabled channel stops running at once, or only when the step `commit` was made as
// well. What is of a process that died is gone. The lock is held for moments, and taken over from
// the dead.

#include <atomic>
#include <cstdint>

namespace qgpu::rm_stand_in {

enum class Commit : std::uint32_t { kNone, kRestart, kPreempt, kNever };

struct Object {
  std::uint32_t client, parent, handle, objectClass;
  std::uint32_t engine;
  std::uint32_t device;  // that it lies beneath; ~0: none
  std::uint32_t file;    // of a client
  std::int32_t pid;      // whose it is; 0: this place is free
  std::atomic<std::uint32_t> disabled;
  std::atomic<std::uint32_t> stopped;      // disabled, and committed
  std::atomic<std::uint64_t> timesliceUs;  // of a group
};

inline constexpr std::uint64_t kDefaultTimesliceUs = 1'024;

struct State {
  static constexpr std::uint32_t kObjects = 4096;
  std::atomic<std::int32_t> lock;  // the pid that has it
  std::uint32_t nextFile, nextClient;
  Commit commit;                                           // what this card needs
  std::atomic<std::uint32_t> refuseDisable, refuseEnable;  // so many of the next calls fail
  std::atomic<std::uint32_t> refuseTimeslice;
  std::atomic<std::uint32_t> keepFrees;  // not 0: what frees something does not return yet
  std::atomic<std::uint64_t> disables, enables, restarts, preempts;
  Object objects[kObjects];
};

// Makes what is missing below QGPU_DRIVER_ROOT: the state, and the files of /dev.
void prepare();
// Maps the state; null where there is none.
State* state();

// For the stand-in libcuda: whether a channel is here, and whether its work may run now.
bool knows(const State& all, std::uint32_t client, std::uint32_t channel);
bool mayRun(const State& all, std::uint32_t client, std::uint32_t channel);

}  // namespace qgpu::rm_stand_in
