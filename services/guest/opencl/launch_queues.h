#pragma once
// The launches in flight, by command queue: who is in which queue, which of them are finished, and
// their accounting at the gate. retirement.cc fills the queues, the reaper looks at them.
//
// Locks: the registry's comes before a queue's. A queue is only freed by the reaper between its own
// walks, and only while nobody else walks (`pollers`).

#include "services/guest/gate/gate.h"
#include "services/guest/opencl/opencl_layer.h"

namespace qgpu::guest {

// One launch, or several of an in-order queue that nothing has asked about yet.
struct Launch {
  cl_event event;  // null: finished when a later one is, or when a synchronising call says so
  std::uint64_t key;
  const void* kernel;
  std::uint64_t estimateNs;
  std::uint64_t windowNs;
  std::uint64_t submitNs;  // of the first
  std::uint32_t gate;      // the word at submit: a time that spans a hold teaches nothing
  std::uint32_t count;
  bool sealed;  // a marker is on its way: no further launch joins
};

// Launches of one queue, oldest first. `first` and `next` only grow.
struct Queue {
  Mutex lock;
  cl_command_queue handle = nullptr;  // null: released by the application, only drained
  std::uint32_t references = 1;
  bool inOrder = true;
  bool profiling = false;
  bool unflushed = false;
  bool severalThreads = false;  // then the order of launches is not known exactly
  std::uint32_t thread = 0;     // the first that launched
  std::uint32_t syncing = 0;    // threads that wait for all of it right now
  std::uint64_t first = 0, next = 0;
  std::uint64_t awaited = 0;  // the `next` behind whose last launch the reaper is to be nudged
  std::uint32_t capacity = 0;
  Launch* ring = nullptr;
  std::uint64_t lastRetireNs = 0;
  Queue* sibling = nullptr;  // in its bucket, while it has a handle
  Queue* older = nullptr;    // in the list of all

  Launch& at(std::uint64_t sequence) { return ring[sequence % capacity]; }
};

extern Mutex registryLock;  // guards the buckets and the handles
extern Queue* newest;
extern std::atomic<std::uint64_t> inFlight;
extern std::atomic<std::uint32_t> pollers;  // threads that hold on to queues without their locks

// With the registry locked.
Queue* lookUp(cl_command_queue handle);
Queue* addQueue(cl_command_queue handle);  // null: memory is out

// Returns the queue locked, or null when memory is out and `make`, or when unknown.
Queue* lockQueue(cl_command_queue handle, bool make);

// With the queue locked; false: memory is out.
bool push(Queue& q, const Launch& launch);

cl_int statusOf(cl_event event);

// Retires what is finished, all before `until` in any case. With the queue locked; unlocks it.
void collect(Queue& q, std::uint64_t until);

// With the registry locked: the queue leaves its bucket and is only drained from now on.
void orphanHandle(Queue& q);

// Walks all queues without holding the registry while one is looked at: a queue is only freed by
// the reaper between its own walks, and only while nobody else walks.
template <typename F>
void forEachQueue(F visit) {
  registryLock.lock();
  Queue* q = newest;
  registryLock.unlock();
  for (; q; q = q->older) visit(*q);
}

void freeReleasedQueues();
void forgetLaunchQueuesInChild();

}  // namespace qgpu::guest
