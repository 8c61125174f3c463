#include "services/cards/nvidia/xid.h"

#include <algorithm>
#include <iterator>

namespace qgpu {
namespace {

struct Entry {
  std::uint64_t first, last;  // the numbers from first to last
  XidClass kind;
  const char* text;
};

constexpr const char* kCopyEngine = "a copy engine failed on what a program gave it";
constexpr const char* kEncoder = "a video encoder failed on what a program gave it";
constexpr const char* kDecoder = "a video decoder failed on what a program gave it";
constexpr const char* kJpeg = "an image decoder failed on what a program gave it";
constexpr const char* kFlow = "an optical flow engine failed on what a program gave it";
constexpr const char* kPeer = "a program used another card's memory that it does not have";

constexpr Entry kEntries[] = {
    {8, 8, XidClass::Program, "a program's work did not go on"},
    {11, 11, XidClass::Program, "a program's command stream was invalid"},
    {13, 13, XidClass::Program, "a kernel failed, often by an index out of bounds"},
    {14, 14, XidClass::Note, "an error that somebody injected"},
    {25, 25, XidClass::Program, "a program's command stream was illegal"},
    {31, 31, XidClass::Program, "a kernel used memory that it does not have"},
    {32, 32, XidClass::Program, "a program's command stream was corrupt"},
    {37, 37, XidClass::Note, "its firmware was asked for what it does not know"},
    {38, 38, XidClass::Driver, "its firmware failed"},
    {39, 41, XidClass::Program, kCopyEngine},
    {43, 43, XidClass::Program, "a program's work was stopped after a fault"},
    {44, 44, XidClass::Note, "a fault while it switched between programs"},
    {45, 45, XidClass::Program, "a program's work was taken off the card"},
    {47, 47, XidClass::Program, kEncoder},
    {48, 48, XidClass::Memory, "an uncorrectable memory error"},
    {60, 60, XidClass::Program, "a security engine failed on what a program gave it"},
    {61, 61, XidClass::Driver, "its controller met a breakpoint"},
    {62, 62, XidClass::Driver, "its controller halted"},
    {63, 63, XidClass::Memory, "memory was retired or remapped: it needs a reset"},
    {64, 64, XidClass::Memory, "memory could not be retired or remapped"},
    {65, 65, XidClass::Program, kEncoder},
    {66, 67, XidClass::Note, "its driver tried what its firmware does not allow"},
    {68, 68, XidClass::Program, kDecoder},
    {69, 69, XidClass::Program, "a program asked its graphics engine for what it does not have"},
    {70, 72, XidClass::Program, kCopyEngine},
    {73, 73, XidClass::Program, kEncoder},
    {74, 74, XidClass::Link, "NVLink failed"},
    {75, 77, XidClass::Program, kCopyEngine},
    {79, 79, XidClass::Card, "it fell off the bus"},
    {80, 80, XidClass::Program, "a program's command stream came with a wrong checksum"},
    {82, 82, XidClass::Program, kJpeg},
    {83, 84, XidClass::Program, kDecoder},
    {85, 85, XidClass::Program, kCopyEngine},
    {86, 86, XidClass::Program, kFlow},
    {88, 89, XidClass::Program, kDecoder},
    {92, 92, XidClass::Memory, "too many corrected memory errors"},
    {93, 93, XidClass::Note, "its own records are worn, and not written any more"},
    // The counter of uncorrected errors speaks where it was the memory: one of a program that was
    // killed in the middle comes without.
    {94, 94, XidClass::Program, "an error that one program had to end for, and no other"},
    {95, 95, XidClass::Memory, "a memory error that any program may suffer from"},
    {96, 98, XidClass::Program, kDecoder},
    {99, 105, XidClass::Program, kJpeg},
    {106, 107, XidClass::Note, "a test message"},
    {108, 108, XidClass::Program, kPeer},
    {109, 109, XidClass::Program, "a program's work did not give way in time"},
    {119, 119, XidClass::Driver, "its system processor does not answer"},
    {120, 120, XidClass::Driver, "its system processor failed"},
    {121, 121, XidClass::Note, "its link to the processor had a corrected error"},
    {126, 135, XidClass::Program, kCopyEngine},
    {136, 136, XidClass::Link, "a link could not be trained"},
    {137, 137, XidClass::Program, kPeer},
    {139, 139, XidClass::Program, kFlow},
    {140, 140, XidClass::Memory, "memory errors that were not recovered from"},
    {141, 141, XidClass::Note, "a program's work took the slower path"},
    {142, 142, XidClass::Program, kEncoder},
    {143, 143, XidClass::Card, "it could not be initialised"},
    {144, 150, XidClass::Link, "NVLink failed"},
    {154, 154, XidClass::Note, "its driver says anew what would make it well after another Xid"},
    {155, 155, XidClass::Link, "an NVLink went down"},
    {162, 165, XidClass::Note, "how it smoothes its power has changed"},
    {171, 172, XidClass::Memory, "an uncorrectable memory error"},
};

const Entry* find(std::uint64_t xid) {
  const auto found =
      std::find_if(std::begin(kEntries), std::end(kEntries),
                   [&](const Entry& entry) { return entry.first <= xid && xid <= entry.last; });
  return found == std::end(kEntries) ? nullptr : found;
}

}  // namespace

XidClass xidClass(std::uint64_t xid) {
  const Entry* entry = find(xid);
  return entry == nullptr ? XidClass::Card : entry->kind;
}

const char* xidClassName(XidClass kind) {
  switch (kind) {
    case XidClass::Program:
      return "program";
    case XidClass::Note:
      return "note";
    case XidClass::Memory:
      return "memory";
    case XidClass::Link:
      return "link";
    case XidClass::Driver:
      return "driver";
    case XidClass::Card:
      return "card";
  }
  return "card";
}

std::string xidText(std::uint64_t xid) {
  const Entry* entry = find(xid);
  return "Xid " + std::to_string(xid) + " (" + xidClassName(xidClass(xid)) +
         "): " + (entry == nullptr ? "its driver's manual says what it means" : entry->text);
}

}  // namespace qgpu
