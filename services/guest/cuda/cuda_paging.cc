#include "services/guest/cuda/cuda_paging.h"

#include <cstdlib>

#include "services/guest/cuda/cuda_charges.h"
#include "services/guest/paging/host_room.h"
#include "services/guest/paging/pager.h"
#include "services/guest/rm/rm_ioctl.h"

namespace qgpu::guest {
namespace paged {
namespace {

using namespace cuda;  // the names of the interface

constexpr Size kGranularity = Size{2} << 20;  // of physical memory, on each card so far
constexpr Size kLeastChunk = Size{64} << 20, kMostChunk = Size{512} << 20;
constexpr Size kChunksWanted = 128;  // of a large allocation; more cost time, fewer are coarse
constexpr Size kPitch = 512;         // fits whatever a card wants of rows
constexpr int kOnDevice = 1;

Size roundedTo(Size bytes, Size unit) {
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace

struct Part;
struct Allocation {
  Allocation* next;
  Ptr address;
  Size asked, bytes;  // bytes: of all parts
  Ctx context;        // the device's primary one
  int device;
  std::uint32_t generation;
  std::uint64_t serial;
  std::uint32_t count, left;  // parts
  Part* parts;
};
struct Part {
  Ptr address;
  Size bytes;
  void* host;  // what left is here
  bool pinned;
  pager::Chunk chunk;
  Allocation* of;
};

namespace {

Mutex mutex;  // of the tables
Allocation* allocations = nullptr;
Allocation* late = nullptr;  // freed while a capture went on
std::uint64_t serials = 0;
Part** byChunk = nullptr;  // null places: chunks that are gone
pager::Chunk chunks = 0;

Part& partOf(pager::Chunk chunk) {
  Lock lock(mutex);
  return *byChunk[chunk];
}

// With the mutex held.
bool keep(pager::Chunk chunk, Part* part) {
  if (chunk >= chunks) {
    const pager::Chunk more = (chunk + 1) * 2;
    auto* grown = static_cast<Part**>(realloc(byChunk, more * sizeof(Part*)));
    if (!grown) return false;
    for (pager::Chunk i = chunks; i < more; ++i) grown[i] = nullptr;
    byChunk = grown;
    chunks = more;
  }
  byChunk[chunk] = part;
  return true;
}

// --- steps, by the driver ---

class InContext {
 public:
  explicit InContext(Ctx context) : in_(cudaDriver.cuCtxPushCurrent_v2(context) == kSuccess) {}
  ~InContext() {
    Ctx before = nullptr;
    if (in_) cudaDriver.cuCtxPopCurrent_v2(&before);
  }
  InContext(const InContext&) = delete;
  InContext& operator=(const InContext&) = delete;
  bool in() const { return in_; }

 private:
  const bool in_;
};

Result makePart(const Part& part) {
  const int device = part.of->device;
  const MemProperties properties{kPinned, 0, {kOnDevice, device}, nullptr, {}};
  const MemAccess access{{kOnDevice, device}, kReadWrite};
  Mem memory = 0;
  {
    const Uncounted elsewhere;
    if (Result rc = cudaDriver.cuMemCreate(&memory, part.bytes, &properties, 0)) return rc;
  }
  Result rc = cudaDriver.cuMemMap(part.address, part.bytes, 0, memory, 0);
  cudaDriver.cuMemRelease(memory);  // the map keeps it
  if (rc != kSuccess) return rc;
  rc = cudaDriver.cuMemSetAccess(part.address, part.bytes, &access, 1);
  if (rc != kSuccess) cudaDriver.cuMemUnmap(part.address, part.bytes);
  return rc;
}

bool make(pager::Chunk chunk) {
  return makePart(partOf(chunk)) == kSuccess;
}

bool unmap(pager::Chunk chunk) {
  const Part& part = partOf(chunk);
  return cudaDriver.cuMemUnmap(part.address, part.bytes) == kSuccess;
}

void dropCopy(pager::Chunk chunk) {
  Part& part = partOf(chunk);
  if (!part.host) return;
  if (part.pinned && cudaDriver.cuMemHostUnregister) cudaDriver.cuMemHostUnregister(part.host);
  giveHostMemory(part.host, part.bytes);
  part.host = nullptr;
  part.pinned = false;
}

// Pinned where the driver does so: a copy is then as fast as the way to the card.
bool copyOut(pager::Chunk chunk) {
  Part& part = partOf(chunk);
  const InContext context(part.of->context);
  if (!context.in()) return false;
  part.host = takeHostMemory(part.bytes);
  if (!part.host) return false;
  part.pinned = cudaDriver.cuMemHostRegister_v2 &&
                cudaDriver.cuMemHostRegister_v2(part.host, part.bytes, 0) == kSuccess;
  if (cudaDriver.cuMemcpyDtoH_v2(part.host, part.address, part.bytes) == kSuccess) return true;
  dropCopy(chunk);
  return false;
}

// What is copied from the host may be under way when the call returns.
bool copyIn(pager::Chunk chunk) {
  const Part& part = partOf(chunk);
  const InContext context(part.of->context);
  return context.in() &&
         cudaDriver.cuMemcpyHtoD_v2(part.address, part.host, part.bytes) == kSuccess &&
         cudaDriver.cuCtxSynchronize() == kSuccess;
}

void drop(Allocation* allocation) {
  cudaDriver.cuMemAddressFree(allocation->address, allocation->bytes);
  free(allocation->parts);
  free(allocation);
}

void gone(pager::Chunk chunk) {
  Part& part = partOf(chunk);
  Allocation* allocation = part.of;
  releasePageable(part.bytes, allocation->generation);
  Lock lock(mutex);
  byChunk[chunk] = nullptr;
  if (--allocation->left == 0) drop(allocation);
}

void freeLate();

// The child has no card's memory.
void forgetInChild() {
  mutex.renewInChild();
  allocations = late = nullptr;
  byChunk = nullptr;
  chunks = 0;
}

constexpr pager::Mover kMover = {streamsAreIdle, copyOut, unmap,    make,         copyIn,
                                 dropCopy,       gone,    freeLate, forgetInChild};

// --- allocations ---

bool driverCan() {
  const Calls& d = cudaDriver;
  return d.cuMemCreate && d.cuMemRelease && d.cuMemMap && d.cuMemUnmap && d.cuMemSetAccess &&
         d.cuMemAddressReserve && d.cuMemAddressFree && d.cuMemcpyDtoH_v2 && d.cuMemcpyHtoD_v2 &&
         d.cuCtxGetDevice && d.cuCtxPushCurrent_v2 && d.cuCtxPopCurrent_v2 && d.cuCtxSynchronize;
}

// What memory that may leave belongs to. Null: the thread's context is none, or another than the
// card's primary one, whose end nobody here may know.
Ctx owner() {
  Dev device = 0;
  const Ctx context = charges::currentContext();
  if (!context || cudaDriver.cuCtxGetDevice(&device) != kSuccess) return nullptr;
  return primaryOf(device) == context ? context : nullptr;
}

bool mayLeave(Size bytes) {
  return looksAtCalls() && !driverIsHip() && bytes >= kGranularity && pageableQuota() != 0 &&
         session.welcome.cards == 1 && captures.load() == 0 && driverCan() && owner() &&
         pager::begin(kMover);
}

Size chunkOf(Size bytes) {
  const Size wanted = roundedTo(bytes / kChunksWanted, kLeastChunk);
  if (wanted < kLeastChunk) return kLeastChunk;
  return wanted < kMostChunk ? wanted : kMostChunk;
}

// The range, and its parts without memory. Null: there is no room for it.
Allocation* reserveRange(Size asked, Size bytes, Ctx context) {
  const Size chunk = chunkOf(bytes);
  const auto count = static_cast<std::uint32_t>((bytes + chunk - 1) / chunk);
  auto* allocation = static_cast<Allocation*>(malloc(sizeof(Allocation)));
  auto* parts = static_cast<Part*>(malloc(count * sizeof(Part)));
  Ptr address = 0;
  Dev device = 0;
  const bool there =
      allocation && parts && cudaDriver.cuCtxGetDevice(&device) == kSuccess &&
      cudaDriver.cuMemAddressReserve(&address, bytes, kGranularity, 0, 0) == kSuccess;
  if (!there) {
    free(parts);
    free(allocation);
    return nullptr;
  }
  *allocation = {nullptr, address, asked, bytes, context, device, session.generation.load(),
                 0,       count,   count, parts};
  for (std::uint32_t i = 0; i < count; ++i) {
    const Size before = i * chunk, rest = bytes - before;
    parts[i] = {address + before, rest < chunk ? rest : chunk, nullptr, false, PagedMemory::kNone,
                allocation};
  }
  return allocation;
}

// Has each part made, or none.
Result makeAll(Allocation& allocation) {
  for (std::uint32_t i = 0; i < allocation.count; ++i) {
    const Result rc = makePart(allocation.parts[i]);
    if (rc == kSuccess) continue;
    for (std::uint32_t n = 0; n < i; ++n) {
      cudaDriver.cuMemUnmap(allocation.parts[n].address, allocation.parts[n].bytes);
    }
    return rc;
  }
  return kSuccess;
}

// From here on the pager may move them. False: there is no memory for a record of one.
bool handOver(Allocation& allocation) {
  Lock lock(mutex);
  for (std::uint32_t i = 0; i < allocation.count; ++i) {
    Part& part = allocation.parts[i];
    part.chunk = pager::add(part.bytes);
    if (part.chunk == PagedMemory::kNone || !keep(part.chunk, &part)) return false;
  }
  allocation.serial = ++serials;
  allocation.next = allocations;
  allocations = &allocation;
  return true;
}

// Within an enter(), with `bytes` taken from the quota.
Result makeNew(Ptr* out, Size asked, Size bytes, Ctx context) {
  ++cudaThread.insideDriver;
  Allocation* allocation = reserveRange(asked, bytes, context);
  Result rc = allocation ? makeAll(*allocation) : kOutOfMemory;
  --cudaThread.insideDriver;
  if (rc == kSuccess && handOver(*allocation)) return *out = allocation->address, kSuccess;
  if (rc == kSuccess) {  // half has a record, so none may move: it ends with the program
    pager::neverIdle();
    return answered(kOutOfMemory);
  }
  if (allocation) drop(allocation);
  releasePageable(bytes, session.generation.load());
  return rc == kOutOfMemory ? answered(rc) : rc;
}

Result allocateNew(Ptr* out, Size asked) {
  const Ctx context = charges::currentContext();
  const bool sane = asked <= pageableQuota();
  const Size bytes = sane ? roundedTo(asked, kGranularity) : asked;
  for (;;) {
    if (!pager::enterOrWait()) return noDeviceAnyMore();
    const Room room = reservePageable(bytes);
    if (room == Room::kTaken) {
      const Result rc = makeNew(out, asked, bytes, context);
      pager::leave();
      return rc;
    }
    pager::leave();
    if (room == Room::kNone || !pager::waitForRoom(bytes)) {
      if (loadRelaxed(session.gate->closed)) return noDeviceAnyMore();
      tellRefused(bytes);
      return answered(kOutOfMemory);
    }
  }
}

// With the mutex held: the link to what is at an address; to null where nothing is.
Allocation** around(Ptr address) {
  Allocation** link = &allocations;
  while (*link && !(address >= (*link)->address && address - (*link)->address < (*link)->bytes)) {
    link = &(*link)->next;
  }
  return link;
}

// Taken out of the table. What is left of it goes with the last of its parts.
void end(Allocation* allocation) {
  const std::uint32_t count = allocation->count;
  auto* ended = static_cast<pager::Chunk*>(malloc(count * sizeof(pager::Chunk)));
  const Part* parts = allocation->parts;
  for (std::uint32_t i = 0; ended && i < count; ++i) ended[i] = parts[i].chunk;
  ++cudaThread.insideDriver;
  if (ended) {
    pager::freed(ended, count);
  } else {  // the last of them may end the record
    for (std::uint32_t i = count; i-- > 1;) pager::freed(&parts[i].chunk, 1);
    const pager::Chunk first = parts[0].chunk;
    pager::freed(&first, 1);
  }
  --cudaThread.insideDriver;
  free(ended);
}

// --- calls that name addresses ---

template <auto member, typename F>
struct Naming;
template <auto member, typename... A>
struct Naming<member, Result (*)(A...)> {
  static Result call(A... a) {
    if (!looksAtCalls()) return (cudaDriver.*member)(a...);
    const pager::OnCard memory;
    if (!memory.there()) return noDeviceAnyMore();
    return (cudaDriver.*member)(a...);
  }
};

struct Range {
  Ptr address = 0;
  Size bytes = 0;
  Ctx context = nullptr;
  std::uint64_t serial = 0;
};
// Of a whole allocation, which the driver knows as several; none: it is no such memory.
Range rangeAround(Ptr address) {
  if (!looksAtCalls() || !pager::active.load()) return {};
  Lock lock(mutex);
  const Allocation* found = *around(address);
  if (!found) return {};
  return {found->address, found->asked, found->context, found->serial};
}

Result addressRange(Ptr* base, Size* bytes, Ptr address) {
  const Range range = rangeAround(address);
  if (!range.bytes) return cudaDriver.cuMemGetAddressRange_v2(base, bytes, address);
  if (base) *base = range.address;
  if (bytes) *bytes = range.bytes;
  return kSuccess;
}

// Attributes of an address that are another's for each chunk, and what they are of the whole.
// False: it is none of them.
bool answerFor(void* out, int attribute, const Range& range) {
  switch (attribute) {
    case 1:  // the context
      return *static_cast<Ctx*>(out) = range.context, true;
    case 7:  // a number that no other memory ever has; the driver's own are small
      return *static_cast<unsigned long long*>(out) = 1ull << 62 | range.serial, true;
    case 11:  // where the allocation begins, and how long it is
      return *static_cast<Ptr*>(out) = range.address, true;
    case 12:
      return *static_cast<Size*>(out) = range.bytes, true;
    default:
      return false;
  }
}

Result pointerAttribute(void* out, int attribute, Ptr address) {
  const Range range = rangeAround(address);
  if (!range.bytes || !out) return cudaDriver.cuPointerGetAttribute(out, attribute, address);
  if (answerFor(out, attribute, range)) return kSuccess;
  const pager::OnCard memory;
  if (!memory.there()) return noDeviceAnyMore();
  return cudaDriver.cuPointerGetAttribute(out, attribute, address);
}

Result pointerAttributes(U count, int* attributes, void** out, Ptr address) {
  const Range range = rangeAround(address);
  if (!range.bytes) return cudaDriver.cuPointerGetAttributes(count, attributes, out, address);
  const pager::OnCard memory;
  if (!memory.there()) return noDeviceAnyMore();
  const Result rc = cudaDriver.cuPointerGetAttributes(count, attributes, out, address);
  for (U i = 0; i < count && rc == kSuccess; ++i) answerFor(out[i], attributes[i], range);
  return rc;
}

// What somebody else may map would have to stay.
void tellNotShared() {
  static std::atomic<bool> told{false};
  if (told.exchange(true)) return;
  say("memory of this task may leave the card, so no other process can have it; start it without "
      "--pageable, or make what it shares with cuMemCreate");
}

Result ipcHandle(void* out, Ptr address) {
  if (!rangeAround(address).bytes) return cudaDriver.cuIpcGetMemHandle(out, address);
  tellNotShared();
  return answered(kInvalidValue);
}

Result rangeHandle(void* out, Ptr address, Size bytes, int type, unsigned long long flags) {
  if (!rangeAround(address).bytes) {
    return cudaDriver.cuMemGetHandleForAddressRange(out, address, bytes, type, flags);
  }
  tellNotShared();
  return answered(kNotSupported);
}

// Its pages would be bound, not its address.
Result bindToMany(Mem group, Size offset, Ptr address, Size bytes, unsigned long long flags) {
  if (!rangeAround(address).bytes) {
    return cudaDriver.cuMulticastBindAddr(group, offset, address, bytes, flags);
  }
  tellNotShared();
  return answered(kInvalidValue);
}

}  // namespace

bool allocate(Ptr* out, Size bytes, Result& rc) {
  if (!mayLeave(bytes)) return false;
  rc = allocateNew(out, bytes);
  return true;
}

bool allocatePitch(Ptr* out, Size* pitch, Size width, Size height, Result& rc) {
  const Size row = roundedTo(width, kPitch);
  Size bytes = 0;
  const bool sane = row >= width && !__builtin_mul_overflow(row, height, &bytes);
  if (!sane || !mayLeave(bytes)) return false;
  rc = allocateNew(out, bytes);
  if (rc == kSuccess) *pitch = row;
  return true;
}

bool isAt(Ptr address) {
  return rangeAround(address).bytes != 0;
}

namespace {

// All work of the card may touch it. Another thread may have another context, of which some wait
// for nobody else.
Result finishAll(Ctx context) {
  const InContext in(context);
  if (!in.in()) return kInvalidContext;
  ContextDrain drain(context);
  const Result rc = cudaDriver.cuCtxSynchronize();
  if (rc == kSuccess) drain.finished();
  return rc;
}

// With the mutex held.
Allocation* unlinkAt(Ptr address) {
  Allocation** link = around(address);
  Allocation* found = *link;
  if (!found || found->address != address) return nullptr;
  *link = found->next;
  return found;
}

void freeLate() {
  Allocation* all = nullptr;
  if (!__atomic_load_n(&late, __ATOMIC_RELAXED) || !streamsAreIdle()) return;
  {
    Lock lock(mutex);
    all = late;
    late = nullptr;
  }
  while (Allocation* each = all) {
    all = each->next;
    end(each);
  }
}

}  // namespace

bool release(Ptr address, Result& rc) {
  const Range range = rangeAround(address);
  if (!range.bytes || range.address != address) return false;
  const bool waits = captures.load() == 0;
  rc = waits ? finishAll(range.context) : kSuccess;
  if (rc != kSuccess) return true;
  Allocation* found = nullptr;
  {
    Lock lock(mutex);
    found = unlinkAt(address);
    if (found && !waits) {
      found->next = late;
      __atomic_store_n(&late, found, __ATOMIC_RELAXED);
    }
  }
  if (!found) return rc = kInvalidValue, true;  // another thread was quicker
  if (waits) end(found);
  return true;
}

void OfContext::takeOut() {
  if (!context_ || !pager::active.load()) return;
  Lock lock(mutex);
  for (Allocation** link = &allocations; *link;) {
    Allocation* each = *link;
    if (each->context != context_) {
      link = &each->next;
      continue;
    }
    *link = each->next;
    each->next = taken_;
    taken_ = each;
  }
}

void OfContext::end() {
  while (Allocation* each = taken_) {
    taken_ = each->next;
    paged::end(each);
  }
}

OfContext::~OfContext() {
  if (!taken_) return;
  Lock lock(mutex);
  while (Allocation* each = taken_) {
    taken_ = each->next;
    each->next = allocations;
    allocations = each;
  }
}

bool enter(Pass& pass, std::uint64_t estimateNs, MayBlock mayBlock) {
  while (!pager::enter()) {
    retire(1, pass.windowNs, nowNs());
    if (!pager::waitUntilIn()) return false;
    pass = admit(estimateNs, mayBlock);
    if (!pass.admitted) return false;
  }
  return true;
}

}  // namespace paged

void wrapCudaNaming(cuda::Calls& table) {
  using cuda::Calls;
#define QGPU_NAMED(symbol, base, since, stream, types) \
  table.symbol = paged::Naming<&Calls::symbol, decltype(Calls::symbol)>::call;
  QGPU_CUDA_NAMING(QGPU_NAMED)
#undef QGPU_NAMED
  table.cuMemGetAddressRange_v2 = paged::addressRange;
  table.cuPointerGetAttribute = paged::pointerAttribute;
  table.cuPointerGetAttributes = paged::pointerAttributes;
  table.cuIpcGetMemHandle = paged::ipcHandle;
  table.cuMemGetHandleForAddressRange = paged::rangeHandle;
  table.cuMulticastBindAddr = paged::bindToMany;
}

}  // namespace qgpu::guest
