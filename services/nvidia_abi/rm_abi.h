#pragma once
// The part of NVIDIA's kernel interface (the resource manager, RM) that libqgpu.so and the tests'
// stand-in kernel read and write, declared here so that no header of a driver is needed. It is what
// libcuda says to the kernel by ioctl() on /dev/nvidiactl and /dev/nvidiaN, and it differs between
// drivers: a layout is chosen by the driver's version, and a version that is not in the table has
// none, but for a newer one that was seen to have the last one's. Every number was compared with
// the open kernel module's own headers, release by release
// (tests/unit/services/nvidia_abi/rm_abi.txt, which rm_abi_test holds against this file); drivers
// before 515 are closed, and nothing is assumed of them.
//
// The parameters of an allocation are an input and an output: the driver writes the handle, the
// size that it really took, and the status into them.

#include <cstddef>
#include <cstdint>
#include <iterator>

namespace qgpu::rm {

using Handle = std::uint32_t;

inline constexpr std::uint32_t kIoctlType = 'F';
inline constexpr std::uint32_t kDeviceMajor = 195;
inline constexpr std::uint32_t kControlMinor = 255;  // of /dev/nvidiactl; others are cards

// Numbers of the calls, as the low byte of the request has them.
inline constexpr std::uint32_t kEscAllocMemory = 0x27, kEscAllocObject = 0x28, kEscFree = 0x29;
inline constexpr std::uint32_t kEscControl = 0x2A, kEscAlloc = 0x2B, kEscDupObject = 0x34;
inline constexpr std::uint32_t kEscVidHeapControl = 0x4A;
inline constexpr std::uint32_t kEscRegisterFd = 201, kEscCheckVersion = 210;
inline constexpr std::uint32_t kEscTransfer = 211;      // carries another call that is too large
inline constexpr std::uint32_t kEscExportDmaBuf = 217;  // on a card's file

// The first call on a file of unified memory's module, and on one that ties it to a process. Its
// requests are plain numbers.
constexpr bool opensUnifiedMemory(unsigned long request) {
  return request == 0x30000001 || request == 75;
}

inline constexpr std::uint32_t kOk = 0, kNoMemory = 0x51, kNotSupported = 0x56, kNotReady = 0x55,
                               kObjectNotFound = 0x57;
inline constexpr std::uint32_t kInvalidClient = 0x23;  // unknown, or of another open file

// Classes of objects.
inline constexpr std::uint32_t kRoot = 0x0, kRootNonPrivileged = 0x1, kRootClient = 0x41;
inline constexpr std::uint32_t kDevice = 0x80, kSubdevice = 0x2080;
inline constexpr std::uint32_t kLocalMemory = 0x40;   // memory of the card
inline constexpr std::uint32_t kSystemMemory = 0x3e;  // memory of the host
inline constexpr std::uint32_t kHostDescriptor = 0x71;
inline constexpr std::uint32_t kFabricMemory = 0xf8;  // addresses for other cards; holds memory
inline constexpr std::uint32_t kMulticast = 0xfd;     // addresses of several cards' memory at once
inline constexpr std::uint32_t kChannelGroup = 0xa06c;

// Channels have one class for each generation of cards, all with this low byte.
constexpr bool isChannel(std::uint32_t objectClass) {
  return (objectClass & 0xff) == 0x6f && objectClass >= 0xa06f && objectClass <= 0xffff;
}
constexpr bool isClient(std::uint32_t objectClass) {
  return objectClass == kRoot || objectClass == kRootNonPrivileged || objectClass == kRootClient;
}

// Controls.
inline constexpr std::uint32_t kFbGetInfo = 0x20801301, kFbGetInfo2 = 0x20801303;
inline constexpr std::uint32_t kGetPids = 0x2080018d;  // the processes that use the card
// Puts a group, or a channel that stands alone, where the hardware runs it, or takes it away: the
// first byte of the parameters.
inline constexpr std::uint32_t kGroupSchedule = 0xa06c0101, kChannelSchedule = 0xa06f0103;
constexpr bool schedules(std::uint32_t command) {
  return command == kGroupSchedule || command == kChannelSchedule;
}
// Of a client: objects into an open control file, which holds them until its last descriptor is
// closed, and names for them out of it. One, or some from an index on. (A call of its own,
// kEscExportDmaBuf, puts some into a dma-buf, which holds them in the same way.)
inline constexpr std::uint32_t kExportOne = 0x3d05, kImportOne = 0x3d06, kExportMany = 0x3d0b,
                               kImportMany = 0x3d0c;
// On memory of whatever place and maker.
inline constexpr std::uint32_t kSurfaceInfo = 0x410110;

// --- layouts that all known drivers share ---

struct FreeCall {  // NVOS00
  Handle client, parent, object;
  std::uint32_t status;
};

// NVOS02, and the descriptor that the call appends to it. Asked for kLocalMemory the driver makes
// an object without memory, and tells in `limit` how much the card has.
struct AllocMemoryCall {
  Handle client, parent, object;
  std::uint32_t objectClass, flags, pad0;
  std::uint64_t memory, limit;  // limit: the last byte, so one less than the size
  std::uint32_t status, pad1;
  std::int32_t fd;
  std::uint32_t pad2;
};

struct AllocObjectCall {  // NVOS05
  Handle client, parent, object;
  std::uint32_t objectClass, status;
};

struct DupCall {  // NVOS55
  Handle client, parent, object, sourceClient, sourceObject;
  std::uint32_t flags, status;
};

struct ControlCall {  // NVOS54
  Handle client, object;
  std::uint32_t command, flags;
  std::uint64_t parameters;
  std::uint32_t parametersSize, status;
};

// NVOS32: what lies before the union, and the union's forms as far as they are read.
struct HeapCall {
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
      std::uint32_t type, flags, attributes, format, coverage, zCoverage, stride, width, height;
      std::uint32_t pad;
      std::uint64_t size;
    } bySize;
    struct {
      std::uint32_t owner;
      Handle object;
      std::uint32_t type, flags, height;
      std::int32_t pitch;
      std::uint32_t attributes, width, format, coverage, zCoverage, stride;
      std::uint64_t size;
    } tiled;
    struct {
      std::uint32_t owner;
      Handle object;
      std::uint32_t type, flags, attributes, format, coverage, zCoverage, stride, pad;
      std::uint64_t size;
    } inRange;
    struct {
      std::uint32_t owner;
      Handle object;
      std::uint32_t flags;
    } freed;
    struct {
      std::uint32_t attributes, pad;
      std::uint64_t offset, size, base;  // size: of the largest free piece
    } info;
    std::uint8_t all[144];
  };
};
inline constexpr std::uint32_t kHeapAllocSize = 2, kHeapFree = 3, kHeapInfo = 5,
                               kHeapAllocTiled = 6, kHeapAllocRange = 14;

// What an allocation of memory says of it: NV_MEMORY_ALLOCATION_PARAMS up to the size. The whole
// has 120 bytes, and 128 from 545 on.
struct MemoryParameters {
  std::uint32_t owner, type, flags, width, height;
  std::int32_t pitch;
  std::uint32_t attributes, attributes2, format, coverage, zCoverage, pad;
  std::uint64_t rangeLow, rangeHigh, size;
};
inline constexpr std::uint32_t kFlagVirtual = 0x00080000;  // addresses only: takes no memory
inline constexpr std::uint32_t kLocationMask = 3u << 25;   // of the attributes; 0: on the card

// What the card gives for memory of so many bytes: in pieces of 64 KiB, where its pages are smaller
// too. The driver tells sizes in its pages, before and afterwards. (Where it has no allocator of
// pages, it gives less.)
constexpr std::uint64_t bytesGiven(std::uint64_t bytes) {
  constexpr std::uint64_t kPiece = 64 << 10;
  return bytes > ~0ull - kPiece ? bytes : (bytes + kPiece - 1) / kPiece * kPiece;
}

struct DeviceParameters {  // NV0080_ALLOC_PARAMETERS
  std::uint32_t device;
  Handle clientShare, targetClient, targetDevice;
  std::uint32_t flags, pad0;
  std::uint64_t space, start, limit;
  std::uint32_t mode, pad1;
};
inline constexpr std::size_t kGroupEngineAt = 12;     // in a channel group's parameters
inline constexpr std::size_t kChannelEngineAt = 128;  // in a channel's

struct TransferCall {
  std::uint32_t number, size;
  std::uint64_t argument;
};

struct VersionCall {
  std::uint32_t command, reply;
  char version[64];  // afterwards the driver's own, or what agrees with it up to the first point
};
inline constexpr std::uint32_t kVersionRecognised = 1;
// The command that has the driver tell its version, from 530 on. Those before take it as "do not
// compare", and leave the text as it was.
inline constexpr std::uint32_t kVersionQuery = '2';

inline constexpr std::uint32_t kPidsMost = 950;
struct PidsCall {
  std::uint32_t kind, id, count, pids[kPidsMost];
};

struct FbInfo {
  std::uint32_t index, kibibytes;
};
struct FbInfoCall {  // FB_GET_INFO; FB_GET_INFO_V2 has the pairs themselves behind `count`
  std::uint32_t count, pad;
  std::uint64_t list;
};
inline constexpr std::uint32_t kFbRam = 0x7, kFbTotalRam = 0x8, kFbHeapSize = 0x9,
                               kFbMappableHeap = 0xA, kFbLargestFree = 0x12, kFbHeapFree = 0x16,
                               kFbUsableRam = 0x20, kFbProtected = 0x33, kFbProtectedFree = 0x34;
// What an index tells: how much the card has, or how much of that is left.
constexpr bool isFbSize(std::uint32_t index) {
  return index == kFbRam || index == kFbTotalRam || index == kFbHeapSize ||
         index == kFbMappableHeap || index == kFbUsableRam || index == kFbProtected;
}
constexpr bool isFbRest(std::uint32_t index) {
  return index == kFbHeapFree || index == kFbLargestFree || index == kFbProtectedFree;
}

struct ExportOne {
  std::uint32_t type;
  Handle device, parent, object;
  std::int32_t fd;
  std::uint32_t flags;
};
struct ImportOne {
  std::int32_t fd;
  std::uint32_t type;
  Handle device, parent, object;
};
inline constexpr std::uint32_t kExportMost = 512, kImportMost = 128;
struct ExportMany {
  std::int32_t fd;
  Handle device;
  std::uint16_t room;
  std::uint8_t note[64];
  Handle objects[kExportMost];  // 0: none at this index
  std::uint16_t count, index;
};
struct ImportMany {
  std::int32_t fd;
  Handle parent;
  Handle objects[kImportMost];
  std::uint8_t types[kImportMost];  // afterwards; 0: there was none at this index
  std::uint16_t count, index;
};

struct DmaBufCall {  // what both of its forms begin with
  std::int32_t fd;   // -1: a new dma-buf is asked for; afterwards it
  Handle client;
  std::uint32_t total, count, index, pad;
  std::uint64_t size;
};
inline constexpr std::uint32_t kDmaBufMost = 128;
struct DmaBufForm {
  std::uint32_t size, objectsAt, statusAt;
};
// Before 570, and from it on. No size: the call has none of these.
constexpr DmaBufForm dmaBufForm(std::uint32_t size) {
  constexpr DmaBufForm kForms[] = {{2600, 32, 2592}, {2608, 36, 2600}};
  for (const DmaBufForm& form : kForms) {
    if (form.size == size) return form;
  }
  return {};
}

struct SurfaceInfo {
  std::uint32_t index, value;
};
struct SurfaceInfoCall {
  std::uint32_t count, pad;
  std::uint64_t list;
};
inline constexpr std::uint32_t kSurfacePages = 7;  // its size, in pages of
inline constexpr std::uint64_t kSurfacePage = 4096;
inline constexpr std::uint32_t kSurfacePlace = 9;
inline constexpr std::uint32_t kPlaceHost = 1, kPlaceCard = 2;
// What is told of addresses alone, and of kFabricMemory as well.
inline constexpr std::uint32_t kPlaceOther = 0;

static_assert(sizeof(ExportOne) == 24 && offsetof(ExportOne, fd) == 16);
static_assert(sizeof(ImportOne) == 20 && offsetof(ImportOne, object) == 16);
static_assert(sizeof(ExportMany) == 2128 && offsetof(ExportMany, objects) == 76);
static_assert(sizeof(ImportMany) == 652 && offsetof(ImportMany, types) == 520);
static_assert(sizeof(DmaBufCall) == 32 && offsetof(DmaBufCall, index) == 16);
static_assert(sizeof(SurfaceInfo) == 8 && sizeof(SurfaceInfoCall) == 16);
static_assert(sizeof(FreeCall) == 16 && sizeof(AllocObjectCall) == 20 && sizeof(DupCall) == 28);
static_assert(sizeof(AllocMemoryCall) == 56 && offsetof(AllocMemoryCall, limit) == 32 &&
              offsetof(AllocMemoryCall, status) == 40);
static_assert(sizeof(ControlCall) == 32 && offsetof(ControlCall, parameters) == 16);
static_assert(sizeof(HeapCall) == 184 && offsetof(HeapCall, total) == 24 &&
              offsetof(HeapCall, bySize.size) == 88 && offsetof(HeapCall, bySize.attributes) == 56);
static_assert(offsetof(HeapCall, tiled.size) == 88 && offsetof(HeapCall, tiled.attributes) == 64 &&
              offsetof(HeapCall, inRange.size) == 80 && offsetof(HeapCall, freed.object) == 44 &&
              offsetof(HeapCall, info.size) == 56);
static_assert(sizeof(MemoryParameters) == 72 && offsetof(MemoryParameters, size) == 64 &&
              offsetof(MemoryParameters, attributes) == 24);
static_assert(sizeof(TransferCall) == 16 && sizeof(VersionCall) == 72);
static_assert(sizeof(DeviceParameters) == 56);

// --- layouts that changed: NV_ESC_RM_ALLOC, in its two forms ---

struct AllocCall {  // what both forms begin with
  Handle client, parent, object;
  std::uint32_t objectClass;
  std::uint64_t parameters;
};
static_assert(sizeof(AllocCall) == 24);

enum class Layout : std::uint32_t {
  kUnknown,
  kFrom515,
  kFrom525,
  kFrom535,
};

struct AllocForm {
  std::uint32_t size;      // of the call
  std::uint32_t statusAt;  // offset
  std::uint32_t sizeAt;    // offset of the size of the parameters; 0: it says none
};
struct AllocForms {
  AllocForm shortForm, longForm;  // NVOS21 and NVOS64
};
constexpr AllocForms allocForms(Layout layout) {
  switch (layout) {
    case Layout::kFrom515:
      return {{32, 24, 0}, {40, 32, 0}};
    case Layout::kFrom525:
      return {{32, 24, 0}, {40, 36, 0}};
    case Layout::kFrom535:
      return {{32, 28, 24}, {48, 40, 32}};
    case Layout::kUnknown:
      break;
  }
  return {};
}

// Where the parameters of kFabricMemory name the memory that it is for; 0: nowhere.
constexpr std::size_t fabricMemoryAt(Layout layout) {
  if (layout == Layout::kUnknown) return 0;
  return layout == Layout::kFrom535 ? 40 : 32;
}

// The releases of the open kernel module that were looked at, by the first part of their version.
struct KnownDriver {
  std::uint32_t major;
  Layout layout;
};
inline constexpr KnownDriver kKnownDrivers[] = {
    {515, Layout::kFrom515}, {520, Layout::kFrom515}, {525, Layout::kFrom525},
    {530, Layout::kFrom525}, {535, Layout::kFrom535}, {545, Layout::kFrom535},
    {550, Layout::kFrom535}, {555, Layout::kFrom535}, {560, Layout::kFrom535},
    {565, Layout::kFrom535}, {570, Layout::kFrom535}, {575, Layout::kFrom535},
    {580, Layout::kFrom535}, {590, Layout::kFrom535}, {595, Layout::kFrom535},
};

// The oldest and the newest of them.
inline constexpr std::uint32_t kOldestKnown = kKnownDrivers[0].major;
inline constexpr std::uint32_t kNewestKnown = kKnownDrivers[std::size(kKnownDrivers) - 1].major;

constexpr Layout layoutOfMajor(std::uint64_t major) {
  for (const KnownDriver& known : kKnownDrivers) {
    if (known.major == major) return known.layout;
  }
  return Layout::kUnknown;
}

// The first part of a version as the driver writes it, "580.142"; 0: it is none. Reads at most
// `room` characters.
constexpr std::uint32_t majorOf(const char* version, std::size_t room) {
  std::uint32_t major = 0;
  std::size_t at = 0;
  while (at < room && at < 6 && version[at] >= '0' && version[at] <= '9') {
    major = major * 10 + static_cast<std::uint32_t>(version[at++] - '0');
  }
  return at == room || version[at] != '.' ? 0 : major;
}

constexpr Layout layoutOf(const char* version, std::size_t room) {
  return layoutOfMajor(majorOf(version, room));
}

// Whether a driver is newer than all that were looked at. Such a one may have the layout of the
// newest of them, which must be seen before it is believed (services/cards/nvidia/layout_trial.h).
constexpr bool isNewer(const char* version, std::size_t room) {
  return majorOf(version, room) > kNewestKnown;
}

// ... and `seen`, the first part of the version whose layout it was seen to have; 0: none.
constexpr Layout layoutOf(const char* version, std::size_t room, std::uint64_t seen) {
  return isNewer(version, room) ? layoutOfMajor(seen) : layoutOf(version, room);
}

}  // namespace qgpu::rm
