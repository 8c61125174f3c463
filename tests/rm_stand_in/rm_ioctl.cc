// The calls of NVIDIA's kernel driver, answered from the shared state.

#include <cerrno>
#include <cstdarg>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/ioctl.h>
#include <poll.h>
#include <sched.h>
#include <string>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <vector>

#include "tests/rm_stand_in/nvidia_rm.h"
#include "tests/rm_stand_in/rm_state.h"
#include "tests/rm_stand_in/shifted.h"

namespace qgpu::rm_stand_in {
namespace {

using namespace nvidia::rm;  // the names of the interface

// Of the release that it tells.
const char* version() {
  const char* given = std::getenv("QGPU_STAND_IN_DRIVER");
  return given ? given : "580.142";
}
const AllocForms& forms() {
  static const AllocForms only =
      shifted(allocForms(static_cast<std::uint32_t>(std::strtoul(version(), nullptr, 10))));
  return only;
}

// Also one that nobody has waited for: its files are closed.
bool dead(std::int32_t pid) {
  if (pid == ::getpid()) return false;
  const int process = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
  if (process < 0) return errno == ESRCH;
  pollfd ended{process, POLLIN, 0};
  const bool is = ::poll(&ended, 1, 0) == 1;
  ::close(process);
  return is;
}

class Locked {
 public:
  explicit Locked(State& all) : all_(all) {
    const std::int32_t self = ::getpid();
    for (std::int32_t holder = 0; !all_.lock.compare_exchange_strong(holder, self); holder = 0) {
      if (holder != 0 && dead(holder)) all_.lock.compare_exchange_strong(holder, 0);
      ::sched_yield();
    }
  }
  ~Locked() { all_.lock.store(0); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  State& all_;
};

// The open file behind a descriptor has a number of its own as its position, which it shares with
// every duplicate in whatever process.
std::uint32_t fileOf(State& all, int fd) {
  const off_t position = ::lseek(fd, 0, SEEK_CUR);
  if (position > 0) return static_cast<std::uint32_t>(position);
  return static_cast<std::uint32_t>(::lseek(fd, ++all.nextFile, SEEK_SET));
}

Object* find(State& all, Handle client, Handle handle) {
  for (Object& object : all.objects) {
    if (object.pid == 0 || object.client != client || object.handle != handle) continue;
    if (!dead(object.pid)) return &object;
    object.pid = 0;
  }
  return nullptr;
}

// The client, if the call comes from its own open file.
Object* own(State& all, int fd, Handle client) {
  Object* found = find(all, client, client);
  return found && found->file == fileOf(all, fd) ? found : nullptr;
}

Object* freePlace(State& all) {
  for (Object& object : all.objects) {
    if (object.pid == 0 || dead(object.pid)) return &object;
  }
  return nullptr;
}

// What an allocation takes of the card, or holds of what is there. Sizes come back as taken.
std::uint32_t takeMemory(State& all, const AllocCall& asked, Memory& memory) {
  memory = {};
  auto* parameters = reinterpret_cast<char*>(asked.parameters);
  if (asked.objectClass == kFabricMemory && parameters) {
    Handle source = 0;
    std::memcpy(&source, parameters + kFabricMemoryAt, sizeof source);
    const Object* held = find(all, asked.client, source);
    if (source != 0 && !held) return kObjectNotFound;
    if (held) memory = {held->memory.number, held->memory.bytes, kPlaceOther};
  }
  const bool onCard = asked.objectClass == kLocalMemory;
  const bool onHost = asked.objectClass == kSystemMemory;
  if (!parameters || (!onCard && !onHost && asked.objectClass != kVirtualMemory)) return kOk;
  if (reinterpret_cast<MemoryParameters*>(parameters)->flags & kFlagVirtual) return kOk;
  auto& bytes = *reinterpret_cast<std::uint64_t*>(parameters + memorySizeAt());
  bytes = (bytes + kSurfacePage - 1) / kSurfacePage * kSurfacePage;
  const std::uint32_t place = onCard ? kPlaceCard : onHost ? kPlaceHost : kPlaceOther;
  memory = {onCard ? ++all.lastMemory : 0, bytes, place};
  return kOk;
}

std::uint32_t allocate(State& all, int fd, AllocCall& asked) {
  const bool client = isClient(asked.objectClass);
  if (!client && !own(all, fd, asked.client)) return kInvalidClient;
  if (!client && find(all, asked.client, asked.object)) return kNameTaken;
  Object* place = freePlace(all);
  if (!place) return kNoMemory;
  if (client) asked.object = 0xc1d00000 + ++all.nextClient;
  const std::uint32_t taken = takeMemory(all, asked, place->memory);
  if (taken != kOk) return taken;
  std::uint32_t engine = 0;
  const auto* parameters = reinterpret_cast<const char*>(asked.parameters);
  if (parameters && asked.objectClass == kChannelGroup) {
    std::memcpy(&engine, parameters + kGroupEngineAt, sizeof engine);
  }
  const Object* above = client ? nullptr : find(all, asked.client, asked.parent);
  std::uint32_t device = above ? above->device : ~0u;
  if (parameters && asked.objectClass == kDevice) {
    std::memcpy(&device, parameters + offsetof(DeviceParameters, device), sizeof device);
  }
  place->client = client ? asked.object : asked.client;
  place->parent = asked.parent;
  place->handle = asked.object;
  place->objectClass = asked.objectClass;
  place->engine = engine;
  place->device = device;
  place->file = client ? fileOf(all, fd) : 0;
  place->disabled = place->stopped = 0;
  place->timesliceUs = kDefaultTimesliceUs;
  place->pid = ::getpid();
  return kOk;
}

// A name beneath an own client for what another name, or a file, holds.
std::uint32_t nameAgain(State& all, int fd, Handle client, Handle parent, Handle name,
                        std::uint32_t objectClass, const Memory& memory) {
  const Object* above = find(all, client, parent);
  if (!own(all, fd, client)) return kInvalidClient;
  if (!above) return kObjectNotFound;
  if (find(all, client, name)) return kNameTaken;
  Object* place = freePlace(all);
  if (!place) return kNoMemory;
  place->client = client;
  place->parent = parent;
  place->handle = name;
  place->objectClass = objectClass;
  place->memory = memory;
  place->device = above->device;
  place->engine = place->file = 0;
  place->disabled = place->stopped = 0;
  place->pid = ::getpid();
  return kOk;
}

std::uint32_t duplicate(State& all, int fd, const DupCall& asked) {
  const Object* source = find(all, asked.sourceClient, asked.sourceObject);
  if (!source) return kObjectNotFound;
  return nameAgain(all, fd, asked.client, asked.parent, asked.object, source->objectClass,
                   source->memory);
}

bool isBeneath(State& all, const Object& object, Handle top) {
  for (const Object* at = &object; at; at = find(all, at->client, at->parent)) {
    if (at->handle == top) return true;
    if (at->handle == at->client) return false;
  }
  return false;
}

std::uint32_t freeObject(State& all, int fd, const FreeCall& asked) {
  if (!own(all, fd, asked.client)) return kInvalidClient;
  std::vector<Object*> ended;
  for (Object& object : all.objects) {
    if (object.pid == 0 || object.client != asked.client) continue;
    if (isBeneath(all, object, asked.object)) ended.push_back(&object);
  }
  for (Object* object : ended) object->pid = 0;
  return ended.empty() ? kObjectNotFound : kOk;
}

// Memory made and freed by the heap's call.
std::uint32_t byHeap(State& all, int fd, HeapCall& call) {
  if (call.function == kHeapFree) {
    return freeObject(all, fd, {call.client, call.parent, call.freed.object, kOk});
  }
  if (call.function != kHeapAllocSize) return kInvalidArgument;
  auto& wanted = call.bySize;
  alignas(8) char memory[sizeof(MemoryParameters) + 8] = {};
  reinterpret_cast<MemoryParameters*>(memory)->flags = wanted.flags;
  std::memcpy(memory + memorySizeAt(), &wanted.size, sizeof wanted.size);
  const bool onCard = (wanted.attributes & kLocationMask) == 0;
  AllocCall asked{call.client, call.parent, wanted.object, onCard ? kLocalMemory : kSystemMemory,
                  reinterpret_cast<std::uint64_t>(memory)};
  const std::uint32_t status = allocate(all, fd, asked);
  wanted.object = asked.object;
  std::memcpy(&wanted.size, memory + memorySizeAt(), sizeof wanted.size);
  return status;
}

// --- controls ---

Exported* inFile(State& all, std::uint32_t file, std::uint32_t index) {
  for (Exported& each : all.exported) {
    if (each.file == file && each.index == index) return &each;
  }
  return nullptr;
}

std::uint32_t exportObject(State& all, Handle client, Handle object, std::uint32_t file,
                           std::uint32_t index) {
  const Object* source = find(all, client, object);
  if (!source) return kObjectNotFound;
  Exported* place = inFile(all, file, index);
  if (!place) place = inFile(all, 0, 0);
  if (!place) return kNoMemory;
  *place = {file, index, source->memory};
  return kOk;
}

std::uint32_t importMany(State& all, int fd, Handle client, ImportMany& asked) {
  const std::uint32_t file = fileOf(all, asked.fd);
  if (asked.count > kImportMost) return kInvalidArgument;
  for (std::uint32_t i = 0; i < asked.count; i++) {
    const Exported* held = inFile(all, file, asked.index + i);
    asked.types[i] = held ? 1 : 0;
    if (!held) continue;
    const std::uint32_t status =
        nameAgain(all, fd, client, asked.parent, asked.objects[i], kLocalMemory, held->memory);
    if (status != kOk) return status;
  }
  return kOk;
}

// Controls of a client on files that hold objects.
std::uint32_t onFile(State& all, int fd, const ControlCall& asked, void* parameters) {
  if (asked.command == kExportOne) {
    const auto& one = *static_cast<ExportOne*>(parameters);
    const std::uint32_t file = fileOf(all, one.fd);
    if (one.type != 1 || one.flags != 0) return kInvalidArgument;
    if (inFile(all, file, 0)) return kInUse;
    return exportObject(all, asked.client, one.object, file, 0);
  }
  if (asked.command == kImportOne) {
    const auto& one = *static_cast<ImportOne*>(parameters);
    const Exported* held = inFile(all, fileOf(all, one.fd), 0);
    if (one.type != 1 || !held) return kInvalidArgument;
    return nameAgain(all, fd, asked.client, one.parent, one.object, kLocalMemory, held->memory);
  }
  if (asked.command == kImportMany) {
    return importMany(all, fd, asked.client, *static_cast<ImportMany*>(parameters));
  }
  const auto& many = *static_cast<ExportMany*>(parameters);
  if (many.count > kExportMost) return kInvalidArgument;
  if (many.index + many.count > many.room) return kOutOfRange;
  for (std::uint32_t i = 0; i < many.count; i++) {
    if (many.objects[i] == 0) continue;
    const std::uint32_t status =
        exportObject(all, asked.client, many.objects[i], fileOf(all, many.fd), many.index + i);
    if (status != kOk) return status;
  }
  return kOk;
}

// Into a dma-buf: a new file, or one that has some already.
std::uint32_t exportDmaBuf(State& all, const DmaBufForm& form, char* bytes) {
  DmaBufCall asked;
  std::memcpy(&asked, bytes, sizeof asked);
  if (asked.count > kDmaBufMost || asked.index + asked.count > asked.total) return kInvalidArgument;
  const std::string path = std::string(std::getenv("QGPU_DRIVER_ROOT")) + "/dev/dmabuf";
  if (asked.fd == -1) asked.fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (asked.fd < 0) return kRefused;
  const std::uint32_t file = fileOf(all, asked.fd);
  for (std::uint32_t i = 0; i < asked.count; i++) {
    Handle object = 0;
    std::memcpy(&object, bytes + form.objectsAt + i * sizeof object, sizeof object);
    const std::uint32_t status = exportObject(all, asked.client, object, file, asked.index + i);
    if (status != kOk) return status;
  }
  std::memcpy(bytes, &asked, sizeof asked);
  return kOk;
}

bool takeOne(std::atomic<std::uint32_t>& count) {
  std::uint32_t left = count.load();
  while (left > 0 && !count.compare_exchange_weak(left, left - 1)) {
  }
  return left > 0;
}

void settle(State& all, Handle client, Handle group) {
  for (Object& object : all.objects) {
    if (object.pid == 0 || !isChannel(object.objectClass)) continue;
    const bool meant = group == 0 || (object.client == client && object.parent == group);
    if (meant) object.stopped.store(object.disabled != 0);
  }
}

// A channel that is on this card. Of another it knows nothing.
Object* findOn(State& all, std::uint32_t device, Handle client, Handle channel) {
  Object* found = find(all, client, channel);
  return found && found->device == device ? found : nullptr;
}

std::uint32_t disableChannels(State& all, std::uint32_t device, const DisableChannels& asked) {
  if (asked.event != 0 || asked.rewind != 0 || asked.count > kDisabledMost) return kInvalidArgument;
  (asked.disable ? all.disables : all.enables)++;
  if (takeOne(asked.disable ? all.refuseDisable : all.refuseEnable)) {
    return all.refusal != 0 ? all.refusal.load() : kRefused;
  }
  std::uint32_t missing = 0;
  for (std::uint32_t i = 0; i < asked.count; i++) {
    missing += findOn(all, device, asked.clients[i], asked.channels[i]) == nullptr;
  }
  // As an H200 with 580.159 does: a call that is refused for one counts for the others, though it
  // stops none.
  const bool atOnce = all.commit == Commit::kNone && !asked.onlyScheduling && missing == 0;
  for (std::uint32_t i = 0; i < asked.count; i++) {
    Object* channel = findOn(all, device, asked.clients[i], asked.channels[i]);
    if (channel && asked.disable) {
      channel->disabled++;
      if (atOnce) channel->stopped.store(1);
    } else if (channel && (channel->disabled == 0 || --channel->disabled == 0)) {
      channel->stopped.store(0);
    }
  }
  return missing == 0 ? kOk : kObjectNotFound;
}

std::uint32_t handleInfo(State& all, Handle client, HandleInfo& asked) {
  const Object* object = find(all, client, asked.object);
  if (!object) return kObjectNotFound;
  asked.result = asked.index == kHandleParent ? object->parent : object->objectClass;
  return kOk;
}

std::uint32_t uuidInfo(UuidInfo& asked) {
  constexpr char kUuid[] = "GPU-00000000-0000-0000-0000-000000000000";  // the stand-in's first
  if (std::memcmp(asked.uuid, kUuid, sizeof kUuid) != 0) return kObjectNotFound;
  asked.gpu = 0x100;
  asked.device = asked.subdevice = 0;
  return kOk;
}

std::uint32_t surfaceInfo(State& all, const Object& object, const SurfaceInfoCall& asked) {
  if (takeOne(all.refuseSizes)) return kRefused;
  if (object.objectClass == kMulticast) return kNotReady;  // its cards have not come
  if (object.memory.bytes == 0) return kNotSupported;
  auto* infos = reinterpret_cast<SurfaceInfo*>(asked.list);
  for (std::uint32_t i = 0; i < asked.count; i++) {
    const auto pages = static_cast<std::uint32_t>(object.memory.bytes / kSurfacePage);
    if (infos[i].index == kSurfacePages) infos[i].value = pages;
    if (infos[i].index == kSurfacePlace) infos[i].value = object.memory.place;
  }
  return kOk;
}

std::uint32_t control(State& all, int fd, const ControlCall& asked) {
  if (!own(all, fd, asked.client)) return kInvalidClient;
  Object* object = find(all, asked.client, asked.object);
  if (!object) return kObjectNotFound;
  void* parameters = reinterpret_cast<void*>(asked.parameters);
  const auto fits = [&](std::size_t size) { return asked.parametersSize == size; };
  if (asked.command == kSurfaceInfo && fits(sizeof(SurfaceInfoCall))) {
    return surfaceInfo(all, *find(all, asked.client, asked.object),
                       *static_cast<const SurfaceInfoCall*>(parameters));
  }
  if ((asked.command == kExportOne && fits(sizeof(ExportOne))) ||
      (asked.command == kImportOne && fits(sizeof(ImportOne))) ||
      (asked.command == kExportMany && fits(sizeof(ExportMany))) ||
      (asked.command == kImportMany && fits(sizeof(ImportMany)))) {
    return onFile(all, fd, asked, parameters);
  }
  if (asked.command == kDisableChannels && fits(sizeof(DisableChannels))) {
    return disableChannels(all, object->device, *static_cast<const DisableChannels*>(parameters));
  }
  if (asked.command == kHandleInfo && fits(sizeof(HandleInfo))) {
    return handleInfo(all, asked.client, *static_cast<HandleInfo*>(parameters));
  }
  if (asked.command == kUuidInfo && fits(sizeof(UuidInfo))) {
    return uuidInfo(*static_cast<UuidInfo*>(parameters));
  }
  if (asked.command == kRestartRunlist && fits(sizeof(RestartRunlist))) {
    all.restarts++;
    if (all.commit == Commit::kRestart) settle(all, 0, 0);
    return kOk;
  }
  if (asked.command == kGroupPreempt && fits(sizeof(Preempt))) {
    all.preempts++;
    // Who does not wait is told nothing of when it happens: here never.
    const bool waits = static_cast<const Preempt*>(parameters)->wait != 0;
    if (waits && all.commit == Commit::kPreempt) settle(all, asked.client, asked.object);
    return kOk;
  }
  if (asked.command == kSetTimeslice && fits(sizeof(Timeslice))) {
    if (takeOne(all.refuseTimeslice)) return kRefused;
    object->timesliceUs = static_cast<const Timeslice*>(parameters)->us;
    return kOk;
  }
  if (asked.command != kGroupSchedule && asked.command != kChannelSchedule) return kNotSupported;
  // Nothing else here. A timeslice that was set before had no effect on an H200 with 580.159; one
  // that is set afterwards has.
  const Handle name = asked.command == kGroupSchedule ? asked.object : object->parent;
  Object* group = find(all, asked.client, name);
  if (group) group->timesliceUs = kDefaultTimesliceUs;
  return kOk;
}

void tellVersion(VersionCall& asked) {
  std::strcpy(asked.version, version());
  asked.reply = kVersionRecognised;
}

// 0, or -1 with errno as the kernel has it.
int answer(State& all, int fd, std::uint32_t number, std::uint32_t size, void* argument) {
  const Locked held(all);
  auto* bytes = static_cast<char*>(argument);
  const AllocForm& form = size == forms().longForm.size ? forms().longForm : forms().shortForm;
  if (number == kEscAlloc && size == form.size) {
    AllocCall asked;
    std::memcpy(&asked, bytes, sizeof asked);
    const std::uint32_t status = allocate(all, fd, asked);
    std::memcpy(bytes, &asked, sizeof asked);
    std::memcpy(bytes + form.statusAt, &status, sizeof status);
  } else if (number == kEscFree && size == sizeof(FreeCall)) {
    auto& asked = *static_cast<FreeCall*>(argument);
    asked.status = freeObject(all, fd, asked);
  } else if (number == kEscVidHeapControl && size == sizeof(HeapCall)) {
    auto& asked = *static_cast<HeapCall*>(argument);
    asked.status = byHeap(all, fd, asked);
  } else if (number == kEscDupObject && size == sizeof(DupCall)) {
    auto& asked = *static_cast<DupCall*>(argument);
    asked.status = duplicate(all, fd, asked);
  } else if (number == kEscControl && size == sizeof(ControlCall)) {
    auto& asked = *static_cast<ControlCall*>(argument);
    asked.status = control(all, fd, asked);
  } else if (number == kEscExportDmaBuf && size == dmaBufForm(size).size) {
    const std::uint32_t status = exportDmaBuf(all, dmaBufForm(size), bytes);
    std::memcpy(bytes + dmaBufForm(size).statusAt, &status, sizeof status);
  } else if (number == kEscCheckVersion && size == sizeof(VersionCall)) {
    tellVersion(*static_cast<VersionCall*>(argument));
  } else if (number != kEscRegisterFd) {
    errno = EINVAL;
    return -1;
  }
  return 0;
}

bool isDriver(int fd) {
  static const std::string root = [] {
    const char* given = std::getenv("QGPU_DRIVER_ROOT");
    return std::string(given ? given : "");
  }();
  struct stat file, control, card;
  if (root.empty() || ::fstat(fd, &file) != 0) return false;
  const auto same = [&](const struct stat& other) {
    return file.st_dev == other.st_dev && file.st_ino == other.st_ino;
  };
  return (::stat((root + "/dev/nvidiactl").c_str(), &control) == 0 && same(control)) ||
         (::stat((root + "/dev/nvidia0").c_str(), &card) == 0 && same(card));
}

// Where a file lies: the driver's below the root.
std::string placeOf(const char* path) {
  constexpr char kDrivers[] = "/dev/nvidia";
  const bool isDrivers = std::strncmp(path, kDrivers, sizeof kDrivers - 1) == 0;
  const char* root = isDrivers ? std::getenv("QGPU_DRIVER_ROOT") : nullptr;
  return std::string(root ? root : "") + path;
}

// Before the program opens the driver's files.
__attribute__((constructor)) void begin() {
  prepare();
}

}  // namespace
}  // namespace qgpu::rm_stand_in

extern "C" __attribute__((visibility("default"))) int ioctl(int fd, unsigned long request, ...) {
  va_list list;
  va_start(list, request);
  void* argument = va_arg(list, void*);
  va_end(list);
  using namespace qgpu::rm_stand_in;
  if (_IOC_TYPE(request) == qgpu::nvidia::rm::kIoctlType && argument && isDriver(fd)) {
    if (State* all = state()) {
      const int rc = answer(*all, fd, _IOC_NR(request), _IOC_SIZE(request), argument);
      while (_IOC_NR(request) == qgpu::nvidia::rm::kEscFree && all->keepFrees) ::sched_yield();
      return rc;
    }
  }
  static const auto real =
      reinterpret_cast<int (*)(int, unsigned long, ...)>(::dlsym(RTLD_NEXT, "ioctl"));
  return real(fd, request, argument);
}

extern "C" __attribute__((visibility("default"))) int open(const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const auto mode = va_arg(list, mode_t);
  va_end(list);
  static const auto real =
      reinterpret_cast<int (*)(const char*, int, ...)>(::dlsym(RTLD_NEXT, "open"));
  return real(qgpu::rm_stand_in::placeOf(path).c_str(), flags, mode);
}

extern "C" __attribute__((visibility("default"))) int statx(int at, const char* path, int flags,
                                                            unsigned mask, struct statx* out) {
  using Statx = int (*)(int, const char*, int, unsigned, struct statx*);
  static const auto real = reinterpret_cast<Statx>(::dlsym(RTLD_NEXT, "statx"));
  return real(at, qgpu::rm_stand_in::placeOf(path).c_str(), flags, mask, out);
}
