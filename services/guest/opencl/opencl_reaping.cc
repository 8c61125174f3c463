// What the reaper does for OpenCL: flushes queues that the application left unflushed, puts a
// marker behind launches that have no event, retires what is finished, frees queues that were
// released.

#include "services/guest/gate/reaper.h"
#include "services/guest/opencl/launch_queues.h"
#include "services/guest/opencl/retirement.h"

namespace qgpu::guest {
namespace {

// A queue whose launches nobody flushed would stay in flight for ever.
// Returns the handle, retained, if the queue is to be flushed.
cl_command_queue toFlush(Queue& q) {
  cl_command_queue handle = q.unflushed && q.first < q.next ? q.handle : nullptr;
  q.unflushed = false;
  if (handle) driver->clRetainCommandQueue(handle);
  return handle;
}

void flush(Queue& q) {
  q.lock.lock();
  cl_command_queue handle = toFlush(q);
  q.lock.unlock();
  if (!handle) return;
  driver->clFlush(handle);
  driver->clReleaseCommandQueue(handle);
}

// Puts a marker behind launches that have no event and that nobody waits for.
void cover(Queue& q) {
  q.lock.lock();
  std::uint64_t last = q.next - 1;
  bool needed = q.handle && q.first < q.next && !q.at(last).event && q.syncing == 0;
  cl_command_queue handle = needed ? q.handle : nullptr;
  if (needed) {
    q.at(last).sealed = true;
    driver->clRetainCommandQueue(handle);
  }
  q.lock.unlock();
  if (!needed) return;
  cl_event marker = nullptr;
  if (driver->clEnqueueMarkerWithWaitList(handle, 0, nullptr, &marker) != CL_SUCCESS) {
    marker = nullptr;
  }
  driver->clFlush(handle);
  q.lock.lock();
  if (marker && last >= q.first) {
    q.at(last).event = marker;
    marker = nullptr;
  }
  q.lock.unlock();
  if (marker) driver->clReleaseEvent(marker);
  driver->clReleaseCommandQueue(handle);
}

void CL_CALLBACK onLastEnded(cl_event, cl_int, void*) {
  nudgeReaper();
}

// Others wait until nothing is in flight any more: the end of a queue's last launch is told by its
// event, where it has one. One callback for a hold or a tick, none for a launch. Returns whether
// the end of all that is in the queue is, or was, told.
bool awaitLast(Queue& q, bool may) {
  q.lock.lock();
  const bool any = q.first < q.next;
  bool awaited = !any || q.awaited == q.next;
  cl_event last = awaited || !may ? nullptr : q.at(q.next - 1).event;
  if (last) {
    q.awaited = q.next;
    driver->clRetainEvent(last);
  }
  q.lock.unlock();
  if (!last) return awaited;
  awaited = driver->clSetEventCallback(last, CL_COMPLETE, onLastEnded, nullptr) == CL_SUCCESS;
  driver->clReleaseEvent(last);
  if (!awaited) {
    q.lock.lock();
    q.awaited = 0;
    q.lock.unlock();
  }
  return awaited;
}

void lookAtOldest(Queue& q, Look& look) {
  q.lock.lock();
  if (q.first < q.next) {
    // Without an event of its own nothing is known of it, which counts as running: a marker that is
    // not finished does not tell whether the work before it runs.
    const Launch& oldest = q.at(q.first);
    const bool known = oldest.event && !oldest.sealed;
    if (!known || statusOf(oldest.event) <= CL_RUNNING) look.running = true;
  }
  q.lock.unlock();
}

bool anyInFlight() {
  return inFlight.load() != 0;
}

void lookAtQueues(Look& look) {
  takeLateLaunches();
  forEachQueue([&](Queue& q) {
    q.lock.lock();
    bool any = q.first < q.next;
    bool attended = q.syncing != 0;
    if (!any) {
      q.lock.unlock();
      return;
    }
    look.any = true;
    look.attended = look.attended && attended;
    collect(q, 0);
    if (!attended && !session.callerRuns) {
      flush(q);
      cover(q);
    }
    look.awaited = awaitLast(q, look.await && !session.callerRuns) && look.awaited && q.inOrder;
    lookAtOldest(q, look);
  });
  freeReleasedQueues();
}

void forgetQueuesInChild() {
  forgetLaunchQueuesInChild();
  forgetLateLaunchesInChild();
}

}  // namespace

const FrontEnd openclQueues = {anyInFlight, lookAtQueues, pollQueues, forgetQueuesInChild};

}  // namespace qgpu::guest
