#pragma once
// NVIDIA's kernel driver without a card, as a library that is preloaded behind whatever a test puts
// in front of it: its ioctl() answers, with the resource manager's structs and rules, on files that
// stand for the driver's: QGPU_DRIVER_ROOT/dev/nvidiactl and nvidia0, which are ordinary ones.
// Every other descriptor is the system's. It keeps what the real one keeps: objects in trees that
// end with their parent, client or file, memory that is free with its last name, sizes rounded up
// to pages while the card gives 64 KiB at least, and a client's calls taken from its own open file
// alone. It shares no code and no declaration with what it tests
// (tests/rm_stand_in/nvidia_rm.h). It is for the memory of one process; channels that others take
// off the card are tests/rm_stand_in's.
//
// Its environment: QGPU_STAND_IN_DRIVER (version, 580.142), QGPU_STAND_IN_BYTES (of the card,
// 16 GiB), QGPU_STAND_IN_PAGE (sizes are rounded up to it, 4096), QGPU_STAND_IN_SILENT=1 (nobody is
// told the version), QGPU_STAND_IN_LENIENT=1 (a control that it does not know is done, and of no
// effect, and not refused: NVIDIA's own libcuda asks some hundred). A client of another process is
// always there: kForeignClient, with kForeignMemory of kForeignBytes.

#include <cstdint>

#include "tests/rm_stand_in/nvidia_rm.h"

namespace qgpu::stand_in {

namespace rm = nvidia::rm;

inline constexpr rm::Handle kForeignClient = 0xc1dfffff, kForeignMemory = 0x5;
inline constexpr std::uint64_t kForeignBytes = 8 << 20;

}  // namespace qgpu::stand_in

extern "C" {

// What tests ask of it, by dlsym.
struct QgpuKernelStandIn {
  std::uint64_t (*bytes)();                      // of the card, held by this process
  std::uint64_t (*calls)(std::uint32_t number);  // that came as far as the kernel
  std::uint64_t (*objects)();                    // of all clients, without the foreign one
};
const QgpuKernelStandIn* qgpuKernelStandIn();
}
