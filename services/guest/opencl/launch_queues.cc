#include "services/guest/opencl/launch_queues.h"

#include <cstdlib>

#include "services/guest/gate/estimates.h"

namespace qgpu::guest {

Mutex registryLock;
Queue* newest = nullptr;
std::atomic<std::uint64_t> inFlight{0};
std::atomic<std::uint32_t> pollers{0};

namespace {

constexpr std::size_t kBuckets = 64;
constexpr std::uint32_t kFirstRing = 64;
constexpr int kBatch = 64;  // events released per turn of the lock

Queue* buckets[kBuckets] = {};

std::size_t bucketOf(cl_command_queue queue) {
  auto bits = reinterpret_cast<std::uintptr_t>(queue);
  return (bits >> 4 ^ bits >> 12) % kBuckets;
}

}  // namespace

Queue* lookUp(cl_command_queue handle) {
  for (Queue* q = buckets[bucketOf(handle)]; q; q = q->sibling) {
    if (q->handle == handle) return q;
  }
  return nullptr;
}

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

Queue* lockQueue(cl_command_queue handle, bool make) {
  Lock registry(registryLock);
  Queue* q = lookUp(handle);
  if (!q && make) q = addQueue(handle);
  if (q) q->lock.lock();
  return q;
}

namespace {

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

}  // namespace

bool push(Queue& q, const Launch& launch) {
  if (q.next - q.first == q.capacity && !grow(q)) return false;
  q.at(q.next++) = launch;
  return true;
}

cl_int statusOf(cl_event event) {
  cl_int status = CL_COMPLETE;
  driver->clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, nullptr);
  return status;
}

namespace {

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

}  // namespace

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

void orphanHandle(Queue& q) {
  Queue** link = &buckets[bucketOf(q.handle)];
  while (*link != &q) link = &(*link)->sibling;
  *link = q.sibling;
  q.lock.lock();
  q.handle = nullptr;
  q.lock.unlock();
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

void forgetLaunchQueuesInChild() {
  registryLock.renewInChild();
  for (Queue*& bucket : buckets) bucket = nullptr;
  newest = nullptr;
  inFlight.store(0);
  pollers.store(0);
}

}  // namespace qgpu::guest
