// The resource manager's calls that allocations make on a real driver, with its numbers and layouts
// (580.142): recorded, and issued through libc's ioctl() on a descriptor that no driver stands
// behind. Who stands in front of ioctl() may answer with a status; "no memory" is obeyed.

#include <atomic>
#include <fcntl.h>
#include <sys/ioctl.h>

#include "tests/cuda_stand_in/table.h"

namespace qgpu::stand_in {
namespace {

constexpr std::uint32_t kFree = 0x29, kAlloc = 0x2B;
constexpr std::uint32_t kLocalMemory = 0x40;  // class NV01_MEMORY_LOCAL_USER
constexpr std::uint32_t kNoMemory = 0x51;
constexpr std::uint32_t kClient = 0xc1d00001, kDevice = 0x5c000001;

struct AllocCall {  // NVOS64
  std::uint32_t root, parent, made, objectClass;
  std::uint64_t parameters, rights;
  std::uint32_t size, flags, status, pad;
};
struct FreeCall {  // NVOS00
  std::uint32_t root, parent, old, status;
};
static_assert(sizeof(AllocCall) == 48 && sizeof(FreeCall) == 16);

struct MemoryParameters {  // as far as an allocation is told by it
  std::uint8_t before[64];
  std::uint64_t size;
  std::uint8_t after[56];
};
static_assert(offsetof(MemoryParameters, size) == 64);

std::atomic<std::uint64_t> counts[256];
std::atomic<std::uint32_t> nextObject{0x5c010000};

int control() {
  static const int fd = open("/dev/null", O_RDWR | O_CLOEXEC);
  return fd;
}

void call(std::uint32_t number, void* parameters, std::size_t bytes) {
  counts[number & 0xff].fetch_add(1);
  ioctl(control(), _IOC(_IOC_READ | _IOC_WRITE, 'F', number, bytes), parameters);
}

}  // namespace

bool rmAllocate(std::uint64_t bytes, std::uint32_t& handle) {
  MemoryParameters memory{};
  memory.size = bytes;
  AllocCall alloc{};
  alloc.root = kClient;
  alloc.parent = kDevice;
  alloc.made = nextObject.fetch_add(1);
  alloc.objectClass = kLocalMemory;
  alloc.parameters = reinterpret_cast<std::uint64_t>(&memory);
  alloc.size = sizeof memory;
  call(kAlloc, &alloc, sizeof alloc);
  handle = alloc.made;
  return alloc.status != kNoMemory;
}

void rmFree(std::uint32_t handle) {
  if (handle == 0) return;  // memory of the host
  FreeCall free{kClient, kDevice, handle, 0};
  call(kFree, &free, sizeof free);
}

std::uint64_t ioctlCount(std::uint32_t number) {
  return counts[number & 0xff].load();
}

}  // namespace qgpu::stand_in
