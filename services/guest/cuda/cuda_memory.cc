#include "services/guest/cuda/cuda_memory.h"

#include <cstdlib>

#include "services/guest/cuda/cuda_streams.h"
#include "services/guest/gate/quota.h"
#include "services/guest/rm/rm_ioctl.h"

namespace qgpu::guest {
namespace {

using namespace cuda;  // the names of the interface

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
  Ctx context;  // whose end frees it; null: it outlives contexts
  std::uint32_t references, maps;
};

struct Map {
  Map* next;
  Ptr address;
  Mem memory;
  Charge* dropped;  // while it is unmapped: the memory that ends with it
};

constexpr std::size_t kBuckets = 1024;
Mutex mutex;
Charge* charges[kBuckets] = {};
Map* maps = nullptr;

std::size_t bucketOf(Kind kind, std::uint64_t name) {
  return ((name >> 8 ^ name >> 20 ^ name) + static_cast<std::uint64_t>(kind)) % kBuckets;
}

// With the mutex held: the link to the allocation, or to the null at the end of its bucket.
Charge** find(Kind kind, std::uint64_t name) {
  Charge** link = &charges[bucketOf(kind, name)];
  while (*link && !((*link)->kind == kind && (*link)->name == name)) link = &(*link)->next;
  return link;
}

Charge* unlink(Charge** link) {
  Charge* found = *link;
  if (found) *link = found->next;
  return found;
}
void put(Charge* charge) {
  Charge*& bucket = charges[bucketOf(charge->kind, charge->name)];
  charge->next = bucket;
  bucket = charge;
}

Ctx currentContext() {
  Ctx context = nullptr;
  if (cudaDriver.cuCtxGetCurrent) cudaDriver.cuCtxGetCurrent(&context);
  return context;
}

// The quota may be full of what only waits to be seen finished.
bool reserveOrCollect(std::uint64_t bytes) {
  if (bytes == 0 || reserve(bytes)) return true;
  pollStreams();
  return reserveOrFail(bytes);
}

// What an allocation costs at its call: nothing where the kernel driver is asked for it and counts.
std::uint64_t costOf(std::uint64_t bytes) {
  return countedByDriver() ? 0 : bytes;
}

// Allocates `bytes` under the quota; `allocate(name)` is the driver's call.
template <typename Allocate>
Result charged(Kind kind, std::uint64_t bytes, Ctx context, Allocate allocate) {
  std::uint64_t name = 0;
  auto* charge = static_cast<Charge*>(malloc(sizeof(Charge)));
  if (!charge || !reserveOrCollect(bytes)) {
    free(charge);
    return kOutOfMemory;
  }
  const std::uint32_t generation = session.generation.load();
  ++cudaThread.insideDriver;
  const Result rc = allocate(name);
  --cudaThread.insideDriver;
  if (rc != kSuccess) {
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
Charge* take(Kind kind, std::uint64_t name) {
  Lock lock(mutex);
  return unlink(find(kind, name));
}

Result freed(Charge* charge, Result rc) {
  if (!charge) return rc;
  if (rc != kSuccess) {
    Lock lock(mutex);
    put(charge);
    return rc;
  }
  release(charge->bytes, charge->generation);
  free(charge);
  return rc;
}

// --- addresses ---

Result allocate(Ptr* out, Size bytes) {
  if (!looksAtCalls() || !out) return cudaDriver.cuMemAlloc_v2(out, bytes);
  return charged(Kind::kAddress, costOf(bytes), currentContext(), [&](std::uint64_t& name) {
    const Result rc = cudaDriver.cuMemAlloc_v2(out, bytes);
    name = *out;
    return rc;
  });
}

// Its pages come from another driver, as they are used: no call there says a size.
Result allocateManaged(Ptr* out, Size bytes, U flags) {
  if (!looksAtCalls() || !out) return cudaDriver.cuMemAllocManaged(out, bytes, flags);
  return charged(Kind::kAddress, bytes, currentContext(), [&](std::uint64_t& name) {
    const Result rc = cudaDriver.cuMemAllocManaged(out, bytes, flags);
    name = *out;
    return rc;
  });
}

// The driver chooses the pitch: known only afterwards, so the rows are charged at the widest that
// it may take, for as long as they live.
constexpr Size kWidestPitch = 512;

Result allocatePitch(Ptr* out, Size* pitch, Size width, Size height, U element) {
  if (!looksAtCalls() || !out || !pitch) {
    return cudaDriver.cuMemAllocPitch_v2(out, pitch, width, height, element);
  }
  const Size row = (width + kWidestPitch - 1) / kWidestPitch * kWidestPitch;
  return charged(Kind::kAddress, costOf(row * height), currentContext(), [&](std::uint64_t& name) {
    const Result rc = cudaDriver.cuMemAllocPitch_v2(out, pitch, width, height, element);
    name = *out;
    return rc;
  });
}

Result freeAddress(Ptr address) {
  if (!looksAtCalls()) return cudaDriver.cuMemFree_v2(address);
  Charge* charge = take(Kind::kAddress, address);
  return freed(charge, cudaDriver.cuMemFree_v2(address));
}

// --- pools ---

// What is taken from a pool of managed memory is managed: it counts at its call, as that does. (A
// pool that cuMemAllocAsync takes from without naming it is never one: each type has its own.)
bool isManaged(Pool pool) {
  Lock lock(mutex);
  return *find(Kind::kManagedPool, reinterpret_cast<std::uintptr_t>(pool)) != nullptr;
}

Result madePool(Pool pool, int type, Result rc) {
  if (rc != kSuccess || type != kManaged || !looksAtCalls()) return rc;
  const auto name = reinterpret_cast<std::uintptr_t>(pool);
  Lock lock(mutex);  // another thread may find the same pool at once
  if (*find(Kind::kManagedPool, name)) return rc;
  auto* known = static_cast<Charge*>(malloc(sizeof(Charge)));
  if (!known) return rc;  // what is taken from it counts nowhere: the host has no memory either
  *known = {nullptr, Kind::kManagedPool, session.generation.load(), name, 0, nullptr, 1, 0};
  put(known);
  return rc;
}

Result createPool(Pool* out, const PoolProperties* properties) {
  const Result rc = cudaDriver.cuMemPoolCreate(out, properties);
  return rc == kSuccess && out && properties ? madePool(*out, properties->type, rc) : rc;
}
template <auto member>
Result findPool(Pool* out, Location* where, int type) {
  const Result rc = (cudaDriver.*member)(out, where, type);
  return rc == kSuccess && out ? madePool(*out, type, rc) : rc;
}
Result destroyPool(Pool pool) {
  if (!looksAtCalls()) return cudaDriver.cuMemPoolDestroy(pool);
  Charge* known = take(Kind::kManagedPool, reinterpret_cast<std::uintptr_t>(pool));
  return freed(known, cudaDriver.cuMemPoolDestroy(pool));
}

// In a capture it becomes a node of the graph, whose memory is not counted here.
template <Stream0 zero>
bool captured(Str stream) {
  return captures.load(std::memory_order_relaxed) && isCapturing(stream, zero);
}

template <auto member, Stream0 zero, typename F>
struct StreamOrdered;
template <auto member, Stream0 zero, typename... More>
struct StreamOrdered<member, zero, Result (*)(Ptr*, Size, More...)> {
  static Result call(Ptr* out, Size bytes, More... more) {
    if (!looksAtCalls() || !out || captured<zero>(streamAmong(more...))) {
      return (cudaDriver.*member)(out, bytes, more...);
    }
    return charged(Kind::kAddress, costFrom(bytes, more...), nullptr, [&](std::uint64_t& name) {
      const Result rc = (cudaDriver.*member)(out, bytes, more...);
      name = *out;
      return rc;
    });
  }

 private:
  static Str streamAmong(Str stream) { return stream; }
  static Str streamAmong(Pool, Str stream) { return stream; }
  static std::uint64_t costFrom(Size bytes, Str) { return costOf(bytes); }
  static std::uint64_t costFrom(Size bytes, Pool pool, Str) {
    return isManaged(pool) ? bytes : costOf(bytes);
  }
};

template <auto member, Stream0 zero>
Result freeAsync(Ptr address, Str handle) {
  if (!looksAtCalls() || captured<zero>(handle)) return (cudaDriver.*member)(address, handle);
  CudaStream* stream = streamOf(handle, zero);
  Charge* charge = take(Kind::kAddress, address);
  const Pass pass = admit(0, MayBlock::kNo);
  wakeReaper();
  ++cudaThread.insideDriver;
  const Result rc = pass.admitted ? (cudaDriver.*member)(address, handle) : kDeviceUnavailable;
  --cudaThread.insideDriver;
  const bool followed = rc == kSuccess && stream;
  if (followed) {
    follow(*stream, pass, CudaWork{});
  } else if (pass.admitted) {
    retire(1, pass.windowNs, nowNs());
  }
  if (!followed || !charge) return freed(charge, rc);
  freeWhenFinished(stream, charge->bytes, charge->generation);
  free(charge);
  return rc;
}

// --- physical memory and its maps ---

Result create(Mem* out, Size bytes, const MemProperties* properties, unsigned long long flags) {
  constexpr int kOnDevice = 1;  // of the card; other places are the host's
  const bool counts = properties && properties->location.type == kOnDevice;
  if (!looksAtCalls() || !out || !counts)
    return cudaDriver.cuMemCreate(out, bytes, properties, flags);
  return charged(Kind::kPhysical, costOf(bytes), nullptr, [&](std::uint64_t& name) {
    const Result rc = cudaDriver.cuMemCreate(out, bytes, properties, flags);
    name = *out;
    return rc;
  });
}

// With the mutex held: takes one reference or map away; what has neither left leaves the table.
Charge* drop(Mem memory, std::uint32_t Charge::*count) {
  Charge** link = find(Kind::kPhysical, memory);
  Charge* charge = *link;
  if (!charge) return nullptr;
  if (charge->*count) --(charge->*count);
  if (charge->references || charge->maps) return nullptr;
  return unlink(link);
}

// With the mutex held: as it was before drop().
void restore(Mem memory, Charge* dropped, std::uint32_t Charge::*count) {
  if (dropped) put(dropped);
  if (Charge* charge = *find(Kind::kPhysical, memory)) ++(charge->*count);
}

Result releasePhysical(Mem memory) {
  if (!looksAtCalls()) return cudaDriver.cuMemRelease(memory);
  Charge* dropped = nullptr;
  {
    Lock lock(mutex);
    dropped = drop(memory, &Charge::references);
  }
  const Result rc = cudaDriver.cuMemRelease(memory);
  if (rc == kSuccess) return freed(dropped, rc);
  Lock lock(mutex);
  restore(memory, dropped, &Charge::references);
  return rc;
}

Result retainPhysical(Mem* out, void* address) {
  const Result rc = cudaDriver.cuMemRetainAllocationHandle(out, address);
  if (rc != kSuccess || !looksAtCalls() || !out) return rc;
  Lock lock(mutex);
  if (Charge* charge = *find(Kind::kPhysical, *out)) ++charge->references;
  return rc;
}

// What another process exported is counted there.
Result importPhysical(Mem* out, void* handle, int type) {
  return cudaDriver.cuMemImportFromShareableHandle(out, handle, type);
}

Result mapPhysical(Ptr address, Size bytes, Size offset, Mem memory, unsigned long long flags) {
  auto* map = looksAtCalls() ? static_cast<Map*>(malloc(sizeof(Map))) : nullptr;
  const Result rc = cudaDriver.cuMemMap(address, bytes, offset, memory, flags);
  Lock lock(mutex);
  Charge* charge = map && rc == kSuccess ? *find(Kind::kPhysical, memory) : nullptr;
  if (!charge) {
    free(map);
    return rc;
  }
  ++charge->maps;
  *map = {maps, address, memory, nullptr};
  maps = map;
  return rc;
}

// The maps of a range leave the list; those of a refused call come back one by one.
Result unmapPhysical(Ptr address, Size bytes) {
  if (!looksAtCalls()) return cudaDriver.cuMemUnmap(address, bytes);
  Map* gone = nullptr;
  {
    Lock lock(mutex);
    for (Map** link = &maps; *link;) {
      Map* map = *link;
      if (map->address < address || map->address >= address + bytes) {
        link = &map->next;
        continue;
      }
      *link = map->next;
      map->dropped = drop(map->memory, &Charge::maps);
      map->next = gone;
      gone = map;
    }
  }
  const Result rc = cudaDriver.cuMemUnmap(address, bytes);
  while (Map* map = gone) {
    gone = map->next;
    if (rc == kSuccess) {
      freed(map->dropped, rc);
      free(map);
      continue;
    }
    Lock lock(mutex);
    restore(map->memory, map->dropped, &Charge::maps);
    map->next = maps;
    maps = map;
  }
  return rc;
}

// --- arrays ---

// Bytes of a channel by format; what is compressed or planar is taken for a byte a texel.
std::uint64_t channelBytes(int format) {
  switch (format) {
    case 0x02:
    case 0x09:
    case 0x10:
      return 2;
    case 0x03:
    case 0x0a:
    case 0x20:
      return 4;
    default:
      return 1;
  }
}

std::uint64_t texels(Size width, Size height, Size depth) {
  return width * (height ? height : 1) * (depth ? depth : 1);
}

template <typename Handle, typename Create>
Result createArrayOf(std::uint64_t bytes, Handle* out, Create create) {
  return charged(Kind::kArray, costOf(bytes), currentContext(), [&](std::uint64_t& name) {
    const Result rc = create();
    name = reinterpret_cast<std::uintptr_t>(*out);
    return rc;
  });
}

Result createArray(Arr* out, const ArrayShape* shape) {
  if (!looksAtCalls() || !out || !shape) return cudaDriver.cuArrayCreate_v2(out, shape);
  const std::uint64_t bytes =
      texels(shape->width, shape->height, 1) * shape->channels * channelBytes(shape->format);
  return createArrayOf(bytes, out, [&] { return cudaDriver.cuArrayCreate_v2(out, shape); });
}

std::uint64_t bytesOf(const ArrayShape3D& shape) {
  return texels(shape.width, shape.height, shape.depth) * shape.channels *
         channelBytes(shape.format);
}

Result createArray3D(Arr* out, const ArrayShape3D* shape) {
  if (!looksAtCalls() || !out || !shape) return cudaDriver.cuArray3DCreate_v2(out, shape);
  return createArrayOf(bytesOf(*shape), out,
                       [&] { return cudaDriver.cuArray3DCreate_v2(out, shape); });
}

// All levels below the first are together at most as large as the first.
Result createMipmap(Mip* out, const ArrayShape3D* shape, U levels) {
  if (!looksAtCalls() || !out || !shape)
    return cudaDriver.cuMipmappedArrayCreate(out, shape, levels);
  const std::uint64_t bytes = bytesOf(*shape) * (levels > 1 ? 2 : 1);
  return createArrayOf(bytes, out,
                       [&] { return cudaDriver.cuMipmappedArrayCreate(out, shape, levels); });
}

template <auto member, typename Handle>
Result destroyArray(Handle handle) {
  if (!looksAtCalls()) return (cudaDriver.*member)(handle);
  Charge* charge = take(Kind::kArray, reinterpret_cast<std::uintptr_t>(handle));
  return freed(charge, (cudaDriver.*member)(handle));
}

}  // namespace

void releaseMemoryOf(Ctx context) {
  Lock lock(mutex);
  for (Charge*& bucket : charges) {
    for (Charge** link = &bucket; *link;) {
      Charge* charge = *link;
      if (!context || charge->context != context) {
        link = &charge->next;
        continue;
      }
      *link = charge->next;
      release(charge->bytes, charge->generation);
      free(charge);
    }
  }
}

void forgetMemoryInChild() {
  mutex.renewInChild();
}

void wrapCudaMemory(Calls& table) {
  constexpr auto legacy = Stream0::kLegacy, own = Stream0::kPerThread;
  table.cuMemAlloc_v2 = allocate;
  table.cuMemAllocPitch_v2 = allocatePitch;
  table.cuMemAllocManaged = allocateManaged;
  table.cuMemFree_v2 = freeAddress;
#define QGPU_ORDERED(symbol, zero) \
  table.symbol = StreamOrdered<&Calls::symbol, zero, decltype(Calls::symbol)>::call;
  QGPU_ORDERED(cuMemAllocAsync, legacy)
  QGPU_ORDERED(cuMemAllocAsync_ptsz, own)
  QGPU_ORDERED(cuMemAllocFromPoolAsync, legacy)
  QGPU_ORDERED(cuMemAllocFromPoolAsync_ptsz, own)
#undef QGPU_ORDERED
  table.cuMemFreeAsync = freeAsync<&Calls::cuMemFreeAsync, legacy>;
  table.cuMemFreeAsync_ptsz = freeAsync<&Calls::cuMemFreeAsync_ptsz, own>;
  table.cuMemPoolCreate = createPool;
  table.cuMemPoolDestroy = destroyPool;
  table.cuMemGetDefaultMemPool = findPool<&Calls::cuMemGetDefaultMemPool>;
  table.cuMemGetMemPool = findPool<&Calls::cuMemGetMemPool>;
  table.cuMemCreate = create;
  table.cuMemRelease = releasePhysical;
  table.cuMemMap = mapPhysical;
  table.cuMemUnmap = unmapPhysical;
  table.cuMemRetainAllocationHandle = retainPhysical;
  table.cuMemImportFromShareableHandle = importPhysical;
  table.cuArrayCreate_v2 = createArray;
  table.cuArray3DCreate_v2 = createArray3D;
  table.cuArrayDestroy = destroyArray<&Calls::cuArrayDestroy, Arr>;
  table.cuMipmappedArrayCreate = createMipmap;
  table.cuMipmappedArrayDestroy = destroyArray<&Calls::cuMipmappedArrayDestroy, Mip>;
}

}  // namespace qgpu::guest
