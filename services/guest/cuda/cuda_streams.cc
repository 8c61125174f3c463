#include "services/guest/cuda/cuda_streams.h"

#include <cstdlib>
#include <dlfcn.h>
#include <new>

#include "services/guest/cuda/cuda_charges.h"
#include "services/guest/gate/estimates.h"
#include "services/guest/gate/quota.h"
#include "services/guest/gate/real_loader.h"
#include "services/guest/paging/pager.h"

extern "C" __attribute__((visibility("hidden"))) void* __dso_handle;  // of this library

namespace qgpu::guest {

std::atomic<std::uint32_t> captures{0};
std::atomic<std::uint32_t> streamEpoch{1};
constinit thread_local CudaThread cudaThread;

namespace {

constexpr std::size_t kBuckets = 64;

Mutex registry;  // the buckets and the lists; before any stream's lock
CudaStream* buckets[kBuckets] = {};
CudaStream* newest = nullptr;
CudaStream* unused = nullptr;

std::size_t bucketOf(cuda::Str handle, cuda::Ctx context) {
  const auto bits =
      reinterpret_cast<std::uintptr_t>(handle) ^ reinterpret_cast<std::uintptr_t>(context) * 31;
  return (bits >> 4 ^ bits >> 12 ^ bits) % kBuckets;
}

constinit thread_local char ownMark = 0;  // its address stands for the thread

// What identifies a stream.
struct Identity {
  cuda::Str handle;
  cuda::Ctx context;  // of a default stream: each context has its own
  const void* thread;
};

bool isDefault(cuda::Str handle) {
  return handle == cuda::legacyStream() || handle == cuda::perThreadStream();
}

// What this thread knows of a stream; null: nothing yet.
const StreamCache* recall(cuda::Str handle, cuda::Stream0 zero) {
  for (const StreamCache& each : cudaThread.known) {
    if (each.is(handle, zero)) return &each;
  }
  return nullptr;
}

void remember(const StreamCache& fresh) {
  cudaThread.cache = cudaThread.known[cudaThread.oldestKnown] = fresh;
  cudaThread.oldestKnown = (cudaThread.oldestKnown + 1) % kStreamsOfThread;
}

Identity identityOf(cuda::Str handle, cuda::Stream0 zero) {
  if (!handle) {
    handle = zero == cuda::Stream0::kLegacy ? cuda::legacyStream() : cuda::perThreadStream();
  }
  Identity identity{handle, nullptr, nullptr};
  if (isDefault(handle) && cudaDriver.cuCtxGetCurrent) {
    cudaDriver.cuCtxGetCurrent(&identity.context);
  }
  if (handle == cuda::perThreadStream()) identity.thread = &ownMark;
  return identity;
}

cuda::Ctx contextOf(const Identity& identity) {
  if (isDefault(identity.handle)) return identity.context;
  cuda::Ctx context = nullptr;
  if (cudaDriver.cuStreamGetCtx &&
      cudaDriver.cuStreamGetCtx(identity.handle, &context) == cuda::kSuccess) {
    return context;
  }
  if (cudaDriver.cuCtxGetCurrent) cudaDriver.cuCtxGetCurrent(&context);
  return context;
}

// With the registry locked.
CudaStream* lookUp(const Identity& identity) {
  CudaStream* s = buckets[bucketOf(identity.handle, identity.context)];
  for (; s; s = s->sibling) {
    const bool same = s->handle == identity.handle && s->thread == identity.thread &&
                      (!isDefault(identity.handle) || s->context == identity.context);
    if (same) return s;
  }
  return nullptr;
}

// --- the ends of threads: what was their default stream is only drained ---

pthread_key_t threadKey;
pthread_once_t threadKeyOnce = PTHREAD_ONCE_INIT;

void unlinkFromBucket(CudaStream& stream) {
  const cuda::Ctx context = isDefault(stream.handle) ? stream.context : nullptr;
  CudaStream** link = &buckets[bucketOf(stream.handle, context)];
  while (*link && *link != &stream) link = &(*link)->sibling;
  if (*link) *link = stream.sibling;
}

void putIntoBucket(CudaStream& stream) {
  const cuda::Ctx context = isDefault(stream.handle) ? stream.context : nullptr;
  CudaStream*& bucket = buckets[bucketOf(stream.handle, context)];
  stream.sibling = bucket;
  bucket = &stream;
}

void endUnasked(CudaStream& s);

// HIP destroys the thread's default streams with what else it has of the thread, and waits for what
// is in them; then this comes first, so that nobody asks them meanwhile, and onThreadEnd() later.
void onThreadEnds(void* mark) {
  Lock lock(registry);
  for (CudaStream* s = newest; s; s = s->older) {
    if (s->thread != mark) continue;
    Lock own(s->lock);
    s->closing = true;
  }
}

void onThreadEnd(void* mark) {
  // Later destructors may launch, and come here again.
  cudaThread.cache.stream = nullptr;
  for (StreamCache& each : cudaThread.known) each.stream = nullptr;
  Lock lock(registry);
  for (CudaStream* s = newest; s; s = s->older) {
    Lock own(s->lock);
    // The next thread to launch here may be its owner: this one has stored its last.
    if (s->owner == mark) s->owner = nullptr;
    if (s->thread != mark || s->over) continue;
    unlinkFromBucket(*s);
    s->over = true;
    if (driverIsHip()) endUnasked(*s);
    s->closing = false;
  }
}

void makeThreadKey() {
  pthread_key_create(&threadKey, onThreadEnd);
}

// Runs before what HIP registered so, since that was earlier: at its first call of the thread.
void noteThreadOfHip() {
  static constinit thread_local bool noted = false;
  if (noted) return;
  noted = true;
  using AtExit = int (*)(void (*)(void*), void*, void*);
  static const auto atExit = reinterpret_cast<AtExit>(
      realLoader().dlsym(RTLD_DEFAULT, "__cxa_thread_atexit_impl"));  // glibc 2.18
  if (atExit) atExit(onThreadEnds, &ownMark, &__dso_handle);
}

void noteThread() {
  pthread_once(&threadKeyOnce, makeThreadKey);
  if (driverIsHip()) noteThreadOfHip();
  pthread_setspecific(threadKey, &ownMark);
}

// With the registry locked.
CudaStream* takeRecord() {
  if (CudaStream* again = unused) {
    unused = again->older;
    return again;
  }
  void* memory = malloc(sizeof(CudaStream));
  return memory ? ::new (memory) CudaStream : nullptr;
}

CudaStream* addStream(const Identity& identity, cuda::Ctx context) {
  CudaStream* s = takeRecord();
  if (!s) return nullptr;
  s->handle = identity.handle;
  s->context = context;
  s->thread = identity.thread;
  s->owner = nullptr;
  s->over = s->capturing = s->closing = false;
  const bool unasked = identity.thread || (driverIsHip() && isDefault(identity.handle));
  s->attention.store(unasked ? std::uint32_t{kMarkAlways} : 0);
  s->newestFree = &s->frees;
  putIntoBucket(*s);
  s->older = newest;
  newest = s;
  return s;
}

// --- retirement, with the stream locked ---

// Other answers say that it could not be asked here and now, and nothing of the work.
bool isOver(cuda::Result rc) {
  return rc == cuda::kSuccess || cuda::endsContext(rc);
}

// The null stream is never captured, and what is launched into it runs; an error says nothing.
int captureStateOfHip(cuda::Str handle) {
  int state = cuda::kNotCapturing;
  if (!handle || handle == cuda::legacyStream()) return state;
  const bool known = cudaDriver.cuStreamIsCapturing(handle, &state) == cuda::kSuccess;
  return known ? state : cuda::kNotCapturing;
}

// HIP's answer would break the capture of the stream (hip_driver.h). A stream of another thread by
// its common name can't be asked for its capture.
bool mayAskEvents(const CudaStream& s) {
  if (!driverIsHip() || captures.load() == 0) return true;
  return !s.thread && captureStateOfHip(s.handle) != cuda::kCapturing;
}

bool isFinished(cuda::Evt event) {
  return isOver(cudaDriver.cuEventQuery(event));
}

// Between two markers that ran without a pause the driver's own clock tells; else it is at most the
// time from the launch to this look.
std::uint64_t elapsedOf(const CudaStream& s, const Marker& marker, std::uint64_t now) {
  std::uint64_t ns = now > marker.submitNs ? now - marker.submitNs : 0;
  const bool busyBefore =
      s.last && s.lastSequence + 1 == marker.sequence && s.lastSeenNs > marker.submitNs;
  float ms = 0;
  if (busyBefore && cudaDriver.cuEventElapsedTime(&ms, s.last, marker.event) == cuda::kSuccess) {
    const auto measured = static_cast<std::uint64_t>(ms * static_cast<float>(kNsPerMs));
    if (measured < ns) ns = measured;
  }
  return ns;
}

void learnFrom(const CudaStream& s, const Marker& marker, std::uint64_t now) {
  if (marker.key == 0 || marker.sequence != s.retired + 1) return;
  const bool held = marker.gate != loadShared(session.gate->gate);
  if (held && marker.estimateNs != kUnknownEstimate) return;
  learn(marker.key, marker.kernel, elapsedOf(s, marker, now));
}

void retireUpTo(CudaStream& s, std::uint64_t sequence, std::uint64_t windowNs, std::uint64_t now) {
  if (sequence <= s.retired && windowNs == 0) return;
  const std::uint64_t launches = sequence > s.retired ? sequence - s.retired : 0;
  s.retired += launches;
  while (s.frees && s.frees->sequence <= s.retired) {
    LateFree* over = s.frees;
    s.frees = over->next;
    if (!s.frees) s.newestFree = &s.frees;
    release(over->bytes, over->generation);
    free(over);
  }
  if (!session.slot) return;
  shared(session.slot->launches).fetch_add(launches, std::memory_order_relaxed);
  retire(launches, windowNs, now);
}

void keepSpare(CudaStream& s, cuda::Evt event) {
  if (s.spares < kMarkersMax) {
    s.spare[s.spares++] = event;
  } else {
    cudaDriver.cuEventDestroy_v2(event);
  }
}

Marker& newestOf(CudaStream& s) {
  return s.ring[(s.first + s.count - 1) % kMarkersMax];
}

// An event to record in the stream; null: there is none. It must be of the stream's context, and
// what goes into a stream, a copy as a rule, may come from a thread whose context is another.
cuda::Evt takeEvent(CudaStream& s) {
  if (s.spares) return s.spare[--s.spares];
  cuda::Evt event = nullptr;
  cuda::Ctx before = nullptr;
  if (cudaDriver.cuCtxPushCurrent_v2(s.context) != cuda::kSuccess) return nullptr;
  if (cudaDriver.cuEventCreate(&event, 0) != cuda::kSuccess) event = nullptr;
  cudaDriver.cuCtxPopCurrent_v2(&before);
  return event;
}

// Has the newest marker tell of a launch as well: it is behind that launch already, or is recorded
// once more. So a stream whose ring is full still has a marker behind its last launch.
bool joinNewest(CudaStream& s, std::uint64_t sequence, std::uint64_t windowNs) {
  Marker& marker = newestOf(s);
  if (marker.sequence < sequence) {
    if (cudaDriver.cuEventRecord(marker.event, s.handle) != cuda::kSuccess) return false;
    marker.sequence = sequence;
    marker.key = 0;  // the time of several launches teaches nothing
  }
  marker.windowNs += windowNs;
  return true;
}

// Takes the oldest marker out of the ring, whose launch is finished.
std::uint64_t popMarker(CudaStream& s, std::uint64_t now) {
  const Marker marker = s.ring[s.first];
  s.first = (s.first + 1) % kMarkersMax;
  --s.count;
  learnFrom(s, marker, now);
  if (s.last) keepSpare(s, s.last);
  s.last = marker.event;
  s.lastSequence = marker.sequence;
  s.lastSeenNs = now;
  return marker.windowNs;
}

void collect(CudaStream& s) {
  if (s.count == 0 || !mayAskEvents(s)) return;
  while (s.count && isFinished(s.ring[s.first].event)) {
    const std::uint64_t now = nowNs(), sequence = s.ring[s.first].sequence;
    const std::uint64_t windowNs = popMarker(s, now);
    retireUpTo(s, sequence, windowNs, now);
  }
}

// Everything up to `sequence` is finished: the markers in between need not be asked.
void retireAll(CudaStream& s, std::uint64_t sequence) {
  const std::uint64_t now = nowNs();
  while (s.count && s.ring[s.first].sequence <= sequence) {
    const std::uint64_t upTo = s.ring[s.first].sequence;
    retireUpTo(s, upTo, popMarker(s, now), now);
  }
  retireUpTo(s, sequence, 0, now);
}

// All that was in the stream is over, and its events may not be asked any more.
void endUnasked(CudaStream& s) {
  for (std::uint32_t i = 0; i < s.count; ++i) s.ring[(s.first + i) % kMarkersMax].key = 0;
  retireAll(s, s.launched());
}

// While a capture goes on, calls that it forbids to this thread are made in the relaxed mode.
class Relaxed {
 public:
  Relaxed() {
    if (cudaDriver.cuThreadExchangeStreamCaptureMode) {
      cudaDriver.cuThreadExchangeStreamCaptureMode(&mode_);
    }
  }
  ~Relaxed() {
    if (cudaDriver.cuThreadExchangeStreamCaptureMode) {
      cudaDriver.cuThreadExchangeStreamCaptureMode(&mode_);
    }
  }
  Relaxed(const Relaxed&) = delete;
  Relaxed& operator=(const Relaxed&) = delete;

 private:
  int mode_ = cuda::kCaptureRelaxed;
};

// --- the reaper's half ---

// By what the gate admitted, which a launch raises with a fence before it looks whether the reaper
// sleeps: what the streams count comes later, and without one.
bool streamsInFlight() {
  return session.slot && loadShared(session.slot->admitted) != loadShared(session.slot->retired);
}

// Asks the stream itself, and asks for a marker behind the next launch if it is busy. With the
// registry locked, so that no capture begins meanwhile and the stream is not destroyed.
void queryTail(CudaStream& s) {
  if (s.thread || s.over || captures.load() != 0) return;
  if (driverIsHip() && isDefault(s.handle)) return;  // a question is a barrier there (hip_driver.h)
  const std::uint64_t before = s.launched();
  if (isOver(cudaDriver.cuStreamQuery(s.handle))) {
    retireAll(s, before);
  } else {
    s.attention.fetch_or(kMarkNext);
  }
}

// The end of a record: all that was in it is known to be finished.
bool recycleIfOver(CudaStream** link) {
  CudaStream* s = *link;
  if (!s->over || s->count || s->launched() != s->retired) return false;
  for (std::uint32_t i = 0; i < s->spares; ++i) cudaDriver.cuEventDestroy_v2(s->spare[i]);
  if (s->last) cudaDriver.cuEventDestroy_v2(s->last);
  s->spares = 0;
  s->last = nullptr;
  *link = s->older;
  s->older = unused;
  unused = s;
  return true;
}

// With the registry and the stream locked: its context is gone, and its events went with it.
void endWithContext(CudaStream& s) {
  if (!s.over) unlinkFromBucket(s);
  s.last = nullptr;
  s.spares = 0;
  std::uint64_t windowNs = 0;
  for (; s.count; --s.count) {
    windowNs += s.ring[s.first].windowNs;
    s.first = (s.first + 1) % kMarkersMax;
  }
  retireUpTo(s, s.launched(), windowNs, nowNs());
  if (s.capturing) captures.fetch_sub(1);
  s.capturing = s.closing = false;
  s.over = true;
  streamEpoch.fetch_add(1);
}

// Some of what is asked of streams and events needs their context. False: it is not to be had now.
// A green context may be refused to a second thread: that it is none must be true of itself.
bool enterContext(CudaStream& s) {
  const bool busy = s.count || s.launched() != s.retired;
  if (!busy && !(s.over && (s.spares || s.last))) return true;
  const cuda::Result rc = cudaDriver.cuCtxSetCurrent(s.context);
  const bool gone =
      cuda::endsContext(rc) || (rc == cuda::kInvalidContext && !contextLives(s.context));
  if (gone) endWithContext(s);
  return rc == cuda::kSuccess || gone;
}

void lookAt(CudaStream& s) {
  const bool entered = enterContext(s);
  collect(s);
  // A stream that was destroyed and left no marker is not asked: its work is called finished.
  if (s.over && s.count == 0) retireAll(s, s.launched());
  // A default stream is that of the current context, which may be another's.
  const bool meant = entered || !isDefault(s.handle);
  if (meant && s.launched() != s.retired && s.count == 0) queryTail(s);
}

void lookAtStreams(Look& look) {
  Relaxed relaxed;
  Lock lock(registry);
  for (CudaStream** link = &newest; *link;) {
    CudaStream& s = **link;
    s.lock.lock();
    if (!s.closing) lookAt(s);
    if (s.launched() != s.retired) {
      look.any = look.running = true;
      look.attended = look.awaited = false;
    }
    const bool gone = !s.closing && recycleIfOver(link);
    s.lock.unlock();
    if (!gone) link = &s.older;
  }
}

void forgetStreamsInChild() {
  registry.renewInChild();
  for (CudaStream*& bucket : buckets) bucket = nullptr;
  newest = unused = nullptr;
  captures.store(0);
  forgetMemoryInChild();
  forgetStreamCaches();
}

const FrontEnd cudaStreams = {streamsInFlight, lookAtStreams, pollStreams, forgetStreamsInChild};

}  // namespace

CudaStream* findStream(cuda::Str handle, cuda::Stream0 zero) {
  if (const StreamCache* known = recall(handle, zero)) {
    cudaThread.cache = *known;
    return known->stream;
  }
  const std::uint32_t epoch = streamEpoch.load();
  const Identity identity = identityOf(handle, zero);
  if (isDefault(identity.handle) && !identity.context) return nullptr;
  CudaStream* s = nullptr;
  {
    Lock lock(registry);
    s = lookUp(identity);
  }
  if (!s) {
    const cuda::Ctx context = contextOf(identity);
    Lock lock(registry);
    s = lookUp(identity);
    if (!s) s = addStream(identity, context);
  }
  startReaper(cudaStreams);
  if (!s) return nullptr;
  {
    Lock lock(s->lock);
    if (!s->owner) s->owner = &ownMark;
    remember({handle, zero, epoch, s->owner == &ownMark, s});
  }
  noteThread();
  return s;
}

CudaStream* knownStream(cuda::Str handle, cuda::Stream0 zero) {
  if (const StreamCache* known = recall(handle, zero)) return known->stream;
  const Identity identity = identityOf(handle, zero);
  Lock lock(registry);
  return lookUp(identity);
}

bool isCapturing(cuda::Str handle, cuda::Stream0 zero) {
  if (!cudaDriver.cuStreamIsCapturing) return false;
  if (!handle && zero == cuda::Stream0::kPerThread) handle = cuda::perThreadStream();
  if (driverIsHip()) return captureStateOfHip(handle) != cuda::kNotCapturing;
  int status = cuda::kNotCapturing;
  // An error is one of the launch as well: it does not run.
  return cudaDriver.cuStreamIsCapturing(handle, &status) != cuda::kSuccess ||
         status != cuda::kNotCapturing;
}

void leaveMarker(CudaStream& s, std::uint64_t sequence, const Pass& pass, const CudaWork& work) {
  Relaxed relaxed;
  Lock lock(s.lock);
  s.attention.fetch_and(~kMarkNext);
  if (s.count == kMarkersMax) collect(s);
  const bool own = s.count < kMarkersMax && (!s.count || newestOf(s).sequence < sequence);
  cuda::Evt event = own ? takeEvent(s) : nullptr;
  if (event && cudaDriver.cuEventRecord(event, s.handle) == cuda::kSuccess) {
    s.ring[(s.first + s.count++) % kMarkersMax] = {
        event,       sequence,        pass.windowNs, work.key,
        work.kernel, work.estimateNs, nowNs(),       loadRelaxed(session.gate->gate)};
    return;
  }
  if (event) cudaDriver.cuEventDestroy_v2(event);
  if (s.count && joinNewest(s, sequence, pass.windowNs)) return;
  // A later launch's marker tells of this one; what it takes of the window is not followed.
  if (pass.windowNs) retire(0, pass.windowNs, nowNs());
  s.attention.fetch_or(kMarkNext);
}

void leaveLastMarker(CudaStream& s) {
  Relaxed relaxed;
  Lock lock(s.lock);
  if (s.count == kMarkersMax) collect(s);
  cuda::Evt event = s.count < kMarkersMax ? takeEvent(s) : nullptr;
  if (event && cudaDriver.cuEventRecord(event, s.handle) == cuda::kSuccess) {
    s.ring[(s.first + s.count++) % kMarkersMax] = {
        event, s.launched(), 0, 0, nullptr, 0, nowNs(), loadRelaxed(session.gate->gate)};
    return;
  }
  if (event) cudaDriver.cuEventDestroy_v2(event);
  if (!s.count || cudaDriver.cuEventRecord(newestOf(s).event, s.handle) != cuda::kSuccess) {
    pager::neverIdle();
  }
}

void drained(CudaStream* stream, std::uint64_t sequence) {
  if (!stream || sequence == 0) return;
  Lock lock(stream->lock);
  retireAll(*stream, sequence);
}

struct Launched {
  Launched* next;
  CudaStream* stream;
  std::uint64_t sequence;
};

ContextDrain::ContextDrain(cuda::Ctx context) {
  if (!context && cudaDriver.cuCtxGetCurrent) cudaDriver.cuCtxGetCurrent(&context);
  Lock lock(registry);
  for (CudaStream* s = newest; s; s = s->older) {
    if (s->context != context || s->launched() == loadRelaxed(s->retired)) continue;
    auto* launched = static_cast<Launched*>(malloc(sizeof(Launched)));
    if (!launched) return;
    *launched = {all_, s, s->launched()};
    all_ = launched;
  }
}
void ContextDrain::finished() {
  for (Launched* each = all_; each; each = each->next) drained(each->stream, each->sequence);
}
ContextDrain::~ContextDrain() {
  while (Launched* each = all_) {
    all_ = each->next;
    free(each);
  }
}

void freeWhenFinished(CudaStream* stream, std::uint64_t bytes, std::uint32_t generation) {
  auto* late = stream ? static_cast<LateFree*>(malloc(sizeof(LateFree))) : nullptr;
  if (!late) return release(bytes, generation);
  Lock lock(stream->lock);
  *late = {nullptr, stream->launched(), bytes, generation};
  *stream->newestFree = late;
  stream->newestFree = &late->next;
}

namespace {

void endStream(CudaStream* stream, bool closing) {
  if (!stream) return;
  Lock lock(registry);
  unlinkFromBucket(*stream);
  Lock own(stream->lock);
  stream->over = true;
  stream->closing = closing;
  if (stream->capturing) captures.fetch_sub(1);
  stream->capturing = false;
  streamEpoch.fetch_add(1);
}

}  // namespace

void streamEnded(CudaStream* stream) {
  endStream(stream, false);
}

void streamCloses(CudaStream* stream) {
  endStream(stream, true);
}

void streamIsGone(CudaStream* stream) {
  if (!stream) return;
  Lock lock(registry);
  Lock own(stream->lock);
  endUnasked(*stream);
  stream->closing = false;
}

void streamStays(CudaStream* stream) {
  if (!stream) return;
  Lock lock(registry);
  putIntoBucket(*stream);
  Lock own(stream->lock);
  stream->over = stream->closing = false;
}

void contextCloses(cuda::Ctx context, bool closing) {
  Lock lock(registry);
  for (CudaStream* s = newest; s; s = s->older) {
    if (s->context != context) continue;
    Lock own(s->lock);
    s->closing = closing;
  }
}

bool contextLives(cuda::Ctx context) {
  cuda::U version = 0;
  return cudaDriver.cuCtxGetApiVersion &&
         cudaDriver.cuCtxGetApiVersion(context, &version) == cuda::kSuccess;
}

void contextEnded(cuda::Ctx context) {
  Lock lock(registry);
  for (CudaStream* s = newest; s; s = s->older) {
    if (s->context != context) continue;
    Lock own(s->lock);
    endWithContext(*s);
  }
}

// From here on the reaper asks no stream: it does that with the registry locked.
void captureBegins() {
  Lock lock(registry);
  captures.fetch_add(1);
}
void captureBegan(CudaStream* stream, bool began) {
  if (!began) captures.fetch_sub(1);
  // Without a record its end will not be known: the reaper stays away from streams for good.
  if (!began || !stream) return;
  Lock lock(stream->lock);
  stream->capturing = true;
}
void captureEnded(CudaStream* stream) {
  if (!stream) return;
  Lock lock(stream->lock);
  if (stream->capturing) captures.fetch_sub(1);
  stream->capturing = false;
}

void forgetStreamCaches() {
  streamEpoch.fetch_add(1);
}
void forgetOwnDefaultStreams() {
  cudaThread.cache.stream = nullptr;
  for (StreamCache& each : cudaThread.known) {
    if (!each.handle || isDefault(each.handle)) each.stream = nullptr;
  }
}

void pollStreams() {
  Relaxed relaxed;
  Lock lock(registry);
  for (CudaStream* s = newest; s; s = s->older) {
    Lock own(s->lock);
    if (!s->closing) collect(*s);
  }
}

namespace {

// With the registry and the stream locked. A default stream is that of the current context; others
// are known by their handle, also where their context can't be had.
bool isEmpty(CudaStream& s) {
  if (s.closing) return false;
  const bool entered = cudaDriver.cuCtxSetCurrent(s.context) == cuda::kSuccess;
  if (!entered && !contextLives(s.context)) return true;
  collect(s);
  if (s.thread || s.over) return s.count == 0 && s.launched() == s.retired;
  if (!entered && isDefault(s.handle)) return false;
  const std::uint64_t before = s.launched();
  if (!isOver(cudaDriver.cuStreamQuery(s.handle))) return false;
  retireAll(s, before);
  return true;
}

bool allAreEmpty() {
  Relaxed relaxed;
  Lock lock(registry);
  if (captures.load() != 0) return false;
  for (CudaStream* s = newest; s; s = s->older) {
    Lock own(s->lock);
    if (!isEmpty(*s)) return false;
  }
  return true;
}

}  // namespace

bool streamsAreIdle() {
  const bool idle = allAreEmpty();
  cudaDriver.cuCtxSetCurrent(nullptr);
  return idle;
}

}  // namespace qgpu::guest
