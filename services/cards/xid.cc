#include "services/cards/xid.h"

#include <algorithm>
#include <iterator>

namespace qgpu {
namespace {

struct Entry {
  std::uint64_t number;
  XidClass kind;
  const char* text;
};

constexpr Entry kEntries[] = {
    {13, XidClass::Program, "a kernel failed, often by an index out of bounds"},
    {31, XidClass::Program, "a kernel used memory that it does not have"},
    {32, XidClass::Driver, "its command stream was corrupt"},
    {38, XidClass::Driver, "its firmware failed"},
    {43, XidClass::Program, "a program's work was stopped after a fault"},
    {45, XidClass::Program, "a program's work was taken off the card"},
    {48, XidClass::Memory, "an uncorrectable memory error"},
    {61, XidClass::Driver, "its controller met a breakpoint"},
    {62, XidClass::Driver, "its controller halted"},
    {63, XidClass::Memory, "memory was retired or remapped: it needs a reset"},
    {64, XidClass::Memory, "memory could not be retired or remapped"},
    {68, XidClass::Program, "a video decoder failed on what a program gave it"},
    {69, XidClass::Card, "its graphics engine failed"},
    {74, XidClass::Link, "NVLink failed"},
    {79, XidClass::Card, "it fell off the bus"},
    {92, XidClass::Memory, "too many corrected memory errors"},
    {94, XidClass::Memory, "a memory error that one program had to end for"},
    {95, XidClass::Memory, "a memory error that any program may suffer from"},
    {109, XidClass::Program, "a program's work did not give way in time"},
    {119, XidClass::Driver, "its system processor does not answer"},
    {120, XidClass::Driver, "its system processor failed"},
    {121, XidClass::Link, "its link to the processor had a corrected error"},
    {140, XidClass::Memory, "memory errors that were not recovered from"},
};

const Entry* find(std::uint64_t xid) {
  const auto found = std::find_if(std::begin(kEntries), std::end(kEntries),
                                  [&](const Entry& entry) { return entry.number == xid; });
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
