#pragma once
// The stand-in's own table of functions: those that hooks know, and the others that a program needs
// to get going. Each file fills in its area; what stays null gets plain(): one operation in the
// stream that the call names, which copies where its arguments say so.

#include "tests/cuda_stand_in/calls.h"
#include "tests/cuda_stand_in/engine.h"
#include "tests/cuda_stand_in/kernel.h"
#include "tests/cuda_stand_in/stand_in.h"

namespace qgpu::stand_in {

void fillContexts(Table& table);
void fillStreams(Table& table);
void fillGraphs(Table& table);
void fillMemory(Table& table);
void fillLaunches(Table& table);
inline Table filledTable() {
  Table table{};
  fillContexts(table);
  fillStreams(table);
  fillGraphs(table);
  fillMemory(table);
  fillLaunches(table);
  return table;
}

std::uint64_t environmentNumber(const char* name, std::uint64_t otherwise);
int deviceCount();
std::uint64_t allocatedBytes(int device);
bool isOnCard(Ptr at);  // with the lock held: some card's memory is there

// The resource manager's calls, issued through libc's ioctl() as the real library does: what a
// preloaded library may watch or refuse. Where no kernel answers, a status that was set stays.
enum class RmForm { kAlloc, kHeap, kCarried };           // three ways to ask for memory
inline constexpr std::uint64_t kContextBytes = 2 << 20;  // where nobody asks for another number
inline constexpr std::uint64_t kModuleBytes = 64 << 10;
bool rmAnswers();  // QGPU_DRIVER_ROOT: the kernel's stand-in is there
void rmInit();
void rmTakeTime();  // as long as a question about a stream takes
// What a context needs beneath a device of its own, whose handle frees it all; 0: no kernel, or it
// has no memory. Its channel is told where it can be taken off the card.
std::uint32_t rmMakeContext(Channel& channel);
// Beneath `parent`, 0: the process's device. False: no memory.
bool rmAllocate(std::uint64_t bytes, std::uint32_t& handle, RmForm form = RmForm::kAlloc,
                std::uint32_t parent = 0);
// A name of our own for another client's object; the driver's status.
std::uint32_t rmImport(rm::Handle client, rm::Handle object, std::uint32_t& handle);
rm::Handle rmClient();
std::uint32_t rmHostMemory(std::uint64_t bytes);
void rmFree(std::uint32_t handle, RmForm form = RmForm::kAlloc);
std::uint64_t ioctlCount(std::uint32_t number);

// The arguments of any call, by type.
template <typename Wanted, typename... A>
Wanted pick(Wanted otherwise, A... a) {
  Wanted found = otherwise;
  [[maybe_unused]] const auto look = [&](auto value) {
    if constexpr (std::is_same_v<decltype(value), Wanted>) found = value;
  };
  (look(a), ...);
  return found;
}

// (to, from, bytes): what a linear copy is made of.
template <typename To, typename From, typename... Rest>
std::function<void()> copyOf(To to, From from, Size bytes, Rest...) {
  if constexpr ((std::is_same_v<To, Ptr> || std::is_same_v<To, void*>)&&(
                    std::is_same_v<From, Ptr> || std::is_same_v<From, const void*>)) {
    void* target = (void*)to;
    const void* source = (const void*)from;
    return [=] { __builtin_memcpy(target, source, bytes); };
  } else {
    return nullptr;
  }
}
template <typename... A>
std::function<void()> copyOf(A...) {
  return nullptr;
}

template <typename... A>
Result plainCall(Stream0 zero, bool hostWaits, A... a) {
  Locked held(machine().lock);
  Result rc = kSuccess;
  Stream* stream = find(pick<Str>(nullptr, a...), zero, rc);
  if (stream) rc = put(*stream, Work{0, copyOf(a...)});
  if (rc == kSuccess && hostWaits) waitFor(held, {{stream, stream->put}});
  return rc;
}

}  // namespace qgpu::stand_in
