// The resource manager's calls that a real libcuda makes, with the kernel's numbers and layouts:
// recorded, and issued through libc's ioctl(). With QGPU_DRIVER_ROOT there is a kernel to answer
// (kernel.h, or tests/rm_stand_in): then it asks the driver's version, makes a client with a
// device, and beneath it what contexts, modules and allocations need, in every form that the calls
// have. Without, they go to a descriptor that no driver stands behind, and nobody answers.

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <string>
#include <sys/ioctl.h>
#include <thread>

#include "tests/cuda_stand_in/table.h"
#include "tests/rm_stand_in/rm_state.h"
#include "tests/rm_stand_in/shifted.h"

namespace qgpu::stand_in {
namespace {

using rm::Handle;

std::atomic<std::uint64_t> counts[256];
std::atomic<Handle> nextObject{0x5c010000};

struct Kernel {
  int control = -1, card = -1;
  std::uint32_t major = 580;  // of the driver's release
  Handle client = 0xc1d00001, device = 0x5c000001;
};
Kernel& kernel() {
  static Kernel only;
  return only;
}

int opened(const char* name) {
  const char* root = std::getenv("QGPU_DRIVER_ROOT");
  const std::string path = root ? std::string(root) + "/dev/" + name : "/dev/null";
  return open(path.c_str(), O_RDWR | O_CLOEXEC);
}

bool call(int fd, std::uint32_t number, void* parameters, std::size_t bytes) {
  counts[number & 0xff].fetch_add(1);
  return ioctl(fd, _IOC(_IOC_READ | _IOC_WRITE, rm::kIoctlType, number, bytes), parameters) == 0;
}
template <typename Call>
bool call(std::uint32_t number, Call& parameters) {
  return call(kernel().control, number, &parameters, sizeof parameters);
}

// NV_ESC_RM_ALLOC in the driver's long form; the status that came back.
std::uint32_t alloc(Handle parent, Handle& made, std::uint32_t objectClass, void* parameters,
                    std::uint32_t size, bool carried = false) {
  const rm::AllocForm form = rm_stand_in::shifted(rm::allocForms(kernel().major)).longForm;
  alignas(8) char bytes[64] = {};
  const bool isClient = rm::isClient(objectClass);
  const rm::AllocCall head{isClient ? 0 : kernel().client, parent, made, objectClass,
                           reinterpret_cast<std::uint64_t>(parameters)};
  std::memcpy(bytes, &head, sizeof head);
  if (form.sizeAt) std::memcpy(bytes + form.sizeAt, &size, sizeof size);
  if (carried) {
    rm::TransferCall transfer{rm::kEscAlloc, form.size, reinterpret_cast<std::uint64_t>(bytes)};
    call(rm::kEscTransfer, transfer);
  } else {
    call(kernel().control, rm::kEscAlloc, bytes, form.size);
  }
  std::memcpy(&made, bytes + offsetof(rm::AllocCall, object), sizeof made);
  std::uint32_t status = 0;
  std::memcpy(&status, bytes + form.statusAt, sizeof status);
  return status;
}

Handle object(Handle parent, std::uint32_t objectClass, std::size_t at = 0,
              std::uint32_t word = 0) {
  alignas(8) char parameters[368] = {};
  std::memcpy(parameters + at, &word, sizeof word);
  Handle made = nextObject.fetch_add(1);
  return alloc(parent, made, objectClass, parameters, sizeof parameters) == rm::kOk ? made : 0;
}

bool byHeap(Handle parent, std::uint64_t bytes, Handle& made) {
  rm::HeapCall heap{};
  heap.client = kernel().client;
  heap.parent = parent;
  heap.function = rm::kHeapAllocSize;
  heap.bySize.object = nextObject.fetch_add(1);
  heap.bySize.size = bytes;
  call(rm::kEscVidHeapControl, heap);
  made = heap.bySize.object;
  return heap.status != rm::kNoMemory;
}

}  // namespace

bool rmAnswers() {
  return std::getenv("QGPU_DRIVER_ROOT") != nullptr;
}

void rmInit() {
  Kernel& k = kernel();
  if (k.control >= 0) return;
  k.control = opened("nvidiactl");
  if (!rmAnswers()) return;
  k.card = opened("nvidia0");
  const char* own = std::getenv("QGPU_STAND_IN_DRIVER");  // it is of the same release as the kernel
  if (own) k.major = static_cast<std::uint32_t>(std::strtoul(own, nullptr, 10));
  if (k.major < 535) {  // later ones don't ask
    rm::VersionCall version{};
    version.command = rm::kVersionQuery;
    std::strncpy(version.version, own, sizeof version.version - 1);
    call(rm::kEscCheckVersion, version);
  }
  call(k.card, rm::kEscRegisterFd, &k.control, sizeof k.control);
  k.client = 0;
  alloc(0, k.client, rm::kRootClient, nullptr, 0);
  k.device = object(k.client, rm::kDevice);
  object(k.device, rm::kSubdevice);
}

std::uint32_t rmMakeContext(Channel& channel) {
  if (!rmAnswers()) return 0;
  const Kernel& k = kernel();
  const Handle device = object(k.client, rm::kDevice);
  const Handle group = object(device, rm::kChannelGroup, rm::kGroupEngineAt, 1);
  const Handle compute = object(group, 0xc86f, rm::kChannelEngineAt, 1);
  object(group, 0xc86f, rm::kChannelEngineAt, 9);
  rm::ControlCall schedule{};
  std::uint8_t enable[3] = {1, 0, 0};
  schedule.client = k.client;
  schedule.object = group;
  schedule.command = rm::kGroupSchedule;
  schedule.parameters = reinterpret_cast<std::uint64_t>(enable);
  schedule.parametersSize = sizeof enable;
  call(rm::kEscControl, schedule);
  if (const auto* all = rm_stand_in::state(); all && rm_stand_in::knows(*all, k.client, compute)) {
    channel = {k.client, compute};
  }
  std::uint32_t memory = 0;
  const std::uint64_t bytes = environmentNumber("QGPU_STAND_IN_CONTEXT", kContextBytes);
  if (rmAllocate(bytes, memory, RmForm::kAlloc, device)) return device;
  rmFree(device);
  return 0;
}

void rmTakeTime() {
  const auto* all = rm_stand_in::state();
  const std::uint64_t ns = all ? all->queryNs.load() : 0;
  if (ns != 0) std::this_thread::sleep_for(std::chrono::nanoseconds(ns));
}

bool mayRun(const Channel& channel) {
  return channel.client == 0 ||
         rm_stand_in::mayRun(*rm_stand_in::state(), channel.client, channel.channel);
}

bool rmAllocate(std::uint64_t bytes, std::uint32_t& handle, RmForm form, std::uint32_t parent) {
  if (parent == 0) parent = kernel().device;
  rmInit();
  if (form == RmForm::kHeap && rmAnswers()) return byHeap(parent, bytes, handle);
  alignas(8) char parameters[128] = {};
  std::memcpy(parameters + rm_stand_in::memorySizeAt(), &bytes, sizeof bytes);
  handle = nextObject.fetch_add(1);
  const bool carried = form == RmForm::kCarried && rmAnswers();
  return alloc(parent, handle, rm::kLocalMemory, parameters, sizeof parameters, carried) !=
         rm::kNoMemory;
}

std::uint32_t rmImport(Handle client, Handle object, std::uint32_t& handle) {
  rm::DupCall dup{};
  dup.client = kernel().client;
  dup.parent = kernel().device;
  dup.object = nextObject.fetch_add(1);
  dup.sourceClient = client;
  dup.sourceObject = object;
  dup.status = rm::kObjectNotFound;
  call(rm::kEscDupObject, dup);
  handle = dup.object;
  return dup.status;
}

Handle rmClient() {
  return kernel().client;
}

std::uint32_t rmHostMemory(std::uint64_t bytes) {
  rm::AllocMemoryCall host{};
  host.client = kernel().client;
  host.parent = kernel().device;
  host.object = nextObject.fetch_add(1);
  host.objectClass = rm::kHostDescriptor;
  host.limit = bytes - 1;
  call(kernel().card, rm::kEscAllocMemory, &host, sizeof host);
  return host.object;
}

void rmFree(std::uint32_t handle, RmForm form) {
  if (handle == 0) return;  // never allocated
  if (form == RmForm::kHeap && rmAnswers()) {
    rm::HeapCall heap{};
    heap.client = kernel().client;
    heap.function = rm::kHeapFree;
    heap.freed.object = handle;
    heap.freed.flags = 1;  // by handle
    call(rm::kEscVidHeapControl, heap);
    return;
  }
  rm::FreeCall free{kernel().client, kernel().device, handle, 0};
  call(rm::kEscFree, free);
}

std::uint64_t ioctlCount(std::uint32_t number) {
  return counts[number & 0xff].load();
}

}  // namespace qgpu::stand_in
