#pragma once
// Memory of cards against the quota, at the level of the interface: what a program asks for, by
// address or handle, reserved before the driver allocates and returned when it is free: with a
// stream-ordered free when the stream has come to it, with mapped memory when the last map is gone.
// Not counted here: contexts, modules and what a graph allocates; that is below this interface.
// Where the kernel driver's calls are understood (rm_ioctl.h) they count all of it, and of this
// only managed memory, and what is taken from pools of it.

#include <cstdlib>

#include "services/guest/cuda/cuda_streams.h"
#include "services/guest/gate/quota.h"
#include "services/nvidia_abi/cuda_abi.h"

namespace qgpu::guest {

// The context was destroyed, and its allocations with it.
void releaseMemoryOf(cuda::Ctx context);

// After a fork. What the parent holds is not the child's to free: the generation tells.
void forgetMemoryInChild();

// What wrappers of allocations and frees share.
namespace charges {

enum class Kind : std::uint32_t { kAddress, kPhysical, kArray, kManagedPool };

// One allocation, or a pool of managed memory with no bytes of its own. Physical memory of the
// virtual memory interface has references and maps, and is free when both are gone; anything else
// has one reference.
struct Charge {
  Charge* next;
  Kind kind;
  std::uint32_t generation;
  std::uint64_t name;  // address or handle
  std::uint64_t bytes;
  cuda::Ctx context;  // whose end frees it; null: it outlives contexts
  std::uint32_t references, maps;
};

// Of the table of all charges; every function here takes it but those that say otherwise.
extern Mutex mutex;

// With the mutex held: the link to the allocation, or to the null at the end of its bucket.
Charge** find(Kind kind, std::uint64_t name);
// With the mutex held.
Charge* unlink(Charge** link);
void put(Charge* charge);

cuda::Ctx currentContext();

// The quota may be full of what only waits to be seen finished.
bool reserveOrCollect(std::uint64_t bytes);

// What an allocation costs at its call: nothing where the kernel driver is asked for it and counts.
std::uint64_t costOf(std::uint64_t bytes);

// The driver chooses the pitch: known only afterwards, so rows are charged at the widest that it
// may take, for as long as they live.
inline std::uint64_t widestRow(std::uint64_t bytes) {
  constexpr std::uint64_t kWidestPitch = 512;
  return (bytes + kWidestPitch - 1) / kWidestPitch * kWidestPitch;
}

// Of an array, whose sizes are 0 where it has no such dimension.
inline std::uint64_t texels(std::uint64_t width, std::uint64_t height, std::uint64_t depth) {
  return width * (height ? height : 1) * (depth ? depth : 1);
}

// All levels below the first are together at most as large as the first.
inline std::uint64_t withLevels(std::uint64_t bytes, cuda::U levels) {
  return bytes * (levels > 1 ? 2 : 1);
}

// What is asked of the driver, and what of it counts at the call.
struct Wanted {
  std::uint64_t bytes, cost;
};
// As costOf() says.
Wanted wanted(std::uint64_t bytes);

// Memory that the card has none of, though the quota has: where others of the card may leave it,
// the manager is told, and the driver is asked again for as long as the gate page says.
class Need {
 public:
  explicit Need(Wanted wanted) : wanted_(wanted) {}
  ~Need();
  Need(const Need&) = delete;
  Need& operator=(const Need&) = delete;
  // Waits a moment, without its part of the quota. False: it is refused.
  bool mayHave();
  bool lost() const { return lost_; }  // others of the task took that part meanwhile

 private:
  const Wanted wanted_;
  std::uint64_t end_ = 0;  // 0: nothing was told
  bool lost_ = false;
};

// Allocates under the quota; `allocate(name)` is the driver's call.
template <typename Allocate>
cuda::Result charged(Kind kind, Wanted wanted, cuda::Ctx context, Allocate allocate) {
  const std::uint64_t bytes = wanted.cost;
  std::uint64_t name = 0;
  auto* charge = static_cast<Charge*>(malloc(sizeof(Charge)));
  if (!charge || !reserveOrCollect(bytes)) {
    free(charge);
    return answered(cuda::kOutOfMemory);
  }
  const std::uint32_t generation = session.generation.load();
  cudaThread.answered = cuda::kSuccess;
  ++cudaThread.insideDriver;
  cuda::Result rc = allocate(name);
  if (rc == cuda::kOutOfMemory) [[unlikely]] {
    Need need(wanted);
    while (rc == cuda::kOutOfMemory && need.mayHave()) rc = allocate(name);
    if (need.lost()) {
      --cudaThread.insideDriver;
      free(charge);
      return answered(rc);
    }
  }
  --cudaThread.insideDriver;
  if (rc != cuda::kSuccess) {
    release(bytes, generation);
    free(charge);
    return rc;
  }
  *charge = {nullptr, kind, generation, name, bytes, context, 1, 0};
  Lock lock(mutex);
  put(charge);
  return rc;
}

// What is about to be freed leaves the table before the driver is asked, which may give its name to
// another thread at once; null where it is not ours. It comes back if the driver refuses.
Charge* take(Kind kind, std::uint64_t name);
cuda::Result freed(Charge* charge, cuda::Result rc);

template <typename Handle, typename Create>
cuda::Result createArrayOf(std::uint64_t bytes, Handle* out, Create create) {
  return charged(Kind::kArray, wanted(bytes), currentContext(), [&](std::uint64_t& name) {
    const cuda::Result rc = create();
    name = reinterpret_cast<std::uintptr_t>(*out);
    return rc;
  });
}

template <auto& driver, auto member, typename Handle>
cuda::Result destroyArray(Handle handle) {
  if (!looksAtCalls()) return (driver.*member)(handle);
  Charge* charge = take(Kind::kArray, reinterpret_cast<std::uintptr_t>(handle));
  return freed(charge, (driver.*member)(handle));
}

}  // namespace charges
}  // namespace qgpu::guest
