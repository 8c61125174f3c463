#pragma once
// NVIDIA's management library, loaded where a machine has it: the few functions that finding cards
// and watching their health take. It is only used in child processes (child_probe.h), since a sick
// driver does not answer. Absence is told apart from every other failure: it is what a machine
// without such cards looks like, and a driver that fails must not pass for it.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/result.h"
#include "services/nvidia_abi/cuda_abi.h"

namespace qgpu {

class Nvml {
 public:
  // What the library answers, as far as anything here depends on it.
  static constexpr int kSuccess = 0, kNoPermission = 4, kNotSupported = 3, kDriverNotLoaded = 9,
                       kFunctionNotFound = 13, kGpuIsLost = 15, kVersionMismatch = 18;
  static constexpr unsigned long long kNoLimit = ~0ULL;

  // NotFound: there is no library. Unsupported: no driver is loaded, or its files in /dev are
  // missing. Unavailable: anything else. The last two with NVML's number and text, and what to do.
  static Result<Nvml> open();

  // Back to before open(). What was lost is found again only by one that is opened anew.
  void close();

  // "NVML error 15 (GPU is lost)".
  std::string describe(int code) const;
  int count(std::uint32_t& out) const;
  std::string driverVersion() const;  // empty: it does not say
  int byIndex(std::uint32_t index, cuda::NvmlDevice& out) const;
  // kGpuIsLost: it is not there, or does not answer. Another code: nothing can be said of it now.
  int byUuid(const std::string& uuid, cuda::NvmlDevice& out) const;
  std::string uuid(cuda::NvmlDevice device) const;  // empty: it does not answer
  std::string name(cuda::NvmlDevice device) const;
  // What programs can have of it: all but what the driver keeps for itself, where it tells that (it
  // does from 510 on). 0: it does not answer.
  std::uint64_t bytes(cuda::NvmlDevice device) const;
  std::uint64_t used(cuda::NvmlDevice device) const;  // by everybody
  int minor(cuda::NvmlDevice device) const;           // of its file in /dev; -1: it does not say
  bool mig(cuda::NvmlDevice device) const;            // split into instances
  // Where it is plugged in, as the kernel writes it: "0000:3b:00.0"; empty: it does not say.
  std::string bus(cuda::NvmlDevice device) const;
  // What its NVLinks that are up lead to, in the same words: cards, or switches.
  std::vector<std::string> linked(cuda::NvmlDevice device) const;
  // What the driver lets programs in a cgroup have of the card's memory, in bytes, whatever they
  // do. `cgroup` is the full path of its folder in the hierarchy of version 2. To set it takes
  // root. kFunctionNotFound: drivers have this from 615 on.
  int memoryLimit(cuda::NvmlDevice device, const std::string& cgroup, std::uint64_t& hard) const;
  int setMemoryLimit(cuda::NvmlDevice device, const std::string& cgroup, std::uint64_t hard) const;
  // Uncorrected memory errors since the driver was loaded. Only kSuccess says how many.
  int uncorrectedErrors(cuda::NvmlDevice device, std::uint64_t& out) const;

  // Xid errors of this device from now on. False: this driver tells none.
  bool watchXids(cuda::NvmlDevice device, const std::string& uuid);
  struct Xid {
    std::string uuid;  // as it was given: a card that is lost can't be asked for it any more
    std::uint64_t number;
  };
  // The next one of any, waiting at most so long, and a millisecond for each device.
  std::optional<Xid> nextXid(std::uint32_t waitMs);

 private:
  struct EventData {
    cuda::NvmlDevice device;
    unsigned long long type, data;
    unsigned gpuInstance, computeInstance;
  };
  // A set of its own, since a lost card lets the wait for its set fail.
  struct Watched {
    std::string uuid;
    void* events;
  };
  template <typename F>
  bool resolve(const char* name, F& out);
  const char* resolveAll();  // the name of what is missing; null: nothing

  using Text = int (*)(cuda::NvmlDevice, char*, unsigned);
  void* library_ = nullptr;
  std::vector<Watched> watched_;
  std::size_t turn_ = 0;  // whose set was waited for last
  int (*init_)() = nullptr, (*shutdown_)() = nullptr;
  int (*count_)(unsigned*) = nullptr;
  int (*byIndex_)(unsigned, cuda::NvmlDevice*) = nullptr;
  int (*byUuid_)(const char*, cuda::NvmlDevice*) = nullptr;
  Text uuid_ = nullptr, name_ = nullptr;
  int (*memory_)(cuda::NvmlDevice, cuda::NvmlMemory*) = nullptr;
  // Not in every driver:
  int (*memory2_)(cuda::NvmlDevice, cuda::NvmlMemory2*) = nullptr;
  const char* (*errorText_)(int) = nullptr;
  int (*version_)(char*, unsigned) = nullptr;
  int (*minor_)(cuda::NvmlDevice, unsigned*) = nullptr;
  int (*mig_)(cuda::NvmlDevice, unsigned*, unsigned*) = nullptr;
  int (*ecc_)(cuda::NvmlDevice, int, int, unsigned long long*) = nullptr;
  int (*pci_)(cuda::NvmlDevice, cuda::NvmlPci*) = nullptr;
  int (*linkState_)(cuda::NvmlDevice, unsigned, unsigned*) = nullptr;
  int (*linkTo_)(cuda::NvmlDevice, unsigned, cuda::NvmlPci*) = nullptr;
  int (*limits_)(cuda::NvmlDevice, cuda::NvmlLimits*) = nullptr;
  int (*setLimits_)(cuda::NvmlDevice, cuda::NvmlSetLimits*) = nullptr;
  int (*makeEvents_)(void**) = nullptr;
  int (*freeEvents_)(void*) = nullptr;
  int (*register_)(cuda::NvmlDevice, unsigned long long, void*) = nullptr;
  int (*wait_)(void*, EventData*, unsigned) = nullptr;
};

}  // namespace qgpu
