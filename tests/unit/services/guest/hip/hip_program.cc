// A HIP program for the tests of libqgpu.so: one command a line on stdin, one answer a line. What
// it calls, it calls through the table that QGPU_TEST_WAY says how to fill: "linked" by the names
// that it is linked with, "dlsym", or "proc" by hipGetProcAddress.

#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "tests/cuda_stand_in/stand_in.h"
#include "tests/hip_stand_in/amd_hip.h"

namespace qgpu::testing {
namespace {

using namespace amd;  // the names of the interface

#define ALL_OF_HIP(X) AMD_HIP_AS_CUDA(X) AMD_HIP_OWN(X) AMD_HIP_CALLED(X) AMD_HIP_PLAIN(X)

struct Table {
#define QGPU_MEMBER(symbol, types, ...) Result(*symbol) types;
  ALL_OF_HIP(QGPU_MEMBER)
#undef QGPU_MEMBER
} t{};

}  // namespace
}  // namespace qgpu::testing

#ifdef QGPU_HIP_LINKED
namespace qgpu::amd {
extern "C" {
#define QGPU_LINKED(symbol, types, ...) Result symbol types;
ALL_OF_HIP(QGPU_LINKED)
#undef QGPU_LINKED
}
}  // namespace qgpu::amd
#endif

namespace qgpu::testing {
namespace {

void* library() {
  static void* const found = dlopen("libamdhip64.so.5", RTLD_NOW | RTLD_LOCAL);
  return found;
}

bool resolve([[maybe_unused]] const std::string& way) {
#ifdef QGPU_HIP_LINKED
#define QGPU_TAKE(symbol, types, ...) t.symbol = &amd::symbol;
  ALL_OF_HIP(QGPU_TAKE)
#undef QGPU_TAKE
#else
  const auto find = [&](const char* name) {
    void* found = dlsym(library(), name);
    if (way == "dlvsym") found = dlvsym(library(), name, "hip_4.2");
    if (way != "proc") return found;
    using Ask = Result (*)(const char*, void**, int, std::uint64_t, int*);
    const auto ask = reinterpret_cast<Ask>(dlsym(library(), "hipGetProcAddress"));
    ask(name, &found, 600, kAskLegacyStream, nullptr);
    return found;
  };
#define QGPU_TAKE(symbol, types, ...) t.symbol = reinterpret_cast<Result(*) types>(find(#symbol));
  ALL_OF_HIP(QGPU_TAKE)
#undef QGPU_TAKE
#endif
  return t.hipMalloc != nullptr;
}

const QgpuStandIn& runtime() {
  static const QgpuStandIn* in = reinterpret_cast<StandInTable>(dlsym(library(), "qgpuStandIn"))();
  return *in;
}

std::string text(Result rc) {
  return std::to_string(rc);
}

// --- every hook, with arguments that the runtime takes ---

struct Program {
  std::map<std::string, Str> streams = {{"null", nullptr}, {"own", perThreadStream()}};
  std::map<std::string, Graph> graphs;
  std::map<std::string, Exec> execs;
  struct Memory {
    std::string kind;
    void* at = nullptr;
    void* mapped = nullptr;
    Size bytes = 0;
  };
  std::map<int, Memory> memory;
  void* buffer = nullptr;
  Exec graph = nullptr;
  alignas(64) char host[4096] = {};
} p;

struct Arguments {
  std::uint32_t microseconds = 0;
  void* kernel[1] = {&microseconds};
  DeviceLaunch launches[1] = {{const_cast<char*>("nothing"), {1, 1, 1}, {1, 1, 1}, kernel, 0, 0}};
  LaunchParams functions[1] = {
      {reinterpret_cast<Fn>(const_cast<char*>("nothing")), 1, 1, 1, 1, 1, 1, 0, nullptr, kernel}};
  Copy2D flat{};
  Copy3DParms deep{};
  LaunchConfig driverConfig{1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, 0};
  KernelConfig config{{1, 1, 1}, {1, 1, 1}, 0, nullptr, nullptr, 0};
} a;

void hostFunction(void*) {}

template <typename T>
T some() {
  if constexpr (std::is_same_v<T, Fn>) return reinterpret_cast<Fn>(const_cast<char*>("nothing"));
  if constexpr (std::is_same_v<T, Dim3>) return {1, 1, 1};
  if constexpr (std::is_same_v<T, Extent>) return {8, 8, 1};
  if constexpr (std::is_same_v<T, PitchedPtr>) return {p.buffer, 64, 8, 8};
  if constexpr (std::is_same_v<T, Size>) return 64;
  if constexpr (std::is_same_v<T, U>) return 1;
  if constexpr (std::is_same_v<T, Exec>) return p.graph;
  if constexpr (std::is_same_v<T, HostFn>) return hostFunction;
  if constexpr (std::is_same_v<T, void**>) return a.kernel;
  if constexpr (std::is_same_v<T, DeviceLaunch*>) return a.launches;
  if constexpr (std::is_same_v<T, const LaunchConfig*>) return &a.driverConfig;
  if constexpr (std::is_same_v<T, const KernelConfig*>) return &a.config;
  if constexpr (std::is_same_v<T, const Copy2D*>) return &a.flat;
  if constexpr (std::is_same_v<T, const Copy3DParms*>) return &a.deep;
  if constexpr (std::is_same_v<T, void*> || std::is_same_v<T, const void*>) return p.host;
  return T{};
}

template <typename... A>
Result callWithSome(Result (*function)(A...)) {
  return function ? function(some<A>()...) : -1;
}

// What is launched by its address is called with a name there.
template <typename... A>
Result callKernel(Result (*function)(const void*, A...)) {
  return function ? function("nothing", some<A>()...) : -1;
}
template <typename... A>
Result callKernel(Result (*function)(A...)) {
  return callWithSome(function);
}

std::string doOne(const std::string& wanted) {
  Result rc = -2;
  const std::uint64_t before = runtime().calls(wanted.c_str());
#define QGPU_DO(symbol, types, ...) \
  if (wanted == #symbol) rc = callWithSome(t.symbol);
#define QGPU_DO_ONE(symbol, types) \
  if (wanted == #symbol) rc = t.symbol(a.launches, 1, 0);
#define QGPU_DO_KERNEL(symbol, types) \
  if (wanted == #symbol) rc = callKernel(t.symbol);
  AMD_HIP_AS_CUDA(QGPU_DO)
  AMD_HIP_COPIES(QGPU_DO)
  AMD_HIP_FILLS(QGPU_DO)
  AMD_HIP_WAITS(QGPU_DO)
  AMD_HIP_MANY(QGPU_DO_ONE)
  if (wanted == "hipModuleLaunchCooperativeKernelMultiDevice") {
    rc = t.hipModuleLaunchCooperativeKernelMultiDevice(a.functions, 1, 0);
  }
  AMD_HIP_KERNELS(QGPU_DO_KERNEL)
  AMD_HIP_UNCAPTURED(QGPU_DO_KERNEL)
#undef QGPU_DO
#undef QGPU_DO_ONE
#undef QGPU_DO_KERNEL
  return text(rc) + " " + std::to_string(runtime().calls(wanted.c_str()) - before);
}

// --- streams and graphs ---

Result sleepOn(const std::string& stream, std::uint32_t us) {
  void* arguments[] = {&us};
  return t.hipLaunchKernel("sleep", {1, 1, 1}, {1, 1, 1}, arguments, 0, p.streams[stream]);
}

std::string onStreams(const std::string& verb, std::istringstream& in) {
  std::string name;
  std::uint32_t n = 0;
  in >> name >> n;
  Str& stream = p.streams[name];
  if (verb == "stream") return text(t.hipStreamCreateWithFlags(&stream, n));
  if (verb == "destroy") return text(t.hipStreamDestroy(stream));
  if (verb == "sync") return text(t.hipStreamSynchronize(stream));
  if (verb == "query") return text(t.hipStreamQuery(stream));
  if (verb == "sleep") return text(sleepOn(name, n));
  if (verb == "old") {  // how HIP's first compilers launched
    const Result rc = t.hipConfigureCall({1, 1, 1}, {1, 1, 1}, 0, stream);
    return text(rc ? rc : t.hipLaunchByPtr("nothing"));
  }
  if (verb == "beginown") return text(t.hipStreamBeginCapture_spt(nullptr, 0));
  if (verb == "endown") return text(t.hipStreamEndCapture_spt(nullptr, &p.graphs["own"]));
  if (verb == "coop") {
    return text(t.hipLaunchCooperativeKernel("nothing", {1, 1, 1}, {1, 1, 1}, nullptr, 0, stream));
  }
  if (verb == "begin") return text(t.hipStreamBeginCapture(stream, static_cast<int>(n)));
  if (verb == "end") return text(t.hipStreamEndCapture(stream, &p.graphs[name]));
  if (verb == "instantiate") {
    return text(t.hipGraphInstantiate(&p.execs[name], p.graphs[name], nullptr, nullptr, 0));
  }
  if (verb == "launch") return text(t.hipGraphLaunch(p.execs[name], stream));
  return "";
}

// --- memory ---

std::string allocate(const std::string& kind, int id, Size bytes) {
  Program::Memory m{kind, nullptr, nullptr, bytes};
  Size pitch = 0;
  PitchedPtr deep{};
  Arr array = nullptr;
  Mip mip = nullptr;
  Mem physical = 0;
  const ChannelShape floats{32, 32, 32, 32, 2};
  const MemProperties card{1, 0, {1, 0}, nullptr, {}}, host{1, 0, {2, 0}, nullptr, {}};
  Result rc = -1;
  if (kind == "plain") rc = t.hipMalloc(&m.at, bytes);
  if (kind == "flags") rc = t.hipExtMallocWithFlags(&m.at, bytes, 1);
  if (kind == "managed") rc = t.hipMallocManaged(&m.at, bytes, 1);
  if (kind == "pitch") rc = t.hipMallocPitch(&m.at, &pitch, 500, bytes / 512);
  if (kind == "volume") {
    rc = t.hipMalloc3D(&deep, {500, bytes / 1024, 2});
    m.at = deep.ptr;
  }
  if (kind == "async") rc = t.hipMallocAsync(&m.at, bytes, p.streams["a"]);
  if (kind == "array") rc = t.hipMallocArray(&array, &floats, bytes / 16, 0, 0);
  if (kind == "array3d") rc = t.hipMalloc3DArray(&array, &floats, {bytes / 32, 2, 0}, 0);
  if (kind == "mipmap") rc = t.hipMallocMipmappedArray(&mip, &floats, {bytes / 16, 1, 0}, 1, 0);
  if (kind == "physical") rc = t.hipMemCreate(&physical, bytes, &card, 0);
  if (kind == "host") rc = t.hipMemCreate(&physical, bytes, &host, 0);
  if (rc != kSuccess) return text(rc);
  if (array) m.at = array;
  if (mip) m.at = mip;
  if (physical) m.at = reinterpret_cast<void*>(physical);
  p.memory[id] = m;
  return text(rc);
}

std::string freeOne(const Program::Memory& m) {
  if (m.kind == "async") return text(t.hipFreeAsync(m.at, p.streams["a"]));
  if (m.kind == "array" || m.kind == "array3d") return text(t.hipFreeArray(static_cast<Arr>(m.at)));
  if (m.kind == "mipmap") return text(t.hipFreeMipmappedArray(static_cast<Mip>(m.at)));
  if (m.kind == "physical" || m.kind == "host") {
    return text(t.hipMemRelease(reinterpret_cast<Mem>(m.at)));
  }
  return text(t.hipFree(m.at));
}

std::string onMemory(const std::string& verb, std::istringstream& in) {
  std::string kind;
  int id = 0;
  if (verb == "alloc") {
    Size bytes = 0;
    in >> kind >> id >> bytes;
    return allocate(kind, id, bytes);
  }
  in >> id;
  Program::Memory& m = p.memory[id];
  if (verb == "free") return freeOne(m);
  if (verb == "map") {
    t.hipMemAddressReserve(&m.mapped, m.bytes, 0, nullptr, 0);
    return text(t.hipMemMap(m.mapped, m.bytes, 0, reinterpret_cast<Mem>(m.at), 0));
  }
  if (verb == "freeonly" || verb == "totalonly") {
    Size one = 0;
    return text(verb == "freeonly" ? t.hipMemGetInfo(&one, nullptr)
                                   : t.hipMemGetInfo(nullptr, &one));
  }
  if (verb == "readnothing") return text(t.hipMemcpyDtoH(p.host, p.buffer, 0));
  if (verb == "unmap") return text(t.hipMemUnmap(m.mapped, m.bytes));
  if (verb == "info") {
    Size free = 0, total = 0, device = 0;
    Properties5 five;
    Properties six;
    t.hipMemGetInfo(&free, &total);
    t.hipDeviceTotalMem(&device, 0);
    t.hipGetDevicePropertiesR0000(&five, 0);
    t.hipGetDevicePropertiesR0600(&six, 0);
    std::ostringstream told;
    told << free << " " << total << " " << device << " " << five.totalGlobalMem << " "
         << six.totalGlobalMem;
    return told.str();
  }
  return "";
}

// --- devices, processes ---

std::string inFork() {
  std::cout.flush();
  const pid_t child = fork();
  if (child == 0) {
    void* at = nullptr;
    _exit(t.hipMalloc(&at, 64));
  }
  int status = 0;
  waitpid(child, &status, 0);
  return std::to_string(WEXITSTATUS(status));
}

std::string copied() {
  char to[64] = {}, from[64];
  std::memset(from, 'x', sizeof from);
  if (Result rc = t.hipMemcpy(p.buffer, from, sizeof from, 1)) return text(rc);
  if (Result rc = t.hipMemcpy(to, p.buffer, sizeof to, 2)) return text(rc);
  return std::memcmp(to, from, sizeof to) == 0 ? "same" : "other";
}

bool isInGlobalScope(const char* name) {
  return dlsym(RTLD_DEFAULT, name) != nullptr;
}

std::string obey(const std::string& line) {
  std::istringstream in(line);
  std::string verb, name;
  in >> verb;
  if (verb == "init") {
    const char* way = std::getenv("QGPU_TEST_WAY");
    if (!resolve(way ? way : "dlsym")) return "no way";
    return text(t.hipMalloc(&p.buffer, 4096));
  }
  if (verb == "probe") return isInGlobalScope("hipMalloc") ? "runtime" : "none";
  if (verb == "global") {
    dlopen("libamdhip64.so.5", RTLD_LAZY | RTLD_GLOBAL);
    return isInGlobalScope((in >> name, name.c_str())) ? "found" : "none";
  }
  if (verb == "resolve") return dlsym(library(), (in >> name, name.c_str())) ? "found" : "none";
  if (verb == "do") return in >> name, doOne(name);
  if (verb == "graphfordo") return p.graph = p.execs["a"], "ok";
  if (verb == "set") return *reinterpret_cast<std::uint32_t*>(p.host) = 1, "ok";
  if (verb == "copied") return copied();
  if (verb == "wait") return text(t.hipDeviceSynchronize());
  if (verb == "device") {
    int device = 0;
    return in >> device, text(t.hipSetDevice(device));
  }
  if (verb == "reset") return text(t.hipDeviceReset());
  if (verb == "primaryreset") return text(t.hipDevicePrimaryCtxReset(0));
  if (verb == "lasterror") return text(t.hipGetLastError());
  if (verb == "peek") return text(t.hipPeekAtLastError());
  if (verb == "calls") return std::to_string(runtime().calls((in >> name, name.c_str())));
  if (verb == "cuda") {  // what its first function says
    void* const cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    return cuda ? text(reinterpret_cast<Result (*)(U)>(dlsym(cuda, "cuInit"))(0)) : "none";
  }
  if (verb == "fork") return inFork();
  if (verb == "stats") {
    const QgpuStandIn& of = runtime();
    return std::to_string(of.misuses()) + " " + std::to_string(of.brokenCaptures()) + " " +
           std::to_string(of.pending());
  }
  for (auto* area : {onStreams, onMemory}) {
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
