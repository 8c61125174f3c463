#pragma once
// NVIDIA's kernel interface as the stand-ins of its driver, and the programs that call them, speak
// it: numbers, sizes and offsets as the headers of the open kernel module say them, written down
// here once more. Nothing of services/guest is included, so that a number that is wrong there meets
// a driver that does not know it. Each struct names NVIDIA's own.

#include <cstddef>
#include <cstdint>

namespace qgpu::nvidia::rm {

using Handle = std::uint32_t;

// nv-ioctl-numbers.h, nv_escape.h: 'F' is the type of every request.
inline constexpr std::uint32_t kIoctlType = 70;
inline constexpr std::uint32_t kEscAllocMemory = 39, kEscFree = 41, kEscControl = 42,
                               kEscAlloc = 43, kEscDupObject = 52, kEscVidHeapControl = 74,
                               kEscRegisterFd = 201, kEscCheckVersion = 210, kEscTransfer = 211,
                               kEscExportDmaBuf = 217;

// nvstatuscodes.h
inline constexpr std::uint32_t kOk = 0, kNameTaken = 0x19, kRefused = 0x1b, kInvalidArgument = 0x1f,
                               kInvalidClass = 0x22, kInvalidClient = 0x23, kNoMemory = 0x51,
                               kNotReady = 0x55, kNotSupported = 0x56, kObjectNotFound = 0x57,
                               kOutOfRange = 0x5b, kInUse = 0x63;

// class/cl*.h
inline constexpr std::uint32_t kRootClient = 0x41, kDevice = 0x80, kSubdevice = 0x2080,
                               kSystemMemory = 0x3e, kLocalMemory = 0x40, kHostDescriptor = 0x71,
                               kVirtualMemory = 0x50a0, kFabricMemory = 0xf8, kMulticast = 0xfd,
                               kChannelGroup = 0xa06c;
constexpr bool isClient(std::uint32_t objectClass) {
  return objectClass == 0 || objectClass == 1 || objectClass == kRootClient;
}
constexpr bool isChannel(std::uint32_t objectClass) {  // KEPLER_CHANNEL_GPFIFO_A and its heirs
  return objectClass >= 0xa06f && objectClass <= 0xffff && objectClass % 0x100 == 0x6f;
}

// --- calls (nvos.h) ---

struct FreeCall {  // NVOS00_PARAMETERS
  Handle client, parent, object;
  std::uint32_t status;
};
static_assert(sizeof(FreeCall) == 16);

struct AllocMemoryCall {  // nv_ioctl_nvos02_parameters_with_fd
  Handle client, parent, object;
  std::uint32_t objectClass, flags, pad0;
  std::uint64_t memory, limit;
  std::uint32_t status, pad1;
  std::int32_t fd;
  std::uint32_t pad2;
};
static_assert(sizeof(AllocMemoryCall) == 56 && offsetof(AllocMemoryCall, status) == 40);

struct AllocCall {  // what NVOS21_PARAMETERS and NVOS64_PARAMETERS begin with
  Handle client, parent, object;
  std::uint32_t objectClass;
  std::uint64_t parameters;
};
static_assert(sizeof(AllocCall) == 24);
struct AllocForm {
  std::uint32_t size, statusAt;
  std::uint32_t sizeAt;  // of the size of the parameters; 0: it says none
};
struct AllocForms {
  AllocForm shortForm, longForm;
};
constexpr AllocForms allocForms(std::uint32_t major) {
  if (major >= 535) return {{32, 28, 24}, {48, 40, 32}};
  if (major >= 525) return {{32, 24, 0}, {40, 36, 0}};
  return {{32, 24, 0}, {40, 32, 0}};
}

struct DupCall {  // NVOS55_PARAMETERS
  Handle client, parent, object, sourceClient, sourceObject;
  std::uint32_t flags, status;
};
static_assert(sizeof(DupCall) == 28);

struct ControlCall {  // NVOS54_PARAMETERS
  Handle client, object;
  std::uint32_t command, flags;
  std::uint64_t parameters;
  std::uint32_t parametersSize, status;
};
static_assert(sizeof(ControlCall) == 32);

inline constexpr std::uint32_t kHeapAllocSize = 2, kHeapFree = 3, kHeapInfo = 5;
struct HeapCall {  // NVOS32_PARAMETERS, with three forms of its union
  Handle client, parent;
  std::uint32_t function;
  Handle addressSpace;
  std::int16_t ivcHeap;
  std::uint16_t pad0;
  std::uint32_t status;
  std::uint64_t total, free;
  union {
    struct {
      std::uint32_t owner;
      Handle object;
      std::uint32_t type, flags, attributes, unread[7];
      std::uint64_t size;
    } bySize;
    struct {
      std::uint32_t owner;
      Handle object;
      std::uint32_t flags;
    } freed;
    struct {
      std::uint32_t attributes, pad;
      std::uint64_t offset, size, base;
    } info;
    std::uint8_t all[144];
  };
};
static_assert(sizeof(HeapCall) == 184 && offsetof(HeapCall, bySize.object) == 44 &&
              offsetof(HeapCall, bySize.flags) == 52 && offsetof(HeapCall, bySize.size) == 88 &&
              offsetof(HeapCall, freed.object) == 44 && offsetof(HeapCall, info.size) == 56);

struct TransferCall {  // nv_ioctl_xfer_t
  std::uint32_t number, size;
  std::uint64_t argument;
};
static_assert(sizeof(TransferCall) == 16);

struct VersionCall {  // nv_ioctl_rm_api_version_t
  std::uint32_t command, reply;
  char version[64];
};
static_assert(sizeof(VersionCall) == 72);
inline constexpr std::uint32_t kVersionRecognised = 1, kVersionQuery = 50;

struct DmaBufCall {  // what nv_ioctl_export_to_dma_buf_fd_t begins with, before 570 and from it on
  std::int32_t fd;
  Handle client;
  std::uint32_t total, count, index, pad;
  std::uint64_t size;
};
static_assert(sizeof(DmaBufCall) == 32);
inline constexpr std::uint32_t kDmaBufMost = 128;
struct DmaBufForm {
  std::uint32_t size, objectsAt, statusAt;
};
constexpr DmaBufForm dmaBufForm(std::uint32_t size) {
  if (size == 2600) return {2600, 32, 2592};
  if (size == 2608) return {2608, 36, 2600};
  return {};
}

// --- parameters of allocations ---

struct MemoryParameters {  // NV_MEMORY_ALLOCATION_PARAMS, up to its size
  std::uint32_t owner, type, flags, width, height;
  std::int32_t pitch;
  std::uint32_t attributes, unread[5];
  std::uint64_t rangeLow, rangeHigh, size;
};
static_assert(sizeof(MemoryParameters) == 72 && offsetof(MemoryParameters, attributes) == 24 &&
              offsetof(MemoryParameters, size) == 64);
inline constexpr std::uint32_t kFlagVirtual = 0x80000;      // NVOS32_ALLOC_FLAGS_VIRTUAL
inline constexpr std::uint32_t kLocationMask = 0x06000000;  // NVOS32_ATTR_LOCATION, 0: on the card

struct DeviceParameters {  // the beginning of NV0080_ALLOC_PARAMETERS
  std::uint32_t device;
};
inline constexpr std::size_t kGroupEngineAt = 12;     // NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS
inline constexpr std::size_t kChannelEngineAt = 128;  // NV_CHANNEL_ALLOC_PARAMS
// Where a kFabricMemory names the memory that it is for, from 535 on.
inline constexpr std::size_t kFabricMemoryAt = 40;

// --- controls (ctrl/ctrl*.h) ---

inline constexpr std::uint32_t kFbGetInfo2 = 0x20801303;
inline constexpr std::uint32_t kFbTotalRam = 8, kFbHeapSize = 9, kFbHeapFree = 0x16;
struct FbInfo {  // NV2080_CTRL_FB_INFO
  std::uint32_t index, kibibytes;
};
inline constexpr std::uint32_t kGroupSchedule = 0xa06c0101, kChannelSchedule = 0xa06f0103;
inline constexpr std::uint32_t kExportOne = 0x3d05, kImportOne = 0x3d06, kExportMany = 0x3d0b,
                               kImportMany = 0x3d0c;

inline constexpr std::uint32_t kGetPids = 0x2080018d;
struct PidsCall {  // NV2080_CTRL_GPU_GET_PIDS_PARAMS
  std::uint32_t kind, id, count, pids[950];
};
static_assert(sizeof(PidsCall) == 3812);

inline constexpr std::uint32_t kSurfaceInfo = 0x410110;
struct SurfaceInfo {  // NV0041_CTRL_SURFACE_INFO
  std::uint32_t index, value;
};
struct SurfaceInfoCall {  // NV0041_CTRL_GET_SURFACE_INFO_PARAMS
  std::uint32_t count, pad;
  std::uint64_t list;
};
static_assert(sizeof(SurfaceInfoCall) == 16);
inline constexpr std::uint32_t kSurfacePages = 7, kSurfacePlace = 9;
inline constexpr std::uint32_t kPlaceOther = 0, kPlaceHost = 1, kPlaceCard = 2;
inline constexpr std::uint64_t kSurfacePage = 4096;

struct ExportOne {  // NV0000_CTRL_OS_UNIX_EXPORT_OBJECT_TO_FD_PARAMS
  std::uint32_t type;
  Handle device, parent, object;
  std::int32_t fd;
  std::uint32_t flags;
};
struct ImportOne {  // NV0000_CTRL_OS_UNIX_IMPORT_OBJECT_FROM_FD_PARAMS
  std::int32_t fd;
  std::uint32_t type;
  Handle device, parent, object;
};
inline constexpr std::uint32_t kExportMost = 512, kImportMost = 128;
struct ExportMany {  // NV0000_CTRL_OS_UNIX_EXPORT_OBJECTS_TO_FD_PARAMS
  std::int32_t fd;
  Handle device;
  std::uint16_t room;
  std::uint8_t note[64];
  Handle objects[512];
  std::uint16_t count, index;
};
struct ImportMany {  // NV0000_CTRL_OS_UNIX_IMPORT_OBJECTS_FROM_FD_PARAMS
  std::int32_t fd;
  Handle parent;
  Handle objects[128];
  std::uint8_t types[128];
  std::uint16_t count, index;
};
static_assert(sizeof(ExportOne) == 24 && sizeof(ImportOne) == 20 && sizeof(ExportMany) == 2128 &&
              offsetof(ExportMany, objects) == 76 && sizeof(ImportMany) == 652 &&
              offsetof(ImportMany, types) == 520);

// What takes channels off the hardware and puts them back.
inline constexpr std::uint32_t kDisableChannels = 0x2080110b;  // on a subdevice
inline constexpr std::uint32_t kDisabledMost = 64;
struct DisableChannels {  // NV2080_CTRL_FIFO_DISABLE_CHANNELS_PARAMS
  std::uint8_t disable, pad0[3];
  std::uint32_t count;
  std::uint8_t onlyScheduling, rewind, pad1[6];
  std::uint64_t event;
  Handle clients[64], channels[64];
};
static_assert(sizeof(DisableChannels) == 536 && offsetof(DisableChannels, rewind) == 9 &&
              offsetof(DisableChannels, channels) == 280);

inline constexpr std::uint32_t kGroupPreempt = 0xa06c0105;
struct Preempt {  // NVA06C_CTRL_PREEMPT_PARAMS
  std::uint8_t wait, ownTimeout, pad[2];
  std::uint32_t timeoutUs;
};
static_assert(sizeof(Preempt) == 8);

inline constexpr std::uint32_t kRestartRunlist = 0xa06f0111;  // on a channel
struct RestartRunlist {                                       // NVA06F_CTRL_RESTART_RUNLIST_PARAMS
  std::uint8_t force, dontWait;
};
static_assert(sizeof(RestartRunlist) == 2);

inline constexpr std::uint32_t kSetTimeslice = 0xa06c0103;  // on a group
struct Timeslice {                                          // NVA06C_CTRL_TIMESLICE_PARAMS
  std::uint64_t us;
};
static_assert(sizeof(Timeslice) == 8);

inline constexpr std::uint32_t kHandleInfo = 0xd02, kHandleParent = 1, kHandleClass = 2;
struct HandleInfo {  // NV0000_CTRL_CLIENT_GET_HANDLE_INFO_PARAMS
  Handle object;
  std::uint32_t index;
  std::uint64_t result;
};
static_assert(sizeof(HandleInfo) == 16);

inline constexpr std::uint32_t kUuidInfo = 0x274;
struct UuidInfo {  // NV0000_CTRL_GPU_GET_UUID_INFO_PARAMS
  std::uint8_t uuid[256];
  std::uint32_t flags, gpu, device, subdevice;
};
static_assert(sizeof(UuidInfo) == 272);

}  // namespace qgpu::nvidia::rm
