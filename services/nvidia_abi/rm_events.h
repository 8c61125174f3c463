#pragma once
// The channels of this process on NVIDIA cards, as its calls to the kernel driver make, enable and
// end them: what must be known to take a task's work off the hardware. Whoever needs them
// subscribes with onRmChannel() before the process allocates any (at attach), and asks with
// eachRmChannel() for those that are there, as after a manager's restart.
//
// A channel belongs to a group (class 0xa06c, its parent) or stands alone beneath a device. The
// handler runs in the thread that made the call, after the driver did it and before the program
// gets its answer, with no lock of this library held: it may block, and may call the driver through
// driverIoctl(). A channel that ends because what it uses was freed elsewhere is not seen to end;
// the driver answers a control with its name with an error.

#include "services/nvidia_abi/rm_abi.h"

namespace qgpu::guest {

struct RmChannelEvent {
  enum class What : std::uint8_t {
    kMade,     // a channel or a group of channels
    kEnabled,  // a group or a lone channel was asked to run (GPFIFO_SCHEDULE with enable)
    kSliced,   // how long a group runs was set, by the program or this library
    kEnded,    // a channel or group, freed with whatever was above it; another thread may have
               // made one of the same name since, and told of it
    kKept,     // an object was to be freed and the driver refused: meanwhile eachRmChannel() did
               // not visit it, nor what is beneath it
  };
  What what;
  int fd;  // a control descriptor of its client's open file; -1: none is known
  rm::Handle client, parent, object;
  rm::Handle group;  // that a channel belongs to; 0: it stands alone
  std::uint32_t objectClass;
  std::uint32_t engine;  // as its allocation said, or its group's: 1..8 graphics and compute, from
                         // 9 copies; 0: not known
  std::uint32_t device;  // the card's number in the driver; ~0: not known
};
using RmChannelHandler = void (*)(const RmChannelEvent&);

// There is one subscriber; null: none.
void onRmChannel(RmChannelHandler handler);

// Each live channel and group as it was made. The visitor asks and changes nothing here.
void eachRmChannel(void (*visit)(const RmChannelEvent&, void*), void* context);

// Whether a channel or a group of that name is there. While a call to free it is under way: no.
bool isRmChannel(rm::Handle client, rm::Handle object);

// How the driver lays its calls out, once a program has asked it for its version.
rm::Layout rmLayout();

// The driver's answer, past this library. A program's own ioctl() ends here too.
int driverIoctl(int fd, unsigned long request, void* argument);

}  // namespace qgpu::guest
