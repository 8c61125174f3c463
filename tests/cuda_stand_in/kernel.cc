#include "tests/cuda_stand_in/kernel.h"

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <dlfcn.h>
#include <linux/ioctl.h>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <vector>

#include "tests/cuda_stand_in/kernel_card.h"

namespace qgpu::stand_in {
namespace {

using namespace rm;  // the driver's words, as its own implementation says them

struct Thing {
  Handle parent = 0;
  std::uint32_t objectClass = 0;
  std::shared_ptr<std::uint64_t> memory;  // of the card, in whole pages
};

struct Client {
  off_t file = 0;
  std::map<Handle, Thing> things;  // the client itself among them
};

struct Kernel {
  std::mutex lock;
  const pid_t pid = ::getpid();  // a child has copies of files that stay open
  std::map<Handle, Client> clients;
  Handle nextClient = 0xc1d00001;
  Handle nextObject = 0xcaf00001;
};
Kernel& kernel() {
  static Kernel& only = []() -> Kernel& {
    Kernel& made = *new Kernel;
    Client& foreign = made.clients[kForeignClient];
    foreign.file = -1;
    foreign.things[kForeignClient] = {0, kRootClient, nullptr};
    foreign.things[kForeignMemory] = {kForeignClient, kLocalMemory,
                                      std::make_shared<std::uint64_t>(kForeignBytes)};
    return made;
  }();
  return only;
}

std::atomic<std::uint64_t> counts[256];

std::uint64_t setting(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 0) : otherwise;
}
std::uint64_t cardBytes() {
  return setting("QGPU_STAND_IN_BYTES", 16ull << 30);
}
std::string driverVersion() {
  const char* text = std::getenv("QGPU_STAND_IN_DRIVER");
  return text ? text : "580.142";
}

// What the card gives for a size, and tells nobody.
std::uint64_t takenFor(std::uint64_t bytes) {
  constexpr std::uint64_t kGiven = 64 << 10;
  return (bytes + kGiven - 1) / kGiven * kGiven;
}

std::uint64_t held() {
  std::map<const void*, std::uint64_t> all;
  for (const auto& [handle, client] : kernel().clients) {
    for (const auto& [name, thing] : client.things) {
      if (thing.memory && handle != kForeignClient) {
        all[thing.memory.get()] = takenFor(*thing.memory);
      }
    }
  }
  std::uint64_t sum = 0;
  for (const auto& each : all) sum += each.second;
  return sum;
}

// --- the files ---

struct stat wantedFile(const char* name) {
  struct stat file {};
  const char* root = std::getenv("QGPU_DRIVER_ROOT");
  if (root) ::stat((std::string(root) + "/dev/" + name).c_str(), &file);
  return file;
}
bool is(int fd, const char* name) {
  struct stat file;
  const struct stat wanted = wantedFile(name);
  return wanted.st_ino && ::fstat(fd, &file) == 0 && file.st_ino == wanted.st_ino &&
         file.st_dev == wanted.st_dev;
}

// Descriptors of one open file share its offset, and nobody else needs it: it is the file's name.
off_t fileOf(int fd) {
  static off_t last = 0;
  const off_t there = ::lseek(fd, 0, SEEK_CUR);
  if (there != 0) return there;
  return ::lseek(fd, ++last, SEEK_SET);
}

bool hasAnotherDescriptor(off_t file) {
  bool found = false;
  DIR* folder = ::opendir("/proc/self/fd");
  while (const dirent* entry = folder ? ::readdir(folder) : nullptr) {
    const int fd = std::atoi(entry->d_name);
    if (is(fd, "nvidiactl") && ::lseek(fd, 0, SEEK_CUR) == file) found = true;
  }
  if (folder) ::closedir(folder);
  return found;
}

// --- objects; all with the lock held ---

Client* clientOf(int fd, Handle handle) {
  const auto found = kernel().clients.find(handle);
  if (found == kernel().clients.end()) return nullptr;
  // A card's descriptor belongs to the control file that it was registered with.
  if (is(fd, "nvidiactl") && found->second.file != fileOf(fd)) return nullptr;
  return &found->second;
}

void endTree(Client& client, Handle top) {
  std::vector<Handle> children;
  for (const auto& [name, thing] : client.things) {
    if (thing.parent == top && name != top) children.push_back(name);
  }
  for (const Handle child : children) endTree(client, child);
  client.things.erase(top);
}

std::uint32_t makeClient(int fd, Handle& out) {
  out = kernel().nextClient++;
  Client& client = kernel().clients[out];
  client.file = fileOf(fd);
  client.things[out] = {0, kRootClient, nullptr};
  return kOk;
}

std::uint32_t place(Client* client, Handle parent, Handle& name, const Thing& thing) {
  if (!client) return kInvalidClient;
  if (!client->things.count(parent)) return kObjectNotFound;
  if (name == 0) name = kernel().nextObject++;
  if (client->things.count(name)) return kNameTaken;
  client->things[name] = thing;
  client->things[name].parent = parent;
  return kOk;
}

// `bytes`: what it asks for, and afterwards in whole pages; null: no memory of the card.
std::uint32_t make(int fd, Handle client, Handle parent, Handle& name, std::uint32_t objectClass,
                   std::uint64_t* bytes) {
  if (isClient(objectClass)) return makeClient(fd, name);
  Thing thing{parent, objectClass, nullptr};
  if (bytes) {
    const std::uint64_t page = setting("QGPU_STAND_IN_PAGE", 4096);
    const std::uint64_t told = (*bytes + page - 1) / page * page;
    if (*bytes == 0) return kInvalidClass;
    const std::uint64_t left = cardBytes() - held();
    if (told > left || takenFor(told) > left) return kNoMemory;
    thing.memory = std::make_shared<std::uint64_t>(told);
    *bytes = told;
  }
  return place(clientOf(fd, client), parent, name, thing);
}

std::uint32_t end(int fd, Handle client, Handle object) {
  Client* owner = clientOf(fd, client);
  if (!owner) return kInvalidClient;
  if (!owner->things.count(object)) return kObjectNotFound;
  endTree(*owner, object);
  if (client == object) kernel().clients.erase(client);
  return kOk;
}

// --- the calls ---

template <typename T>
T& as(void* argument) {
  return *static_cast<T*>(argument);
}

int alloc(int fd, std::uint32_t size, void* argument) {
  const AllocForms forms = allocForms(static_cast<std::uint32_t>(std::stoul(driverVersion())));
  const AllocForm& form = size == forms.longForm.size ? forms.longForm : forms.shortForm;
  if (size != form.size) return EINVAL;
  auto& call = as<AllocCall>(argument);
  const bool onCard = call.objectClass == kLocalMemory;
  auto* memory = reinterpret_cast<MemoryParameters*>(call.parameters);
  std::uint32_t& status = as<std::uint32_t>(static_cast<char*>(argument) + form.statusAt);
  if (onCard && (!memory || (memory->flags & kFlagVirtual))) {
    status = kInvalidClass;
    return 0;
  }
  status = make(fd, call.client, call.parent, call.object, call.objectClass,
                onCard ? &memory->size : nullptr);
  return 0;
}

int heap(int fd, void* argument) {
  auto& call = as<HeapCall>(argument);
  if (call.function == kHeapFree) {
    call.status = end(fd, call.client, call.freed.object);
    return 0;
  }
  if (call.function == kHeapInfo) {
    call.total = cardBytes();
    call.free = call.info.size = cardBytes() - held();
    return 0;
  }
  if (call.function != kHeapAllocSize) return EINVAL;
  auto& wanted = call.bySize;
  const bool onCard = !(wanted.attributes & kLocationMask) && !(wanted.flags & kFlagVirtual);
  call.status = make(fd, call.client, call.parent, wanted.object,
                     onCard ? kLocalMemory : kSystemMemory, onCard ? &wanted.size : nullptr);
  return 0;
}

int duplicate(int fd, void* argument) {
  auto& call = as<DupCall>(argument);
  const auto source = kernel().clients.find(call.sourceClient);
  const bool known =
      source != kernel().clients.end() && source->second.things.count(call.sourceObject);
  if (!known) {
    call.status = kObjectNotFound;
    return 0;
  }
  const Thing copy = source->second.things[call.sourceObject];
  call.status = place(clientOf(fd, call.client), call.parent, call.object, copy);
  return 0;
}

std::uint32_t surfaceInfo(const Thing& thing, const ControlCall& call) {
  const bool host = thing.objectClass == kSystemMemory || thing.objectClass == kHostDescriptor;
  if (!thing.memory && !host) return kNotSupported;  // it is no memory
  const auto& list = *reinterpret_cast<const SurfaceInfoCall*>(call.parameters);
  auto* infos = reinterpret_cast<SurfaceInfo*>(list.list);
  for (std::uint32_t i = 0; i < list.count; ++i) {
    const std::uint64_t pages = thing.memory ? *thing.memory / kSurfacePage : 1;
    if (infos[i].index == kSurfacePages) infos[i].value = static_cast<std::uint32_t>(pages);
    if (infos[i].index == kSurfacePlace) infos[i].value = host ? kPlaceHost : kPlaceCard;
  }
  return kOk;
}

bool isKnownHere(std::uint32_t command) {
  return command == kSurfaceInfo || command == kGetPids || command == kFbGetInfo2 ||
         command == kGroupSchedule || command == kChannelSchedule;
}

int control(int fd, void* argument) {
  auto& call = as<ControlCall>(argument);
  const Client* client = clientOf(fd, call.client);
  call.status = !client                             ? kInvalidClient
                : client->things.count(call.object) ? kOk
                                                    : kObjectNotFound;
  if (call.status == kOk && call.command == kSurfaceInfo) {
    call.status = surfaceInfo(client->things.at(call.object), call);
  }
  if (call.status == kOk && call.command == kGetPids) {
    // Those that have the card, as a fixed story: this process between two others.
    auto& told = *reinterpret_cast<PidsCall*>(call.parameters);
    told.count = 3;
    told.pids[0] = 1, told.pids[1] = static_cast<std::uint32_t>(getpid()), told.pids[2] = 2;
  }
  if (call.status == kOk && !isKnownHere(call.command)) {
    const bool told =
        call.parameters && tellOfCard(call.command, reinterpret_cast<void*>(call.parameters),
                                      call.parametersSize, driverVersion().c_str());
    if (!told && !setting("QGPU_STAND_IN_LENIENT", 0)) call.status = kNotSupported;
  }
  if (call.status != kOk || call.command != kFbGetInfo2) return 0;
  auto* words = reinterpret_cast<std::uint32_t*>(call.parameters);
  const std::uint64_t total = cardBytes();
  for (std::uint32_t i = 0; i < words[0]; ++i) {
    const std::uint32_t index = words[1 + 2 * i];
    const std::uint64_t bytes = index == kFbHeapFree ? total - held() : total;
    words[2 + 2 * i] = static_cast<std::uint32_t>(bytes >> 10);
  }
  return 0;
}

int version(void* argument) {
  auto& call = as<VersionCall>(argument);
  if (setting("QGPU_STAND_IN_SILENT", 0)) return EINVAL;
  const std::string own = driverVersion();
  call.reply = kVersionRecognised;
  if (call.command == kVersionQuery && std::stoul(own) < 530) return 0;  // nothing is compared
  const bool same = own == call.version;
  if (!same) std::memcpy(call.version, own.c_str(), own.size() + 1);
  return same || call.command == kVersionQuery ? 0 : EINVAL;
}

// 0, or an error number.
int answer(int fd, std::uint32_t number, std::uint32_t size, void* argument) {
  counts[number & 0xff].fetch_add(1);
  switch (number) {
    case kEscTransfer: {
      const auto carried = as<TransferCall>(argument);
      return answer(fd, carried.number, carried.size, reinterpret_cast<void*>(carried.argument));
    }
    case kEscCheckVersion:
      return version(argument);
    case kEscAlloc:
      return alloc(fd, size, argument);
    case kEscVidHeapControl:
      return heap(fd, argument);
    case kEscAllocMemory: {
      auto& call = as<AllocMemoryCall>(argument);
      call.status = make(fd, call.client, call.parent, call.object, call.objectClass, nullptr);
      if (call.objectClass == kLocalMemory) call.limit = cardBytes() - 1;
      return 0;
    }
    case kEscFree: {
      auto& call = as<FreeCall>(argument);
      call.status = end(fd, call.client, call.object);
      return 0;
    }
    case kEscDupObject:
      return duplicate(fd, argument);
    case kEscControl:
      return control(fd, argument);
    case kEscRegisterFd:
      return 0;
    default: {
      const int error = answerForCard(number, size, argument);
      return error < 0 ? EINVAL : error;
    }
  }
}

template <typename F>
F next(const char* name) {
  return reinterpret_cast<F>(dlsym(RTLD_NEXT, name));
}

const QgpuKernelStandIn questions = {
    [] { return std::lock_guard(kernel().lock), held(); },
    [](std::uint32_t number) { return counts[number & 0xff].load(); },
    [] {
      std::lock_guard lock(kernel().lock);
      std::uint64_t sum = 0;
      for (const auto& [handle, client] : kernel().clients) {
        if (handle != kForeignClient) sum += client.things.size();
      }
      return sum;
    },
};

}  // namespace
}  // namespace qgpu::stand_in

#define QGPU_SYSTEM_CALL(name) __asm__(#name) __attribute__((visibility("default")))

extern "C" {
int standInIoctl(int fd, unsigned long request, void* argument) QGPU_SYSTEM_CALL(ioctl);
int standInClose(int fd) QGPU_SYSTEM_CALL(close);

int standInIoctl(int fd, unsigned long request, void* argument) {
  using namespace qgpu::stand_in;
  static const auto system = next<int (*)(int, unsigned long, void*)>("ioctl");
  if (is(fd, "nvidia-uvm")) return 0;  // whatever it is: done
  if (_IOC_TYPE(request) != qgpu::nvidia::rm::kIoctlType) return system(fd, request, argument);
  if (!is(fd, "nvidiactl") && !is(fd, "nvidia0")) return system(fd, request, argument);
  std::lock_guard lock(kernel().lock);
  const int error = answer(fd, _IOC_NR(request), _IOC_SIZE(request), argument);
  if (error) errno = error;
  return error ? -1 : 0;
}

int standInClose(int fd) {
  using namespace qgpu::stand_in;
  static const auto system = next<int (*)(int)>("close");
  const off_t file = is(fd, "nvidiactl") ? ::lseek(fd, 0, SEEK_CUR) : 0;
  const int rc = system(fd);
  if (file <= 0 || kernel().pid != ::getpid()) return rc;
  std::lock_guard lock(kernel().lock);
  if (hasAnotherDescriptor(file)) return rc;
  std::erase_if(kernel().clients, [&](const auto& each) { return each.second.file == file; });
  return rc;
}

__attribute__((visibility("default"))) const QgpuKernelStandIn* qgpuKernelStandIn() {
  return &qgpu::stand_in::questions;
}
}
