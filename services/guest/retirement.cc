#include "services/guest/retirement.h"

#include <cstdlib>
#include <cstring>

#include "services/guest/callbacks.h"
#include "services/guest/estimates.h"

namespace qgpu::guest {
namespace {

constexpr std::size_t kBuckets = 64;
constexpr std::uint32_t kFirstRing = 64;
constexpr int kBatch = 64;  // events released per turn of the lock

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
  std::uint32_t capacity = 0;
  Launch* ring = nullptr;
  std::uint64_t lastRetireNs = 0;
  Queue* sibling = nullptr;  // in its bucket, while it has a handle
  Queue* older = nullptr;    // in the list of all

  Launch& at(std::uint64_t sequence) { return ring[sequence % capacity]; }
};

Mutex registryLock;  // guards the buckets and the handles
Queue* buckets[kBuckets] = {};
Queue* newest = nullptr;
std::atomic<std::uint64_t> inFlight{0};
// A launch from inside a driver's callback. The driver may hold locks of its own there, so such a
// launch takes none of ours: it is put on a list, and whoever looks next takes it from there.
struct LateLaunch {
  LateLaunch* next;
  cl_command_queue queue;
  Launch launch;
};
std::atomic<LateLaunch*> lateLaunches{nullptr};

std::atomic<std::uint32_t> pollers{0};  // threads that hold on to queues without their locks
std::atomic<bool> reaperRuns{false};
std::uint32_t reaperAsleep = 0;  // futex
std::atomic<bool> stopping{false};
std::uint32_t reaperStopped = 0;  // futex

constinit thread_local std::uint32_t knownThread = 0;

// The calling thread's id, asked of the kernel once.
std::uint32_t ownThread() {
  if (!knownThread) knownThread = threadId();
  return knownThread;
}

std::size_t bucketOf(cl_command_queue queue) {
  auto bits = reinterpret_cast<std::uintptr_t>(queue);
  return (bits >> 4 ^ bits >> 12) % kBuckets;
}

Queue* lookUp(cl_command_queue handle) {
  for (Queue* q = buckets[bucketOf(handle)]; q; q = q->sibling) {
    if (q->handle == handle) return q;
  }
  return nullptr;
}

// With the registry locked.
Queue* addQueue(cl_command_queue handle) {
  void* memory = calloc(1, sizeof(Queue));
  if (!memory) return nullptr;
  auto* q = static_cast<Queue*>(memory);
  q->lock.renewInChild();
  q->handle = handle;
  q->references = 1;
  cl_command_queue_properties properties = 0;
  driver->clGetCommandQueueInfo(handle, CL_QUEUE_PROPERTIES, sizeof properties, &properties,
                                nullptr);
  q->inOrder = !(properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
  q->profiling = properties & CL_QUEUE_PROFILING_ENABLE;
  q->sibling = buckets[bucketOf(handle)];
  buckets[bucketOf(handle)] = q;
  q->older = newest;
  newest = q;
  return q;
}

// Returns the queue locked, or null when memory is out and `make`, or when unknown.
Queue* lockQueue(cl_command_queue handle, bool make) {
  Lock registry(registryLock);
  Queue* q = lookUp(handle);
  if (!q && make) q = addQueue(handle);
  if (q) q->lock.lock();
  return q;
}

bool grow(Queue& q) {
  std::uint32_t capacity = q.capacity ? q.capacity * 2 : kFirstRing;
  auto* ring = static_cast<Launch*>(malloc(capacity * sizeof(Launch)));
  if (!ring) return false;
  for (std::uint64_t s = q.first; s < q.next; ++s) ring[s % capacity] = q.at(s);
  free(q.ring);
  q.ring = ring;
  q.capacity = capacity;
  return true;
}

cl_int statusOf(cl_event event) {
  cl_int status = CL_COMPLETE;
  driver->clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, nullptr);
  return status;
}

bool finished(cl_event event) {
  return statusOf(event) <= CL_COMPLETE;
}

// Launches that were taken out of a ring together, to be accounted without the lock.
struct Batch {
  Launch launch[kBatch];
  int count = 0;
  bool profiling = false;
  std::uint64_t startNs = 0;  // when the first of them can have started

  bool full() const { return count == kBatch; }
};

std::uint64_t gpuTime(cl_event event) {
  cl_ulong start = 0, end = 0;
  driver->clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_START, sizeof start, &start, nullptr);
  driver->clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_END, sizeof end, &end, nullptr);
  return end > start ? end - start : 0;
}

// The time of a batch is divided by what was known before, evenly where something is new.
void learnFrom(const Batch& batch, std::uint64_t elapsed) {
  std::uint64_t known = 0, launches = 0;
  bool allKnown = true;
  for (int i = 0; i < batch.count; ++i) {
    const Launch& l = batch.launch[i];
    launches += l.count;
    if (l.estimateNs == kUnknownEstimate) allKnown = false;
    if (allKnown) known += l.estimateNs * l.count;
  }
  const std::uint32_t gate = loadShared(session.gate->gate);
  for (int i = 0; i < batch.count; ++i) {
    const Launch& l = batch.launch[i];
    bool held = l.gate != gate && l.estimateNs != kUnknownEstimate;
    if (l.key == 0 || held) continue;
    std::uint64_t each = elapsed / launches;
    if (allKnown && known > 0) {
      __extension__ using Wide = unsigned __int128;
      each = static_cast<std::uint64_t>(static_cast<Wide>(elapsed) * l.estimateNs / known);
    }
    learn(l.key, l.kernel, each);
  }
}

void account(Batch& batch, std::uint64_t now) {
  if (batch.count == 0) return;
  std::uint64_t window = 0, gpu = 0, launches = 0;
  for (int i = 0; i < batch.count; ++i) {
    const Launch& l = batch.launch[i];
    window += l.windowNs;
    launches += l.count;
    if (!batch.profiling || !l.event) continue;
    std::uint64_t ns = gpuTime(l.event);
    gpu += ns;
    if (ns) learn(l.key, l.kernel, ns);
  }
  if (!batch.profiling && now > batch.startNs) learnFrom(batch, now - batch.startNs);
  if (session.slot) {
    qgpu_slot& slot = *session.slot;
    shared(slot.launches).fetch_add(launches, std::memory_order_relaxed);
    if (gpu) shared(slot.gpu_ns).fetch_add(gpu, std::memory_order_relaxed);
    retire(launches, window, now);
  }
  inFlight.fetch_sub(launches);
  for (int i = 0; i < batch.count; ++i) {
    if (batch.launch[i].event) driver->clReleaseEvent(batch.launch[i].event);
  }
  batch.count = 0;
}

void beginBatch(Queue& q, Batch& batch) {
  batch.profiling = q.profiling;
  batch.startNs = q.lastRetireNs;
  if (q.first < q.next && q.at(q.first).submitNs > batch.startNs) {
    batch.startNs = q.at(q.first).submitNs;
  }
}

// Takes finished launches from an in-order queue; all before `until` are known to be finished. What
// has no event of its own is finished when the next one that has is.
void takeInOrder(Queue& q, Batch& batch, std::uint64_t until) {
  while (q.first < q.next && !batch.full()) {
    if (q.first >= until) {
      std::uint64_t asked = q.first;
      while (asked < q.next && !q.at(asked).event) ++asked;
      if (asked == q.next || !finished(q.at(asked).event)) return;
      until = asked + 1;
    }
    batch.launch[batch.count++] = q.at(q.first++);
  }
}

void takeOutOfOrder(Queue& q, Batch& batch, std::uint64_t until) {
  std::uint64_t keep = q.first;
  for (std::uint64_t s = q.first; s < q.next; ++s) {
    bool take = !batch.full() && (s < until || finished(q.at(s).event));
    if (take) {
      batch.launch[batch.count++] = q.at(s);
    } else {
      q.at(keep++) = q.at(s);
    }
  }
  // The kept ones moved to the front; sequence numbers must stay, so they move to the back.
  std::uint64_t shift = q.next - keep;
  for (std::uint64_t s = keep; shift && s > q.first; --s) q.at(s - 1 + shift) = q.at(s - 1);
  q.first += shift;
}

// With the queue locked; unlocks it.
void collect(Queue& q, std::uint64_t until) {
  pollers.fetch_add(1);
  for (bool more = true; more;) {
    Batch batch;
    beginBatch(q, batch);
    if (q.inOrder) {
      takeInOrder(q, batch, until);
    } else {
      takeOutOfOrder(q, batch, until);
    }
    const std::uint64_t now = batch.count ? nowNs() : 0;
    if (batch.count) q.lastRetireNs = now;
    more = batch.full();
    q.lock.unlock();
    account(batch, now);
    if (more) q.lock.lock();
  }
  pollers.fetch_sub(1);
}

// With the registry locked: the queue leaves its bucket and is only drained from now on.
void orphanHandle(Queue& q) {
  Queue** link = &buckets[bucketOf(q.handle)];
  while (*link != &q) link = &(*link)->sibling;
  *link = q.sibling;
  q.lock.lock();
  q.handle = nullptr;
  q.lock.unlock();
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

void wakeReaper() {
  if (!reaperRuns.load(std::memory_order_relaxed)) startReaper();
  if (loadShared(reaperAsleep) && shared(reaperAsleep).exchange(0)) futexWake(&reaperAsleep, 1);
}

// With the queue locked; false: memory is out.
bool push(Queue& q, const Launch& launch) {
  if (q.next - q.first == q.capacity && !grow(q)) return false;
  q.at(q.next++) = launch;
  return true;
}

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

}  // namespace

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

namespace {

// Walks all queues without holding the registry while one is looked at: a queue is only freed by
// the reaper between its own walks, and only while nobody else walks.
template <typename F>
void forEachQueue(F visit) {
  registryLock.lock();
  Queue* q = newest;
  registryLock.unlock();
  for (; q; q = q->older) visit(*q);
}

void freeReleasedQueues() {
  Lock registry(registryLock);
  if (pollers.load() != 0) return;
  for (Queue** link = &newest; *link;) {
    Queue* q = *link;
    q->lock.lock();
    bool over = !q->handle && q->first == q->next && pollers.load() == 0;
    q->lock.unlock();
    if (!over) {
      link = &q->older;
      continue;
    }
    *link = q->older;
    free(q->ring);
    free(q);
  }
}

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

struct Progress {
  bool any = false;      // something is in flight
  bool running = false;  // and some oldest launch runs
};

void lookAtOldest(Queue& q, Progress& progress) {
  q.lock.lock();
  if (q.first < q.next) {
    progress.any = true;
    // Without an event of its own nothing is known of it, which counts as running: a marker that is
    // not finished does not tell whether the work before it runs.
    const Launch& oldest = q.at(q.first);
    const bool known = oldest.event && !oldest.sealed;
    if (!known || statusOf(oldest.event) <= CL_RUNNING) progress.running = true;
  }
  q.lock.unlock();
}

bool driverIsFrozen() {
  std::uint32_t gate = loadShared(session.gate->gate);
  return (gate & QGPU_GATE_FROZEN) && !(gate & QGPU_GATE_OPEN) &&
         loadShared(session.slot->frozen) != 0;
}

constexpr std::uint64_t kFastTickNs = 350 * kNsPerUs;  // somebody cares when we are idle
constexpr std::uint64_t kSlowTickNs = 2 * kNsPerMs;    // nobody else wants the card
constexpr std::uint64_t kLazyTickNs = 5 * kNsPerMs;    // and some thread waits for all there is
constexpr std::uint64_t kLingerNs = 5 * kNsPerMs;      // awake after the last launch
constexpr int kParkedLooks = 3;

std::uint64_t tickNs(bool attended) {
  std::uint32_t gate = loadShared(session.gate->gate);
  bool alone = !session.online && (gate & kGateFastMask) == QGPU_GATE_OPEN;
  if (alone) return attended ? kLazyTickNs : kSlowTickNs;
  return attended ? kSlowTickNs : kFastTickNs;
}

void sleepUntilLaunch() {
  shared(reaperAsleep).store(1);
  while (inFlight.load() == 0 && loadShared(reaperAsleep) && !stopping.load()) {
    futexWait(&reaperAsleep, 1, kNsPerSecond);
  }
  shared(reaperAsleep).store(0);
}

struct Look {
  bool any = false;      // something is in flight
  bool attended = true;  // and some thread waits for all of that
  int withoutRun = 0;    // looks in a row that met no running launch
};

// One look at everything.
void reap(Look& look) {
  look.any = false;
  look.attended = true;
  takeLateLaunches();
  Progress progress;
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
    lookAtOldest(q, progress);
  });
  look.withoutRun = progress.any && !progress.running ? look.withoutRun + 1 : 0;
  storeRelaxed(session.slot->parked, look.withoutRun >= kParkedLooks ? 1u : 0u);
  freeReleasedQueues();
}

void* reaperThread(void*) {
  std::uint64_t busyNs = nowNs();
  Look look;
  while (!stopping.load()) {
    // A frozen driver thread may hold the driver's locks: a query would wait for the thaw.
    bool frozen = driverIsFrozen();
    if (!frozen) reap(look);
    std::uint64_t now = nowNs();
    if (frozen || look.any) busyNs = now;
    ringIfIdleIsUntold();
    if (now - busyNs > kLingerNs && inFlight.load() == 0) {
      sleepUntilLaunch();
      busyNs = nowNs();
    } else {
      sleepNs(tickNs(look.any && look.attended));
    }
  }
  shared(reaperStopped).store(1);
  futexWake(&reaperStopped, 1);
  return nullptr;
}

// The driver is about to be torn down: no query may run into that.
void stopReaper() {
  if (!reaperRuns.load()) return;
  stopping.store(true);
  shared(reaperAsleep).store(0);
  futexWake(&reaperAsleep, 1);
  if (!loadShared(reaperStopped)) futexWait(&reaperStopped, 0, 50 * kNsPerMs);
}

bool atExitKnown = false;

}  // namespace

void pollQueues() {
  pollers.fetch_add(1);
  forEachQueue([](Queue& q) {
    q.lock.lock();
    collect(q, 0);
  });
  pollers.fetch_sub(1);
}

void startReaper() {
  if (reaperRuns.exchange(true)) return;
  if (!atExitKnown) atexit(stopReaper);
  atExitKnown = true;
  session.pollRetirement = pollQueues;
  onForkInChild(forgetQueuesInChild);
  if (!startThread(reaperThread)) {
    say("cannot start a thread: launches retire at synchronising calls only");
  }
}

void forgetQueuesInChild() {
  registryLock.renewInChild();
  for (Queue*& bucket : buckets) bucket = nullptr;
  newest = nullptr;
  lateLaunches.store(nullptr);
  inFlight.store(0);
  pollers.store(0);
  reaperRuns.store(false);
  reaperAsleep = reaperStopped = 0;
  stopping.store(false);
  forgetGateInChild();
}

}  // namespace qgpu::guest
