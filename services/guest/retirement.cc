#include "services/guest/retirement.h"

#include <cstdlib>
#include <cstring>

#include "services/guest/estimates.h"

namespace qgpu::guest {
namespace {

constexpr std::size_t kBuckets = 64;
constexpr std::uint32_t kFirstRing = 64;
constexpr int kBatch = 64;  // events released per turn of the lock

struct Launch {
  cl_event event;
  std::uint64_t key;
  const void* kernel;
  std::uint64_t estimateNs;
  std::uint64_t windowNs;
  std::uint64_t submitNs;
  std::uint32_t gate;  // the word at submit: a time that spans a hold teaches nothing
};

// Launches of one queue, oldest first. `first` and `next` only grow.
struct Queue {
  Mutex lock;
  cl_command_queue handle = nullptr;  // null: released by the application, only drained
  std::uint32_t references = 1;
  bool inOrder = true;
  bool profiling = false;
  bool unflushed = false;
  std::uint64_t first = 0, next = 0;
  std::uint32_t capacity = 0;
  Launch* ring = nullptr;
  std::uint64_t lastRetireNs = 0;
  Queue* sibling = nullptr;

  Launch& at(std::uint64_t sequence) { return ring[sequence % capacity]; }
};

Mutex registryLock;  // guards the buckets and the handles
Queue* buckets[kBuckets] = {};
std::atomic<std::uint64_t> inFlight{0};
std::atomic<bool> reaperRuns{false};
std::uint32_t reaperAsleep = 0;  // futex
std::atomic<bool> stopping{false};
std::uint32_t reaperStopped = 0;  // futex

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
  std::uint64_t known = 0;
  bool allKnown = true;
  for (int i = 0; i < batch.count; ++i) {
    if (batch.launch[i].estimateNs == kUnknownEstimate) allKnown = false;
    if (allKnown) known += batch.launch[i].estimateNs;
  }
  const std::uint32_t gate = loadShared(session.gate->gate);
  for (int i = 0; i < batch.count; ++i) {
    const Launch& l = batch.launch[i];
    bool held = l.gate != gate && l.estimateNs != kUnknownEstimate;
    if (l.key == 0 || held) continue;
    std::uint64_t each = elapsed / static_cast<std::uint64_t>(batch.count);
    if (allKnown && known > 0) {
      __extension__ using Wide = unsigned __int128;
      each = static_cast<std::uint64_t>(static_cast<Wide>(elapsed) * l.estimateNs / known);
    }
    learn(l.key, l.kernel, each);
  }
}

void account(Batch& batch, std::uint64_t now) {
  if (batch.count == 0) return;
  std::uint64_t window = 0, gpu = 0;
  for (int i = 0; i < batch.count; ++i) {
    const Launch& l = batch.launch[i];
    window += l.windowNs;
    if (!batch.profiling) continue;
    std::uint64_t ns = gpuTime(l.event);
    gpu += ns;
    if (ns) learn(l.key, l.kernel, ns);
  }
  if (!batch.profiling && now > batch.startNs) learnFrom(batch, now - batch.startNs);
  auto count = static_cast<std::uint64_t>(batch.count);
  if (session.slot) {
    qgpu_slot& slot = *session.slot;
    shared(slot.launches).fetch_add(count, std::memory_order_relaxed);
    if (gpu) shared(slot.gpu_ns).fetch_add(gpu, std::memory_order_relaxed);
    retire(count, window, now);
  }
  inFlight.fetch_sub(count);
  for (int i = 0; i < batch.count; ++i) driver->clReleaseEvent(batch.launch[i].event);
  batch.count = 0;
}

void beginBatch(Queue& q, Batch& batch) {
  batch.profiling = q.profiling;
  batch.startNs = q.lastRetireNs;
  if (q.first < q.next && q.at(q.first).submitNs > batch.startNs) {
    batch.startNs = q.at(q.first).submitNs;
  }
}

// Takes finished launches from an in-order queue; all before `until` are known to be finished.
// Each is asked for: threads that enqueue at once may be tracked in another order than they run.
void takeInOrder(Queue& q, Batch& batch, std::uint64_t until) {
  while (q.first < q.next && !batch.full()) {
    if (q.first >= until && !finished(q.at(q.first).event)) return;
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
  for (;;) {
    Batch batch;
    beginBatch(q, batch);
    if (q.inOrder) {
      takeInOrder(q, batch, until);
    } else {
      takeOutOfOrder(q, batch, until);
    }
    const std::uint64_t now = batch.count ? nowNs() : 0;
    if (batch.count) q.lastRetireNs = now;
    bool more = batch.full();
    q.lock.unlock();
    account(batch, now);
    if (!more) return;
    q.lock.lock();
  }
}

void orphanHandle(Queue& q) {
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

void track(cl_command_queue queue, cl_event event, Pass pass, const Work& work) {
  Queue* q = lockQueue(queue, true);
  if (!q || (q->next - q->first == q->capacity && !grow(*q))) {
    // Out of memory: the launch can't be followed, so it is called finished at once.
    if (q) q->lock.unlock();
    retire(1, pass.windowNs, nowNs());
    driver->clReleaseEvent(event);
    return;
  }
  q->at(q->next++) = {event,
                      work.key,
                      work.kernel,
                      work.estimateNs,
                      pass.windowNs,
                      nowNs(),
                      loadRelaxed(session.gate->gate)};
  q->unflushed = true;
  inFlight.fetch_add(1);
  q->lock.unlock();
  if (!reaperRuns.load(std::memory_order_relaxed)) startReaper();
  if (loadShared(reaperAsleep) && shared(reaperAsleep).exchange(0)) futexWake(&reaperAsleep, 1);
}

std::uint64_t syncMark(cl_command_queue queue) {
  Queue* q = lockQueue(queue, false);
  if (!q) return 0;
  std::uint64_t mark = q->next;
  q->unflushed = false;
  q->lock.unlock();
  return mark;
}

void synced(cl_command_queue queue, std::uint64_t mark) {
  if (mark == 0) return;
  if (Queue* q = lockQueue(queue, false)) collect(*q, mark);
}

bool isInOrder(cl_command_queue queue) {
  Queue* q = lockQueue(queue, true);
  if (!q) return false;
  bool inOrder = q->inOrder;
  q->lock.unlock();
  return inOrder;
}

void pollQueue(cl_command_queue queue) {
  if (Queue* q = lockQueue(queue, false)) collect(*q, 0);
}

namespace {

// Walks all queues, one at a time, without holding the registry while a queue is looked at: queues
// are only freed by the reaper itself, and only when nothing of them is left.
template <typename F>
void forEachQueue(F visit) {
  for (Queue*& bucket : buckets) {
    registryLock.lock();
    Queue* q = bucket;
    registryLock.unlock();
    while (q) {
      visit(*q);
      registryLock.lock();
      q = q->sibling;
      registryLock.unlock();
    }
  }
}

std::atomic<std::uint32_t> pollers{0};  // threads that walk the queues

void freeReleasedQueues() {
  Lock registry(registryLock);
  if (pollers.load() != 0) return;
  for (Queue*& bucket : buckets) {
    for (Queue** link = &bucket; *link;) {
      Queue* q = *link;
      q->lock.lock();
      bool over = !q->handle && q->first == q->next;
      q->lock.unlock();
      if (!over) {
        link = &q->sibling;
        continue;
      }
      *link = q->sibling;
      free(q->ring);
      free(q);
    }
  }
}

// A queue whose launches nobody flushed would stay in flight for ever.
void flush(Queue& q) {
  q.lock.lock();
  cl_command_queue handle = q.unflushed && q.first < q.next ? q.handle : nullptr;
  q.unflushed = false;
  if (handle) driver->clRetainCommandQueue(handle);
  q.lock.unlock();
  if (!handle) return;
  driver->clFlush(handle);
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
    if (statusOf(q.at(q.first).event) <= CL_RUNNING) progress.running = true;
  }
  q.lock.unlock();
}

bool driverIsFrozen() {
  std::uint32_t gate = loadShared(session.gate->gate);
  return (gate & QGPU_GATE_FROZEN) && !(gate & QGPU_GATE_OPEN) &&
         loadShared(session.slot->frozen) != 0;
}

constexpr std::uint64_t kFastTickNs = 350 * kNsPerUs;  // somebody cares when we are idle
constexpr std::uint64_t kSlowTickNs = kNsPerMs;        // nobody else wants the card
constexpr std::uint64_t kLazyTickNs = 2 * kNsPerMs;    // and nothing finished for a while
constexpr std::uint64_t kLingerNs = 5 * kNsPerMs;      // awake after the last launch
constexpr int kParkedLooks = 3;

std::uint64_t tickNs(std::uint64_t sinceChange) {
  std::uint32_t gate = loadShared(session.gate->gate);
  if (session.online || (gate & kGateFastMask) != QGPU_GATE_OPEN) return kFastTickNs;
  return sinceChange > 10 * kNsPerMs ? kLazyTickNs : kSlowTickNs;
}

void sleepUntilLaunch() {
  shared(reaperAsleep).store(1);
  while (inFlight.load() == 0 && loadShared(reaperAsleep) && !stopping.load()) {
    futexWait(&reaperAsleep, 1, kNsPerSecond);
  }
  shared(reaperAsleep).store(0);
}

// One look at everything. Returns whether something is in flight.
bool reap(int& looksWithoutRun) {
  pollQueues();
  Progress progress;
  forEachQueue([&](Queue& q) {
    flush(q);
    lookAtOldest(q, progress);
  });
  looksWithoutRun = progress.any && !progress.running ? looksWithoutRun + 1 : 0;
  storeRelaxed(session.slot->parked, looksWithoutRun >= kParkedLooks ? 1u : 0u);
  freeReleasedQueues();
  return progress.any;
}

void* reaperThread(void*) {
  std::uint64_t busyNs = nowNs();
  std::uint64_t changedNs = busyNs;
  std::uint64_t retiredSeen = 0;
  int looksWithoutRun = 0;
  while (!stopping.load()) {
    std::uint64_t now = nowNs();
    std::uint64_t retired = loadRelaxed(session.slot->retired);
    if (retired != retiredSeen) changedNs = now;
    retiredSeen = retired;
    // A frozen driver thread may hold the driver's locks: a query would wait for the thaw.
    if (driverIsFrozen() || reap(looksWithoutRun)) busyNs = now;
    ringIfIdleIsUntold();
    if (now - busyNs > kLingerNs && inFlight.load() == 0) {
      sleepUntilLaunch();
      busyNs = nowNs();
    } else {
      sleepNs(tickNs(now - changedNs));
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
  inFlight.store(0);
  pollers.store(0);
  reaperRuns.store(false);
  reaperAsleep = reaperStopped = 0;
  stopping.store(false);
  forgetGateInChild();
}

}  // namespace qgpu::guest
