// What the library exports: each function counted, by its own name and by cuGetProcAddress.

#include <algorithm>
#include <cstring>
#include <iterator>

#include "tests/cuda_stand_in/export_jump.h"
#include "tests/cuda_stand_in/table.h"

namespace qgpu::stand_in {
namespace {

// Filled once, by the first of the library's constructors.
Table table = filledTable();

template <auto member>
std::atomic<std::uint64_t> calls{0};
template <auto member>
std::atomic<Result> answers{kSuccess};  // what it says instead of doing anything

// What stands between a name and its function.
template <auto member, typename F>
struct Counted;
template <auto member, typename... A>
struct Counted<member, Result (*)(A...)> {
  static Result call(A... a) {
    calls<member>.fetch_add(1, std::memory_order_relaxed);
    if (const Result rc = answers<member>.load(std::memory_order_relaxed)) return rc;
    return (table.*member)(a...);
  }
};

}  // namespace
}  // namespace qgpu::stand_in

extern "C" {
#define QGPU_POINTER(symbol, base, since, stream, types)                                        \
  __attribute__((visibility("hidden"), used)) void* qgpu_to_##symbol = reinterpret_cast<void*>( \
      &qgpu::stand_in::Counted<&qgpu::stand_in::Table::symbol,                                  \
                               decltype(qgpu::stand_in::Table::symbol)>::call);
NVIDIA_CUDA_HOOKED(QGPU_POINTER)
NVIDIA_CUDA_CALLED(QGPU_POINTER)
NVIDIA_CUDA_PLAIN(QGPU_POINTER)
#define QGPU_EXPORT(symbol, base, since, stream, types) extern char symbol[];
namespace exported {
NVIDIA_CUDA_HOOKED(QGPU_EXPORT)
NVIDIA_CUDA_CALLED(QGPU_EXPORT)
NVIDIA_CUDA_PLAIN(QGPU_EXPORT)
}  // namespace exported
#undef QGPU_EXPORT
}

#define QGPU_EXPORT(symbol, base, since, stream, types) QGPU_EXPORT_JUMP(symbol)
NVIDIA_CUDA_HOOKED(QGPU_EXPORT)
NVIDIA_CUDA_CALLED(QGPU_EXPORT)
NVIDIA_CUDA_PLAIN(QGPU_EXPORT)

namespace qgpu::stand_in {
namespace {

struct Entry {
  const char* symbol;
  const char* base;
  int since;
  Stream0 stream;
  void* exported;
  void* direct;
  const std::atomic<std::uint64_t>* calls;
  std::atomic<Result>* answer;
};

const Entry entries[] = {
#define QGPU_ENTRY(symbol, base, since, stream, types) \
  {#symbol,                                            \
   #base,                                              \
   since,                                              \
   Stream0::stream,                                    \
   ::exported::symbol,                                 \
   qgpu_to_##symbol,                                   \
   &calls<&Table::symbol>,                             \
   &answers<&Table::symbol>},
    NVIDIA_CUDA_HOOKED(QGPU_ENTRY) NVIDIA_CUDA_CALLED(QGPU_ENTRY) NVIDIA_CUDA_PLAIN(QGPU_ENTRY)
#undef QGPU_ENTRY
};

void* addressOf(const Entry& entry) {
  static const bool hidden = environmentNumber("QGPU_STAND_IN_PRIVATE", 0) != 0;
  return hidden ? entry.direct : entry.exported;
}

// The newest form that the version knows; the thread's own default stream where asked for.
Result getProcAddress2(const char* symbol, void** out, int version, std::uint64_t flags,
                       int* status) {
  const Entry* best = nullptr;
  bool known = false;
  for (const Entry& entry : entries) {
    if (std::strcmp(entry.base, symbol) != 0) continue;
    known = true;
    const bool own = entry.stream == Stream0::kPerThread;
    if (entry.since > version || (own && !(flags & kAskPerThreadStream))) continue;
    if (!best || entry.since > best->since || (entry.since == best->since && own)) best = &entry;
  }
  *out = best ? addressOf(*best) : nullptr;
  if (status) *status = best ? kSymbolFound : known ? kSymbolTooNew : kSymbolNotFound;
  return best ? kSuccess : kNotFound;
}

Result getProcAddress(const char* symbol, void** out, int version, std::uint64_t flags) {
  return getProcAddress2(symbol, out, version, flags, nullptr);
}

[[maybe_unused]] const bool plumbed = [] {
  table.cuGetProcAddress = getProcAddress;
  table.cuGetProcAddress_v2 = getProcAddress2;
  return true;
}();

std::uint64_t callsOf(const char* symbol) {
  for (const Entry& entry : entries) {
    if (std::strcmp(entry.symbol, symbol) == 0) return entry.calls->load();
  }
  return ~std::uint64_t{0};
}

void answerWith(const char* symbol, Result rc) {
  for (const Entry& entry : entries) {
    if (std::strcmp(entry.symbol, symbol) == 0) entry.answer->store(rc);
  }
}

void* exportOf(const char* symbol) {
  for (const Entry& entry : entries) {
    if (std::strcmp(entry.symbol, symbol) == 0) return entry.exported;
  }
  return nullptr;
}

const QgpuStandIn questions = {
    callsOf,
    exportOf,
    [] { return Locked(machine().lock), machine().misuses; },
    allocatedBytes,
    [] { return Locked(machine().lock), machine().pending; },
    [] { return Locked(machine().lock), machine().brokenCaptures; },
    ioctlCount,
    [] {
      Locked held(machine().lock);
      return static_cast<std::uint64_t>(
          std::count_if(machine().events.begin(), machine().events.end(),
                        [](const Event& event) { return !event.dead; }));
    },
    answerWith,
};

}  // namespace
}  // namespace qgpu::stand_in

extern "C" __attribute__((visibility("default"))) const QgpuStandIn* qgpuStandIn() {
  return &qgpu::stand_in::questions;
}
