#include "tests/unit/services/guest/cuda/cuda_rm.h"

#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fcntl.h>
#include <map>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/cuda_stand_in/kernel.h"

namespace qgpu::testing {
namespace {

using namespace nvidia::rm;  // the words of the kernel's interface

std::map<int, int> files;  // what tests call them, and the descriptor

const QgpuKernelStandIn& kernel() {
  static const auto ask =
      reinterpret_cast<const QgpuKernelStandIn* (*)()>(dlsym(RTLD_DEFAULT, "qgpuKernelStandIn"));
  return *ask();
}

int call(int file, std::uint32_t number, void* argument, std::size_t size) {
  return ioctl(files[file], _IOC(_IOC_READ | _IOC_WRITE, kIoctlType, number, size), argument);
}
std::string text(int rc, std::uint32_t status) {
  return std::to_string(rc) + " " + std::to_string(status);
}

struct LongAlloc {  // from 535
  AllocCall call;
  std::uint64_t rights;
  std::uint32_t size, flags, status, pad;
};
static_assert(sizeof(LongAlloc) == 48);

int openFile(const char* name) {
  const std::string path = std::string(std::getenv("QGPU_DRIVER_ROOT")) + "/dev/" + name;
  return open(path.c_str(), (*name ? O_RDWR : O_RDONLY) | O_CLOEXEC);
}

void openControl(int file) {
  files[file] = openFile("nvidiactl");
}

// With a word of its parameters; what was made, 0: nothing.
Handle make(int file, const AllocCall& what, std::size_t at = 0, std::uint32_t number = 0) {
  alignas(8) char parameters[368] = {};
  std::memcpy(parameters + at, &number, sizeof number);
  LongAlloc wanted{};
  wanted.call = what;
  wanted.call.parameters = reinterpret_cast<std::uint64_t>(parameters);
  wanted.size = sizeof parameters;
  const int rc = call(file, kEscAlloc, &wanted, sizeof wanted);
  return rc == 0 && wanted.status == kOk ? wanted.call.object : 0;
}

// FILE CARD GROUP COUNT ENGINE: on a file of their own with a client and a device, a group that
// names its engine, and channels that name none: GROUP + 1 and so on. The client.
std::string channels(std::istringstream& in) {
  constexpr Handle kTheDevice = 5;
  int file = 0;
  std::uint32_t card = 0, count = 0, engine = 0;
  Handle group = 0;
  in >> file >> card >> group >> count >> engine;
  openControl(file);
  const Handle client = make(file, {0, 0, 0, kRootClient, 0});
  make(file, {client, client, kTheDevice, kDevice, 0}, offsetof(DeviceParameters, device), card);
  make(file, {client, kTheDevice, group, kChannelGroup, 0}, kGroupEngineAt, engine);
  for (Handle each = group + 1; each <= group + count; ++each) {
    if (make(file, {client, group, each, 0xc86f, 0}) != each) return "no channel";
  }
  return std::to_string(client);
}

// FILE CLIENT PARENT OBJECT CLASS BYTES; a client's is 0, and the answer ends with what was made.
std::string alloc(std::istringstream& in) {
  int file = 0;
  MemoryParameters memory{};
  LongAlloc wanted{};
  in >> file >> wanted.call.client >> wanted.call.parent >> wanted.call.object >>
      wanted.call.objectClass >> memory.size;
  char parameters[368] = {};
  std::memcpy(parameters, &memory, sizeof memory);
  wanted.call.parameters = reinterpret_cast<std::uint64_t>(parameters);
  wanted.size = sizeof parameters;
  const int rc = call(file, kEscAlloc, &wanted, sizeof wanted);
  return text(rc, wanted.status) + " " + std::to_string(wanted.call.object);
}

// FILE CLIENT PARENT OBJECT MEMORY: addresses for other cards that hold a memory.
std::string fabric(std::istringstream& in) {
  int file = 0;
  AllocCall wanted{};
  Handle memory = 0;
  in >> file >> wanted.client >> wanted.parent >> wanted.object >> memory;
  wanted.objectClass = kFabricMemory;
  return make(file, wanted, kFabricMemoryAt, memory) ? "ok" : "no";
}

// FILE CLIENT OBJECT
std::string freeOne(std::istringstream& in) {
  int file = 0;
  FreeCall wanted{};
  in >> file >> wanted.client >> wanted.object;
  const int rc = call(file, kEscFree, &wanted, sizeof wanted);
  return text(rc, wanted.status);
}

// FILE CLIENT FIRST COUNT: frees the names from FIRST on, one by one.
std::string freeEach(std::istringstream& in) {
  int file = 0;
  Handle client = 0, first = 0, count = 0;
  in >> file >> client >> first >> count;
  for (Handle name = first; name < first + count; ++name) {
    FreeCall one{client, 0, name, kOk};
    if (call(file, kEscFree, &one, sizeof one) != 0 || one.status != kOk) return "not freed";
  }
  return "0";
}

// FILE CLIENT PARENT FIRST COUNT: makes a channel of each name, as soon as the driver gives it.
std::string takeEach(std::istringstream& in) {
  int file = 0;
  Handle client = 0, parent = 0, first = 0, count = 0;
  in >> file >> client >> parent >> first >> count;
  for (Handle name = first; name < first + count; ++name) {
    while (make(file, {client, parent, name, 0xc86f, 0}) != name) {
    }
  }
  return "0";
}

// FILE CLIENT PARENT OBJECT SOURCE-CLIENT SOURCE-OBJECT
std::string duplicate(std::istringstream& in) {
  int file = 0;
  DupCall wanted{};
  in >> file >> wanted.client >> wanted.parent >> wanted.object >> wanted.sourceClient >>
      wanted.sourceObject;
  const int rc = call(file, kEscDupObject, &wanted, sizeof wanted);
  return text(rc, wanted.status);
}

// FILE CLIENT OBJECT and a control's parameters
template <typename Parameters>
std::string control(int file, Handle client, Handle object, std::uint32_t command,
                    Parameters& parameters) {
  ControlCall wanted{};
  wanted.client = client;
  wanted.object = object;
  wanted.command = command;
  wanted.parameters = reinterpret_cast<std::uint64_t>(&parameters);
  wanted.parametersSize = sizeof parameters;
  const int rc = call(file, kEscControl, &wanted, sizeof wanted);
  return text(rc, wanted.status);
}

// FILE CLIENT GROUP MICROSECONDS
std::string slice(std::istringstream& in) {
  int file = 0;
  Handle client = 0, group = 0;
  Timeslice wanted{};
  in >> file >> client >> group >> wanted.us;
  return control(file, client, group, kSetTimeslice, wanted);
}

// FILE CLIENT OBJECT INTO, another file
std::string exportOne(std::istringstream& in) {
  int file = 0, into = 0;
  Handle client = 0;
  ExportOne one{};
  in >> file >> client >> one.object >> into;
  one.type = 1;
  one.fd = files[into];
  return control(file, client, client, kExportOne, one);
}

// FILE CLIENT PARENT OBJECT FROM
std::string importOne(std::istringstream& in) {
  int file = 0, from = 0;
  Handle client = 0;
  ImportOne one{};
  in >> file >> client >> one.parent >> one.object >> from;
  one.type = 1;
  one.fd = files[from];
  return control(file, client, client, kImportOne, one);
}

// FILE CLIENT INTO INDEX OBJECT...
std::string exportMany(std::istringstream& in) {
  int file = 0, into = 0;
  Handle client = 0;
  ExportMany many{};
  in >> file >> client >> into >> many.index;
  while (in >> many.objects[many.count]) ++many.count;
  many.room = 16;
  many.fd = files[into];
  return control(file, client, client, kExportMany, many);
}

// FILE CLIENT PARENT FROM INDEX OBJECT...
std::string importMany(std::istringstream& in) {
  int file = 0, from = 0;
  Handle client = 0;
  ImportMany many{};
  in >> file >> client >> many.parent >> from >> many.index;
  while (in >> many.objects[many.count]) ++many.count;
  many.fd = files[from];
  return control(file, client, client, kImportMany, many);
}

// FILE CLIENT OBJECT...: into a dma-buf, which becomes that file.
std::string exportDmaBuf(std::istringstream& in) {
  constexpr DmaBufForm kForm = dmaBufForm(2608);
  alignas(8) char bytes[kForm.size] = {};
  int file = 0;
  DmaBufCall wanted{};
  wanted.fd = -1;
  in >> file >> wanted.client;
  for (Handle object = 0; in >> object; ++wanted.count) {
    std::memcpy(bytes + kForm.objectsAt + wanted.count * sizeof object, &object, sizeof object);
  }
  wanted.total = wanted.count;
  std::memcpy(bytes, &wanted, sizeof wanted);
  const int card = openFile("nvidia0");
  const int rc =
      ioctl(card, _IOC(_IOC_READ | _IOC_WRITE, kIoctlType, kEscExportDmaBuf, kForm.size), bytes);
  close(card);
  std::memcpy(&files[file], bytes, sizeof(int));
  std::uint32_t status = 0;
  std::memcpy(&status, bytes + kForm.statusAt, sizeof status);
  return text(rc, status);
}

// FILE PID NUMBER: another process's descriptor, as one is sent through a socket.
std::string fetch(std::istringstream& in) {
  int file = 0, number = 0;
  pid_t pid = 0;
  in >> file >> pid >> number;
  const auto process = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  files[file] = static_cast<int>(syscall(SYS_pidfd_getfd, process, number, 0));
  close(process);
  return files[file] < 0 ? "no" : "ok";
}

// Whether the driver answered a control of a client itself.
template <typename Parameters>
bool ask(int file, Handle client, std::uint32_t command, Parameters& parameters) {
  ControlCall wanted{
      client, client, command, 0, reinterpret_cast<std::uint64_t>(&parameters), sizeof parameters,
      0};
  return call(file, kEscControl, &wanted, sizeof wanted) == 0 && wanted.status == kOk;
}

// FILE CLIENT: total, heap and free in MiB, as FB_GET_INFO_V2 tells them.
std::string sizes(std::istringstream& in) {
  int file = 0;
  struct {
    std::uint32_t count = 3;
    FbInfo all[128] = {{kFbTotalRam, 0}, {kFbHeapSize, 0}, {kFbHeapFree, 0}};
  } list;
  Handle client = 0;
  in >> file >> client;
  if (!ask(file, client, kFbGetInfo2, list)) return "failed";
  std::string all;
  for (const FbInfo* each = list.all; each != list.all + 3; ++each) {
    all += (all.empty() ? "" : " ") + std::to_string(each->kibibytes >> 10);
  }
  return all;
}

// FILE CLIENT: total, free and largest piece in MiB, as the heap tells them, and the total as the
// call tells it that names a piece of memory, over LIMIT.
std::string heapSizes(std::istringstream& in) {
  int file = 0;
  HeapCall heap{};
  AllocMemoryCall whole{};
  in >> file >> heap.client >> whole.limit;
  heap.parent = heap.client;
  heap.function = kHeapInfo;
  if (call(file, kEscVidHeapControl, &heap, sizeof heap) || heap.status) return "failed";
  whole.client = whole.parent = heap.client;
  whole.object = 0x77;
  whole.objectClass = kLocalMemory;
  if (call(file, kEscAllocMemory, &whole, sizeof whole) || whole.status) return "refused";
  std::string all;
  for (const std::uint64_t each : {heap.total, heap.free, heap.info.size, whole.limit + 1}) {
    all += (all.empty() ? "" : " ") + std::to_string(each >> 20);
  }
  return all;
}

// FILE CLIENT: the processes on the card as the driver tells them, "self" for this one.
std::string pids(std::istringstream& in) {
  int file = 0;
  PidsCall told{};
  Handle client = 0;
  in >> file >> client;
  if (!ask(file, client, kGetPids, told)) return "failed";
  std::string all = std::to_string(told.count) + ":";
  for (const std::uint32_t pid : told.pids) {
    if (pid == 0) break;
    all += " " + (pid == static_cast<std::uint32_t>(getpid()) ? "self" : std::to_string(pid));
  }
  return all;
}

// A child in the same memory, as posix_spawn and Python make one, that closes what it inherited.
std::string closeInVfork(int fd) {
  const pid_t child = vfork();
  if (child == 0) {
    close(fd);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return std::to_string(WEXITSTATUS(status));
}

// A card's file that is registered with a control file, and mapped: the map alone keeps it open.
std::string mapCard(int file) {
  const int card = openFile("nvidia0");
  ioctl(card, _IOC(_IOC_READ | _IOC_WRITE, kIoctlType, kEscRegisterFd, sizeof(int)), &files[file]);
  flock(card, LOCK_SH);
  const void* at = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, card, 0);
  close(card);
  return at == MAP_FAILED ? "no map" : "ok";
}

// Where: of a file that has an address for each byte that it keeps, as that of unified memory has.
std::string mapItself(int file) {
  const void* at = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, files[file], 0);
  return at == MAP_FAILED ? "no map" : std::to_string(reinterpret_cast<std::uintptr_t>(at));
}

// Locks belong to open files, and end with their last reference: whoever else opens the driver's
// files can see whether any of this program's is still open. How many there are.
std::string lockAll() {
  int count = 0;
  for (int fd = 0; fd < 256; ++fd) {
    char path[4096] = {};
    const std::string link = "/proc/self/fd/" + std::to_string(fd);
    if (readlink(link.c_str(), path, sizeof path - 1) < 0) continue;
    const bool driver = std::strstr(path, "/dev/nvidia") != nullptr;
    if (driver && flock(fd, LOCK_SH) == 0) ++count;
  }
  return std::to_string(count);
}

// A child that does nothing for as long as it is let; its process id.
std::string worker() {
  const pid_t child = fork();
  while (child == 0) pause();
  return std::to_string(child);
}

// Ways to a second descriptor of an open file.
const std::map<std::string, int (*)(int)> copies = {
    {"dup", [](int fd) { return dup(fd); }},
    {"fcntl", [](int fd) { return fcntl(fd, F_DUPFD_CLOEXEC, 0); }},
    {"fcntl64", [](int fd) { return fcntl64(fd, F_DUPFD, 0); }},
    {"unseen", [](int fd) { return static_cast<int>(syscall(SYS_dup, fd)); }},
};

std::string onFiles(const std::string& verb, std::istringstream& in) {
  int file = 0, other = 0;
  in >> file >> other;
  if (verb == "open") {
    openControl(file);
    return files[file] < 0 ? "no file" : "ok";
  }
  if (verb == "steal") {  // the number becomes another file's, unseen
    const int folder = openFile("");
    return syscall(SYS_dup3, folder, files[file], 0) < 0 ? "no" : "ok";
  }
  if (verb == "number") return std::to_string(files[file]);
  if (verb == "uvm") {
    files[file] = openFile("nvidia-uvm");
    return std::to_string(ioctl(files[file], 0x30000001, &other));
  }
  if (verb == "map") return mapCard(file);
  if (verb == "mapitself") return mapItself(file);
  if (verb == "lock") return lockAll();
  if (verb == "worker") return worker();
  if (verb == "close") return std::to_string(close(files[file]));
  if (const auto copy = copies.find(verb); copy != copies.end()) {
    return (files[other] = copy->second(files[file])) < 0 ? "no" : "ok";
  }
  if (verb == "dup2") return dup2(files[file], files[other]) < 0 ? "no" : "ok";
  if (verb == "vfork") return closeInVfork(files[file]);
  return "";
}

}  // namespace

std::string obeyRm(std::istringstream& in) {
  std::string verb;
  in >> verb;
  if (verb == "alloc") return alloc(in);
  if (verb == "channels") return channels(in);
  if (verb == "slice") return slice(in);
  if (verb == "free") return freeOne(in);
  if (verb == "freeeach") return freeEach(in);
  if (verb == "takeeach") return takeEach(in);
  if (verb == "dupobject") return duplicate(in);
  if (verb == "sizes") return sizes(in);
  if (verb == "heapsizes") return heapSizes(in);
  if (verb == "pids") return pids(in);
  if (verb == "export") return exportOne(in);
  if (verb == "import") return importOne(in);
  if (verb == "exportmany") return exportMany(in);
  if (verb == "importmany") return importMany(in);
  if (verb == "dmabuf") return exportDmaBuf(in);
  if (verb == "fetch") return fetch(in);
  if (verb == "fabric") return fabric(in);
  if (verb == "held") return std::to_string(kernel().bytes());
  if (verb == "objects") return std::to_string(kernel().objects());
  if (verb == "calls") {
    std::uint32_t number = 0;
    in >> number;
    return std::to_string(kernel().calls(number));
  }
  const std::string answer = onFiles(verb, in);
  return answer.empty() ? "unknown " + verb : answer;
}

}  // namespace qgpu::testing
