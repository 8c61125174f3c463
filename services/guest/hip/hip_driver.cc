#include "services/guest/hip/hip_driver.h"

#include <cstring>
#include <dlfcn.h>
#include <iterator>

#include "services/guest/gate/attach.h"
#include "services/guest/gate/real_loader.h"

namespace qgpu::guest {

hip::Calls hipDriver{};

namespace {

using cuda::Ctx;
using cuda::Evt;
using cuda::Result;
using cuda::Str;

// --- what the machinery of streams asks, in CUDA's terms ---

// A device stands for its context, and its default stream has no other name in each release.
Str named(Str stream) {
  return stream == cuda::legacyStream() ? nullptr : stream;
}

int deviceOf(Ctx context) {
  return static_cast<int>(reinterpret_cast<std::uintptr_t>(context) - 1);
}

Result currentContext(Ctx* out) {
  int device = 0;
  const Result rc = hipDriver.hipGetDevice(&device);
  *out = rc == cuda::kSuccess ? contextOfDevice(device) : nullptr;
  return rc;
}

// Not by the hook: what this thread knows of streams stays true once its device is as it was.
Result enter(Ctx context) {
  return hipDriver.hipSetDevice(deviceOf(context));
}

constinit thread_local Ctx before = nullptr;

Result push(Ctx context) {
  if (const Result rc = currentContext(&before)) return rc;
  return enter(context);
}
Result pop(Ctx* out) {
  *out = before;
  return enter(before);
}

Result contextOfStream(Str stream, Ctx* out) {
  const int device = hipDriver.hipGetStreamDeviceId(stream);
  if (device < 0) return cuda::kInvalidHandle;
  *out = contextOfDevice(device);
  return cuda::kSuccess;
}

Result lives(Ctx, cuda::U* version) {
  *version = 0;
  return cuda::kSuccess;
}

void answerAsCuda() {
  cuda::Calls& as = cudaDriver;
  const hip::Calls& real = hipDriver;
  if (real.hipGetDevice) as.cuCtxGetCurrent = currentContext;
  if (real.hipGetStreamDeviceId) as.cuStreamGetCtx = contextOfStream;
  as.cuCtxSetCurrent = enter;
  as.cuCtxPushCurrent_v2 = push;
  as.cuCtxPopCurrent_v2 = pop;
  as.cuCtxGetApiVersion = lives;
  as.cuStreamIsCapturing = real.hipStreamIsCapturing;
  as.cuThreadExchangeStreamCaptureMode = real.hipThreadExchangeStreamCaptureMode;
  as.cuEventCreate = real.hipEventCreateWithFlags;
  as.cuEventRecord = [](Evt event, Str stream) {
    return hipDriver.hipEventRecord(event, named(stream));
  };
  as.cuEventQuery = real.hipEventQuery;
  as.cuEventElapsedTime = real.hipEventElapsedTime;
  as.cuEventDestroy_v2 = real.hipEventDestroy;
  as.cuStreamQuery = [](Str stream) { return hipDriver.hipStreamQuery(named(stream)); };
}

// --- every hook ---

}  // namespace
}  // namespace qgpu::guest

extern "C" {
#define QGPU_DECLARE(symbol, ...)                                      \
  extern __attribute__((visibility("hidden"))) void* qgpu_to_##symbol; \
  __attribute__((visibility("default"))) void qgpu_export_##symbol(void) __asm__(#symbol);
QGPU_HIP_AS_CUDA(QGPU_DECLARE)
QGPU_HIP_OWN(QGPU_DECLARE)
#undef QGPU_DECLARE
}

namespace qgpu::guest {
namespace {

// Where pointers to functions are.
struct Hook {
  const char* symbol;
  void* driver;   // of the runtime
  void* wrapper;  // that stands before it
  void* target;   // that the exported name leads to
  void (*exported)();
};

void*& in(void* place) {
  return *static_cast<void**>(place);
}

// The runtime's functions that are as CUDA's; cudaDriver has them once a tenant started HIP.
cuda::Calls alike{};
// Filled by wrapHip() and, for what is as CUDA's, by CUDA's.
hip::Calls ownWrappers;
cuda::Calls sharedWrappers;

constexpr Hook kHooks[] = {
#define QGPU_HOOK(symbol, as) \
  {#symbol, &alike.as, &sharedWrappers.as, &qgpu_to_##symbol, qgpu_export_##symbol},
    QGPU_HIP_AS_CUDA(QGPU_HOOK)
#undef QGPU_HOOK
#define QGPU_HOOK(symbol, stream, types) \
  {#symbol, &hipDriver.symbol, &ownWrappers.symbol, &qgpu_to_##symbol, qgpu_export_##symbol},
        QGPU_HIP_OWN(QGPU_HOOK)
#undef QGPU_HOOK
};

struct Called {
  const char* symbol;
  void* driver;
};
constexpr Called kCalled[] = {
#define QGPU_CALLED(symbol, stream, types) {#symbol, &hipDriver.symbol},
    QGPU_HIP_CALLED(QGPU_CALLED)
#undef QGPU_CALLED
};

const Hook* hookOf(const char* name) {
  for (const Hook& hook : kHooks) {
    if (strcmp(hook.symbol, name) == 0) return &hook;
  }
  return nullptr;
}

void* take(void* handle, const char* symbol) {
  return realLoader().dlsym(handle ? handle : RTLD_NEXT, symbol);
}

// A library stays loaded once it was found: its addresses are kept.
void* loaded() {
  for (const char* name : {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"}) {
    if (void* handle = realLoader().dlopen(name, RTLD_LAZY | RTLD_NOLOAD)) return handle;
  }
  return nullptr;
}

std::atomic<bool> hipFound{false};

// Whatever version of a function a program is given: where that has a hook, the exported one.
Result getProcAddress(const char* symbol, void** out, int version, std::uint64_t flags,
                      int* status) {
  const Result rc = hipDriver.hipGetProcAddress(symbol, out, version, flags, status);
  if (rc != cuda::kSuccess || !out || !*out) return rc;
  for (const Hook& hook : kHooks) {
    if (in(hook.driver) == *out) return *out = reinterpret_cast<void*>(hook.exported), rc;
  }
  return rc;
}

void keep(void* place, void* found) {
  if (found) __atomic_store_n(&in(place), found, __ATOMIC_SEQ_CST);
}

}  // namespace

bool namesHip(const char* name) {
  return begins(name, "hip") || begins(name, "_Z24hip");  // two have C++'s names
}

bool findHip() {
  if (hipFound.load(std::memory_order_acquire)) return true;
  void* handle = loaded();
  if (!handle && !realLoader().dlsym(RTLD_NEXT, "hipMalloc")) return false;
  for (const Hook& hook : kHooks) keep(hook.driver, take(handle, hook.symbol));
  for (const Called& each : kCalled) keep(each.driver, take(handle, each.symbol));
  wrapCuda(sharedWrappers);
  wrapHip(ownWrappers);
  ownWrappers.hipStreamQuery = sharedWrappers.cuStreamQuery;
  ownWrappers.hipGetProcAddress = getProcAddress;
  hipFound.store(true, std::memory_order_release);
  return true;
}

namespace {

// The card of the task is AMD's, or one that is only imagined (no platform).
bool cardIsHip() {
  const char* platform = session.welcome.platform;
  if (!*platform || strcmp(platform, kRocmPlatform) == 0) return true;
  static std::atomic<bool> told{false};
  if (!told.exchange(true)) {
    say("the card of this task is of platform '%s', and this program asks HIP for one; no device",
        platform);
  }
  return false;
}

// Whether the process may use the runtime at all.
bool started() {
  return !tokenGiven() || (ensureAttached() && cardIsHip() && claimDriver(Runtime::kHip));
}

// The machinery of streams works with this runtime from now on.
void becomeDriver() {
#define QGPU_AS(symbol, as) keep(&cudaDriver.as, reinterpret_cast<void*>(alike.as));
  QGPU_HIP_AS_CUDA(QGPU_AS)
#undef QGPU_AS
  answerAsCuda();
}

// --- linked names ---

std::atomic<bool> forkIsWatched{false};
void attachAnewInChild();

void settle() {
  if (!findHip()) return;
  if (tokenGiven()) becomeDriver();
  if (!forkIsWatched.exchange(true)) onForkInChild(attachAnewInChild);
  for (const Hook& hook : kHooks) {
    if (!in(hook.driver)) continue;
    void* wrapper = in(hook.wrapper);
    keep(hook.target, tokenGiven() && wrapper ? wrapper : in(hook.driver));
  }
}

// Stands for a function until the process is attached: each call of any tries.
template <void** target, typename F>
struct Chooser;
template <void** target, typename R, typename... A>
struct Chooser<target, R (*)(A...)> {
  static R call(A... a) {
    if (!started()) return cuda::kNoDevice;  // hipGetLastError() as well
    settle();
    const auto function = reinterpret_cast<R (*)(A...)>(__atomic_load_n(target, __ATOMIC_SEQ_CST));
    return function != call ? function(a...) : cuda::kNotFound;
  }
};

template <void** target, typename F>
void* chooser() {
  return reinterpret_cast<void*>(&Chooser<target, F>::call);
}

}  // namespace
}  // namespace qgpu::guest

extern "C" {
#define QGPU_POINTER(symbol, type)                                     \
  __attribute__((visibility("hidden"), used)) void* qgpu_to_##symbol = \
      reinterpret_cast<void*>(&qgpu::guest::Chooser<&qgpu_to_##symbol, type>::call);
#define QGPU_SHARED(symbol, as) QGPU_POINTER(symbol, decltype(qgpu::cuda::Calls::as))
#define QGPU_OWN(symbol, stream, types) QGPU_POINTER(symbol, decltype(qgpu::hip::Calls::symbol))
QGPU_HIP_AS_CUDA(QGPU_SHARED)
QGPU_HIP_OWN(QGPU_OWN)
#undef QGPU_SHARED
#undef QGPU_OWN
#undef QGPU_POINTER
}

namespace qgpu::guest {
namespace {

// A child is a process of its own, which the manager does not know yet.
void attachAnewInChild() {
#define QGPU_SHARED(symbol, as) \
  qgpu_to_##symbol = chooser<&qgpu_to_##symbol, decltype(cuda::Calls::as)>();
#define QGPU_OWN(symbol, stream, types) \
  qgpu_to_##symbol = chooser<&qgpu_to_##symbol, decltype(hip::Calls::symbol)>();
  QGPU_HIP_AS_CUDA(QGPU_SHARED)
  QGPU_HIP_OWN(QGPU_OWN)
#undef QGPU_SHARED
#undef QGPU_OWN
}

}  // namespace
}  // namespace qgpu::guest

#define QGPU_EXPORT(symbol, ...) QGPU_EXPORT_JUMP(symbol)
QGPU_HIP_AS_CUDA(QGPU_EXPORT)
QGPU_HIP_OWN(QGPU_EXPORT)
#undef QGPU_EXPORT

namespace qgpu::guest {

namespace {

// Newer runtimes bring ways to launch and to copy that are not known here; a program that takes one
// is neither held nor counted there, which must at least be told, once.
bool looksLikeWork(const char* name) {
  return strstr(name, "Launch") || begins(name, "hipMemcpy") || begins(name, "hipMemset");
}
void tellIfUnhooked(const char* name, const void* found) {
  static std::atomic<bool> told{false};
  if (!found || !tokenGiven() || !looksLikeWork(name) || told.exchange(true)) return;
  say("HIP has %s, which this library does not know: what a program does by it is neither held nor "
      "counted; a newer libqgpu.so may know it",
      name);
}

// Our own exports are always in the global scope: that a name is there says nothing of a runtime.
void* chooseInGlobalScope(const Hook& hook) {
  const bool has = findHip() ? in(hook.driver) != nullptr
                             : realLoader().dlsym(RTLD_NEXT, hook.symbol) != nullptr;
  return has ? kTheLoaderDecides : kNoSymbol;
}

}  // namespace

void* chooseHipSymbol(void* handle, const char* name, const char* version) {
  if (handle == RTLD_NEXT) return kTheLoaderDecides;
  const Hook* hook = hookOf(name);
  if (!hook) {
    if (handle != RTLD_DEFAULT) tellIfUnhooked(name, findSymbol(handle, name, version));
    return kTheLoaderDecides;
  }
  if (handle == RTLD_DEFAULT) return chooseInGlobalScope(*hook);
  void* found = findSymbol(handle, name, version);
  if (!found) return kTheLoaderDecides;
  void* ours = reinterpret_cast<void*>(hook->exported);
  if (found == ours) return chooseInGlobalScope(*hook);  // dlopen(NULL) names that scope too
  const bool hooked = tokenGiven() && findHip() && found == in(hook->driver);
  return hooked ? ours : kTheLoaderDecides;
}

}  // namespace qgpu::guest
