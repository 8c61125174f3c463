#pragma once
// Who finishes what: follows the launches of each command queue by their events and retires them at
// the gate (HAZARDS 19). Synchronising calls retire for free; a thread of its own, the reaper,
// flushes queues that were left unflushed and looks at what is in flight while there is any. No
// callback per launch, and one for each queue that a hold waits for. It also learns estimates,
// publishes `parked` and counts GPU time where the application's queue has profiling.
//
// Locks here are held for a few instructions or one event query, never across an enqueue, a wait
// or the release of an event, since those may run the application's callbacks.

#include "services/guest/gate/gate.h"
#include "services/guest/gate/reaper.h"
#include "services/guest/opencl/opencl_layer.h"

namespace qgpu::guest {

// A piece of work that is to be launched.
struct Work {
  std::uint64_t key = 0;  // for learning; 0: the estimate is a guess by size
  const void* kernel = nullptr;
  std::uint64_t estimateNs = 0;
  bool waits = false;  // for events, maybe of the host: whether it runs must be known (HAZARDS 3)
};

// Queues of the application: created, retained and released. An unknown queue is met at its first
// launch.
void queueCreated(cl_command_queue queue);
void queueRetained(cl_command_queue queue);
void queueReleased(cl_command_queue queue);  // before the driver releases it
void queueChanged(cl_command_queue queue);   // its properties are to be read again

// Whether a launch must be followed by an event of its own. While the task is alone on the card the
// launches of an in-order queue need none: a synchronising call or a marker of the reaper tells.
bool needsEvent(cl_command_queue queue, Pass pass, const Work& work);

// Follows a launch that the driver accepted. Takes over `event` (released when finished), which is
// null where needsEvent() said so.
void track(cl_command_queue queue, cl_event event, Pass pass, const Work& work);

// Around a call that ends when all that was enqueued on the queue is finished.
enum class Finished { kAll, kUnknown };
std::uint64_t syncMark(cl_command_queue queue);
void synced(cl_command_queue queue, std::uint64_t mark, Finished finished);

bool isInOrder(cl_command_queue queue);

// Looks at what is finished now, on one queue or on all.
void pollQueue(cl_command_queue queue);
void pollQueues();

// The queues as the reaper sees them.
extern const FrontEnd openclQueues;

// Launches from inside callbacks, which take no lock: puts them into their queues.
void takeLateLaunches();
void forgetLateLaunchesInChild();

}  // namespace qgpu::guest
