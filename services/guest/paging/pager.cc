#include "services/guest/paging/pager.h"

#include <cstdlib>
#include <new>

#include "services/guest/gate/attach.h"
#include "services/guest/gate/quota.h"

namespace qgpu::guest::pager {

using Kind = PagedMemory::Step::Kind;
using Step = PagedMemory::Step;

std::atomic<bool> active{false};

namespace {

constexpr std::uint64_t kQuietNs = 100 * kNsPerMs;   // between looks at a page that does not change
constexpr std::uint64_t kInsideNs = 500 * kNsPerUs;  // ... while calls or work keep it from leaving
constexpr std::uint64_t kWaitNs = 100 * kNsPerMs;    // a wake that got lost costs this much
constexpr std::uint64_t kExitNs = 200 * kNsPerMs;    // a step that takes longer is left
constexpr std::uint64_t kRoomNs = 5 * kNsPerMs;      // others of the task may have freed some

alignas(PagedMemory) unsigned char place[sizeof(PagedMemory)];
PagedMemory* memory = nullptr;
const Mover* mover = nullptr;
Mutex lock;                // of the memory and what is told
Mutex steps;               // while a step is done
std::uint32_t cameIn = 0;  // futex: counts the times that all was in
std::uint32_t generation = 0;
std::uint64_t told = 0;
bool unproven = false;
std::atomic<bool> stopping{false}, stepping{false};

// With the lock held. What is off the card comes before what is said of it.
void tell() {
  qgpu_slot& slot = *session.slot;
  shared(slot.pageable_out).store(memory->bytesOut());
  const auto answer = static_cast<std::uint64_t>(memory->answer());
  const std::uint64_t now = std::uint64_t{memory->word().epoch} << 32 | answer;
  if (now == told) return;
  told = now;
  shared(slot.paging_answer).store(now);
  ringDoorbell();
}

// With the lock held.
void wakeWhoWaits(bool wasIn) {
  if (wasIn || !memory->isIn()) return;
  shared(cameIn).fetch_add(1);
  futexWake(&cameIn, INT32_MAX);
}

// The next step, by what the page says now.
Step nextStep() {
  Lock held(lock);
  const bool wasIn = memory->isIn();
  memory->follow(paging::unpack(loadShared(session.gate->paging)));
  if (session.orphan.load()) memory->orphaned();
  const Step step = memory->next();
  tell();
  wakeWhoWaits(wasIn);
  return step;
}

bool perform(const Step& step) {
  switch (step.kind) {
    case Kind::AskIdle:
      return !unproven && mover->isIdle();
    case Kind::CopyOut:
      return mover->copyOut(step.chunk);
    case Kind::Release:
      return mover->release(step.chunk);
    case Kind::Make:
      return mover->make(step.chunk);
    case Kind::CopyIn:
      return mover->copyIn(step.chunk);
    case Kind::DropCopy:
      mover->dropCopy(step.chunk);
      return true;
    case Kind::Gone:
      mover->gone(step.chunk);
      return true;
    default:
      return true;
  }
}

struct Made {
  bool any;  // a step was made
  bool well;
};

// Makes one step, with `steps` held.
Made makeStep() {
  const Step step = nextStep();
  if (step.kind == Kind::None) return {false, true};
  const bool well = perform(step);
  Lock held(lock);
  memory->done(step, well);
  tell();
  return {true, well || step.kind != Kind::AskIdle};
}

bool isSettled() {
  Lock held(lock);
  return memory->isIn() || memory->answer() != paging::Answer::None;
}

// Until the page says another word, or calls and work that keep memory here may be over.
void waitForWord() {
  const auto* epoch = reinterpret_cast<const std::uint32_t*>(&session.gate->paging) + 1;
  const std::uint32_t seen = memory->word().epoch;
  if (loadShared(*epoch) != seen) return;
  if (!isSettled()) {
    sleepNs(kInsideNs);
  } else {
    futexWait(epoch, seen, kQuietNs);
  }
}

void* pagerThread(void*) {
  for (;;) {
    Made made{};
    {
      Lock held(steps);
      stepping.store(true);
      if (!stopping.load()) made = makeStep();
      stepping.store(false);
    }
    if (stopping.load()) return nullptr;
    mover->tend();
    if (!made.well) sleepNs(kInsideNs);
    if (!made.any) waitForWord();
  }
}

// The driver is about to be torn down: no step may run into that.
void stopAtExit() {
  stopping.store(true);
  if (session.generation.load() != generation) return;  // a child has no such thread
  const std::uint64_t end = nowNs() + kExitNs;
  while (stepping.load() && nowNs() < end) sleepNs(kNsPerMs);
}

void forgetInChild() {
  lock.renewInChild();
  steps.renewInChild();
  active.store(false);
  if (mover) mover->forgetInChild();
  memory = nullptr;  // what the parent has of the card is not the child's
  mover = nullptr;
  told = 0;
  unproven = false;
  stopping.store(false);
  stepping.store(false);
}

// Nobody brings anything back: the task is gone, or the program ends.
bool isOver() {
  return loadRelaxed(session.gate->closed) || stopping.load();
}

}  // namespace

bool begin(const Mover& by) {
  static bool registered = false;
  Lock held(lock);
  if (memory) return true;
  memory = ::new (place) PagedMemory;
  mover = &by;
  generation = session.generation.load();
  memory->follow(paging::unpack(loadShared(session.gate->paging)));
  if (!registered) {
    registered = true;
    onForkInChild(forgetInChild);
    atexit(stopAtExit);
  }
  if (!startThread(pagerThread)) {
    say("cannot start a thread: no memory of this program leaves the card");
    memory = nullptr;
    return false;
  }
  // Of a word that is no other than the first: a process has an answer from its beginning.
  constexpr auto in = static_cast<std::uint64_t>(paging::Answer::In);
  if (memory->isIn()) shared(session.slot->paging_answer).store(in);
  ringDoorbell();
  return true;
}

bool enter() {
  Lock held(lock);
  return memory->enter();
}

void leave() {
  Lock held(lock);
  memory->leave();
}

bool waitUntilIn() {
  for (;;) {
    const std::uint32_t before = loadShared(cameIn);
    {
      Lock held(lock);
      if (memory->isIn()) return true;
    }
    if (isOver()) return false;
    futexWait(&cameIn, before, kWaitNs);
  }
}

bool enterOrWait() {
  while (!enter()) {
    if (!waitUntilIn()) return false;
  }
  return true;
}

Still::Still() : held_(active.load()) {
  if (held_) steps.lock();
}
Still::~Still() {
  if (held_) steps.unlock();
}

Chunk add(std::uint64_t bytes) {
  Lock held(lock);
  const Chunk chunk = memory->add(bytes, false);
  if (chunk != PagedMemory::kNone) active.store(true);
  return chunk;
}

void freed(const Chunk* chunks, std::uint32_t count) {
  {
    Lock held(lock);
    for (std::uint32_t i = 0; i < count; ++i) memory->freed(chunks[i]);
  }
  // Steps of what was freed come first, so nothing else is done here but what is under way.
  Lock moving(steps);
  for (;;) {
    Step step;
    {
      Lock held(lock);
      step = memory->nextOfFreed();
    }
    if (step.kind == Kind::None) break;
    const bool well = perform(step);
    Lock held(lock);
    memory->done(step, well);
    tell();
  }
  ringDoorbell();  // others may have the room
}

void neverIdle() {
  Lock held(lock);
  if (!unproven) say("work of this program can't be followed: none of its memory leaves the card");
  unproven = true;
}

bool waitForRoom(std::uint64_t bytes) {
  auto more = shared(session.slot->pageable_more);
  more.fetch_add(bytes);
  ringDoorbell();
  bool mayCome = true;
  while (roomForPageable(bytes) == Room::kLater && mayCome) {
    sleepNs(kRoomNs);
    mayCome = !isOver() && !session.orphan.load();
  }
  more.fetch_sub(bytes);
  ringDoorbell();
  return mayCome;
}

}  // namespace qgpu::guest::pager
