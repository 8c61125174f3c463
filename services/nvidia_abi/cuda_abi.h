#pragma once
// The part of NVIDIA's driver interface that libqgpu.so, the tests' stand-in driver and the finder
// of cards use, declared here so that neither a CUDA nor an NVML header is needed to build. Layouts
// and numbers are facts of the interface (CUDA 11 to 13, 64-bit); cuda_abi_test compares them with
// cuda.h where a machine has one. Handles are pointers that nobody here looks behind.

#include <cstddef>
#include <cstdint>

namespace qgpu::cuda {

using Result = int;
inline constexpr Result kSuccess = 0;
inline constexpr Result kInvalidValue = 1;
inline constexpr Result kOutOfMemory = 2;
inline constexpr Result kNotInitialized = 3;
inline constexpr Result kDeviceUnavailable = 46;
inline constexpr Result kNoDevice = 100;
inline constexpr Result kInvalidDevice = 101;
inline constexpr Result kInvalidContext = 201;
inline constexpr Result kInvalidHandle = 400;
inline constexpr Result kIllegalState = 401;
inline constexpr Result kNotFound = 500;
inline constexpr Result kNotReady = 600;
inline constexpr Result kContextIsDestroyed = 709;
inline constexpr Result kNotSupported = 801;
inline constexpr Result kCaptureUnsupported = 900;
inline constexpr Result kCaptureInvalidated = 901;
inline constexpr Result kCaptureImplicit = 906;
inline constexpr Result kStreamDetached = 917;  // its green context is gone

// Nothing of the context runs any more, or will: it is gone, or its errors are for good.
constexpr bool endsContext(Result rc) {
  switch (rc) {
    case 4:    // deinitialized
    case 214:  // uncorrectable error of the memory's code
    case 220:  // the same of a link
    case 226:  // an error that was contained to the program
    case kInvalidHandle:
    case 700:  // illegal address
    case 702:  // launch timed out
    case kContextIsDestroyed:
    case 710:  // assertion
    case 714:  // of the card's stack, an instruction, an alignment, an address space, a counter
    case 715:
    case 716:
    case 717:
    case 718:
    case 719:  // launch failed
    case 721:  // tensor memory leaked
    case 911:  // of another device that work waited for: the process is to end
    case kStreamDetached:
    case 999:  // unknown
      return true;
    default:
      return false;
  }
}

using Dev = int;
using Ptr = unsigned long long;  // device memory
using Mem = unsigned long long;  // physical memory of the virtual memory interface
using Size = std::size_t;
using U = unsigned int;
using Ctx = struct CtxTag*;
using Green = struct GreenTag*;  // a context of some of a card's multiprocessors
using Str = struct StrTag*;
using Evt = struct EvtTag*;
using Fn = struct FnTag*;
using Mod = struct ModTag*;
using Lib = struct LibTag*;  // code that is loaded into every context
using Arr = struct ArrTag*;
using Mip = struct MipTag*;
using Pool = struct PoolTag*;
using Graph = struct GraphTag*;
using Exec = struct ExecTag*;  // an instantiated graph
using Node = struct NodeTag*;
using Tex = struct TexTag*;  // a texture of before CUDA 5
using Sem = struct SemTag*;  // external semaphore
using HostFn = void (*)(void*);
using RecaptureFn = Result (*)(void*, Node, Node, const void*, const void*);  // never called here

// Two handles that are no pointers: the default streams by name.
inline Str legacyStream() {
  return reinterpret_cast<Str>(std::uintptr_t{1});
}
inline Str perThreadStream() {
  return reinterpret_cast<Str>(std::uintptr_t{2});
}

inline constexpr int kCaptureGlobal = 0, kCaptureThreadLocal = 1, kCaptureRelaxed = 2;
inline constexpr int kNotCapturing = 0, kCapturing = 1, kCaptureBroken = 2;
inline constexpr std::uint64_t kAskLegacyStream = 1, kAskPerThreadStream = 2;
inline constexpr int kSymbolFound = 0, kSymbolNotFound = 1, kSymbolTooNew = 2;

struct Location {
  int type;
  int id;
};

struct LaunchConfig {
  U gridX, gridY, gridZ, blockX, blockY, blockZ, sharedBytes;
  Str stream;
  void* attributes;
  U attributeCount;
};

struct LaunchParams {
  Fn function;
  U gridX, gridY, gridZ, blockX, blockY, blockZ, sharedBytes;
  Str stream;
  void** arguments;
};

struct Copy2D {
  Size srcX, srcY;
  int srcType;
  const void* srcHost;
  Ptr srcDevice;
  Arr srcArray;
  Size srcPitch, dstX, dstY;
  int dstType;
  void* dstHost;
  Ptr dstDevice;
  Arr dstArray;
  Size dstPitch, width, height;
};

struct Copy3D {
  Size srcX, srcY, srcZ, srcLod;
  int srcType;
  const void* srcHost;
  Ptr srcDevice;
  Arr srcArray;
  void* srcContext;  // of the peer variant; reserved otherwise
  Size srcPitch, srcHeight, dstX, dstY, dstZ, dstLod;
  int dstType;
  void* dstHost;
  Ptr dstDevice;
  Arr dstArray;
  void* dstContext;
  Size dstPitch, dstHeight, width, height, depth;
};

struct CopyOperation {  // one of many; its places have forms of their own
  unsigned char from[40], to[40];
  Size width, height, depth;
  int order;
  U flags;
};

struct ArrayShape {
  Size width, height;
  int format;
  U channels;
};

struct ArrayShape3D {
  Size width, height, depth;
  int format;
  U channels, flags;
};

struct MemProperties {
  int type, handleTypes;
  Location location;
  void* security;
  unsigned char flags[8];
};

struct MemAccess {  // who may do what with an address
  Location location;
  int rights;
};
inline constexpr int kReadWrite = 3;

inline constexpr int kPinned = 1, kManaged = 2;  // types of allocations and of pools

struct PoolProperties {
  int type, handleTypes;
  Location location;
  void* security;
  Size most;
  unsigned short usage;
  unsigned char reserved[54];
};

// --- NVML ---

using NvmlDevice = struct NvmlDeviceTag*;

struct NvmlMemory {
  unsigned long long total, free, used;
};

struct NvmlPci {  // nvmlPciInfo_t
  char shortId[16];
  U domain, bus, device, deviceId, subsystemId;
  char id[32];
};

struct NvmlMemory2 {
  U version;
  unsigned long long total, reserved, free, used;
};

struct NvmlProcesses {  // nvmlProcessDetailList_t
  U version, mode, count;
  void* entries;
};

struct NvmlUtilization {  // nvmlProcessesUtilizationInfo_t
  U version, count;
  unsigned long long since;
  void* entries;
};

// Of a cgroup, by the full path of its folder; 0 and ~0: no limit.
struct NvmlSetLimits {  // nvmlSetMemoryLimits_v1_t
  const char* cgroup;
  unsigned long long soft, hard;
};
struct NvmlLimits {  // nvmlGetMemoryLimits_v1_t
  const char* cgroup;
  unsigned long long soft, hard, used;
};

static_assert(sizeof(NvmlSetLimits) == 24 && sizeof(NvmlLimits) == 32);
static_assert(sizeof(NvmlPci) == 68);
static_assert(sizeof(NvmlMemory) == 24 && sizeof(NvmlMemory2) == 40);
static_assert(sizeof(NvmlProcesses) == 24 && sizeof(NvmlUtilization) == 24);

}  // namespace qgpu::cuda
