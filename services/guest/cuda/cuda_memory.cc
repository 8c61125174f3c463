// Memory by CUDA's own functions.

#include <cstdlib>

#include "services/guest/cuda/cuda_charges.h"
#include "services/guest/cuda/cuda_paging.h"

namespace qgpu::guest {
namespace {

using namespace cuda;  // the names of the interface
using namespace charges;

struct Map {
  Map* next;
  Ptr address;
  Mem memory;
  Charge* dropped;  // while it is unmapped: the memory that ends with it
};

Map* maps = nullptr;

// --- addresses ---

Result allocate(Ptr* out, Size bytes) {
  if (!looksAtCalls() || !out) return cudaDriver.cuMemAlloc_v2(out, bytes);
  if (Result rc = kSuccess; paged::allocate(out, bytes, rc)) return rc;
  return charged(Kind::kAddress, wanted(bytes), currentContext(), [&](std::uint64_t& name) {
    const Result rc = cudaDriver.cuMemAlloc_v2(out, bytes);
    name = *out;
    return rc;
  });
}

// Its pages come from another driver, as they are used: no call there says a size.
Result allocateManaged(Ptr* out, Size bytes, U flags) {
  if (!looksAtCalls() || !out) return cudaDriver.cuMemAllocManaged(out, bytes, flags);
  return charged(Kind::kAddress, Wanted{bytes, bytes}, currentContext(), [&](std::uint64_t& name) {
    const Result rc = cudaDriver.cuMemAllocManaged(out, bytes, flags);
    name = *out;
    return rc;
  });
}

Result allocatePitch(Ptr* out, Size* pitch, Size width, Size height, U element) {
  if (!looksAtCalls() || !out || !pitch) {
    return cudaDriver.cuMemAllocPitch_v2(out, pitch, width, height, element);
  }
  if (Result rc = kSuccess; paged::allocatePitch(out, pitch, width, height, rc)) return rc;
  return charged(Kind::kAddress, wanted(widestRow(width) * height), currentContext(),
                 [&](std::uint64_t& name) {
                   const Result rc =
                       cudaDriver.cuMemAllocPitch_v2(out, pitch, width, height, element);
                   name = *out;
                   return rc;
                 });
}

Result freeAddress(Ptr address) {
  if (!looksAtCalls()) return cudaDriver.cuMemFree_v2(address);
  if (Result rc = kSuccess; paged::release(address, rc)) return rc;
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
    // CUDA's outlives contexts, HIP's ends with its device.
    const Ctx context = driverIsHip() ? currentContext() : nullptr;
    return charged(Kind::kAddress, Wanted{bytes, costFrom(bytes, more...)}, context,
                   [&](std::uint64_t& name) {
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
  // Of memory that is in no pool, once all before it is over.
  if (Result rc = kSuccess; paged::release(address, rc)) return rc;
  CudaStream* stream = streamOf(handle, zero);
  Charge* charge = take(Kind::kAddress, address);
  const Pass pass = admit(0, MayBlock::kNo);
  wakeReaper();
  ++cudaThread.insideDriver;
  const Result rc = pass.admitted ? (cudaDriver.*member)(address, handle) : noDeviceAnyMore();
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
  return charged(Kind::kPhysical, wanted(bytes), nullptr, [&](std::uint64_t& name) {
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

// What may leave has no handle, as memory of cuMemAlloc has none.
Result retainPhysical(Mem* out, void* address) {
  if (paged::isAt(reinterpret_cast<Ptr>(address))) return answered(kInvalidValue);
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

Result createMipmap(Mip* out, const ArrayShape3D* shape, U levels) {
  if (!looksAtCalls() || !out || !shape)
    return cudaDriver.cuMipmappedArrayCreate(out, shape, levels);
  const std::uint64_t bytes = withLevels(bytesOf(*shape), levels);
  return createArrayOf(bytes, out,
                       [&] { return cudaDriver.cuMipmappedArrayCreate(out, shape, levels); });
}

}  // namespace

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
  table.cuArrayDestroy = destroyArray<cudaDriver, &Calls::cuArrayDestroy, Arr>;
  table.cuMipmappedArrayCreate = createMipmap;
  table.cuMipmappedArrayDestroy = destroyArray<cudaDriver, &Calls::cuMipmappedArrayDestroy, Mip>;
}

}  // namespace qgpu::guest
