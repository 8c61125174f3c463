#include "services/guest/cuda/cuda_driver.h"

#include <cstring>
#include <dlfcn.h>
#include <iterator>
#include <string_view>

#include "services/guest/cuda/cuda_names.h"
#include "services/guest/gate/attach.h"
#include "services/guest/gate/real_loader.h"
#include "services/guest/gate/wrapper_table.h"
#include "services/guest/rm/rm_ioctl.h"

namespace qgpu::guest {

cuda::Calls cudaDriver{};

namespace {

std::atomic<Runtime> runtimeOfDriver{Runtime::kNone};

}  // namespace

bool claimDriver(Runtime runtime) {
  Runtime before = Runtime::kNone;
  return runtimeOfDriver.compare_exchange_strong(before, runtime) || before == runtime;
}

bool driverIsHip() {
  return runtimeOfDriver.load(std::memory_order_relaxed) == Runtime::kHip;
}

namespace {

using cuda::Calls;
using cuda::Result;
using cuda::Stream0;

enum class Library { kCuda, kNvml };

struct Hook {
  const char* symbol;
  const char* base;
  int since;
  Stream0 stream;
  Library library;
  std::size_t at;  // of its pointer in Calls
};

constexpr Hook kHooks[] = {
#define QGPU_HOOK(symbol, base, since, stream, types) \
  {#symbol, #base, since, Stream0::stream, Library::kCuda, offsetof(Calls, symbol)},
    QGPU_CUDA_HOOKED(QGPU_HOOK)
#undef QGPU_HOOK
#define QGPU_HOOK(symbol, base, since, stream, types) \
  {#symbol, #base, since, Stream0::stream, Library::kNvml, offsetof(Calls, symbol)},
        QGPU_NVML_HOOKED(QGPU_HOOK)
#undef QGPU_HOOK
};

constexpr Hook kCalled[] = {
#define QGPU_HOOK(symbol, base, since, stream, types) \
  {#symbol, #base, since, Stream0::stream, Library::kCuda, offsetof(Calls, symbol)},
    QGPU_CUDA_CALLED(QGPU_HOOK)
#undef QGPU_HOOK
};

void*& pointerIn(Calls& table, const Hook& hook) {
  return *reinterpret_cast<void**>(reinterpret_cast<char*>(&table) + hook.at);
}

constinit WrapperTable wrapperTable;
static_assert(std::size(kHooks) * 3 < WrapperTable::kPlaces,
              "exported and private addresses fit with room");

std::atomic<const char*> driverBegin{nullptr}, driverEnd{nullptr};

Calls& wrappers() {
  static Calls table;
  return table;
}

// Takes what a loaded library has, and stands before it where there is a wrapper. `handle` null:
// not loaded under its name; then what comes after this library in the global scope. Where the
// table is AMD's, its functions stay in it: then CUDA's wrappers lead nowhere else than to no
// device.
template <std::size_t n>
void take(const Hook (&hooks)[n], Library library, void* handle) {
  const RealLoader& real = realLoader();
  for (const Hook& hook : hooks) {
    if (hook.library != library) continue;
    void* found = real.dlsym(handle ? handle : RTLD_NEXT, hook.symbol);
    if (!found) continue;
    wrapperTable.add(found, pointerIn(wrappers(), hook));
    void*& place = pointerIn(cudaDriver, hook);
    if (!(driverIsHip() && place)) __atomic_store_n(&place, found, __ATOMIC_SEQ_CST);
  }
}

Result getProcAddress(const char*, void**, int, std::uint64_t);
Result getProcAddress2(const char*, void**, int, std::uint64_t, int*);
Result init(cuda::U);

const Calls& wrapped() {
  Calls& table = wrappers();
  wrapCuda(table);
  wrapNvmlProcesses(table);
  wrapNvmlStarts(table);
  table.cuInit = init;
  table.cuGetProcAddress = getProcAddress;
  table.cuGetProcAddress_v2 = getProcAddress2;
  return table;
}

// A library stays loaded once it was found: its addresses are kept.
void* loaded(const char* name) {
  return realLoader().dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
}

std::atomic<bool> cudaFound{false}, nvmlFound{false};

void findNvml() {
  if (nvmlFound.load(std::memory_order_acquire)) return;
  void* handle = loaded("libnvidia-ml.so.1");
  if (!handle) return;
  wrapped();
  take(kHooks, Library::kNvml, handle);
  nvmlFound.store(true, std::memory_order_release);
}

}  // namespace

bool findCudaDriver() {
  findNvml();
  if (cudaFound.load(std::memory_order_acquire)) return true;
  void* handle = loaded("libcuda.so.1");
  if (!handle && !realLoader().dlsym(RTLD_NEXT, "cuInit")) return false;
  wrapped();
  take(kHooks, Library::kCuda, handle);
  take(kCalled, Library::kCuda, handle);
  const FileRange range = fileAround(reinterpret_cast<void*>(cudaDriver.cuInit));
  driverEnd.store(range.end);
  driverBegin.store(range.begin);
  cudaFound.store(true, std::memory_order_release);
  return true;
}

void* wrapperOf(void* address) {
  return wrapperTable.find(address);
}

bool isOfCudaDriver(const void* address) {
  const char* begin = driverBegin.load();
  return begin && address >= begin && address < driverEnd.load();
}

namespace {

// A function of the driver that a program is given as it is. Once for the program: a runtime asks
// for all that there are, and the first says enough.
void tellIfUnhooked(const char* name, const void* found) {
  static std::atomic<bool> told{false};
  if (told.load(std::memory_order_relaxed) || !found || !cuda::looksLikeWork(name)) return;
  if (!isOfCudaDriver(found) || told.exchange(true)) return;
  say("the driver has %s, which this library does not know: what a program does by it is neither "
      "held nor counted; a newer libqgpu.so may know it",
      name);
}

// A driver may answer cuGetProcAddress with addresses that no name of its exports has. Each hook is
// asked for once, in exactly its own version and kind, so that these are known by address as well.
// A wrapper calls the driver by an export's address: where there is none, it can stand before
// nothing.
void learnProcAddresses() {
  static std::atomic<bool> learnt{false};
  if (learnt.load(std::memory_order_acquire)) return;
  for (const Hook& hook : kHooks) {
    if (hook.library != Library::kCuda || !pointerIn(cudaDriver, hook)) continue;
    const std::uint64_t flags =
        hook.stream == Stream0::kPerThread ? cuda::kAskPerThreadStream : cuda::kAskLegacyStream;
    void* found = nullptr;
    int status = cuda::kSymbolNotFound;
    const Result rc =
        cudaDriver.cuGetProcAddress_v2
            ? cudaDriver.cuGetProcAddress_v2(hook.base, &found, hook.since, flags, &status)
            : cudaDriver.cuGetProcAddress(hook.base, &found, hook.since, flags);
    if (rc == cuda::kSuccess) wrapperTable.add(found, pointerIn(wrappers(), hook));
  }
  learnt.store(true, std::memory_order_release);
}

void* given(const char* name, void* found) {
  void* wrapper = wrapperOf(found);
  if (wrapper == found) tellIfUnhooked(name, found);
  return wrapper;
}

Result getProcAddress(const char* symbol, void** out, int version, std::uint64_t flags) {
  learnProcAddresses();
  const Result rc = cudaDriver.cuGetProcAddress(symbol, out, version, flags);
  if (rc == cuda::kSuccess && out && *out) *out = given(symbol, *out);
  return rc;
}

Result getProcAddress2(const char* symbol, void** out, int version, std::uint64_t flags,
                       int* status) {
  learnProcAddresses();
  const Result rc = cudaDriver.cuGetProcAddress_v2(symbol, out, version, flags, status);
  if (rc == cuda::kSuccess && out && *out) *out = given(symbol, *out);
  return rc;
}

// The card of the task is NVIDIA's, or one that is only imagined (no platform).
bool cardIsCuda() {
  const char* platform = session.welcome.platform;
  if (!*platform || strcmp(platform, "NVIDIA CUDA") == 0) return true;
  say("the card of this task is of platform '%s', and this program asks CUDA for one; no device",
      platform);
  return false;
}

// The session's generation in which CUDA started.
constexpr std::uint32_t kNever = ~0u;
std::atomic<std::uint32_t> startedIn{kNever};

// CUDA does not survive a fork. In the child, which has let go of the driver's files, some drivers
// would find these gone before they find that, and say so.
Result init(cuda::U flags) {
  if (!ensureAttached() || !cardIsCuda() || !claimDriver(Runtime::kCuda)) return cuda::kNoDevice;
  const std::uint32_t started = startedIn.load(), now = session.generation.load();
  if (started != kNever && started != now) return cuda::kNotInitialized;
  const Result rc = cudaDriver.cuInit(flags);
  if (rc != cuda::kSuccess) return rc;
  startedIn.store(now);
  countedByDriver();  // the layout of the driver is known by now, if ever
  return rc;
}

// --- linked names ---

void settle();

// Stands for a function until the first call of any.
template <std::size_t at, typename F>
struct Chooser;

}  // namespace
}  // namespace qgpu::guest

extern "C" {
#define QGPU_DECLARE(symbol, base, since, stream, types) \
  extern __attribute__((visibility("hidden"))) void* qgpu_to_##symbol;
QGPU_CUDA_HOOKED(QGPU_DECLARE)
QGPU_NVML_HOOKED(QGPU_DECLARE)
#undef QGPU_DECLARE
}

namespace qgpu::guest {
namespace {

void* const* const kTargets[] = {
#define QGPU_TARGET(symbol, base, since, stream, types) &qgpu_to_##symbol,
    QGPU_CUDA_HOOKED(QGPU_TARGET) QGPU_NVML_HOOKED(QGPU_TARGET)
#undef QGPU_TARGET
};
static_assert(std::size(kTargets) == std::size(kHooks), "in the same order");

constexpr Result kNvmlFunctionNotFound = 13;

template <typename R, typename... A, std::size_t place>
struct Chooser<place, R (*)(A...)> {
  static R call(A... a) {
    settle();
    void* target = __atomic_load_n(kTargets[place], __ATOMIC_SEQ_CST);
    const auto function = reinterpret_cast<R (*)(A...)>(target);
    if (function != call) return function(a...);
    return kHooks[place].library == Library::kCuda ? cuda::kNotFound : kNvmlFunctionNotFound;
  }
};

// Every exported name leads where it belongs: to the wrapper, or without a token to the driver.
void settle() {
  findCudaDriver();
  if (driverIsHip()) return;
  for (std::size_t i = 0; i < std::size(kHooks); ++i) {
    void* function = pointerIn(cudaDriver, kHooks[i]);
    if (!function) continue;
    if (tokenGiven()) function = wrapperOf(function);
    __atomic_store_n(const_cast<void**>(kTargets[i]), function, __ATOMIC_SEQ_CST);
  }
}

constexpr std::size_t placeNamed(std::string_view symbol) {
  std::size_t i = 0;
  while (symbol != kHooks[i].symbol) ++i;
  return i;
}

}  // namespace
}  // namespace qgpu::guest

extern "C" {
#define QGPU_POINTER(symbol, base, since, stream, types)                              \
  __attribute__((visibility("hidden"), used)) void* qgpu_to_##symbol =                \
      reinterpret_cast<void*>(&qgpu::guest::Chooser<qgpu::guest::placeNamed(#symbol), \
                                                    decltype(qgpu::cuda::Calls::symbol)>::call);
QGPU_CUDA_HOOKED(QGPU_POINTER)
QGPU_NVML_HOOKED(QGPU_POINTER)
#undef QGPU_POINTER
}

#define QGPU_EXPORT(symbol, base, since, stream, types) QGPU_EXPORT_JUMP(symbol)
QGPU_CUDA_HOOKED(QGPU_EXPORT)
QGPU_NVML_HOOKED(QGPU_EXPORT)
#undef QGPU_EXPORT

// --- names that are asked for ---

namespace qgpu::guest {
namespace {

const Hook* hookOf(const char* name) {
  for (const Hook& hook : kHooks) {
    if (strcmp(hook.symbol, name) == 0) return &hook;
  }
  return nullptr;
}

// What programs of before CUDA 3.2 used; the present form has a hook, and no 64-bit code this one.
bool isOldForm(const char* name) {
  char present[64];
  const int n = snprintf(present, sizeof present, "%s_v2", name);
  return n > 0 && static_cast<std::size_t>(n) < sizeof present && hookOf(present);
}

// Our own exports are always in the global scope; a program that asks there whether there is a
// driver, or whether it has a function, must not be told yes by them alone.
void* chooseInGlobalScope(const Hook& hook) {
  findCudaDriver();
  if (pointerIn(cudaDriver, hook)) return kTheLoaderDecides;
  return realLoader().dlsym(RTLD_NEXT, hook.symbol) ? kTheLoaderDecides : kNoSymbol;
}

bool isOurs(const void* address) {
  const FileRange own = fileAround(reinterpret_cast<void*>(&isOurs));
  return address >= own.begin && address < own.end;
}

}  // namespace

void* chooseCudaSymbol(void* handle, const char* name, const char* version, const void* caller) {
  if (handle == RTLD_NEXT || isOfCudaDriver(caller)) return kTheLoaderDecides;
  const Hook* hook = hookOf(name);
  if (handle == RTLD_DEFAULT) return hook ? chooseInGlobalScope(*hook) : kTheLoaderDecides;
  if (!hook && !tokenGiven()) return kTheLoaderDecides;
  if (!hook) {
    if (cuda::looksLikeWork(name) && !isOldForm(name) && findCudaDriver()) {
      tellIfUnhooked(name, findSymbol(handle, name, nullptr));
    }
    return kTheLoaderDecides;
  }
  void* found = findSymbol(handle, name, version);
  if (!found) return kTheLoaderDecides;
  if (isOurs(found)) return chooseInGlobalScope(*hook);  // dlopen(NULL) names that scope too
  if (!tokenGiven()) return kTheLoaderDecides;
  findCudaDriver();
  // Once more, for what the loader then says: what was asked of it in between may have failed.
  return wrapperOf(findSymbol(handle, name, version));
}

}  // namespace qgpu::guest
