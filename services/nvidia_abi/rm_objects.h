#pragma once
// The objects that a process has in NVIDIA's kernel driver, as a forest: a client and what was made
// beneath it. It exists because the driver frees by tree: the end of a parent, of a client or of a
// file ends all that is beneath, and the memory of the card with it. Memory that several objects
// name (duplicates) is free when the last of them is.
//
// It keeps: an object is beneath exactly one other or is a client; each object is found by (client,
// handle) or taken out with its whole tree; memory's references are the objects that name it,
// whether they are found or taken out. A name that is made twice was freed unseen in between, so
// the older object ends first. Not guarded: the caller has the lock. Memory is malloc's; what could
// not be had is answered, never fatal.

#include <cstddef>
#include <cstdint>

#include "services/nvidia_abi/rm_abi.h"

namespace qgpu::rm {

// Memory of the card with its charge, or the loan that stands for it (lending.h).
struct Memory {
  std::uint64_t bytes;
  std::uint32_t generation;  // of the process that was charged
  std::uint32_t references;
  std::uint32_t loan;
};

struct Object {
  Handle client, handle, parentHandle;
  std::uint32_t objectClass;
  std::uint32_t detail;                     // a device's number; the engine of a channel or group
  std::uint32_t file;                       // of a client: the open file that it belongs to
  Memory* memory;                           // null: none
  Object *parent, *child, *before, *after;  // child: the first; before, after: siblings
  Object* inBucket;
};

class Objects {
 public:
  // What ends, child before parent; `freed` is its memory where that was its last name, else null.
  using OnEnd = void (*)(const Object& object, const Memory* freed, void* context);

  struct Made {
    Handle client = 0, parent = 0, handle = 0;
    std::uint32_t objectClass = 0, detail = 0, file = 0;
    std::uint64_t bytes = 0;  // of the card's memory; 0: none
    std::uint32_t generation = 0;
    std::uint32_t loan = 0;  // 0: none; with one, `bytes` is 0
  };

  // Null: no memory on the host. An unknown client is made up, with the file; beneath an unknown
  // parent means beneath the client. `onEnd` hears of what ended unseen.
  Object* add(const Made& made, OnEnd onEnd, void* context);

  // A second name for what (sourceClient, sourceHandle) is; what is not known here has no memory
  // here.
  Object* duplicate(const Made& made, Handle sourceClient, Handle sourceHandle, OnEnd onEnd,
                    void* context);

  Object* find(Handle client, Handle handle) const;

  // Takes an object out with all beneath it, so that its names are free for others; null: unknown.
  Object* takeOut(Handle client, Handle handle);
  // The next client of a file, in the same way.
  Object* takeClientOf(std::uint32_t file);
  // Puts back what was taken out: the driver refused to free it.
  void putBack(Object* top, OnEnd onEnd, void* context);
  // Ends what was taken out.
  static void end(Object* top, OnEnd onEnd, void* context);

  // An object and all beneath it, taken out or not.
  static void eachBeneath(const Object& top, void (*visit)(const Object&, void*), void* context);

  // Each object that is found, in no order. The visitor changes nothing.
  void each(void (*visit)(const Object&, void*), void* context) const;

  // The number of the card that an object belongs to; ~0: not known.
  static std::uint32_t deviceOf(const Object& object);

  // Forgets everything without freeing it: the child of a fork.
  void forget();

 private:
  static constexpr std::size_t kBuckets = 16'384;

  Object** link(Handle client, Handle handle);
  Object* place(const Made& made, OnEnd onEnd, void* context);
  void put(Object* object);
  void hang(Object* object);
  static void unhang(Object* object);
  Object* detach(Object* object);

  Object* buckets_[kBuckets] = {};
};

}  // namespace qgpu::rm
