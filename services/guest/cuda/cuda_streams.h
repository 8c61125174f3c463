#pragma once
// Launches in flight by CUDA stream, counted and not listed: a launch is a number in its stream,
// and what is known to be finished is the highest finished number. That is learnt, in order of
// cost: from calls that wait anyway; from cuStreamQuery by the reaper, which says that all is
// finished; and from markers, events that the *launching thread* records right behind a launch when
// the reaper asks for one, when the launch window applies, and always on a per-thread default
// stream, which no other thread can name. The library never records anything in a stream from a
// thread of its own, so the order of the application's work stays what it is.
//
// Captures: while one goes on anywhere in the process the reaper asks no stream anything, a stream
// that is captured is never touched, and our own queries run in the relaxed mode, in which they
// break nobody's capture.
//
// Locks: the registry's comes before a stream's. Records are never freed, only used again.

#include "services/guest/cuda/cuda_driver.h"
#include "services/guest/gate/gate.h"
#include "services/guest/gate/reaper.h"

namespace qgpu::guest {

inline constexpr std::uint32_t kMarkersMax = 64;  // of one stream, in flight

// An event behind a launch.
struct Marker {
  cuda::Evt event;
  std::uint64_t sequence;  // of the launch that it is behind
  std::uint64_t windowNs;
  std::uint64_t key;  // for learning; 0: nothing is learnt
  const void* kernel;
  std::uint64_t estimateNs;
  std::uint64_t submitNs;
  std::uint32_t gate;  // the word at submit: a time that spans a hold teaches nothing
};

// Memory that returns when the work before it is finished.
struct LateFree {
  LateFree* next;
  std::uint64_t sequence;
  std::uint64_t bytes;
  std::uint32_t generation;
};

enum : std::uint32_t { kMarkNext = 1, kMarkAlways = 2 };

struct CudaStream {
  // Launches that the driver accepted: of the first thread to launch here, which alone stores that
  // count, and of all others. A locked add costs as much as the rest of a launch's hook.
  std::atomic<std::uint64_t> ofOwner{0};
  std::atomic<std::uint64_t> ofOthers{0};
  std::atomic<std::uint32_t> attention{0};  // whether the next launch leaves a marker
  std::uint64_t launched() const { return ofOwner.load() + ofOthers.load(); }
  // What follows is the lock's, but for what never changes while the record is used.
  Mutex lock;
  cuda::Str handle = nullptr;  // a default stream by its name
  cuda::Ctx context = nullptr;
  const void* thread = nullptr;  // whose default stream it is
  const void* owner = nullptr;   // the first thread that launched here
  bool over = false;             // destroyed: its last markers are waited for
  bool capturing = false;        // a capture began on it
  bool closing = false;          // its context may go any moment: the reaper asks nothing of it
  std::uint64_t retired = 0;
  Marker ring[kMarkersMax] = {};
  std::uint32_t first = 0, count = 0;
  cuda::Evt spare[kMarkersMax] = {};
  std::uint32_t spares = 0;
  cuda::Evt last = nullptr;  // the event of the newest finished marker
  std::uint64_t lastSequence = 0, lastSeenNs = 0;
  LateFree* frees = nullptr;  // oldest first
  LateFree** newestFree = nullptr;
  CudaStream* sibling = nullptr;  // in its bucket
  CudaStream* older = nullptr;    // in the list of all
};

// What a launch is, for the window.
struct CudaWork {
  std::uint64_t key = 0;
  const void* kernel = nullptr;
  std::uint64_t estimateNs = 0;
};

extern std::atomic<std::uint32_t> captures;  // that go on in this process
extern std::atomic<std::uint32_t> streamEpoch;

// A stream that this thread launched to.
struct StreamCache {
  cuda::Str handle = nullptr;
  cuda::Stream0 zero = cuda::Stream0::kLegacy;
  std::uint32_t epoch = 0;
  bool owned = false;  // by this thread
  CudaStream* stream = nullptr;

  bool is(cuda::Str wanted, cuda::Stream0 wantedZero) const {
    return stream && handle == wanted && zero == wantedZero &&
           epoch == streamEpoch.load(std::memory_order_relaxed);
  }
};

inline constexpr std::uint32_t kStreamsOfThread = 8;  // that a thread takes turns between cheaply

// What the library knows of a thread, in one place so that a launch asks for it once.
struct CudaThread {
  StreamCache cache;  // of the last launch
  StreamCache known[kStreamsOfThread];
  std::uint32_t oldestKnown = 0;
  std::uint32_t insideDriver = 0;          // calls of this thread that are in the driver
  cuda::Result answered = cuda::kSuccess;  // the last error that the library answered by itself
};
extern constinit thread_local CudaThread cudaThread;

// A call that the library answers by itself, for hipGetLastError().
inline cuda::Result answered(cuda::Result rc) {
  cudaThread.answered = rc;
  return rc;
}

// The task is gone. HIP has no number that says so.
[[gnu::noinline]] inline cuda::Result noDeviceAnyMore() {
  return answered(driverIsHip() ? cuda::kNoDevice : cuda::kDeviceUnavailable);
}

// Whether this thread's calls are looked at: the driver's own calls from inside a call are part of
// that one.
inline bool looksAtCalls() {
  return session.state.load(std::memory_order_relaxed) == State::kAttached &&
         cudaThread.insideDriver == 0;
}

// The record of a handle; null: memory is out, or there is no context. Makes it if it is new.
CudaStream* findStream(cuda::Str handle, cuda::Stream0 zero);
[[gnu::always_inline]] inline CudaStream* streamOf(cuda::Str handle, cuda::Stream0 zero) {
  const StreamCache& last = cudaThread.cache;
  if (last.is(handle, zero)) [[likely]]
    return last.stream;
  return findStream(handle, zero);
}
// Null where it is not known already.
CudaStream* knownStream(cuda::Str handle, cuda::Stream0 zero);

// Whether the stream takes part in a capture: what is launched then does not run.
bool isCapturing(cuda::Str handle, cuda::Stream0 zero);

void leaveMarker(CudaStream& stream, std::uint64_t sequence, const Pass& pass,
                 const CudaWork& work);
// Behind all that is in the stream now, launches or not.
void leaveLastMarker(CudaStream& stream);

// A launch that the driver accepted. The calling thread found the stream by streamOf() just before,
// and woke the reaper between admission and call: it stays awake while anything is admitted and not
// retired, so nothing here needs a fence.
[[gnu::always_inline]] inline void follow(CudaStream& stream, const Pass& pass,
                                          const CudaWork& work) {
  if (cudaThread.cache.owned) [[likely]] {
    const std::uint64_t own = stream.ofOwner.load(std::memory_order_relaxed);
    stream.ofOwner.store(own + 1, std::memory_order_release);
  } else {
    stream.ofOthers.fetch_add(1);
  }
  if (stream.attention.load(std::memory_order_relaxed) | pass.windowNs |
      captures.load(std::memory_order_relaxed)) [[unlikely]] {
    leaveMarker(stream, stream.launched(), pass, work);
  }
}

// Around a call that ends when all of the stream's earlier work is finished.
inline std::uint64_t launchedOn(const CudaStream* stream) {
  return stream ? stream->launched() : 0;
}
void drained(CudaStream* stream, std::uint64_t sequence);

// The same for all streams of a context: what was launched before, and that it is finished.
struct Launched;
class ContextDrain {
 public:
  explicit ContextDrain(cuda::Ctx context);
  ~ContextDrain();
  void finished();
  ContextDrain(const ContextDrain&) = delete;
  ContextDrain& operator=(const ContextDrain&) = delete;

 private:
  Launched* all_ = nullptr;
};

// Returns bytes to the quota when everything that was launched on the stream by now is finished.
void freeWhenFinished(CudaStream* stream, std::uint64_t bytes, std::uint32_t generation);

void streamEnded(CudaStream* stream);  // before the driver destroys it
// Before HIP destroys it, which waits for what is in it; after it did, and where it did not.
void streamCloses(CudaStream* stream);
void streamIsGone(CudaStream* stream);
void streamStays(CudaStream* stream);
// Before the driver is asked to destroy it, and where it did not: meanwhile its streams and events
// may vanish under the reaper, which leaves them alone.
void contextCloses(cuda::Ctx context, bool closing);
bool contextLives(cuda::Ctx context);   // false also where the driver has no answer
cuda::Ctx primaryOf(cuda::Dev device);  // a device's primary context while it is active
void contextEnded(cuda::Ctx context);   // after the driver destroyed it: its work is over
void captureBegins();                   // before the driver is asked
void captureBegan(CudaStream* stream, bool began);  // its answer
void captureEnded(CudaStream* stream);

// All that threads know of streams; and what this thread knows of default streams, where its
// context may be another now.
void forgetStreamCaches();
void forgetOwnDefaultStreams();

// Retires what is finished on every stream.
void pollStreams();

// Whether the driver says, without waiting, that nothing is in any stream known here. False also
// while a capture goes on. The calling thread has no context afterwards.
bool streamsAreIdle();

}  // namespace qgpu::guest
