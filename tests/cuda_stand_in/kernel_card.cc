#include "tests/cuda_stand_in/kernel_card.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>

namespace qgpu::stand_in {
namespace {

constexpr std::uint32_t kId = 0x100;

template <typename T>
T& at(void* from, std::size_t offset = 0) {
  return *reinterpret_cast<T*>(static_cast<char*>(from) + offset);
}
std::uint32_t& word(void* from, std::size_t number) {
  return at<std::uint32_t>(from, 4 * number);
}

// --- calls that are about no object, with the numbers of their ioctl ---

constexpr std::uint32_t kMapMemory = 0x4e, kUnmapMemory = 0x4f, kCardInfo = 200,
                        kAllocOsEvent = 206, kFreeOsEvent = 207, kSysParams = 214, kNumaInfo = 215;

struct CardInfo {
  std::uint8_t valid, pad[3];
  std::uint32_t domain;
  std::uint8_t bus, slot, function, pad2;
  std::uint16_t vendor, device;
  std::uint32_t id;
  std::uint8_t rest[52];
};
static_assert(sizeof(CardInfo) == 72);

// --- controls ---

constexpr std::uint32_t kAttachedIds = 0x201, kIdInfo = 0x202, kIdInfo2 = 0x205, kProbedIds = 0x214,
                        kBuildVersion = 0x101, kAddressSpace = 0xd01;
constexpr std::uint32_t kClasses = 0x800292, kSubdevices = 0x800280;
constexpr std::uint32_t kName = 0x20800110, kUuid = 0x2080014a, kEngines = 0x20800170,
                        kGraphicsInfo = 0x20801201, kMultiprocessors = 0x2080121b,
                        kArchitecture = 0x20801701;

void tellIds(void* parameters) {
  std::fill_n(&word(parameters, 0), 32, ~0u);
  word(parameters, 0) = kId;
}

// Index, flags, length, and the bytes or the text of them.
void tellUuid(void* parameters) {
  constexpr std::uint32_t kBinary = 2;
  constexpr char kText[] = "GPU-51515151-5151-5151-5151-515151515151";
  const bool binary = (word(parameters, 1) & kBinary) != 0;
  word(parameters, 2) = binary ? 16 : sizeof kText;
  char* to = &at<char>(parameters, 12);
  binary ? std::memset(to, 0x51, 16) : std::memcpy(to, kText, sizeof kText);
}

struct BuildVersion {
  std::uint32_t size;
  char *driver, *version, *title;
  std::uint32_t change, officialChange;
};

void tellBuild(BuildVersion& build, const char* version) {
  for (char* text : {build.driver, build.version, build.title}) {
    if (text && std::strlen(version) < build.size) std::strcpy(text, version);
  }
}

// Of a Hopper: memory, address spaces, groups, channels, computing and copying.
constexpr std::uint32_t kHopperClasses[] = {
    0x0002, 0x0005, 0x003e, 0x003f, 0x0040, 0x0070, 0x0071, 0x0073, 0x0079, 0x0080, 0x00de,
    0x00f8, 0x00fa, 0x00fd, 0x2080, 0x2081, 0x208f, 0x5080, 0x50a0, 0x83de, 0x902d, 0x9067,
    0x90e6, 0x90f1, 0xa040, 0xa06c, 0xa06f, 0xa140, 0xb06f, 0xb2cc, 0xc06f, 0xc0b5, 0xc361,
    0xc369, 0xc36f, 0xc461, 0xc46f, 0xc561, 0xc56f, 0xc661, 0xc6b5, 0xc6c0, 0xc7b5, 0xc7c0,
    0xc86f, 0xc8a3, 0xc8b5, 0xcb33, 0xcb97, 0xcba2, 0xcbc0};

struct ClassList {
  std::uint32_t count, all[160];
};

struct GraphicsInfo {
  std::uint32_t count, pad;
  struct Pair {
    std::uint32_t index, value;
  } * pairs;
};

std::uint32_t graphicsInfo(std::uint32_t index) {
  constexpr std::uint32_t kVersion = 0xc, kWarps = 0xd, kWarpThreads = 0xe;
  if (index == kVersion) return 0x900;
  return index == kWarps ? 64 : index == kWarpThreads ? 32 : 1;
}

struct Multiprocessors {
  struct {
    std::uint16_t cluster, localPair, local, pair, virtualCluster, movablePair;
  } all[512];
  std::uint16_t count, pairs;
};

}  // namespace

int answerForCard(std::uint32_t number, std::uint32_t size, void* argument) {
  switch (number) {
    case kSysParams:
      return 0;
    case kCardInfo:
      if (size < sizeof(CardInfo)) return EINVAL;
      std::memset(argument, 0, size);
      at<CardInfo>(argument) = {1, {}, 0, 1, 0, 0, 0, 0x10de, 0x2330, kId, {}};
      return 0;
    case kNumaInfo:
      std::memset(argument, 0, size);
      at<std::int32_t>(argument) = -1;  // its memory is no node of the host's
      return 0;
    case kMapMemory:
      word(argument, 10) = 0;
      return 0;
    case kUnmapMemory:
      word(argument, 6) = 0;
      return 0;
    case kAllocOsEvent:
    case kFreeOsEvent:
      word(argument, 3) = 0;
      return 0;
    default:
      return -1;
  }
}

bool tellOfCard(std::uint32_t command, void* parameters, std::uint32_t size, const char* version) {
  switch (command) {
    case kBuildVersion:
      return tellBuild(at<BuildVersion>(parameters), version), true;
    case kAttachedIds:
    case kProbedIds:
      return tellIds(parameters), true;
    case kIdInfo:
    case kIdInfo2:  // flags, and which device and part of it: the first
      return std::fill_n(&word(parameters, 1), 3, 0), true;
    case kAddressSpace:
      return word(parameters, 2) = 3, true;  // registers
    case kSubdevices:
      return word(parameters, 0) = 1, true;
    case kClasses: {
      auto& list = at<ClassList>(parameters);
      list.count = std::size(kHopperClasses);
      return std::copy_n(kHopperClasses, list.count, list.all), true;
    }
    case kUuid:
      return tellUuid(parameters), true;
    case kName:  // flags, then the text
      return std::strcpy(&at<char>(parameters, 4), "NVIDIA stand-in"), true;
    case kEngines: {  // graphics, and four that copy
      constexpr std::uint32_t kAll[] = {5, 1, 9, 10, 11, 12};
      return std::copy_n(kAll, std::size(kAll), &word(parameters, 0)), true;
    }
    case kArchitecture:
      word(parameters, 0) = 0x180;
      word(parameters, 1) = 0;
      return word(parameters, 2) = 0xa1, true;
    case kGraphicsInfo: {
      const auto& list = at<GraphicsInfo>(parameters);
      for (std::uint32_t i = 0; i < list.count; ++i) {
        list.pairs[i].value = graphicsInfo(list.pairs[i].index);
      }
      return true;
    }
    case kMultiprocessors: {
      auto& list = at<Multiprocessors>(parameters);
      if (size < sizeof list) return true;
      list.count = 2;
      list.pairs = 1;
      return list.all[1].local = 1, true;
    }
    default:
      return false;
  }
}

}  // namespace qgpu::stand_in
