#include "services/nvidia_abi/rm_decode.h"

#include <cstring>

#include "services/nvidia_abi/rm_controls.h"

namespace qgpu::rm {
namespace {

constexpr std::uint32_t kFbPairsMax = 128;  // what FB_GET_INFO_V2 has room for

template <typename T>
T read(const void* from, std::size_t at = 0) {
  T value;
  memcpy(&value, static_cast<const char*>(from) + at, sizeof value);
  return value;
}

void* pointer(std::uint64_t address) {
  return reinterpret_cast<void*>(static_cast<std::uintptr_t>(address));
}

// The parameters of an allocation, as far as the caller says that they reach. Drivers that are
// told no size know it from the class.
struct Parameters {
  void* at;
  std::uint32_t size;  // 0: not told

  bool reach(std::size_t end) const { return at && (size == 0 || size >= end); }
};

void readMemory(Call& call, const Parameters& parameters) {
  if (!parameters.reach(sizeof(MemoryParameters))) return;
  const auto memory = read<MemoryParameters>(parameters.at);
  call.takenAt = static_cast<char*>(parameters.at) + offsetof(MemoryParameters, size);
  if (!(memory.flags & kFlagVirtual)) call.bytes = bytesGiven(memory.size);
}

// What is worth knowing of an object by its class.
void readParameters(Call& call, Layout layout, const Parameters& parameters) {
  const auto word = [&](std::size_t at) {
    return parameters.reach(at + 4) ? read<std::uint32_t>(parameters.at, at) : 0;
  };
  if (call.objectClass == kLocalMemory) return readMemory(call, parameters);
  if (call.objectClass == kDevice) call.detail = word(offsetof(DeviceParameters, device));
  if (call.objectClass == kChannelGroup) call.detail = word(kGroupEngineAt);
  if (isChannel(call.objectClass)) call.detail = word(kChannelEngineAt);
  if (call.objectClass != kFabricMemory) return;
  call.sourceClient = call.client;
  call.sourceObject = word(fabricMemoryAt(layout));
}

// What every call that makes an object has, whatever else.
template <typename Form>
Form readMaking(Call& call, std::size_t statusAt) {
  const auto form = read<Form>(call.argument);
  call.verb = Verb::kAlloc;
  call.client = form.client;
  call.parent = form.parent;
  call.object = form.object;
  call.objectClass = form.objectClass;
  call.objectAt = offsetof(Form, object);
  call.statusAt = static_cast<std::uint32_t>(statusAt);
  return form;
}

void decodeAlloc(Call& call, Layout layout, std::uint32_t size) {
  const AllocForms forms = allocForms(layout);
  const AllocForm& form = size == forms.longForm.size ? forms.longForm : forms.shortForm;
  if (size != form.size || form.size == 0) return;
  const auto alloc = readMaking<AllocCall>(call, form.statusAt);
  const std::uint32_t told = form.sizeAt ? read<std::uint32_t>(call.argument, form.sizeAt) : 0;
  readParameters(call, layout, {pointer(alloc.parameters), told});
}

// Two older calls that make objects. What the first makes of the card's memory needs no following.
void decodeAllocMemory(Call& call) {
  const auto alloc = readMaking<AllocMemoryCall>(call, offsetof(AllocMemoryCall, status));
  if (alloc.objectClass == kLocalMemory) call.verb = Verb::kSizes;
}

void decodeAllocObject(Call& call) {
  readMaking<AllocObjectCall>(call, offsetof(AllocObjectCall, status));
}

// The heap's calls make memory of the card only where the attributes name exactly that place; all
// other places are the host's.
void heapAllocation(Call& call, const HeapCall& heap, std::uint32_t attributes, std::uint64_t bytes,
                    std::size_t sizeAt) {
  const bool onCard = !(heap.bySize.flags & kFlagVirtual) && !(attributes & kLocationMask);
  call.verb = Verb::kAlloc;
  call.object = heap.bySize.object;
  call.objectAt = offsetof(HeapCall, bySize.object);
  call.objectClass = onCard ? kLocalMemory : kSystemMemory;
  call.bytes = onCard ? bytesGiven(bytes) : 0;
  call.takenAt = static_cast<char*>(call.argument) + sizeAt;
}

void decodeHeap(Call& call) {
  const auto heap = read<HeapCall>(call.argument);
  call.client = heap.client;
  call.parent = heap.parent;
  call.statusAt = offsetof(HeapCall, status);
  switch (heap.function) {
    case kHeapAllocSize:
      return heapAllocation(call, heap, heap.bySize.attributes, heap.bySize.size,
                            offsetof(HeapCall, bySize.size));
    case kHeapAllocRange:
      return heapAllocation(call, heap, heap.inRange.attributes, heap.inRange.size,
                            offsetof(HeapCall, inRange.size));
    case kHeapAllocTiled: {  // the driver works the size out itself
      const auto pitch = static_cast<std::uint64_t>(static_cast<std::int64_t>(heap.tiled.pitch));
      return heapAllocation(call, heap, heap.tiled.attributes, heap.tiled.height * pitch,
                            offsetof(HeapCall, tiled.size));
    }
    case kHeapFree:
      call.verb = Verb::kFree;
      call.object = heap.freed.object;
      return;
    case kHeapInfo:
      call.verb = Verb::kSizes;
      return;
    default:
      return;
  }
}

void decodeFree(Call& call) {
  const auto free = read<FreeCall>(call.argument);
  call.verb = Verb::kFree;
  call.client = free.client;
  call.parent = free.parent;
  call.object = free.object;
  call.statusAt = offsetof(FreeCall, status);
}

void decodeDup(Call& call) {
  const auto dup = read<DupCall>(call.argument);
  call.verb = Verb::kDup;
  call.client = dup.client;
  call.parent = dup.parent;
  call.object = dup.object;
  call.sourceClient = dup.sourceClient;
  call.sourceObject = dup.sourceObject;
  call.objectAt = offsetof(DupCall, object);
  call.statusAt = offsetof(DupCall, status);
}

void decodeControl(Call& call) {
  const auto control = read<ControlCall>(call.argument);
  call.client = control.client;
  call.object = control.object;
  call.command = control.command;
  call.statusAt = offsetof(ControlCall, status);
  call.parameters = pointer(control.parameters);
  call.parametersSize = control.parametersSize;
  if (control.command == kFbGetInfo || control.command == kFbGetInfo2) call.verb = Verb::kSizes;
  if (schedules(control.command)) call.verb = Verb::kSchedule;
  const auto carries = [&](std::uint32_t command, std::size_t size) {
    return call.command == command && call.parameters && call.parametersSize == size;
  };
  if (carries(kGroupSetTimeslice, sizeof(Timeslice))) call.verb = Verb::kTimeslice;
  if (carries(kGetPids, sizeof(PidsCall))) call.verb = Verb::kPids;
  if (carries(kExportOne, sizeof(ExportOne)) || carries(kExportMany, sizeof(ExportMany))) {
    call.verb = Verb::kExport;
  }
  if (carries(kImportOne, sizeof(ImportOne)) || carries(kImportMany, sizeof(ImportMany))) {
    call.verb = Verb::kImport;
  }
}

void decodeExportDmaBuf(Call& call, std::uint32_t size) {
  const DmaBufForm form = dmaBufForm(size);
  if (form.size == 0) return;
  call.verb = Verb::kExport;
  call.client = read<DmaBufCall>(call.argument).client;
  call.command = kEscExportDmaBuf;
  call.parameters = call.argument;
  call.parametersSize = size;
  call.statusAt = form.statusAt;
}

}  // namespace

Call decode(Layout layout, std::uint32_t number, std::uint32_t size, void* argument) {
  Call call;
  if (number == kEscTransfer) {
    if (size != sizeof(TransferCall) || !argument) return call;
    const auto carried = read<TransferCall>(argument);
    number = carried.number;
    size = carried.size;
    argument = pointer(carried.argument);
  }
  if (!argument) return call;
  call.argument = argument;
  if (layout == Layout::kUnknown) return call;
  if (number == kEscAlloc) decodeAlloc(call, layout, size);
  if (number == kEscFree && size == sizeof(FreeCall)) decodeFree(call);
  if (number == kEscDupObject && size == sizeof(DupCall)) decodeDup(call);
  if (number == kEscControl && size == sizeof(ControlCall)) decodeControl(call);
  if (number == kEscVidHeapControl && size == sizeof(HeapCall)) decodeHeap(call);
  if (number == kEscAllocMemory && size == sizeof(AllocMemoryCall)) decodeAllocMemory(call);
  if (number == kEscExportDmaBuf) decodeExportDmaBuf(call, size);
  if (number == kEscAllocObject && size == sizeof(AllocObjectCall)) decodeAllocObject(call);
  return call;
}

std::uint32_t statusOf(const Call& call) {
  return read<std::uint32_t>(call.argument, call.statusAt);
}

// A client is named by itself; old forms leave the object's place empty for it.
Handle madeBy(const Call& call) {
  const auto made = read<Handle>(call.argument, call.objectAt);
  if (made != 0 || !isClient(call.objectClass)) return made;
  return read<Handle>(call.argument, offsetof(AllocCall, client));
}

std::uint64_t bytesTaken(const Call& call) {
  if (call.bytes == 0 || !call.takenAt) return call.bytes;
  return bytesGiven(read<std::uint64_t>(call.takenAt));
}

Layout layoutTold(const VersionCall& answered, std::uint64_t seen) {
  if (answered.reply != kVersionRecognised) return Layout::kUnknown;
  return layoutOf(answered.version, sizeof answered.version, seen);
}

Handle FileObjects::object(std::uint32_t i) const {
  if (i >= count || (types && read<std::uint8_t>(types, i) == 0)) return 0;
  return read<Handle>(names, i * sizeof(Handle));
}

FileObjects fileObjects(const Call& call) {
  const auto* at = static_cast<const char*>(call.parameters);
  const auto most = [](std::uint32_t count, std::uint32_t limit) {
    return count < limit ? count : limit;
  };
  switch (call.command) {
    case kExportOne: {
      const auto one = read<ExportOne>(at);
      return {one.fd, 0, 0, 1, at + offsetof(ExportOne, object), nullptr};
    }
    case kImportOne: {
      const auto one = read<ImportOne>(at);
      return {one.fd, one.parent, 0, 1, at + offsetof(ImportOne, object), nullptr};
    }
    case kExportMany: {
      const auto many = read<ExportMany>(at);
      return {
          many.fd, 0, many.index, most(many.count, kExportMost), at + offsetof(ExportMany, objects),
          nullptr};
    }
    case kImportMany: {
      const auto many = read<ImportMany>(at);
      return {many.fd,
              many.parent,
              many.index,
              most(many.count, kImportMost),
              at + offsetof(ImportMany, objects),
              at + offsetof(ImportMany, types)};
    }
    case kEscExportDmaBuf: {
      const auto into = read<DmaBufCall>(at);
      const DmaBufForm form = dmaBufForm(call.parametersSize);
      return {into.fd, 0, into.index, most(into.count, kDmaBufMost), at + form.objectsAt, nullptr};
    }
    default:
      return {};
  }
}

void answerNoMemory(const Call& call) {
  const std::uint32_t status = kNoMemory;
  memcpy(static_cast<char*>(call.argument) + call.statusAt, &status, sizeof status);
}

namespace {

void limitFbInfo(const Call& call, std::uint64_t quotaBytes, std::uint64_t leftBytes) {
  const bool inPlace = call.command == kFbGetInfo2;
  if (!call.parameters || call.parametersSize < sizeof(std::uint32_t)) return;
  std::uint32_t count = read<std::uint32_t>(call.parameters);
  char* pairs = static_cast<char*>(call.parameters) + sizeof(std::uint32_t);
  std::size_t room = kFbPairsMax;
  if (inPlace) {
    room = (call.parametersSize - sizeof(std::uint32_t)) / sizeof(FbInfo);
  } else {
    if (call.parametersSize < sizeof(FbInfoCall)) return;
    pairs = static_cast<char*>(pointer(read<FbInfoCall>(call.parameters).list));
  }
  if (!pairs || count > room) return;
  for (; count > 0; --count, pairs += sizeof(FbInfo)) {
    auto info = read<FbInfo>(pairs);
    const bool whole = isFbSize(info.index);
    if (!whole && !isFbRest(info.index)) continue;
    const std::uint64_t most = (whole ? quotaBytes : leftBytes) >> 10;
    if (info.kibibytes <= most) continue;
    info.kibibytes = static_cast<std::uint32_t>(most);
    memcpy(pairs, &info, sizeof info);
  }
}

}  // namespace

void limitSizes(const Call& call, std::uint64_t quotaBytes, std::uint64_t leftBytes) {
  const auto lower = [&](std::size_t at, std::uint64_t most) {
    if (read<std::uint64_t>(call.argument, at) <= most) return;
    memcpy(static_cast<char*>(call.argument) + at, &most, sizeof most);
  };
  if (call.verb != Verb::kSizes) return;
  if (call.command != 0) return limitFbInfo(call, quotaBytes, leftBytes);
  if (call.objectClass == kLocalMemory) {
    return lower(offsetof(AllocMemoryCall, limit), quotaBytes ? quotaBytes - 1 : 0);
  }
  lower(offsetof(HeapCall, total), quotaBytes);
  lower(offsetof(HeapCall, free), leftBytes);
  lower(offsetof(HeapCall, info.size), leftBytes);
}

void keepPids(const Call& call, bool (*keeps)(std::uint32_t pid)) {
  if (call.verb != Verb::kPids) return;
  auto* at = static_cast<char*>(call.parameters);
  char* const pids = at + offsetof(PidsCall, pids);
  const auto count = read<std::uint32_t>(at, offsetof(PidsCall, count));
  if (count > kPidsMost) return;
  std::uint32_t kept = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    const auto pid = read<std::uint32_t>(pids, i * sizeof(std::uint32_t));
    if (keeps(pid)) memcpy(pids + kept++ * sizeof pid, &pid, sizeof pid);
  }
  memset(pids + kept * sizeof(std::uint32_t), 0, (count - kept) * sizeof(std::uint32_t));
  memcpy(at + offsetof(PidsCall, count), &kept, sizeof kept);
}

}  // namespace qgpu::rm
