#pragma once
// Controls of NVIDIA's kernel driver that take channels off the hardware and put them back, beside
// rm_abi.h, with the layouts that its open releases from 535 to 595 share; and the one that sets
// how long the hardware runs a group before it looks for another, which is the same from 515 on.
// None of them ends anything: the ones that do (stopping a channel, rewinding what it was given)
// are not here.

#include "services/nvidia_abi/rm_abi.h"

namespace qgpu::rm {

inline constexpr std::uint32_t kFifoDisableChannels = 0x2080110b;  // on a subdevice
inline constexpr std::uint32_t kGroupPreempt = 0xa06c0105;
inline constexpr std::uint32_t kChannelRestartRunlist = 0xa06f0111;  // needs CAP_SYS_NICE
inline constexpr std::uint32_t kGroupSetTimeslice = 0xa06c0103;
inline constexpr std::uint32_t kClientHandleInfo = 0xd02;  // on a client, read only
inline constexpr std::uint32_t kUuidInfo = 0x274;          // on a client, read only

inline constexpr std::uint32_t kDisabledMax = 64;
// The driver counts disables: a channel runs again after as many enables, and more do nothing. So
// often a manager disables one at most before it gives its task up; who does not know how often one
// was disabled enables it so often.
inline constexpr int kDisablesMax = 128;
struct DisableChannels {
  std::uint8_t disable, pad0[3];
  std::uint32_t count;
  std::uint8_t onlyScheduling;
  std::uint8_t rewind;  // always 0: 1 throws away what the channel was given
  std::uint8_t pad1[6];
  std::uint64_t event;  // always 0: the call returns when it is done
  Handle clients[kDisabledMax], channels[kDisabledMax];
};

struct Preempt {
  std::uint8_t wait, ownTimeout, pad[2];
  std::uint32_t timeoutUs;
};

struct RestartRunlist {
  std::uint8_t force, dontWait;
};

struct Timeslice {
  std::uint64_t us;  // the hardware takes what it can, at most that
};

struct HandleInfo {
  Handle object;
  std::uint32_t index;
  std::uint64_t result;
};
inline constexpr std::uint32_t kHandleParent = 1, kHandleClass = 2;

struct UuidInfo {
  std::uint8_t uuid[256];  // as text, "GPU-..."
  std::uint32_t flags, gpu, device, subdevice;
};

static_assert(sizeof(DisableChannels) == 536 && offsetof(DisableChannels, onlyScheduling) == 8 &&
              offsetof(DisableChannels, event) == 16 && offsetof(DisableChannels, clients) == 24 &&
              offsetof(DisableChannels, channels) == 280);
static_assert(sizeof(Preempt) == 8 && sizeof(RestartRunlist) == 2 && sizeof(HandleInfo) == 16 &&
              sizeof(Timeslice) == 8 && sizeof(UuidInfo) == 272);

}  // namespace qgpu::rm
