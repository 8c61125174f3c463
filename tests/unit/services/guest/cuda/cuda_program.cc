// A CUDA program for the tests of libqgpu.so: one command a line on stdin, one answer a line. What
// it calls, it calls through the table that QGPU_TEST_WAY says how to fill.

#include "tests/unit/services/guest/cuda/cuda_program.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <signal.h>
#include <sstream>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "tests/cuda_stand_in/calls.h"
#include "tests/unit/services/guest/cuda/cuda_rm.h"

namespace qgpu::testing {
namespace {

using namespace nvidia::cuda;  // the names of the interface

CudaTable t{};

// Functions that need no hook, straight from the library.
template <typename F>
F plain(const char* name) {
  return reinterpret_cast<F>(dlsym(cudaLibrary(), name));
}

struct Program {
  Ctx context = nullptr;
  Fn nothing = nullptr, sleeping = nullptr, adding = nullptr;
  Fn filling = nullptr, stirring = nullptr, checking = nullptr;
  Ptr buffer = 0;
  std::map<std::string, Str> streams = {
      {"null", nullptr}, {"legacy", legacyStream()}, {"own", perThreadStream()}};
  std::map<std::string, Graph> graphs;
  std::map<std::string, Exec> execs;
  std::map<std::string, Evt> events;
  struct Memory {
    std::string kind;
    std::uint64_t name = 0;
    Ptr mapped = 0;
    Size bytes = 0;
  };
  std::map<int, Memory> memory;
  alignas(64) char host[4096] = {};
  std::thread aside;
  std::atomic<pid_t> asideThread{0};
  std::string asideAnswer;
};
Program& p = *new Program;

const QgpuStandIn& driver() {
  static const QgpuStandIn* in = plain<StandInTable>("qgpuStandIn")();
  return *in;
}

std::string text(Result rc) {
  return std::to_string(rc);
}

// --- every hook, with arguments that the driver takes ---

void hostFunction(void*) {}

struct Arguments {
  U microseconds = 0;
  void* kernel[1] = {&microseconds};
  LaunchConfig config{1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, 0};
  LaunchParams params[1] = {};
  Copy2D flat{};
  Copy3D deep{};
  Ptr pointers[1] = {};
  Size sizes[64] = {64};
  Location places[1] = {{1, 0}};
  CopyOperation operations[64] = {};
  Exec graph = nullptr;
} a;

std::string init() {
  const char* way = std::getenv("QGPU_TEST_WAY");
  if (!resolveCuda(way ? way : "dlsym", t)) return "no way";
  if (Result rc = t.cuInit(0)) return text(rc);
  if (Result rc = t.cuDevicePrimaryCtxRetain(&p.context, 0)) return text(rc);
  if (Result rc = t.cuCtxSetCurrent(p.context)) return text(rc);
  Mod module = nullptr;
  plain<Result (*)(Mod*, const void*)>("cuModuleLoadData")(&module, "");
  const auto function = plain<Result (*)(Fn*, Mod, const char*)>("cuModuleGetFunction");
  function(&p.nothing, module, "nothing");
  function(&p.sleeping, module, "sleep");
  function(&p.adding, module, "add");
  function(&p.filling, module, "fill");
  function(&p.stirring, module, "stir");
  function(&p.checking, module, "check");
  a.params[0].function = p.nothing;
  a.params[0].arguments = a.kernel;
  return text(t.cuMemAlloc_v2(&p.buffer, 4096));
}

template <typename T>
T some() {
  if constexpr (std::is_same_v<T, Ptr>) return p.buffer;
  if constexpr (std::is_same_v<T, Fn>) return p.nothing;
  if constexpr (std::is_same_v<T, Size>) return 64;
  if constexpr (std::is_same_v<T, U>) return 1;
  if constexpr (std::is_same_v<T, Ctx>) return p.context;
  if constexpr (std::is_same_v<T, Exec>) return a.graph;
  if constexpr (std::is_same_v<T, HostFn>) return hostFunction;
  if constexpr (std::is_same_v<T, void**>) return a.kernel;
  if constexpr (std::is_same_v<T, const LaunchConfig*>) return &a.config;
  if constexpr (std::is_same_v<T, LaunchParams*>) return a.params;
  if constexpr (std::is_same_v<T, const Copy2D*>) return &a.flat;
  if constexpr (std::is_same_v<T, const Copy3D*>) return &a.deep;
  if constexpr (std::is_same_v<T, Ptr*>) return a.pointers;
  if constexpr (std::is_same_v<T, Size*>) return a.sizes;
  if constexpr (std::is_same_v<T, CopyOperation*>) return a.operations;
  if constexpr (std::is_same_v<T, Location>) return a.places[0];
  if constexpr (std::is_same_v<T, Location*>) return a.places;
  if constexpr (std::is_same_v<T, void*> || std::is_same_v<T, const void*>) return p.host;
  return T{};
}

template <typename... A>
Result callWithSome(Result (*function)(A...)) {
  return function ? function(some<A>()...) : -1;
}

std::string doOne(const std::string& wanted) {
  Result rc = -2;
  const std::uint64_t before = driver().calls(wanted.c_str());
#define QGPU_DO(symbol, base, since, stream, types) \
  if (wanted == #symbol) rc = callWithSome(t.symbol);
  NVIDIA_CUDA_KERNELS(QGPU_DO)
  NVIDIA_CUDA_COPIES(QGPU_DO)
  NVIDIA_CUDA_FILLS(QGPU_DO)
  NVIDIA_CUDA_DRAINING(QGPU_DO)
  NVIDIA_CUDA_MEMOPS(QGPU_DO)
  NVIDIA_CUDA_WAITS(QGPU_DO)
#undef QGPU_DO
  return text(rc) + " " + std::to_string(driver().calls(wanted.c_str()) - before);
}

// Hooked functions that the table lacks.
std::string missing() {
  std::string names;
#define QGPU_LOOK(symbol, base, since, stream, types) \
  if (!t.symbol) names += std::string(#symbol) + " ";
  NVIDIA_CUDA_HOOKED(QGPU_LOOK)
#undef QGPU_LOOK
  return names.empty() ? "none" : names;
}

// Hooks that the way did not lead to: their address is the driver's own export.
std::string bare() {
  std::string names;
#define QGPU_LOOK(symbol, base, since, stream, types)                    \
  if (reinterpret_cast<void*>(t.symbol) == driver().function(#symbol)) { \
    names += std::string(#symbol) + " ";                                 \
  }
  NVIDIA_CUDA_HOOKED(QGPU_LOOK)
#undef QGPU_LOOK
  return names.empty() ? "none" : names;
}

// --- streams, kernels, graphs ---

Result sleepOn(const std::string& stream, U us) {
  void* arguments[] = {&us};
  return t.cuLaunchKernel(p.sleeping, 1, 1, 1, 1, 1, 1, 0, p.streams[stream], arguments, nullptr);
}
Result sleepOnOwn(U us, U times) {
  void* arguments[] = {&us};
  Result rc = kSuccess;
  for (U i = 0; i < times && rc == kSuccess; ++i) {
    rc = t.cuLaunchKernel_ptsz(p.sleeping, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr);
  }
  return rc;
}
Result addOn(const std::string& stream) {
  void* arguments[] = {&p.buffer};
  return t.cuLaunchKernel(p.adding, 1, 1, 1, 1, 1, 1, 0, p.streams[stream], arguments, nullptr);
}

std::string sum() {
  std::uint64_t value = 0;
  const Result rc = t.cuMemcpyDtoH_v2(&value, p.buffer, sizeof value);
  return rc ? "rc " + text(rc) : std::to_string(value);
}

std::string onStreams(const std::string& verb, std::istringstream& in) {
  std::string name;
  std::uint64_t n = 0, us = 0;
  in >> name >> n >> us;
  if (verb == "stream") {
    const auto create = plain<Result (*)(Str*, U)>("cuStreamCreate");
    return text(create(&p.streams[name], static_cast<U>(n)));
  }
  if (verb == "destroy") return text(t.cuStreamDestroy_v2(p.streams[name]));
  if (verb == "sync") return text(t.cuStreamSynchronize(p.streams[name]));
  if (verb == "query") return text(t.cuStreamQuery(p.streams[name]));
  if (verb == "sleep") return text(sleepOn(name, static_cast<U>(n)));
  if (verb == "add") return text(addOn(name));
  if (verb == "copy") return text(t.cuMemcpyAsync(p.buffer, p.buffer, 64, p.streams[name]));
  if (verb == "burst") {
    Result rc = kSuccess;
    for (std::uint64_t i = 0; i < n && rc == kSuccess; ++i) rc = sleepOn(name, static_cast<U>(us));
    return text(rc);
  }
  if (verb == "begin") return text(t.cuStreamBeginCapture_v2(p.streams[name], static_cast<int>(n)));
  if (verb == "begincig") return text(t.cuStreamBeginCaptureToCig(p.streams[name], p.host));
  if (verb == "endcig") return text(t.cuStreamEndCaptureToCig(p.streams[name]));
  if (verb == "recapture") {
    Graph graph = p.graphs[name];
    return text(t.cuStreamBeginRecaptureToGraph(p.streams[name], 0, graph, nullptr, nullptr));
  }
  if (verb == "end") {
    const Result rc = t.cuStreamEndCapture(p.streams[name], &p.graphs[name]);
    return text(rc) + (p.graphs[name] ? " graph" : " none");
  }
  if (verb == "instantiate") {
    const auto make =
        plain<Result (*)(Exec*, Graph, unsigned long long)>("cuGraphInstantiateWithFlags");
    return text(make(&p.execs[name], p.graphs[name], 0));
  }
  if (verb == "graphend") return text(t.cuGraphExecDestroy(p.execs[name]));
  if (verb == "launch") return text(t.cuGraphLaunch(p.execs[name], p.streams[name]));
  if (verb == "event") {
    const Result rc = t.cuEventCreate(&p.events[name], 0);
    return text(rc ? rc : t.cuEventRecord(p.events[name], p.streams[name]));
  }
  if (verb == "join") {  // n is not used: stream "b" waits for the event behind `name`
    const auto wait = plain<Result (*)(Str, Evt, U)>("cuStreamWaitEvent");
    return text(wait(p.streams["b"], p.events[name], 0));
  }
  if (verb == "unload") return text(t.cuModuleUnload(nullptr));
  if (verb == "waitevent") return text(t.cuEventSynchronize(p.events[name]));
  if (verb == "waitvalue") {
    const auto value = n ? static_cast<U>(n) : 1;
    return text(t.cuStreamWaitValue32_v2(p.streams[name], reinterpret_cast<Ptr>(p.host), value, 0));
  }
  if (verb == "writevalue") {
    return text(t.cuStreamWriteValue32_v2(p.streams[name], reinterpret_cast<Ptr>(p.host), 1, 0));
  }
  return "";
}

// --- memory ---

Result reserve(Ptr* at, Size bytes) {
  using Reserve = Result (*)(Ptr*, Size, Size, Ptr, unsigned long long);
  return plain<Reserve>("cuMemAddressReserve")(at, bytes, 0, 0, 0);
}

Result reserveAndMap(Program::Memory& m) {
  reserve(&m.mapped, m.bytes);
  return t.cuMemMap(m.mapped, m.bytes, 0, m.name, 0);
}

// As llama.cpp's pool grows: one range of addresses, and piece after piece of memory mapped into it
// for as long as there is some. How many there are, and what the last call said.
std::string grow(Program::Memory& m, Size piece, Size most) {
  const auto open =
      plain<Result (*)(Ptr, Size, const stand_in::MemAccess*, Size)>("cuMemSetAccess");
  const MemProperties properties{1, 0, {1, 0}, nullptr, {}};
  const stand_in::MemAccess access{{1, 0}, stand_in::kReadWrite};
  m = {"range", 0, 0, 0};
  Result rc = reserve(&m.mapped, piece * most);
  while (rc == kSuccess && m.bytes < piece * most) {
    Mem memory = 0;
    if ((rc = t.cuMemCreate(&memory, piece, &properties, 0))) break;
    const Ptr at = m.mapped + m.bytes;
    if ((rc = t.cuMemMap(at, piece, 0, memory, 0)) == kSuccess) m.bytes += piece;
    if (rc == kSuccess) rc = open(at, piece, &access, 1);
    t.cuMemRelease(memory);  // its map keeps it
  }
  return std::to_string(m.bytes / piece) + " " + text(rc);
}

Pool made = nullptr;

void endPool() {
  t.cuMemPoolDestroy(std::exchange(made, nullptr));
}

// The pool that a kind of memory names; null: the device's own.
Pool poolOf(const std::string& kind) {
  Location device{1, 0};
  Pool pool = nullptr;
  if (kind == "pool-managed") t.cuMemGetDefaultMemPool(&pool, &device, kManaged);
  if (kind == "pool-current") t.cuMemGetMemPool(&pool, &device, kManaged);
  if (kind == "pool-created" || kind == "pool-again") {
    const PoolProperties wanted{kind == "pool-again" ? kPinned : kManaged, 0, device, 0, 0, 0, {}};
    if (made) t.cuMemPoolDestroy(made);
    t.cuMemPoolCreate(&made, &wanted);
    pool = made;
  }
  return pool;
}

// Two threads ask at once for the pool that is current, which then is destroyed.
bool endPoolFoundTwice() {
  std::atomic<int> begun{0};
  Pool found[2] = {};
  const auto find = [&](Pool& pool) {
    Location device{1, 0};
    begun.fetch_add(1);
    while (begun.load() < 2) std::this_thread::yield();
    t.cuMemGetMemPool(&pool, &device, kManaged);
  };
  std::thread other(find, std::ref(found[1]));
  find(found[0]);
  other.join();
  return found[0] == found[1] && t.cuMemPoolDestroy(found[0]) == kSuccess;
}

// Where physical memory of this kind lies: in the host's memory, by each way to say so, or not.
Location placeOf(const std::string& kind) {
  if (kind == "host") return {2, 0};
  if (kind == "host-node") return {3, 0};
  if (kind == "host-near") return {4, 0};
  return {1, 0};
}
bool isPhysical(const std::string& kind) {
  return kind == "physical" || kind == "imported" || kind.starts_with("host");
}

std::string allocate(const std::string& kind, int id, Size bytes) {
  Program::Memory m{kind, 0, 0, bytes};
  Ptr at = 0;
  Size pitch = 0;
  Arr array = nullptr;
  Mip mip = nullptr;
  Mem physical = 0;
  const ArrayShape flat{bytes / 16, 1, 0x20, 4};  // four floats a texel
  const ArrayShape3D deep{bytes / 32, 2, 0, 0x20, 4, 0};
  const MemProperties properties{1, 0, placeOf(kind), nullptr, {}};
  Result rc = -1;
  if (kind == "plain") rc = t.cuMemAlloc_v2(&at, bytes);
  if (kind == "pitch") rc = t.cuMemAllocPitch_v2(&at, &pitch, 500, bytes / 512, 4);
  if (kind == "managed") rc = t.cuMemAllocManaged(&at, bytes, 1);
  if (kind == "async") rc = t.cuMemAllocAsync(&at, bytes, p.streams["a"]);
  if (kind == "async-own") rc = t.cuMemAllocAsync_ptsz(&at, bytes, nullptr);
  if (kind.rfind("pool", 0) == 0) {
    rc = t.cuMemAllocFromPoolAsync(&at, bytes, poolOf(kind), p.streams["a"]);
  }
  if (kind == "array") rc = t.cuArrayCreate_v2(&array, &flat);
  if (kind == "array3d") rc = t.cuArray3DCreate_v2(&array, &deep);
  if (kind == "mipmap") rc = t.cuMipmappedArrayCreate(&mip, &deep, 1);
  if (isPhysical(kind)) {
    rc = kind == "imported" ? t.cuMemImportFromShareableHandle(&physical, nullptr, 1)
                            : t.cuMemCreate(&physical, bytes, &properties, 0);
  }
  if (rc != kSuccess) return text(rc);
  m.name = at + physical + reinterpret_cast<std::uintptr_t>(array) +
           reinterpret_cast<std::uintptr_t>(mip);
  p.memory[id] = m;
  return text(rc);
}

std::string freeOne(int id) {
  const Program::Memory m = p.memory[id];
  if (m.kind == "async" || m.kind.rfind("pool", 0) == 0)
    return text(t.cuMemFreeAsync(m.name, p.streams["a"]));
  if (m.kind == "async-own") return text(t.cuMemFreeAsync_ptsz(m.name, nullptr));
  if (m.kind == "array" || m.kind == "array3d") {
    return text(t.cuArrayDestroy(reinterpret_cast<Arr>(m.name)));
  }
  if (m.kind == "mipmap") return text(t.cuMipmappedArrayDestroy(reinterpret_cast<Mip>(m.name)));
  if (isPhysical(m.kind)) return text(t.cuMemRelease(m.name));
  return text(t.cuMemFree_v2(m.name));
}

// Kernels on every word of what was allocated: "fill ID STREAM SEED", "stir ID STREAM", and how
// many are wrong: "check ID STREAM SEED ROUNDS".
std::string onBlocks(const std::string& verb, std::istringstream& in) {
  int id = 0;
  std::string stream;
  std::uint64_t seed = 0, rounds = 0, wrong = 0;
  in >> id >> stream >> seed >> rounds;
  std::uint64_t address = p.memory[id].name, words = p.memory[id].bytes / sizeof(std::uint64_t);
  std::uint64_t counted = reinterpret_cast<std::uintptr_t>(&wrong);
  void* arguments[] = {&address, &words, &seed, &rounds, &counted};
  const Fn kernel = verb == "fill" ? p.filling : verb == "stir" ? p.stirring : p.checking;
  Result rc = t.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, p.streams[stream], arguments, nullptr);
  if (verb != "check") return text(rc);
  if (rc == kSuccess) rc = t.cuStreamSynchronize(p.streams[stream]);
  return text(rc) + " " + std::to_string(wrong);
}

// What is said of an address in what was allocated: where the whole begins, from there, and how
// long it is, by both ways to ask.
std::string addressesOf(const Program::Memory& m, Size offset) {
  Ptr base = 0, begins = 0;
  Size bytes = 0, length = 0;
  const Result first = t.cuMemGetAddressRange_v2(&base, &bytes, m.name + offset);
  int which[] = {11, 12};
  void* out[] = {&begins, &length};
  const Result second = t.cuPointerGetAttributes(2, which, out, m.name + offset);
  return text(first) + ":" + std::to_string(base - m.name) + ":" + std::to_string(bytes) + " " +
         text(second) + ":" + std::to_string(begins - m.name) + ":" + std::to_string(length);
}

// A graph that copies a word of one allocation into another and fills the next one, as nodes.
std::string copyGraph(const Program::Memory& from, const Program::Memory& to) {
  Copy3D copy{};
  copy.srcDevice = from.name;
  copy.dstDevice = to.name;
  copy.width = sizeof(std::uint64_t);
  copy.height = copy.depth = 1;
  Graph graph = nullptr;
  Node node = nullptr;
  if (Result rc = t.cuStreamBeginCapture_v2(p.streams["a"], kCaptureRelaxed)) return text(rc);
  if (Result rc = t.cuStreamEndCapture(p.streams["a"], &graph)) return text(rc);
  if (Result rc = t.cuGraphAddMemcpyNode(&node, graph, nullptr, 0, &copy, p.context)) {
    return text(rc);
  }
  return text(t.cuGraphInstantiateWithFlags(&p.execs["copy"], graph, 0));
}

std::string onMemory(const std::string& verb, std::istringstream& in) {
  if (verb == "fill" || verb == "stir" || verb == "check") return onBlocks(verb, in);
  if (verb == "alloc") {
    std::string kind;
    int id = 0;
    Size bytes = 0;
    in >> kind >> id >> bytes;
    return allocate(kind, id, bytes);
  }
  int id = 0;
  in >> id;
  if (verb == "poolsfound") {  // so many, with an allocation from one of each handle afterwards
    for (int i = 0; i < id; ++i) {
      if (!endPoolFoundTwice()) return "not one pool";
      const std::string rc = allocate("pool-again", 0, 8 << 20);
      if (rc != "0" || freeOne(0) != "0") return rc;
      t.cuCtxSynchronize();  // until then the quota has it
      endPool();
    }
    return "0";
  }
  Program::Memory& m = p.memory[id];
  if (verb == "addresses") {  // ID OFFSET
    Size offset = 0;
    in >> offset;
    return addressesOf(m, offset);
  }
  if (verb == "copygraph") {  // ID ID
    int other = 0;
    in >> other;
    return copyGraph(m, p.memory[other]);
  }
  if (verb == "use") return p.buffer = m.name, "ok";  // by "do"
  if (verb == "freeasync") {                          // ID STREAM
    std::string stream;
    in >> stream;
    return text(t.cuMemFreeAsync(m.name, p.streams[stream]));
  }
  if (verb == "share") {
    char handle[64];
    return text(t.cuIpcGetMemHandle(handle, m.name));
  }
  if (verb == "handle") {
    Mem again = 0;
    return text(t.cuMemRetainAllocationHandle(&again, reinterpret_cast<void*>(m.name)));
  }
  if (verb == "free") return freeOne(id);
  if (verb == "freewrong") return text(t.cuMemFree_v2(0x1234000));
  if (verb == "map") return text(reserveAndMap(m));
  if (verb == "grow") {  // ID PIECE MOST
    Size piece = 0, most = 0;
    in >> piece >> most;
    return grow(m, piece, most);
  }
  if (verb == "unmap") return text(t.cuMemUnmap(m.mapped, m.bytes));
  if (verb == "retain") {
    Mem again = 0;
    return text(t.cuMemRetainAllocationHandle(&again, reinterpret_cast<void*>(m.mapped)));
  }
  if (verb == "info") {
    Size free = 0, total = 0, device = 0;
    t.cuMemGetInfo_v2(&free, &total);
    t.cuDeviceTotalMem_v2(&device, 0);
    return std::to_string(free) + " " + std::to_string(total) + " " + std::to_string(device);
  }
  return "";
}

void* nvmlLibrary() {
  static void* const library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  return library;
}

void* findNvml(const char* name) {
  return dlsym(nvmlLibrary(), name);
}

NvmlDevice deviceAt(U index) {
  reinterpret_cast<int (*)()>(findNvml("nvmlInit_v2"))();
  NvmlDevice device = nullptr;
  const auto find = findNvml("nvmlDeviceGetHandleByIndex_v2");
  reinterpret_cast<int (*)(U, NvmlDevice*)>(find)(index, &device);
  return device;
}

// The list of that name into so many entries of `to`, which becomes their number.
int fill(const std::string& name, U& room, void* to) {
  const NvmlDevice device = deviceAt(0);
  void* function = findNvml(name.c_str());
  constexpr U kFirst = 1u << 24;
  if (name == "nvmlDeviceGetProcessUtilization") {
    using Call = int (*)(NvmlDevice, void*, U*, unsigned long long);
    return reinterpret_cast<Call>(function)(device, to, &room, 0);
  }
  if (name == "nvmlDeviceGetProcessesUtilizationInfo") {
    NvmlUtilization all{static_cast<U>(sizeof all) | kFirst, room, 0, to};
    const int rc = reinterpret_cast<int (*)(NvmlDevice, NvmlUtilization*)>(function)(device, &all);
    return room = all.count, rc;
  }
  if (name == "nvmlDeviceGetRunningProcessDetailList") {
    NvmlProcesses all{static_cast<U>(sizeof all) | kFirst, 0, room, to};
    const int rc = reinterpret_cast<int (*)(NvmlDevice, NvmlProcesses*)>(function)(device, &all);
    return room = all.count, rc;
  }
  return reinterpret_cast<int (*)(NvmlDevice, U*, void*)>(function)(device, &room, to);
}

// NAME ROOM ENTRY [AT]: "<rc> <count>", and of each that was filled, "<pid>:<the other number>";
// the process is at AT of an entry, 0 or 8.
std::string processes(std::istringstream& in) {
  std::string name;
  U room = 0;
  std::size_t length = 0, at = 0;
  in >> name >> room >> length >> at;
  std::vector<char> entries(room * length);
  U count = room;
  const int rc = fill(name, count, room ? entries.data() : nullptr);
  std::string told = text(rc) + " " + std::to_string(count);
  for (U i = 0; i < count && rc == 0; ++i) {
    U pid = 0;
    unsigned long long other = 0;
    std::memcpy(&pid, entries.data() + i * length + at, sizeof pid);
    std::memcpy(&other, entries.data() + i * length + 8 - at, sizeof other);
    told += " " + std::to_string(pid) + ":" + std::to_string(other);
  }
  return told;
}

// By the function of that name, before anything else is asked.
std::string startNvml(const std::string& name) {
  void* const start = findNvml(name.c_str());
  if (name != "nvmlInitWithFlags") return text(reinterpret_cast<int (*)()>(start)());
  return text(reinterpret_cast<int (*)(U)>(start)(0));
}

std::string nvml() {
  const auto find = [](const char* name) { return findNvml(name); };
  const NvmlDevice device = deviceAt(0);
  NvmlMemory one{};
  NvmlMemory2 two{};
  two.version = sizeof two | 2u << 24;
  reinterpret_cast<int (*)(NvmlDevice, NvmlMemory*)>(find("nvmlDeviceGetMemoryInfo"))(device, &one);
  reinterpret_cast<int (*)(NvmlDevice, NvmlMemory2*)>(find("nvmlDeviceGetMemoryInfo_v2"))(device,
                                                                                          &two);
  return std::to_string(one.free) + " " + std::to_string(one.total) + " " +
         std::to_string(one.used) + " " + std::to_string(two.total - two.free - two.used);
}

// --- contexts, threads, processes ---

std::string onContexts(const std::string& verb, std::istringstream& in) {
  static Ctx second = nullptr;
  if (verb == "nocontext") return text(t.cuCtxSetCurrent(nullptr));
  if (verb == "initalone") return text(resolveCuda("dlsym", t) ? t.cuInit(0) : -1);
  if (verb == "ctxsync") return text(t.cuCtxSynchronize());
  if (verb == "ctxnew") return text(t.cuCtxCreate_v2(&second, 0, 0));
  if (verb == "ctxend") {
    const Result rc = t.cuCtxDestroy_v2(second);
    t.cuCtxSetCurrent(p.context);
    return text(rc);
  }
  if (verb == "card") {  // NUMBER: what follows is done there
    int number = 0;
    in >> number;
    if (Result rc = t.cuDevicePrimaryCtxRetain(&p.context, number)) return text(rc);
    return text(t.cuCtxSetCurrent(p.context));
  }
  static Green green = nullptr;
  if (verb == "ctxattach") return text(plain<Result (*)(Ctx*, U)>("cuCtxAttach")(&second, 0));
  if (verb == "ctxdetach") return text(t.cuCtxDetach(second));
  if (verb == "greennew") {  // with its stream "green"
    const auto create = plain<Result (*)(Green*, void*, Dev, U)>("cuGreenCtxCreate");
    const auto stream = plain<Result (*)(Str*, Green, U, int)>("cuGreenCtxStreamCreate");
    const Result rc = create(&green, nullptr, 0, 0);
    return text(rc ? rc : stream(&p.streams["green"], green, 1, 0));
  }
  if (verb == "greenend") return text(t.cuGreenCtxDestroy(green));
  if (verb == "reset") return text(t.cuDevicePrimaryCtxReset_v2(0));
  if (verb == "release") return text(t.cuDevicePrimaryCtxRelease_v2(0));
  return "";
}

// `then`: what the child does of `rm` as a tenant of its own, or "init": what cuInit says there.
std::string inFork(const std::string& then) {
  std::cout.flush();
  const pid_t child = fork();
  if (child == 0) {
    // The driver does not survive a fork; the library's own state must.
    Ptr at = 0;
    t.cuMemFree_v2(p.buffer);
    t.cuMemAlloc_v2(&at, 64);
    if (then.empty()) _exit(0);
    const Result rc = t.cuInit(0);
    if (then == "init") _exit(rc);
    std::istringstream in(then);
    _exit(obeyRm(in) != "no channel" ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return std::to_string(WEXITSTATUS(status));
}

// Two threads that allocate and free; how often memory was refused to them.
int race(Size bytes) {
  std::atomic<int> refused{0};
  const auto turns = [&] {
    t.cuCtxSetCurrent(p.context);
    for (int i = 0; i < 400; ++i) {
      Ptr at = 0;
      if (t.cuMemAlloc_v2(&at, bytes) == kSuccess) {
        t.cuMemFree_v2(at);
      } else {
        ++refused;
      }
    }
  };
  std::thread other(turns);
  turns();
  other.join();
  return refused;
}

std::string statistics() {
  const QgpuStandIn& in = driver();
  return std::to_string(in.misuses()) + " " + std::to_string(in.brokenCaptures()) + " " +
         std::to_string(in.pending());
}

// NAME in the global scope by both its names.
bool isInGlobalScope(const char* name) {
  const bool found = dlsym(RTLD_DEFAULT, name) != nullptr;
  if (found != (dlsym(dlopen(nullptr, RTLD_LAZY), name) != nullptr)) std::abort();
  return found;
}

// NAME in the global scope, to which the driver is loaded.
std::string inGlobalScope(const std::string& name) {
  static void* const driverLibrary = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_GLOBAL);
  if (!driverLibrary) return "no driver";
  return isInGlobalScope(name.c_str()) ? "found" : "none";
}

// What the driver says of the way from one card to the other: twice CUDA, and NVML of NVLink.
std::string peers(int from, int to) {
  int may = -1, supported = -1, linked = -1;
  const Result first = plain<Result (*)(int*, Dev, Dev)>("cuDeviceCanAccessPeer")(&may, from, to);
  const auto attribute = plain<Result (*)(int*, int, Dev, Dev)>("cuDeviceGetP2PAttribute");
  const Result second = attribute(&supported, 2, from, to);
  using Status = int (*)(NvmlDevice, NvmlDevice, int, int*);
  const int third = reinterpret_cast<Status>(findNvml("nvmlDeviceGetP2PStatus"))(
      deviceAt(static_cast<U>(from)), deviceAt(static_cast<U>(to)), 2, &linked);
  return text(first) + ":" + text(may) + " " + text(second) + ":" + text(supported) + " " +
         text(third) + ":" + text(linked);
}

std::string onDriver(const std::string& verb, std::istringstream& in) {
  std::string name;
  in >> name;
  if (verb == "peers") {  // FROM TO
    int to = 0;
    in >> to;
    return peers(std::atoi(name.c_str()), to);
  }
  if (verb == "global") return inGlobalScope(name);
  if (verb == "stats") return statistics();
  if (verb == "cardbytes") return std::to_string(driver().bytes(0));
  if (verb == "events") return std::to_string(driver().events());
  if (verb == "calls") return std::to_string(driver().calls(name.c_str()));
  if (verb == "answer") {
    Result rc = kSuccess;
    in >> rc;
    return driver().answer(name.c_str(), rc), "ok";
  }
  return "";
}

// What a program sees that asks whether there is a driver, without loading one.
std::string probe() {
  const bool global = isInGlobalScope("cuInit");
  const bool error = dlerror() != nullptr;
  return std::string(global ? "driver" : "none") + (error ? " error" : "");
}

// NAME by dlsym(), and where VERSION is given, as a runtime asks for it. Of either library, which
// is loaded first.
std::string resolve(const std::string& name, int version) {
  void* found = nullptr;
  if (version == 0) {
    void* const library = name.starts_with("nvml") ? nvmlLibrary() : cudaLibrary();
    dlerror();
    found = dlsym(library, name.c_str());
    if (found && dlerror()) return "found, with an error";
  } else {
    t.cuGetProcAddress_v2(name.c_str(), &found, version, kAskLegacyStream, nullptr);
  }
  return found ? "found" : "none";
}

// What the function returns that the driver gives for NAME without exporting it.
std::string callPrivate(const std::string& name) {
  void* found = nullptr;
  int status = 0;
  plain<decltype(t.cuGetProcAddress_v2)>("cuGetProcAddress_v2")(name.c_str(), &found, 13000,
                                                                kAskLegacyStream, &status);
  return found ? text(reinterpret_cast<Result (*)()>(found)()) : "none";
}

std::string deepBound(const std::string& file) {
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_DEEPBIND);
  if (!library) return dlerror();
  return text(reinterpret_cast<int (*)(U)>(dlsym(library, "qgpuLaunchNothing"))(3));
}

// What the kernel says that a thread does: "S" where it sleeps. Nothing before it is known.
std::string stateOf(pid_t thread) {
  std::ifstream in("/proc/self/task/" + std::to_string(thread) + "/stat");
  std::string all;
  std::getline(in, all);
  const std::size_t name = all.rfind(')');
  return name == all.npos ? "-" : all.substr(name + 2, 1);
}

std::string obey(const std::string& line);

std::string onThreads(const std::string& verb, std::istringstream& in) {
  if (verb == "aside") {  // in another thread, which the next "aside" or "joinaside" ends
    std::string rest;
    std::getline(in, rest);
    if (p.aside.joinable()) p.aside.join();
    p.asideThread = 0;
    p.aside = std::thread([rest] {
      t.cuCtxSetCurrent(p.context);
      p.asideThread = gettid();
      p.asideAnswer = obey(rest);
    });
    return "ok";
  }
  if (verb == "joinaside") return p.aside.join(), p.asideAnswer;
  if (verb == "asideat") return stateOf(p.asideThread);
  return "";
}

std::string obey(const std::string& line) {
  std::istringstream in(line);
  std::string verb;
  in >> verb;
  if (verb == "init") return init();
  if (verb == "probe") return probe();
  if (verb == "resolve") {
    int version = 0;
    in >> verb >> version;
    return resolve(verb, version);
  }
  if (verb == "private") return in >> verb, callPrivate(verb);
  if (verb == "clearenv") return clearenv() == 0 ? "ok" : "failed";
  if (verb == "missing") return missing();
  if (verb == "bare") return bare();
  if (verb == "do") return in >> verb, doOne(verb);
  if (verb == "graphfordo") return a.graph = p.execs["a"], "ok";
  if (verb == "own") {
    U us = 0, times = 1;
    in >> us >> times;
    return text(sleepOnOwn(us, times));
  }
  if (verb == "sum") return sum();
  if (verb == "set") {
    U value = 0;
    const U to = in >> value ? value : 1;
    return __atomic_store_n(reinterpret_cast<U*>(p.host), to, __ATOMIC_SEQ_CST), "ok";
  }
  if (verb == "nvml") return nvml();
  if (verb == "nvml_start") return in >> verb, startNvml(verb);
  if (verb == "processes") return processes(in);
  if (verb == "fork") {
    std::string then;
    std::getline(in >> verb >> std::ws, then);
    return inFork(then);
  }
  if (verb == "deep") return in >> verb, deepBound(verb);
  if (verb == "rm") return obeyRm(in);
  if (verb == "exec") return execl("/proc/self/exe", "cuda_program", nullptr), "no exec";
  if (verb == "die") {
    kill(getpid(), SIGKILL);
    pause();
  }
  if (verb == "module") {
    Mod module = nullptr;
    return text(plain<Result (*)(Mod*, const void*)>("cuModuleLoadData")(&module, ""));
  }
  if (verb == "race") {  // allocates and frees in two threads at once; how many were refused
    Size bytes = 0;
    in >> bytes;
    return std::to_string(race(bytes));
  }
  if (verb == "atexit") {
    return text(std::atexit([] { t.cuMemsetD8_v2(p.buffer, 0, 64); }));
  }
  for (auto* area : {onThreads, onStreams, onMemory, onDriver, onContexts}) {
    std::istringstream again(line);
    again >> verb;
    const std::string answer = area(verb, again);
    if (!answer.empty()) return answer;
  }
  return "unknown " + verb;
}

}  // namespace
}  // namespace qgpu::testing

int main() {
  std::string line;
  while (std::getline(std::cin, line)) std::cout << qgpu::testing::obey(line) << std::endl;
  return 0;
}
