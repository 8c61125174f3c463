#include "tests/cuda_stand_in/engine.h"

#include <algorithm>
#include <map>
#include <time.h>

#include "tests/cuda_stand_in/table.h"

namespace qgpu::stand_in {

using cuda::Result;

Machine& machine() {
  // Never destroyed: its threads run until the process is gone.
  static Machine& only = *new Machine;
  return only;
}

std::uint64_t nowNs() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000u +
         static_cast<std::uint64_t>(t.tv_nsec);
}

namespace {

struct ThreadState {
  std::vector<Context*> contexts;
  std::map<Context*, Stream*> streams;  // the thread's own default streams
  int captureMode = cuda::kCaptureGlobal;
};
ThreadState& thread() {
  thread_local ThreadState state;
  return state;
}

bool ready(const Queued& next) {
  return std::all_of(next.after.begin(), next.after.end(), isDone) && (!next.until || next.until());
}

void sleepFor(std::uint64_t ns) {
  timespec t{static_cast<time_t>(ns / 1'000'000'000u), static_cast<long>(ns % 1'000'000'000u)};
  clock_nanosleep(CLOCK_MONOTONIC, 0, &t, nullptr);
}

// Time in which the context's channel is off the hardware does not count.
void passTime(std::uint64_t ns, const Channel& channel) {
  constexpr std::uint64_t kLookNs = 100'000;
  if (channel.client == 0) {
    if (ns) sleepFor(ns);
    return;
  }
  for (std::uint64_t left = ns;;) {
    if (!mayRun(channel)) {
      sleepFor(kLookNs);
      continue;
    }
    if (left == 0) return;
    const std::uint64_t part = left < kLookNs ? left : kLookNs;
    sleepFor(part);
    left -= part;
  }
}

void runStream(Stream& stream) {
  Machine& m = machine();
  Locked held(m.lock);
  for (;;) {
    // A value in memory that a stream waits for changes without a word to us: looked at by time.
    if (!stream.queue.empty() && stream.queue.front().until && !ready(stream.queue.front())) {
      m.changed.wait_for(held, std::chrono::microseconds(200));
      continue;
    }
    if (stream.queue.empty() || !ready(stream.queue.front())) {
      m.changed.wait(held);
      continue;
    }
    Work work = std::move(stream.queue.front().work);
    held.unlock();
    const Channel& channel = stream.context->channel;
    passTime(0, channel);
    if (work.begin) work.begin();
    if (work.ns) passTime(work.ns, channel);
    if (work.act) work.act();
    held.lock();
    stream.queue.pop_front();
    ++stream.done;
    --m.pending;
    m.changed.notify_all();
  }
}

}  // namespace

std::vector<Context*>& contextStack() {
  return thread().contexts;
}
int& threadCaptureMode() {
  return thread().captureMode;
}

Context* currentContext() {
  return contextStack().empty() ? nullptr : contextStack().back();
}
void setCurrentContext(Context* context) {
  if (!contextStack().empty()) contextStack().pop_back();
  if (context) contextStack().push_back(context);
}

Stream* makeStream(Context& context, bool blocking) {
  Machine& m = machine();
  Stream& stream = m.streams.emplace_back();
  stream.context = &context;
  stream.blocking = blocking;
  context.streams.push_back(&stream);
  return &stream;
}

namespace {

Context& addContext(int device, const Channel& channel) {
  Context& context = machine().contexts.emplace_back();
  context.device = device;
  context.channel = channel;
  context.legacyStream = makeStream(context, false);
  context.legacyStream->legacy = true;
  return context;
}

}  // namespace

Context* makeContext(int device) {
  Channel channel;
  const std::uint32_t rm = rmMakeContext(channel);
  if (rmAnswers() && rm == 0) return nullptr;
  Context& context = addContext(device, channel);
  context.rm = rm;
  return &context;
}

Context* makeGreenContext(Context& primary) {
  Context& context = addContext(primary.device, primary.channel);
  context.beneath = &primary;
  return &context;
}

const Context* memoryOf(const Context& context) {
  return context.beneath ? context.beneath : &context;
}

void endContext(Context& context) {
  context.dead = true;
  rmFree(context.rm);
  for (Stream* stream : context.streams) stream->dead = true;
}

void endGreenContext(Context& context) {
  context.dead = true;
  for (Stream* stream : context.streams) stream->detached = true;
}

Stream* madeStream(cuda::Str handle) {
  for (Stream& stream : machine().streams) {
    if (reinterpret_cast<cuda::Str>(&stream) == handle) return stream.dead ? nullptr : &stream;
  }
  return nullptr;
}

Stream* perThreadStream(Context& context) {
  Stream*& stream = thread().streams[&context];
  if (!stream || stream->dead) stream = makeStream(context, true);
  return stream;
}

Stream* find(cuda::Str handle, cuda::Stream0 zero, Result& result) {
  Machine& m = machine();
  if (handle == nullptr) {
    handle = zero == cuda::Stream0::kLegacy ? cuda::legacyStream() : cuda::perThreadStream();
  }
  if (handle == cuda::legacyStream() || handle == cuda::perThreadStream()) {
    Context* context = currentContext();
    if (!context) return result = cuda::kInvalidContext, nullptr;
    if (context->dead) return ++m.misuses, result = cuda::kContextIsDestroyed, nullptr;
    return handle == cuda::legacyStream() ? context->legacyStream : perThreadStream(*context);
  }
  Stream* stream = madeStream(handle);
  if (stream && !stream->detached) return stream;
  ++m.misuses;
  result = stream ? cuda::kStreamDetached : cuda::kInvalidHandle;
  return nullptr;
}

Event* find(cuda::Evt handle, Result& result) {
  Machine& m = machine();
  for (Event& event : m.events) {
    if (reinterpret_cast<cuda::Evt>(&event) == handle && !event.dead) return &event;
  }
  ++m.misuses;
  result = cuda::kInvalidHandle;
  return nullptr;
}

bool isDone(const After& after) {
  return after.stream->done >= after.sequence;
}

void waitFor(Locked& held, const std::vector<After>& all) {
  machine().changed.wait(held, [&] { return std::all_of(all.begin(), all.end(), isDone); });
}

std::vector<After> tails(Context& context) {
  std::vector<After> all;
  for (Stream* stream : context.streams) {
    if (stream->put > stream->done) all.push_back({stream, stream->put});
  }
  return all;
}

namespace {

// The legacy stream waits for all blocking streams of its context, and they for it.
std::vector<After> implicitOrder(const Stream& stream) {
  std::vector<After> after;
  if (stream.legacy) {
    for (Stream* other : stream.context->streams) {
      if (other->blocking && other->put > other->done) after.push_back({other, other->put});
    }
  } else if (stream.blocking) {
    Stream* legacy = stream.context->legacyStream;
    if (legacy->put > legacy->done) after.push_back({legacy, legacy->put});
  }
  return after;
}

}  // namespace

Result put(Stream& stream, Work work, std::function<bool()> until) {
  Machine& m = machine();
  if (Result rc = forbidden(stream)) return rc;
  if (stream.capture) {
    stream.capture->body->steps.push_back(std::move(work));
    return cuda::kSuccess;
  }
  Queued next{std::move(work), implicitOrder(stream), std::move(until)};
  ++stream.put;
  if (stream.queue.empty() && next.work.ns == 0 && !next.until && next.after.empty()) {
    if (next.work.act) next.work.act();
    ++stream.done;
    return cuda::kSuccess;
  }
  ++m.pending;
  stream.queue.push_back(std::move(next));
  if (!stream.threadRuns) {
    stream.threadRuns = true;
    std::thread(runStream, std::ref(stream)).detach();
  }
  m.changed.notify_all();
  return cuda::kSuccess;
}

void breakCapture(Capture& capture) {
  if (!capture.broken) ++machine().brokenCaptures;
  capture.broken = true;
}

// What might order itself with the legacy stream: forbidden to threads by their mode.
Result unsafeCall() {
  Machine& m = machine();
  const int mode = threadCaptureMode();
  if (mode == cuda::kCaptureRelaxed) return cuda::kSuccess;
  Result rc = cuda::kSuccess;
  for (auto& capture : m.captures) {
    const bool own = capture->thread == std::this_thread::get_id();
    const bool ownForbids = own && capture->mode != cuda::kCaptureRelaxed;
    const bool otherForbids =
        !own && mode == cuda::kCaptureGlobal && capture->mode == cuda::kCaptureGlobal;
    if (!ownForbids && !otherForbids) continue;
    breakCapture(*capture);
    rc = cuda::kCaptureUnsupported;
  }
  return rc;
}

// The legacy stream would order itself with a blocking stream that is captured.
Result forbidden(Stream& stream) {
  if (stream.capture && stream.capture->broken) return cuda::kCaptureInvalidated;
  if (!stream.legacy || machine().legacyRunsInCaptures) return cuda::kSuccess;
  for (Stream* other : stream.context->streams) {
    if (!other->blocking || !other->capture) continue;
    breakCapture(*other->capture);
    return cuda::kCaptureImplicit;
  }
  return cuda::kSuccess;
}

}  // namespace qgpu::stand_in
