#pragma once
// Streams, events and captures of the stand-in driver: what is put into a stream runs in order on
// the stream's thread, after what it waits for. One lock guards everything; nothing is ever freed,
// so that a dead handle can be told from a live one.

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/cuda_stand_in/nvidia_cuda.h"

namespace qgpu::stand_in {

namespace cuda = nvidia::cuda;

struct Context;
struct Stream;

// One operation: how long it keeps the stream busy, and what it does at its end and before.
struct Work {
  std::uint64_t ns = 0;
  std::function<void()> act;
  std::function<void()> begin = nullptr;
};

struct GraphBody {
  std::vector<Work> steps;
};

// A capture that is going on; several streams may have joined it.
struct Capture {
  std::shared_ptr<GraphBody> body = std::make_shared<GraphBody>();
  Stream* origin = nullptr;
  int mode = 0;
  std::thread::id thread;
  bool broken = false;
};

struct After {
  Stream* stream;
  std::uint64_t sequence;
};

struct Queued {
  Work work;
  std::vector<After> after;
  std::function<bool()> until;  // null: at once
};

struct Stream {
  Context* context = nullptr;
  bool blocking = true;  // in implicit order with the legacy stream
  bool legacy = false;
  bool dead = false;
  bool detached = false;  // its green context is gone: it can only be destroyed
  std::uint64_t put = 0, done = 0;
  std::deque<Queued> queue;
  std::shared_ptr<Capture> capture;
  bool threadRuns = false;
};

struct Event {
  Context* context = nullptr;
  bool dead = false;
  Stream* stream = nullptr;  // null: never recorded, which counts as finished
  std::uint64_t sequence = 0;
  std::shared_ptr<std::uint64_t> endNs = std::make_shared<std::uint64_t>(0);
  std::shared_ptr<Capture> capture;
};

// The name of a context's work in the kernel's stand-in that takes work off the card
// (tests/rm_stand_in); nothing where no such one answers.
struct Channel {
  std::uint32_t client = 0, channel = 0;
};
bool mayRun(const Channel& channel);

struct Context {
  int device = 0;
  Channel channel;
  bool dead = false;
  bool primary = false;
  Context* beneath = nullptr;  // a green context's primary one, whose memory and events it has
  std::uint32_t retained = 0;  // of a primary context; of another one, attached to
  std::uint32_t rm = 0;        // what frees its objects in the kernel
  Stream* legacyStream = nullptr;
  std::vector<Stream*> streams;
};

// The driver's one state. Everything here is used with `lock` held.
struct Machine {
  std::mutex lock;
  std::condition_variable changed;
  std::deque<Stream> streams;
  std::deque<Event> events;
  std::deque<Context> contexts;
  std::vector<std::shared_ptr<Capture>> captures;
  std::uint64_t misuses = 0, brokenCaptures = 0, pending = 0;
  bool legacyRunsInCaptures = false;  // as AMD's does, beside streams that are captured
};
Machine& machine();

using Locked = std::unique_lock<std::mutex>;

std::uint64_t nowNs();

Context* currentContext();
void setCurrentContext(Context* context);
std::vector<Context*>& contextStack();
int& threadCaptureMode();

Context* makeContext(int device);  // null: the kernel has no memory for it
Context* makeGreenContext(Context& primary);
const Context* memoryOf(const Context& context);  // itself, or what a green one lies upon
void endContext(Context& context);
void endGreenContext(Context& context);  // its streams stay, and its work runs on
Stream* makeStream(Context& context, bool blocking);
Stream* perThreadStream(Context& context);

// A stream that was made and not destroyed, or null.
Stream* madeStream(cuda::Str handle);
// The stream that a handle means; null with `result` set where there is none. Counts misuse.
Stream* find(cuda::Str handle, cuda::Stream0 zero, cuda::Result& result);
Event* find(cuda::Evt handle, cuda::Result& result);

// Puts an operation into the stream, or into the graph that it captures.
cuda::Result put(Stream& stream, Work work, std::function<bool()> until = nullptr);
bool isDone(const After& after);
void waitFor(Locked& held, const std::vector<After>& all);
std::vector<After> tails(Context& context);

// Refuses what a capture forbids, and breaks the capture, as the real driver does.
cuda::Result unsafeCall();
cuda::Result forbidden(Stream& stream);
void breakCapture(Capture& capture);

}  // namespace qgpu::stand_in
