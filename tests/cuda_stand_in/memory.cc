// Memory of the cards: lazily backed pages of the host, with the card's size as a limit.

#include <fcntl.h>
#include <map>
#include <set>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/cuda_stand_in/table.h"

namespace qgpu::stand_in {
namespace {

constexpr Size kPage = 4096;

struct Block {
  Size bytes = 0;
  int device = 0;
  std::uint32_t rm = 0;
  RmForm form = RmForm::kAlloc;
  bool pooled = false;   // freed, it stays with the pool
  bool counted = false;  // of the card that processes share
};

struct Physical {  // of the virtual memory interface
  Block block;
  std::uint32_t references = 1;
  std::uint32_t maps = 0;
  int file = -1;  // its pages
};

struct Heap {
  std::map<std::uint64_t, Block> blocks;  // by address or handle
  std::map<Mem, Physical> physical;
  std::map<Ptr, std::pair<Mem, Size>> maps;
  std::map<int, std::uint64_t> used;
  std::multimap<Size, Block> pool;  // freed in a stream's order, and kept
  std::set<Pool> managedPools;
  Pool defaultManaged = nullptr;
  Mem nextHandle = 0x1000;
  std::map<void*, Size> registered;  // of the host's memory
};
Heap& heap() {
  static Heap& only = *new Heap;
  return only;
}

std::uint64_t cardBytes() {
  static const std::uint64_t bytes = environmentNumber("QGPU_STAND_IN_BYTES", 16ull << 30);
  return bytes;
}

// One card for several processes: what all have of it is a number in a file that they share. What a
// process has at its end it gives back, but not where it is killed.
class SharedCard {
 public:
  static SharedCard& only() {
    static SharedCard& card = *new SharedCard;
    return card;
  }
  bool take(Size bytes) {
    if (!all_) return true;
    const bool room = __atomic_add_fetch(all_, bytes, __ATOMIC_SEQ_CST) <= cardBytes();
    if (room) {
      own_ += bytes;
    } else {
      __atomic_sub_fetch(all_, bytes, __ATOMIC_SEQ_CST);
    }
    return room;
  }
  void give(Size bytes) {
    if (!all_) return;
    own_ -= bytes;
    __atomic_sub_fetch(all_, bytes, __ATOMIC_SEQ_CST);
  }

 private:
  SharedCard() {
    const char* path = std::getenv("QGPU_STAND_IN_CARD");
    const int file = path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
    if (file < 0 || ftruncate(file, sizeof *all_) != 0) return;
    void* at = mmap(nullptr, sizeof *all_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (at == MAP_FAILED) return;
    all_ = static_cast<std::uint64_t*>(at);
    std::atexit([] { only().give(only().own_); });
  }
  std::uint64_t* all_ = nullptr;
  Size own_ = 0;
};

Size rounded(Size bytes) {
  return (bytes + kPage - 1) / kPage * kPage;
}

// With the lock held: takes room on the card, and tells the resource manager.
Result take(int device, Size bytes, Block& out, RmForm form = RmForm::kAlloc,
            std::uint32_t parent = 0) {
  if (bytes == 0) return kInvalidValue;
  std::uint64_t& used = heap().used[device];
  if (bytes > cardBytes() - used || !SharedCard::only().take(bytes)) return kOutOfMemory;
  out = {bytes, device, 0, form};
  if (!rmAllocate(bytes, out.rm, form, parent)) {
    SharedCard::only().give(bytes);
    return kOutOfMemory;
  }
  used += bytes;
  out.counted = true;
  return kSuccess;
}

void giveBack(const Block& block) {
  heap().used[block.device] -= block.bytes;
  if (block.counted) SharedCard::only().give(block.bytes);
  rmFree(block.rm, block.form);
}

// From the pool where it has a block of that size; where the kernel has no memory, the pool gives
// back what it keeps, and the kernel is asked again. Without a kernel nothing is kept.
Result takePooled(int device, Size bytes, Block& out) {
  const auto kept = heap().pool.find(bytes);
  if (kept != heap().pool.end()) {
    out = kept->second;
    heap().pool.erase(kept);
    return kSuccess;
  }
  Result rc = take(device, bytes, out);
  if (rc == kOutOfMemory && !heap().pool.empty()) {
    for (const auto& each : heap().pool) giveBack(each.second);
    heap().pool.clear();
    rc = take(device, bytes, out);
  }
  out.pooled = rmAnswers();
  return rc;
}

Ptr mapPages(Size bytes) {
  void* at = mmap(nullptr, rounded(bytes), PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return at == MAP_FAILED ? 0 : reinterpret_cast<Ptr>(at);
}

Result allocate(Ptr* out, Size bytes, RmForm form) {
  Locked held(machine().lock);
  const Context* context = currentContext();
  if (!context) return kInvalidContext;
  if (Result rc = unsafeCall()) return rc;
  Block block;
  if (Result rc = take(context->device, bytes, block, form, context->rm)) return rc;
  *out = mapPages(bytes);
  heap().blocks[*out] = block;
  return kSuccess;
}
Result allocatePlain(Ptr* out, Size bytes) {
  return allocate(out, bytes, RmForm::kAlloc);
}
Result allocatePitch(Ptr* out, Size* pitch, Size width, Size height, U) {
  *pitch = (width + 511) / 512 * 512;
  return allocate(out, *pitch * height, RmForm::kCarried);
}
// Its pages are another driver's, which is asked for no size: with a kernel, nothing is called.
Result allocateManaged(Ptr* out, Size bytes, U) {
  if (!rmAnswers()) return allocate(out, bytes, RmForm::kAlloc);
  Locked held(machine().lock);
  if (!currentContext()) return kInvalidContext;
  *out = mapPages(bytes);
  heap().blocks[*out] = {bytes, currentContext()->device, 0};
  heap().used[currentContext()->device] += bytes;
  return kSuccess;
}

Result freeAt(std::uint64_t key, bool pages) {
  const auto found = heap().blocks.find(key);
  if (found == heap().blocks.end()) return ++machine().misuses, kInvalidValue;
  if (found->second.pooled) {
    heap().pool.emplace(found->second.bytes, found->second);
  } else {
    giveBack(found->second);
  }
  if (pages) munmap(reinterpret_cast<void*>(key), rounded(found->second.bytes));
  heap().blocks.erase(found);
  return kSuccess;
}
Result release(Ptr at) {
  Locked held(machine().lock);
  if (at == 0) return kSuccess;
  if (Result rc = unsafeCall()) return rc;
  if (Context* context = currentContext()) waitFor(held, tails(*context));
  return freeAt(at, true);
}

template <Stream0 zero>
Result allocateAsync(Ptr* out, Size bytes, Str handle) {
  Locked held(machine().lock);
  Result rc = kSuccess;
  Stream* stream = find(handle, zero, rc);
  if (!stream) return rc;
  Block block;
  if ((rc = takePooled(stream->context->device, bytes, block))) return rc;
  *out = mapPages(bytes);
  heap().blocks[*out] = block;
  return put(*stream, Work{});
}
template <Stream0 zero>
Result allocateFromPool(Ptr* out, Size bytes, Pool pool, Str handle) {
  const bool managed = (Locked(machine().lock), heap().managedPools.count(pool) != 0);
  return managed ? allocateManaged(out, bytes, 1) : allocateAsync<zero>(out, bytes, handle);
}
template <Stream0 zero>
Result freeAsync(Ptr at, Str handle) {
  Locked held(machine().lock);
  Result rc = kSuccess;
  Stream* stream = find(handle, zero, rc);
  if (!stream) return rc;
  return put(*stream, Work{1, [at] {
                             Locked again(machine().lock);
                             freeAt(at, true);
                           }});
}

// --- memory of other processes ---

Result import(rm::Handle client, rm::Handle object, std::uint32_t& handle) {
  const std::uint32_t status = rmAnswers() ? rmImport(client, object, handle) : rm::kOk;
  if (status == rm::kOk) return kSuccess;
  return status == rm::kNoMemory ? kOutOfMemory : kInvalidValue;
}

// What a handle says. The pages behind it stay each process's own here.
struct Shared {
  rm::Handle client, object;
  Size bytes;
};

Result share(void* out, Ptr at) {
  Locked held(machine().lock);
  const auto found = heap().blocks.find(at);
  if (found == heap().blocks.end()) return kInvalidValue;
  const Shared told{rmClient(), found->second.rm, found->second.bytes};
  IpcMemory handle{};
  __builtin_memcpy(handle.bytes, &told, sizeof told);
  __builtin_memcpy(out, &handle, sizeof handle);
  return kSuccess;
}

Result openShared(Ptr* out, IpcMemory handle, U) {
  Locked held(machine().lock);
  const Context* context = currentContext();
  if (!context) return kInvalidContext;
  Shared told;
  __builtin_memcpy(&told, handle.bytes, sizeof told);
  Block block{told.bytes, context->device};
  if (Result rc = import(told.client, told.object, block.rm)) return rc;
  heap().used[block.device] += block.bytes;
  *out = mapPages(told.bytes);
  heap().blocks[*out] = block;
  return kSuccess;
}

// --- the virtual memory interface ---

Result create(Mem* out, Size bytes, const MemProperties* properties, unsigned long long) {
  constexpr int kOnCard = 1;  // other places are the host's
  Locked held(machine().lock);
  Physical physical;
  if (properties->location.type == kOnCard) {
    if (Result rc = take(properties->location.id, bytes, physical.block)) return rc;
  } else {
    physical.block = Block{bytes, -1, rmAnswers() ? rmHostMemory(bytes) : 0};
    heap().used[-1] += bytes;
  }
  physical.file = memfd_create("card", MFD_CLOEXEC);
  if (physical.file < 0 || ftruncate(physical.file, static_cast<off_t>(rounded(bytes))) != 0) {
    giveBack(physical.block);
    return kOutOfMemory;
  }
  *out = heap().nextHandle++;
  heap().physical[*out] = physical;
  return kSuccess;
}
void dropIfUnused(Mem handle) {
  Physical& physical = heap().physical[handle];
  if (physical.references || physical.maps) return;
  giveBack(physical.block);
  if (physical.file >= 0) close(physical.file);
  heap().physical.erase(handle);
}
Result releaseHandle(Mem handle) {
  Locked held(machine().lock);
  const auto found = heap().physical.find(handle);
  if (found == heap().physical.end() || found->second.references == 0) {
    return ++machine().misuses, kInvalidValue;
  }
  --found->second.references;
  dropIfUnused(handle);
  return kSuccess;
}
Result retainHandle(Mem* out, void* at) {
  Locked held(machine().lock);
  for (const auto& [address, map] : heap().maps) {
    const auto wanted = reinterpret_cast<Ptr>(at);
    if (wanted < address || wanted >= address + map.second) continue;
    *out = map.first;
    ++heap().physical[map.first].references;
    return kSuccess;
  }
  return kInvalidValue;
}
Result importHandle(Mem* out, void*, int) {
  Locked held(machine().lock);
  Physical imported;
  if (Result rc = import(kForeignClient, kForeignMemory, imported.block.rm)) return rc;
  *out = heap().nextHandle++;
  heap().physical[*out] = imported;
  return kSuccess;
}
// Who touches an address where nothing is mapped ends, as on a card.
bool mapNothing(Ptr at, Size bytes, int flags = MAP_FIXED) {
  return mmap(reinterpret_cast<void*>(at), rounded(bytes), PROT_NONE,
              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0) != MAP_FAILED;
}
Result reserveAddress(Ptr* out, Size bytes, Size, Ptr, unsigned long long) {
  void* at =
      mmap(nullptr, rounded(bytes), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return kOutOfMemory;
  *out = reinterpret_cast<Ptr>(at);
  return kSuccess;
}
Result freeAddress(Ptr at, Size bytes) {
  Locked held(machine().lock);
  const auto first = heap().maps.lower_bound(at);
  const bool mapped = first != heap().maps.end() && first->first < at + bytes;
  if (mapped) return ++machine().misuses, kInvalidValue;
  munmap(reinterpret_cast<void*>(at), rounded(bytes));
  return kSuccess;
}
Result map(Ptr at, Size bytes, Size offset, Mem handle, unsigned long long) {
  Locked held(machine().lock);
  const auto found = heap().physical.find(handle);
  if (found == heap().physical.end()) return ++machine().misuses, kInvalidValue;
  const int file = found->second.file;
  if (file >= 0 && mmap(reinterpret_cast<void*>(at), rounded(bytes), PROT_NONE,
                        MAP_SHARED | MAP_FIXED, file, static_cast<off_t>(offset)) == MAP_FAILED) {
    return kInvalidValue;
  }
  ++found->second.maps;
  heap().maps[at] = {handle, bytes};
  return kSuccess;
}
// Of one whole map.
Result setAccess(Ptr at, Size bytes, const MemAccess* access, Size count) {
  Locked held(machine().lock);
  const auto found = heap().maps.find(at);
  const bool knows = count == 1 && access->rights == kReadWrite && found != heap().maps.end();
  if (!knows || found->second.second != bytes) return kInvalidValue;
  const int rc = mprotect(reinterpret_cast<void*>(at), rounded(bytes), PROT_READ | PROT_WRITE);
  return rc == 0 ? kSuccess : kInvalidValue;
}
Result unmap(Ptr at, Size bytes) {
  Locked held(machine().lock);
  bool any = false;
  for (auto next = heap().maps.lower_bound(at);
       next != heap().maps.end() && next->first < at + bytes;) {
    const Mem handle = next->second.first;
    mapNothing(next->first, next->second.second);
    next = heap().maps.erase(next);
    --heap().physical[handle].maps;
    dropIfUnused(handle);
    any = true;
  }
  return any ? kSuccess : kInvalidValue;
}

// --- what is at an address ---

struct Range {
  Ptr at = 0;
  Size bytes = 0;
};
// With the lock held. None: nothing of a card is there.
Range rangeAround(Ptr at) {
  const auto around = [at](auto& all, auto sizeOf) -> Range {
    auto next = all.upper_bound(at);
    if (next == all.begin()) return {};
    --next;
    const Size bytes = sizeOf(next->second);
    return at < next->first + bytes ? Range{next->first, bytes} : Range{};
  };
  const Range mapped = around(heap().maps, [](const auto& map) { return map.second; });
  if (mapped.bytes) return mapped;
  return around(heap().blocks, [](const Block& block) { return block.bytes; });
}
Result addressRange(Ptr* base, Size* bytes, Ptr at) {
  Locked held(machine().lock);
  const Range found = rangeAround(at);
  if (!found.bytes) return kNotFound;
  if (base) *base = found.at;
  if (bytes) *bytes = found.bytes;
  return kSuccess;
}
// The kind of memory, where its allocation begins, and how long that is.
Result attribute(void* out, int which, Ptr at) {
  Locked held(machine().lock);
  const Range found = rangeAround(at);
  if (!found.bytes) return kInvalidValue;
  constexpr U kDeviceMemory = 2;
  if (which == 2) return *static_cast<U*>(out) = kDeviceMemory, kSuccess;
  if (which == 11) return *static_cast<Ptr*>(out) = found.at, kSuccess;
  if (which == 12) return *static_cast<Size*>(out) = found.bytes, kSuccess;
  return kNotSupported;
}
Result attributes(U count, int* which, void** out, Ptr at) {
  for (U i = 0; i < count; ++i) {
    if (Result rc = attribute(out[i], which[i], at)) return rc;
  }
  return kSuccess;
}
Result handleForRange(void* out, Ptr at, Size bytes, int, unsigned long long) {
  Locked held(machine().lock);
  const Range found = rangeAround(at);
  if (!found.bytes || found.at + found.bytes < at + bytes) return kInvalidValue;
  const auto map = heap().maps.find(found.at);
  if (map == heap().maps.end()) return kNotSupported;
  *static_cast<int*>(out) = dup(heap().physical[map->second.first].file);
  return kSuccess;
}

// --- arrays ---

Result makeArray(std::uint64_t bytes, std::uint64_t& out) {
  Locked held(machine().lock);
  const Context* context = currentContext();
  if (!context) return kInvalidContext;
  Block block;
  if (Result rc = take(context->device, bytes, block, RmForm::kHeap, context->rm)) return rc;
  out = heap().nextHandle++;
  heap().blocks[out] = block;
  return kSuccess;
}
// One byte a texel and channel is enough here: what an array takes is the driver's own affair.
std::uint64_t texels(Size width, Size height, Size depth, U channels) {
  return width * (height ? height : 1) * (depth ? depth : 1) * channels;
}
template <typename Handle>
Result arrayResult(Result rc, std::uint64_t made, Handle* out) {
  if (rc == kSuccess) *out = reinterpret_cast<Handle>(made);
  return rc;
}
Result createArray(Arr* out, const ArrayShape* shape) {
  std::uint64_t made = 0;
  const Result rc = makeArray(texels(shape->width, shape->height, 1, shape->channels), made);
  return arrayResult(rc, made, out);
}
std::uint64_t texels(const ArrayShape3D* shape) {
  return texels(shape->width, shape->height, shape->depth, shape->channels);
}
Result createArray3D(Arr* out, const ArrayShape3D* shape) {
  std::uint64_t made = 0;
  const Result rc = makeArray(texels(shape), made);
  return arrayResult(rc, made, out);
}
Result createMipmap(Mip* out, const ArrayShape3D* shape, U) {
  std::uint64_t made = 0;
  const Result rc = makeArray(texels(shape) * 2, made);
  return arrayResult(rc, made, out);
}
Result destroyArray(Arr handle) {
  Locked held(machine().lock);
  return freeAt(reinterpret_cast<std::uint64_t>(handle), false);
}
Result destroyMipmap(Mip handle) {
  Locked held(machine().lock);
  return freeAt(reinterpret_cast<std::uint64_t>(handle), false);
}

// --- the host's memory, pools, sizes ---

Result allocateHost(void** out, Size bytes, U) {
  *out = reinterpret_cast<void*>(mapPages(bytes));
  Locked held(machine().lock);
  const std::uint32_t rm = rmAnswers() ? rmHostMemory(bytes) : 0;
  heap().blocks[reinterpret_cast<std::uint64_t>(*out)] = Block{bytes, -1, rm};
  heap().used[-1] += bytes;
  return kSuccess;
}
Result freeHost(void* at) {
  Locked held(machine().lock);
  return freeAt(reinterpret_cast<std::uint64_t>(at), true);
}
Result registerHost(void* at, Size bytes, U) {
  Locked held(machine().lock);
  return heap().registered.emplace(at, bytes).second ? kSuccess : kInvalidValue;
}
Result unregisterHost(void* at) {
  Locked held(machine().lock);
  return heap().registered.erase(at) ? kSuccess : (++machine().misuses, kInvalidValue);
}
Pool newPool(int type) {
  const auto pool = reinterpret_cast<Pool>(heap().nextHandle++);
  if (type == kManaged) heap().managedPools.insert(pool);
  return pool;
}
// A handle may be given again once its pool is destroyed: here it is, at once.
Result createPool(Pool* out, const PoolProperties* properties) {
  Locked held(machine().lock);
  *out = newPool(properties->type);
  return kSuccess;
}
Result destroyPool(Pool pool) {
  Locked held(machine().lock);
  heap().managedPools.erase(pool);
  if (heap().defaultManaged == pool) heap().defaultManaged = nullptr;  // the next is made anew
  if (reinterpret_cast<Mem>(pool) + 1 == heap().nextHandle) --heap().nextHandle;
  return kSuccess;
}
Result poolOfType(Pool* out, Location*, int type) {
  Locked held(machine().lock);
  if (type != kManaged) return *out = nullptr, kSuccess;
  if (!heap().defaultManaged) heap().defaultManaged = newPool(kManaged);
  *out = heap().defaultManaged;
  return kSuccess;
}
Result info(Size* free, Size* total) {
  Locked held(machine().lock);
  if (!currentContext()) return kInvalidContext;
  *total = cardBytes();
  *free = cardBytes() - heap().used[currentContext()->device];
  return kSuccess;
}
Result total(Size* out, Dev) {
  *out = cardBytes();
  return kSuccess;
}

}  // namespace

bool isOnCard(Ptr at) {
  return rangeAround(at).bytes != 0;
}

std::uint64_t allocatedBytes(int device) {
  Locked held(machine().lock);
  return heap().used[device];
}

void fillMemory(Table& table) {
  constexpr auto legacy = Stream0::kLegacy, own = Stream0::kPerThread;
  table.cuMemAlloc_v2 = allocatePlain;
  table.cuMemAllocPitch_v2 = allocatePitch;
  table.cuMemAllocManaged = allocateManaged;
  table.cuMemFree_v2 = release;
  table.cuIpcGetMemHandle = share;
  table.cuIpcOpenMemHandle_v2 = openShared;
  table.cuIpcCloseMemHandle = release;
  table.cuMemAllocAsync = allocateAsync<legacy>;
  table.cuMemAllocAsync_ptsz = allocateAsync<own>;
  table.cuMemAllocFromPoolAsync = allocateFromPool<legacy>;
  table.cuMemAllocFromPoolAsync_ptsz = allocateFromPool<own>;
  table.cuMemFreeAsync = freeAsync<legacy>;
  table.cuMemFreeAsync_ptsz = freeAsync<own>;
  table.cuMemCreate = create;
  table.cuMemRelease = releaseHandle;
  table.cuMemRetainAllocationHandle = retainHandle;
  table.cuMemImportFromShareableHandle = importHandle;
  table.cuMemAddressReserve = reserveAddress;
  table.cuMemAddressFree = freeAddress;
  table.cuMemMap = map;
  table.cuMemSetAccess = setAccess;
  table.cuMemUnmap = unmap;
  table.cuMemGetAddressRange_v2 = addressRange;
  table.cuPointerGetAttribute = attribute;
  table.cuPointerGetAttributes = attributes;
  table.cuMemGetHandleForAddressRange = handleForRange;
  table.cuMemHostRegister_v2 = registerHost;
  table.cuMemHostUnregister = unregisterHost;
  table.cuArrayCreate_v2 = createArray;
  table.cuArray3DCreate_v2 = createArray3D;
  table.cuArrayDestroy = destroyArray;
  table.cuMipmappedArrayCreate = createMipmap;
  table.cuMipmappedArrayDestroy = destroyMipmap;
  table.cuMemHostAlloc = allocateHost;
  table.cuMemFreeHost = freeHost;
  table.cuMemPoolCreate = createPool;
  table.cuMemPoolDestroy = destroyPool;
  table.cuMemGetDefaultMemPool = table.cuMemGetMemPool = poolOfType;
  table.cuMemGetInfo_v2 = info;
  table.cuDeviceTotalMem_v2 = total;
}

}  // namespace qgpu::stand_in
