#include "services/guest/opencl/retirement.h"

#include <cstdlib>

#include "services/guest/gate/estimates.h"
#include "services/guest/gate/reaper.h"
#include "services/guest/opencl/callbacks.h"
#include "services/guest/opencl/launch_queues.h"

namespace qgpu::guest {
namespace {

// A launch from inside a driver's callback. The driver may hold locks of its own there, so such a
// launch takes none of ours: it is put on a list, and whoever looks next takes it from there.
struct LateLaunch {
  LateLaunch* next;
  cl_command_queue queue;
  Launch launch;
};
std::atomic<LateLaunch*> lateLaunches{nullptr};

std::atomic<bool> reaperKnowsQueues{false};

constinit thread_local std::uint32_t knownThread = 0;

// The calling thread's id, asked of the kernel once.
std::uint32_t ownThread() {
  if (!knownThread) knownThread = threadId();
  return knownThread;
}

}  // namespace

void queueCreated(cl_command_queue queue) {
  Lock registry(registryLock);
  if (Queue* stale = lookUp(queue)) orphanHandle(*stale);
  addQueue(queue);
}

void queueRetained(cl_command_queue queue) {
  Lock registry(registryLock);
  if (Queue* q = lookUp(queue)) ++q->references;
}

void queueReleased(cl_command_queue queue) {
  Lock registry(registryLock);
  Queue* q = lookUp(queue);
  if (q && --q->references == 0) orphanHandle(*q);
}

void queueChanged(cl_command_queue queue) {
  Lock registry(registryLock);
  Queue* q = lookUp(queue);
  if (!q) return;
  std::uint32_t references = q->references;
  orphanHandle(*q);
  if (Queue* fresh = addQueue(queue)) fresh->references = references;
}

namespace {

// A launch without event joins the last entry, if that has none either and means the same kernel.
bool join(Queue& q, const Launch& launch) {
  if (launch.event || q.first == q.next) return false;
  Launch& last = q.at(q.next - 1);
  if (last.event || last.sealed || last.key != launch.key || last.gate != launch.gate) return false;
  ++last.count;
  last.windowNs += launch.windowNs;
  return true;
}

// False: memory is out.
bool follow(cl_command_queue queue, const Launch& launch) {
  Queue* q = lockQueue(queue, true);
  if (!q) return false;
  bool kept = join(*q, launch) || push(*q, launch);
  q->unflushed = true;
  q->lock.unlock();
  return kept;
}

bool pushLate(cl_command_queue queue, const Launch& launch) {
  auto* late = static_cast<LateLaunch*>(malloc(sizeof(LateLaunch)));
  if (!late) return false;
  driver->clRetainCommandQueue(queue);
  *late = {lateLaunches.load(), queue, launch};
  while (!lateLaunches.compare_exchange_weak(late->next, late)) {
  }
  return true;
}

// Memory is out: the launch can't be followed, so it is called finished at once.
void abandon(const Launch& launch) {
  retire(1, launch.windowNs, nowNs());
  inFlight.fetch_sub(1);
  if (launch.event) driver->clReleaseEvent(launch.event);
}

// As follow(), for a queue that the application may have released since: then it is only drained.
bool followLate(const LateLaunch& late) {
  Lock registry(registryLock);
  Queue* q = lookUp(late.queue);
  const bool released = !q;
  if (released) q = addQueue(late.queue);
  if (!q) return false;
  q->lock.lock();
  bool kept = push(*q, late.launch);
  q->unflushed = true;
  q->lock.unlock();
  if (released) orphanHandle(*q);
  return kept;
}

}  // namespace

void takeLateLaunches() {
  if (!lateLaunches.load(std::memory_order_relaxed) || callbackDepth) return;
  LateLaunch* late = lateLaunches.exchange(nullptr);
  LateLaunch* oldestFirst = nullptr;
  while (late) {
    LateLaunch* next = late->next;
    late->next = oldestFirst;
    oldestFirst = late;
    late = next;
  }
  while (oldestFirst) {
    LateLaunch* next = oldestFirst->next;
    if (!followLate(*oldestFirst)) abandon(oldestFirst->launch);
    driver->clFlush(oldestFirst->queue);
    driver->clReleaseCommandQueue(oldestFirst->queue);
    free(oldestFirst);
    oldestFirst = next;
  }
}

bool needsEvent(cl_command_queue queue, Pass pass, const Work& work) {
  if (callbackDepth || session.online || pass.windowNs || work.waits) return true;
  if (session.callerRuns) return true;
  if (work.estimateNs == kUnknownEstimate) return true;
  if (!driver->clEnqueueMarkerWithWaitList) return true;
  if ((loadRelaxed(session.gate->gate) & kGateFastMask) != QGPU_GATE_OPEN) return true;
  Queue* q = lockQueue(queue, true);
  if (!q) return true;
  const std::uint32_t self = ownThread();
  if (q->thread == 0) q->thread = self;
  if (q->thread != self) q->severalThreads = true;
  bool needed = !q->inOrder || q->profiling || q->severalThreads;
  q->lock.unlock();
  return needed;
}

void track(cl_command_queue queue, cl_event event, Pass pass, const Work& work) {
  const Launch launch = {event,
                         work.key,
                         work.kernel,
                         work.estimateNs,
                         pass.windowNs,
                         nowNs(),
                         loadRelaxed(session.gate->gate),
                         1,
                         false};
  inFlight.fetch_add(1);
  bool followed = callbackDepth ? pushLate(queue, launch) : follow(queue, launch);
  if (!followed) abandon(launch);
  if (!reaperKnowsQueues.load(std::memory_order_relaxed)) {
    startReaper(openclQueues);
    reaperKnowsQueues.store(true, std::memory_order_relaxed);
  }
  wakeReaper();
}

std::uint64_t syncMark(cl_command_queue queue) {
  Queue* q = lockQueue(queue, false);
  if (!q) return 0;
  std::uint64_t mark = q->next;
  q->unflushed = false;
  if (mark) ++q->syncing;
  q->lock.unlock();
  return mark;
}

void synced(cl_command_queue queue, std::uint64_t mark, Finished finished) {
  if (mark == 0) return;
  takeLateLaunches();
  Queue* q = lockQueue(queue, false);
  if (!q) return;
  if (q->syncing) --q->syncing;
  collect(*q, finished == Finished::kAll ? mark : 0);
}

bool isInOrder(cl_command_queue queue) {
  Queue* q = lockQueue(queue, true);
  if (!q) return false;
  bool inOrder = q->inOrder;
  q->lock.unlock();
  return inOrder;
}

void pollQueue(cl_command_queue queue) {
  takeLateLaunches();
  if (Queue* q = lockQueue(queue, false)) collect(*q, 0);
}

void pollQueues() {
  pollers.fetch_add(1);
  forEachQueue([](Queue& q) {
    q.lock.lock();
    collect(q, 0);
  });
  pollers.fetch_sub(1);
}

void forgetLateLaunchesInChild() {
  reaperKnowsQueues.store(false);
  lateLaunches.store(nullptr);
}

}  // namespace qgpu::guest
