// Each call as a driver of each layout takes it, and what does not fit a layout.

#include "services/nvidia_abi/rm_decode.h"

#include <algorithm>
#include <cstring>
#include <gtest/gtest.h>
#include <iterator>
#include <string>
#include <vector>

namespace qgpu::rm::rm_decode_test {
namespace {

constexpr Layout kLayouts[] = {Layout::kFrom515, Layout::kFrom525, Layout::kFrom535};

std::uint64_t addressOf(void* at) {
  return reinterpret_cast<std::uint64_t>(at);
}

// An allocation in one of the two forms of a layout.
struct Alloc {
  Alloc(Layout of, bool longer, std::uint32_t objectClass, void* parameters,
        std::uint32_t parametersSize)
      : layout(of),
        form(longer ? allocForms(of).longForm : allocForms(of).shortForm),
        bytes(form.size) {
    const AllocCall call{1, 2, 3, objectClass, addressOf(parameters)};
    std::memcpy(bytes.data(), &call, sizeof call);
    if (form.sizeAt) std::memcpy(bytes.data() + form.sizeAt, &parametersSize, 4);
  }
  void answer(std::uint32_t status, Handle object) {
    std::memcpy(bytes.data() + form.statusAt, &status, 4);
    std::memcpy(bytes.data() + offsetof(AllocCall, object), &object, 4);
  }
  Call read() { return decode(layout, kEscAlloc, form.size, bytes.data()); }
  Layout layout;
  AllocForm form;
  std::vector<char> bytes;
};

TEST(RmDecode, MemoryOfTheCardIsReadInBothFormsOfEveryLayout) {
  for (const Layout layout : kLayouts) {
    for (const bool longer : {false, true}) {
      MemoryParameters memory{};
      memory.size = 1 << 20;
      Alloc alloc(layout, longer, kLocalMemory, &memory, 128);
      const Call call = alloc.read();
      EXPECT_EQ(call.verb, Verb::kAlloc);
      EXPECT_EQ(call.client, 1u);
      EXPECT_EQ(call.parent, 2u);
      EXPECT_EQ(call.object, 3u);
      EXPECT_EQ(call.bytes, 1u << 20);
      memory.size = 2 << 20;
      alloc.answer(7, 33);
      EXPECT_EQ(statusOf(call), 7u);
      EXPECT_EQ(madeBy(call), 33u);
      EXPECT_EQ(bytesTaken(call), 2u << 20);
      answerNoMemory(call);
      EXPECT_EQ(statusOf(call), kNoMemory);
    }
  }
}

TEST(RmDecode, MemoryOfSmallPagesIsReadAsTheCardGivesIt) {
  MemoryParameters memory{};
  for (const auto& [asked, given] : std::vector<std::pair<std::uint64_t, std::uint64_t>>{
           {0, 0}, {1, 64 << 10}, {64 << 10, 64 << 10}, {65 << 10, 128 << 10}, {~0ull, ~0ull}}) {
    memory.size = asked;
    Alloc alloc(Layout::kFrom535, true, kLocalMemory, &memory, 128);
    EXPECT_EQ(alloc.read().bytes, given) << asked;
    EXPECT_EQ(bytesTaken(alloc.read()), given) << "where the driver tells " << asked;
  }
}

TEST(RmDecode, AddressesAndOtherObjectsTakeNoMemory) {
  MemoryParameters memory{};
  memory.size = 1 << 20;
  memory.flags = kFlagVirtual;
  EXPECT_EQ(Alloc(Layout::kFrom535, true, kLocalMemory, &memory, 128).read().bytes, 0u);
  memory.flags = 0;
  EXPECT_EQ(Alloc(Layout::kFrom535, true, kSystemMemory, &memory, 128).read().bytes, 0u);
  EXPECT_EQ(Alloc(Layout::kFrom535, true, kLocalMemory, nullptr, 0).read().bytes, 0u);
  EXPECT_EQ(Alloc(Layout::kFrom535, true, kLocalMemory, &memory, 71).read().bytes, 0u)
      << "parameters that end before the size";
}

TEST(RmDecode, DevicesChannelsAndTheirGroupsSayWhereTheyBelong) {
  alignas(8) char parameters[368] = {};
  const std::uint32_t device = 5, group = 9, channel = 1;
  std::memcpy(parameters, &device, 4);
  EXPECT_EQ(Alloc(Layout::kFrom535, true, kDevice, parameters, 56).read().detail, 5u);
  std::memcpy(parameters + kGroupEngineAt, &group, 4);
  EXPECT_EQ(Alloc(Layout::kFrom535, true, kChannelGroup, parameters, 32).read().detail, 9u);
  std::memcpy(parameters + kChannelEngineAt, &channel, 4);
  for (const std::uint32_t each : {0xc36fu, 0xc56fu, 0xc86fu, 0xc96fu, 0xca6fu}) {
    EXPECT_EQ(Alloc(Layout::kFrom535, true, each, parameters, 368).read().detail, 1u);
    EXPECT_TRUE(isChannel(each));
  }
  EXPECT_FALSE(isChannel(0x6f) || isChannel(0xc0b5) || isChannel(kChannelGroup));
}

TEST(RmDecode, AClientIsNamedByWhatTheDriverMade) {
  Alloc alloc(Layout::kFrom535, true, kRootClient, nullptr, 0);
  alloc.answer(kOk, 0xc1d00001);
  EXPECT_EQ(madeBy(alloc.read()), 0xc1d00001u);
}

TEST(RmDecode, TheHeapsCallsAreReadByWhatTheyAskFor) {
  HeapCall heap{};
  heap.client = 1;
  heap.parent = 2;
  heap.bySize.object = 3;
  const auto read = [&] {
    return decode(Layout::kFrom535, kEscVidHeapControl, sizeof heap, &heap);
  };
  heap.function = kHeapAllocSize;
  heap.bySize.size = 4096;
  EXPECT_EQ(read().bytes, 65'536u);
  EXPECT_EQ(read().objectClass, kLocalMemory);
  for (const std::uint32_t place : {1u, 2u, 3u}) {
    heap.bySize.attributes = place << 25;
    EXPECT_EQ(read().bytes, 0u) << "only the first place is the card's";
    EXPECT_EQ(read().objectClass, kSystemMemory);
  }
  heap.bySize.attributes = 0;
  heap.bySize.flags = kFlagVirtual;
  EXPECT_EQ(read().bytes, 0u);

  heap = {};
  heap.function = kHeapAllocRange;
  heap.inRange.size = 128 << 10;
  EXPECT_EQ(read().bytes, 128u << 10);
  heap = {};
  heap.function = kHeapAllocTiled;
  heap.tiled.height = 200;
  heap.tiled.pitch = 512;
  EXPECT_EQ(read().bytes, 128u << 10);
  heap.tiled.size = 130 << 10;
  EXPECT_EQ(bytesTaken(read()), 192u << 10);
  heap = {};
  heap.function = kHeapFree;
  heap.freed.object = 9;
  EXPECT_EQ(read().verb, Verb::kFree);
  EXPECT_EQ(read().object, 9u);
  heap.function = 18;  // about alignment
  EXPECT_EQ(read().verb, Verb::kOther);
}

TEST(RmDecode, OlderCallsThatMakeObjectsAreReadToo) {
  AllocMemoryCall memory{};
  memory.object = 3;
  memory.objectClass = kHostDescriptor;
  memory.limit = 4095;
  const Call host = decode(Layout::kFrom535, kEscAllocMemory, sizeof memory, &memory);
  EXPECT_EQ(host.verb, Verb::kAlloc);
  EXPECT_EQ(host.object, 3u);
  EXPECT_EQ(host.bytes, 0u);
  AllocObjectCall object{1, 2, 3, kSubdevice, 0};
  EXPECT_EQ(decode(Layout::kFrom535, kEscAllocObject, sizeof object, &object).object, 3u);
}

TEST(RmDecode, AddressesForOtherCardsNameTheMemoryThatTheyHold) {
  for (const Layout layout : kLayouts) {
    alignas(8) char parameters[48] = {};
    const Handle memory = 77;
    std::memcpy(parameters + fabricMemoryAt(layout), &memory, sizeof memory);
    const Call call = Alloc(layout, true, kFabricMemory, parameters, sizeof parameters).read();
    EXPECT_EQ(call.sourceClient, 1u);
    EXPECT_EQ(call.sourceObject, 77u);
    EXPECT_EQ(call.bytes, 0u);
  }
  EXPECT_EQ(Alloc(Layout::kFrom535, true, kFabricMemory, nullptr, 0).read().sourceObject, 0u);
}

template <typename Parameters>
Call readControl(std::uint32_t command, Parameters& parameters,
                 std::uint32_t size = sizeof(Parameters)) {
  static ControlCall control;
  control = {1, 1, command, 0, addressOf(&parameters), size, 0};
  return decode(Layout::kFrom535, kEscControl, sizeof control, &control);
}

TEST(RmDecode, ObjectsThatGoIntoAFileAreNamed) {
  ExportOne one{1, 2, 3, 4, 9, 0};
  const FileObjects single = fileObjects(readControl(kExportOne, one));
  EXPECT_EQ(readControl(kExportOne, one).verb, Verb::kExport);
  EXPECT_EQ(single.fd, 9);
  EXPECT_EQ(single.index, 0u);
  ASSERT_EQ(single.count, 1u);
  EXPECT_EQ(single.object(0), 4u);
  EXPECT_EQ(single.object(1), 0u);

  ExportMany many{};
  many.fd = 9;
  many.index = 5;
  many.count = 2;
  many.objects[1] = 8;
  const FileObjects several = fileObjects(readControl(kExportMany, many));
  EXPECT_EQ(readControl(kExportMany, many).verb, Verb::kExport);
  EXPECT_EQ(several.fd, 9);
  EXPECT_EQ(several.index, 5u);
  ASSERT_EQ(several.count, 2u);
  EXPECT_EQ(several.object(0), 0u);
  EXPECT_EQ(several.object(1), 8u);
  many.count = 0xffff;
  EXPECT_EQ(fileObjects(readControl(kExportMany, many)).count, kExportMost);
}

TEST(RmDecode, ObjectsThatGoIntoADmaBufAreNamedInBothFormsOfTheCall) {
  for (const std::uint32_t size : {2600u, 2608u}) {
    const DmaBufForm form = dmaBufForm(size);
    std::vector<char> bytes(size);
    DmaBufCall into{-1, 5, 4, 2, 1, 0, 1 << 20};
    const Handle objects[] = {7, 8};
    const auto write = [&] { std::memcpy(bytes.data(), &into, sizeof into); };
    write();
    std::memcpy(bytes.data() + form.objectsAt, objects, sizeof objects);
    const Call call = decode(Layout::kFrom535, kEscExportDmaBuf, size, bytes.data());
    EXPECT_EQ(call.verb, Verb::kExport);
    EXPECT_EQ(call.client, 5u);
    const std::uint32_t refused = 3;
    std::memcpy(bytes.data() + form.statusAt, &refused, sizeof refused);
    EXPECT_EQ(statusOf(call), refused);
    into.fd = 9;  // the driver's answer
    write();
    const FileObjects named = fileObjects(call);
    EXPECT_EQ(named.fd, 9);
    EXPECT_EQ(named.index, 1u);
    ASSERT_EQ(named.count, 2u);
    EXPECT_EQ(named.object(0), 7u);
    EXPECT_EQ(named.object(1), 8u);
    into.count = 0xffff;
    write();
    EXPECT_EQ(fileObjects(call).count, kDmaBufMost);
  }
  std::vector<char> bytes(2616);
  for (const std::uint32_t size : {2592u, 2604u, 2616u}) {
    EXPECT_EQ(decode(Layout::kFrom535, kEscExportDmaBuf, size, bytes.data()).verb, Verb::kOther);
  }
}

TEST(RmDecode, ObjectsThatComeOutOfAFileAreThoseThatWereThere) {
  ImportOne one{9, 1, 2, 3, 4};
  const FileObjects single = fileObjects(readControl(kImportOne, one));
  EXPECT_EQ(readControl(kImportOne, one).verb, Verb::kImport);
  EXPECT_EQ(single.fd, 9);
  EXPECT_EQ(single.parent, 3u);
  EXPECT_EQ(single.object(0), 4u);

  ImportMany many{};
  many.fd = 9;
  many.parent = 3;
  many.index = 5;
  many.count = 2;
  many.objects[0] = 7;
  many.objects[1] = 8;
  many.types[1] = 1;
  const FileObjects several = fileObjects(readControl(kImportMany, many));
  EXPECT_EQ(readControl(kImportMany, many).verb, Verb::kImport);
  EXPECT_EQ(several.parent, 3u);
  EXPECT_EQ(several.index, 5u);
  EXPECT_EQ(several.object(0), 0u) << "there was none at this index";
  EXPECT_EQ(several.object(1), 8u);
  many.count = 0xffff;
  EXPECT_EQ(fileObjects(readControl(kImportMany, many)).count, kImportMost);
}

TEST(RmDecode, ACallOnAFileThatDoesNotFitIsLeftAlone) {
  ImportMany many{};
  EXPECT_EQ(readControl(kImportMany, many, sizeof many - 1).verb, Verb::kOther);
  EXPECT_EQ(readControl(kImportOne, many, sizeof(ExportOne)).verb, Verb::kOther);
  ControlCall control{1, 1, kExportMany, 0, 0, sizeof(ExportMany), 0};
  EXPECT_EQ(decode(Layout::kFrom535, kEscControl, sizeof control, &control).verb, Verb::kOther);
}

TEST(RmDecode, ACallThatCarriesAnotherIsReadAsThatOther) {
  FreeCall free{1, 2, 3, 0};
  TransferCall transfer{kEscFree, sizeof free, addressOf(&free)};
  const Call call = decode(Layout::kFrom535, kEscTransfer, sizeof transfer, &transfer);
  EXPECT_EQ(call.verb, Verb::kFree);
  EXPECT_EQ(call.object, 3u);
  TransferCall nested{kEscTransfer, sizeof transfer, addressOf(&transfer)};
  EXPECT_EQ(decode(Layout::kFrom535, kEscTransfer, sizeof nested, &nested).verb, Verb::kOther)
      << "the driver takes no call in a call in a call";
}

TEST(RmDecode, WhatDoesNotFitTheLayoutIsLeftAlone) {
  char bytes[256] = {};
  for (std::uint32_t number = 0; number < 256; ++number) {
    EXPECT_NE(decode(Layout::kUnknown, number, 48, bytes).verb, Verb::kAlloc);
    for (const Layout layout : kLayouts) {
      EXPECT_EQ(decode(layout, number, 1, bytes).verb, Verb::kOther);
      EXPECT_EQ(decode(layout, number, 48, nullptr).verb, Verb::kOther);
    }
  }
  EXPECT_EQ(decode(Layout::kFrom535, kEscAlloc, 40, bytes).verb, Verb::kOther) << "525's long form";
  EXPECT_EQ(decode(Layout::kFrom525, kEscAlloc, 48, bytes).verb, Verb::kOther) << "535's long form";
}

TEST(RmDecode, TheDriverTellsItsVersion) {
  VersionCall version{};
  const auto told = [&](const char* text, std::uint32_t reply) {
    std::memset(version.version, 0, sizeof version.version);
    std::memcpy(version.version, text, std::min(std::strlen(text), sizeof version.version));
    version.reply = reply;
    return layoutTold(version);
  };
  EXPECT_EQ(told("580.142", 1), Layout::kFrom535);
  EXPECT_EQ(told("525.105.17", 1), Layout::kFrom525);
  EXPECT_EQ(told("515.43.04", 1), Layout::kFrom515);
  EXPECT_EQ(told("580.142", 0), Layout::kUnknown) << "not recognised";
  EXPECT_EQ(told("700.1", 1), Layout::kUnknown);
  EXPECT_EQ(told(std::string(64, '5').c_str(), 1), Layout::kUnknown) << "without an end";
}

TEST(RmDecode, SizesAreLoweredToTheQuotaInBothFormsOfTheQuestion) {
  constexpr std::uint64_t kMiB = 1 << 20;
  constexpr std::uint32_t kCard = 80 << 20, kQuota = 64 << 10, kLeft = 16 << 10, kBusWidth = 0xB;
  constexpr std::uint32_t kBar1Left = 0x1D;
  const FbInfo before[] = {{0x7, kCard},      {0x8, kCard},      {0x9, kCard},  {0xA, kCard},
                           {0x20, kCard},     {0x33, kCard},     {0x12, kCard}, {0x16, kCard},
                           {0x34, kCard},     {kFbHeapFree, 10}, {kFbRam, 20},  {kBusWidth, kCard},
                           {kBar1Left, kCard}};
  const FbInfo after[] = {{0x7, kQuota},     {0x8, kQuota},     {0x9, kQuota}, {0xA, kQuota},
                          {0x20, kQuota},    {0x33, kQuota},    {0x12, kLeft}, {0x16, kLeft},
                          {0x34, kLeft},     {kFbHeapFree, 10}, {kFbRam, 20},  {kBusWidth, kCard},
                          {kBar1Left, kCard}};
  constexpr std::uint32_t kCount = std::size(before);
  struct {
    std::uint32_t count = kCount;
    FbInfo pairs[kCount];
  } inPlace;
  std::memcpy(inPlace.pairs, before, sizeof before);
  ControlCall control{1, 2, kFbGetInfo2, 0, addressOf(&inPlace), sizeof inPlace, 0};
  const auto limit = [&] {
    limitSizes(decode(Layout::kFrom535, kEscControl, sizeof control, &control), 64 * kMiB,
               16 * kMiB);
  };
  limit();
  EXPECT_EQ(std::memcmp(inPlace.pairs, after, sizeof after), 0);

  FbInfo pairs[kCount];
  std::memcpy(pairs, before, sizeof before);
  FbInfoCall list{kCount, 0, addressOf(pairs)};
  control = {1, 2, kFbGetInfo, 0, addressOf(&list), sizeof list, 0};
  limit();
  EXPECT_EQ(std::memcmp(pairs, after, sizeof after), 0);

  std::memcpy(inPlace.pairs, before, sizeof before);
  inPlace.count = kCount + 1;  // more than it has room for
  control = {1, 2, kFbGetInfo2, 0, addressOf(&inPlace), sizeof inPlace, 0};
  limit();
  EXPECT_EQ(std::memcmp(inPlace.pairs, before, sizeof before), 0);
}

TEST(RmDecode, SizesThatTheHeapTellsAreLoweredToo) {
  HeapCall heap{};
  heap.function = kHeapInfo;
  const auto tell = [&](std::uint64_t total, std::uint64_t free, std::uint64_t largest) {
    heap.total = total;
    heap.free = free;
    heap.info.size = largest;
    limitSizes(decode(Layout::kFrom535, kEscVidHeapControl, sizeof heap, &heap), 64, 16);
  };
  tell(100, 90, 80);
  EXPECT_EQ(heap.total, 64u);
  EXPECT_EQ(heap.free, 16u);
  EXPECT_EQ(heap.info.size, 16u);
  tell(60, 10, 5);
  EXPECT_EQ(heap.total, 60u);
  EXPECT_EQ(heap.free, 10u);
  EXPECT_EQ(heap.info.size, 5u);
}

TEST(RmDecode, TheOlderCallForMemoryTellsTheCardsSizeAndTakesNone) {
  AllocMemoryCall memory{};
  memory.objectClass = kLocalMemory;
  memory.limit = 100;
  const Call call = decode(Layout::kFrom535, kEscAllocMemory, sizeof memory, &memory);
  EXPECT_EQ(call.bytes, 0u);
  limitSizes(call, 64, 16);
  EXPECT_EQ(memory.limit, 63u) << "the last byte";
  limitSizes(call, 100, 16);
  EXPECT_EQ(memory.limit, 63u);
  limitSizes(call, 0, 0);
  EXPECT_EQ(memory.limit, 0u);
}

TEST(RmDecode, OfTheProcessesOnACardThoseOfTheTaskStay) {
  PidsCall told{0, 0x2080, 5, {7, 8, 9, 10, 11, 13}};
  ControlCall control{1, 2, kGetPids, 0, addressOf(&told), sizeof told, 0};
  const auto read = [&] { return decode(Layout::kFrom535, kEscControl, sizeof control, &control); };
  const auto keep = [&] {
    keepPids(read(), [](std::uint32_t pid) { return pid % 2 != 0; });
    return std::vector<std::uint32_t>(told.pids, told.pids + 6);
  };
  EXPECT_EQ(keep(), (std::vector<std::uint32_t>{7, 9, 11, 0, 0, 13})) << "13 is not counted";
  EXPECT_EQ(told.count, 3u);
  told.count = kPidsMost + 1;
  EXPECT_EQ(keep()[5], 13u) << "more than there is room for is left alone";
  control.parametersSize = sizeof told - 4;
  EXPECT_EQ(read().verb, Verb::kOther) << "a form that is not known";
}

}  // namespace
}  // namespace qgpu::rm::rm_decode_test
