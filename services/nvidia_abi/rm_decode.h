#pragma once
// What a program asks of NVIDIA's kernel driver, read from one ioctl's argument: pure functions of
// the layout (rm_abi.h) and the argument's bytes. Nothing behind the argument's size is read, and
// of the memory that it points to only what its own size covers; a call that does not fit its
// layout is Verb::kOther and goes to the driver untouched, which refuses it itself.

#include "services/nvidia_abi/rm_abi.h"

namespace qgpu::rm {

enum class Verb : std::uint8_t {
  kOther,      // nothing that is followed here
  kAlloc,      // an object is made; it may take memory of the card
  kFree,       // an object and all beneath it end
  kDup,        // a second name for an object, in this client or from another
  kSizes,      // the driver tells how much the card has, or has left
  kPids,       // the driver tells which processes use the card
  kTimeslice,  // a control that sets how long a group of channels runs
  kSchedule,   // a control that puts channels where the hardware runs them, or takes them away
  kExport,     // a control, or a call of its own, that puts objects into a file
  kImport,     // a control that takes names for them out of it
};

struct Call {
  Verb verb = Verb::kOther;
  Handle client = 0;
  Handle parent = 0;
  Handle object = 0;  // of an allocation or duplication: as asked; madeBy() has it afterwards
  std::uint32_t objectClass = 0;
  Handle sourceClient = 0, sourceObject = 0;  // of a duplication; of what an object holds
  std::uint64_t bytes = 0;                    // of the card's memory that it takes, as asked
  std::uint32_t detail = 0;                   // a device's number; the engine of a channel or group
  std::uint32_t command = 0;                  // of a control; else an export's own call
  void* parameters = nullptr;                 // of a control, or of such a call
  std::uint32_t parametersSize = 0;

  // Where the driver answers, for the functions below.
  void* argument = nullptr;
  std::uint32_t statusAt = 0;
  std::uint32_t objectAt = 0;
  void* takenAt = nullptr;  // the size that the driver tells; null: as asked
};

// `number` and `size` are the request's; a call that carries another is read as that other.
Call decode(Layout layout, std::uint32_t number, std::uint32_t size, void* argument);

// After the driver answered.
std::uint32_t statusOf(const Call& call);
Handle madeBy(const Call& call);
std::uint64_t bytesTaken(const Call& call);
// `seen`: see layoutOf().
Layout layoutTold(const VersionCall& answered, std::uint64_t seen = 0);

// What a call of Verb::kExport or kImport names; an import's objects once it was answered.
struct FileObjects {
  int fd = -1;
  Handle parent = 0;        // of what is imported
  std::uint32_t index = 0;  // in the file, of the first
  std::uint32_t count = 0;
  const void* names = nullptr;
  const void* types = nullptr;  // null: all are there

  Handle object(std::uint32_t i) const;  // 0: none
};
FileObjects fileObjects(const Call& call);

// The answer that the driver gives when the card is full. Its own input stays as it was.
void answerNoMemory(const Call& call);

// Lowers what a call of Verb::kSizes told to a quota and what is left of it.
void limitSizes(const Call& call, std::uint64_t quotaBytes, std::uint64_t leftBytes);

// Of the processes that a call of Verb::kPids told, leaves those that `keeps` says.
void keepPids(const Call& call, bool (*keeps)(std::uint32_t pid));

}  // namespace qgpu::rm
