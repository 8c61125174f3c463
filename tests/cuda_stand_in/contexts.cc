// Devices, contexts and modules.

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/cuda_stand_in/table.h"

namespace qgpu::stand_in {

std::uint64_t environmentNumber(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

int deviceCount() {
  static const int count = static_cast<int>(environmentNumber("QGPU_STAND_IN_DEVICES", 1));
  return count;
}

namespace {

std::atomic<bool> initialised{false};

Result init(U) {
  initialised = true;
  rmInit();
  return kSuccess;
}

Result version(int* out) {
  *out = 13000;
  return kSuccess;
}

Result count(int* out) {
  if (!initialised) return kNotInitialized;
  *out = deviceCount();
  return kSuccess;
}

Result device(Dev* out, int ordinal) {
  if (!initialised) return kNotInitialized;
  if (ordinal < 0 || ordinal >= deviceCount()) return kInvalidDevice;
  *out = ordinal;
  return kSuccess;
}

Result name(char* out, int room, Dev) {
  std::snprintf(out, static_cast<std::size_t>(room), "Stand-in GPU");
  return kSuccess;
}

// A small card: what attribute asks for multiprocessors gets some, and any other gets one.
Result attribute(int* out, int which, Dev) {
  constexpr int kMultiprocessors = 16;
  *out = which == kMultiprocessors ? 4 : 1;
  return kSuccess;
}

// Any two cards reach each other, and none is its own peer.
Result canAccessPeer(int* out, Dev from, Dev to) {
  const auto known = [](Dev each) { return each >= 0 && each < deviceCount(); };
  if (!known(from) || !known(to)) return kInvalidDevice;
  *out = from != to;
  return kSuccess;
}
Result peerAttribute(int* out, int, Dev from, Dev to) {
  return canAccessPeer(out, from, to);
}

Context* primaryOf(Dev device) {
  for (Context& context : machine().contexts) {
    if (context.primary && !context.dead && context.device == device) return &context;
  }
  return nullptr;
}

Result retain(Ctx* out, Dev device) {
  if (!initialised) return kNotInitialized;
  Locked held(machine().lock);
  Context* context = primaryOf(device);
  if (!context) {
    context = makeContext(device);
    if (!context) return kOutOfMemory;
    context->primary = true;
  }
  ++context->retained;
  *out = reinterpret_cast<Ctx>(context);
  return kSuccess;
}

Result reset(Dev device) {
  Locked held(machine().lock);
  Context* context = primaryOf(device);
  if (!context) return kSuccess;
  waitFor(held, tails(*context));
  endContext(*context);
  return kSuccess;
}

Result release(Dev device) {
  {
    Locked held(machine().lock);
    Context* context = primaryOf(device);
    if (!context || context->retained == 0) return kInvalidContext;
    if (--context->retained > 0) return kSuccess;
  }
  return reset(device);
}

Result state(Dev device, U* flags, int* active) {
  Locked held(machine().lock);
  *flags = 0;
  *active = primaryOf(device) ? 1 : 0;
  return kSuccess;
}

Result createOn(Ctx* out, Dev device) {
  if (!initialised) return kNotInitialized;
  Locked held(machine().lock);
  Context* context = makeContext(device);
  if (!context) return kOutOfMemory;
  contextStack().push_back(context);
  *out = reinterpret_cast<Ctx>(context);
  return kSuccess;
}
Result create(Ctx* out, U, Dev device) {
  return createOn(out, device);
}
Result createWithAffinity(Ctx* out, void*, int, U, Dev device) {
  return createOn(out, device);
}
Result createWithParams(Ctx* out, void*, U, Dev device) {
  return createOn(out, device);
}

Context* alive(Ctx handle) {
  for (Context& context : machine().contexts) {
    if (reinterpret_cast<Ctx>(&context) == handle && !context.dead) return &context;
  }
  ++machine().misuses;
  return nullptr;
}

Result destroy(Ctx handle) {
  Locked held(machine().lock);
  Context* context = alive(handle);
  if (!context) return kInvalidContext;
  waitFor(held, tails(*context));
  endContext(*context);
  if (currentContext() == context) contextStack().pop_back();
  return kSuccess;
}

Result attach(Ctx* out, U) {
  Locked held(machine().lock);
  Context* context = currentContext();
  if (!context || context->dead) return kInvalidContext;
  ++context->retained;
  *out = reinterpret_cast<Ctx>(context);
  return kSuccess;
}
Result detach(Ctx handle) {
  {
    Locked held(machine().lock);
    Context* context = alive(handle);
    if (!context) return kInvalidContext;
    if (context->retained > 0) return --context->retained, kSuccess;
  }
  return destroy(handle);
}
// Of a context that is gone it says so, and asking is no misuse.
Result apiVersion(Ctx handle, U* out) {
  Locked held(machine().lock);
  *out = 3020;
  for (const Context& context : machine().contexts) {
    if (reinterpret_cast<Ctx>(const_cast<Context*>(&context)) == handle && !context.dead)
      return kSuccess;
  }
  return kInvalidContext;
}

Result createGreen(Green* out, void*, Dev device, U) {
  Ctx primary = nullptr;
  if (Result rc = retain(&primary, device)) return rc;
  Locked held(machine().lock);
  *out = reinterpret_cast<Green>(makeGreenContext(*reinterpret_cast<Context*>(primary)));
  return kSuccess;
}
Result fromGreen(Ctx* out, Green green) {
  Locked held(machine().lock);
  Context* context = alive(reinterpret_cast<Ctx>(green));
  *out = reinterpret_cast<Ctx>(context);
  return context ? kSuccess : kInvalidContext;
}
Result destroyGreen(Green green) {
  Dev device = 0;
  {
    Locked held(machine().lock);
    Context* context = alive(reinterpret_cast<Ctx>(green));
    if (!context) return kInvalidContext;
    endGreenContext(*context);
    device = context->device;
  }
  return release(device);
}

Result getCurrent(Ctx* out) {
  *out = reinterpret_cast<Ctx>(currentContext());
  return kSuccess;
}
Result setCurrent(Ctx handle) {
  Locked held(machine().lock);
  Context* context = handle ? alive(handle) : nullptr;
  if (handle && !context) return kInvalidContext;
  setCurrentContext(context);
  return kSuccess;
}
Result push(Ctx handle) {
  Locked held(machine().lock);
  Context* context = alive(handle);
  if (!context) return kInvalidContext;
  contextStack().push_back(context);
  return kSuccess;
}
Result pop(Ctx* out) {
  if (contextStack().empty()) return kInvalidContext;
  if (out) *out = reinterpret_cast<Ctx>(contextStack().back());
  contextStack().pop_back();
  return kSuccess;
}

Result synchronizeOn(Ctx handle) {
  Locked held(machine().lock);
  Context* context = handle ? alive(handle) : currentContext();
  if (!context) return kInvalidContext;
  if (context->dead) return ++machine().misuses, kContextIsDestroyed;
  if (Result rc = unsafeCall()) return rc;
  waitFor(held, tails(*context));
  return kSuccess;
}
Result synchronize() {
  return synchronizeOn(nullptr);
}

Result loadModule(Mod* out, const void*) {
  if (!currentContext()) return kInvalidContext;
  std::uint32_t code = 0;
  const std::uint32_t rm = currentContext()->rm;
  if (rm && !rmAllocate(kModuleBytes, code, RmForm::kAlloc, rm)) return kOutOfMemory;
  *out = reinterpret_cast<Mod>(currentContext());
  return kSuccess;
}

// Kernels are named words; the word itself is the handle.
Result getFunction(Fn* out, Mod, const char* kernel) {
  static const char* const known[] = {"nothing",  "sleep",    "add",  "spin", "mix",
                                      "multiply", "together", "fill", "stir", "check"};
  for (const char* const& word : known) {
    if (std::strcmp(word, kernel) != 0) continue;
    *out = reinterpret_cast<Fn>(const_cast<char*>(word));
    return kSuccess;
  }
  return kNotFound;
}

// Private tables of runtimes: there are none here, and whoever asks must get on without.
Result exportTable(const void** out, const void*) {
  *out = nullptr;
  return kNotFound;
}

}  // namespace

void fillContexts(Table& table) {
  table.cuInit = init;
  table.cuDriverGetVersion = version;
  table.cuDeviceGetCount = count;
  table.cuDeviceGet = device;
  table.cuDeviceGetName = name;
  table.cuDeviceGetAttribute = attribute;
  table.cuDeviceCanAccessPeer = canAccessPeer;
  table.cuDeviceGetP2PAttribute = peerAttribute;
  table.cuDevicePrimaryCtxRetain = retain;
  table.cuDevicePrimaryCtxRelease = table.cuDevicePrimaryCtxRelease_v2 = release;
  table.cuDevicePrimaryCtxReset = table.cuDevicePrimaryCtxReset_v2 = reset;
  table.cuDevicePrimaryCtxGetState = state;
  table.cuCtxCreate = table.cuCtxCreate_v2 = create;
  table.cuCtxCreate_v3 = createWithAffinity;
  table.cuCtxCreate_v4 = createWithParams;
  table.cuCtxDestroy = table.cuCtxDestroy_v2 = destroy;
  table.cuCtxAttach = attach;
  table.cuCtxDetach = detach;
  table.cuCtxGetApiVersion = apiVersion;
  table.cuGreenCtxCreate = createGreen;
  table.cuGreenCtxDestroy = destroyGreen;
  table.cuCtxFromGreenCtx = fromGreen;
  table.cuCtxGetCurrent = getCurrent;
  table.cuCtxGetDevice = [](Dev* out) {
    if (!currentContext()) return kInvalidContext;
    return *out = currentContext()->device, kSuccess;
  };
  table.cuCtxSetCurrent = setCurrent;
  table.cuCtxPushCurrent = table.cuCtxPushCurrent_v2 = push;
  table.cuCtxPopCurrent = table.cuCtxPopCurrent_v2 = pop;
  table.cuCtxSynchronize = synchronize;
  table.cuCtxSynchronize_v2 = synchronizeOn;
  table.cuModuleLoadData = loadModule;
  table.cuModuleUnload = [](Mod) { return kSuccess; };
  table.cuLibraryUnload = [](Lib) { return kSuccess; };
  table.cuModuleGetFunction = getFunction;
  table.cuGetExportTable = exportTable;
}

}  // namespace qgpu::stand_in
