#include "services/cards/nvidia/nvml.h"

#include <algorithm>
#include <cstdio>
#include <dlfcn.h>

namespace qgpu {
namespace {

constexpr unsigned long long kXidEvent = 8;  // nvmlEventTypeXidCriticalError
constexpr int kUncorrected = 1, kSinceLoaded = 0;
constexpr unsigned kTextMax = 96;
constexpr unsigned kLinksMax = 36;  // of one card; those that it has not are no success

// NVML writes the domain with eight digits and letters large, the kernel with four and small.
std::string busOf(const cuda::NvmlPci& pci) {
  char text[32];
  std::snprintf(text, sizeof text, "%04x:%02x:%02x.0", pci.domain & 0xffffffffU, pci.bus & 0xffU,
                pci.device & 0xffU);
  return text;
}

const char* remedy(int code) {
  switch (code) {
    case Nvml::kDriverNotLoaded:
      return "`modprobe nvidia` loads it, and `nvidia-smi` as root makes /dev/nvidia*";
    case Nvml::kVersionMismatch:
      return "the driver was updated while its older modules are loaded: reboot, or unload the "
             "nvidia modules and load them again";
    case Nvml::kNoPermission:
      return "run this as root, or as a user who may open /dev/nvidiactl";
    default:
      return "`nvidia-smi` and `dmesg` may say more";
  }
}

}  // namespace

template <typename F>
bool Nvml::resolve(const char* name, F& out) {
  out = reinterpret_cast<F>(::dlsym(library_, name));
  return out != nullptr;
}

const char* Nvml::resolveAll() {
  resolve("nvmlErrorString", errorText_);
  resolve("nvmlSystemGetDriverVersion", version_);
  resolve("nvmlDeviceGetMinorNumber", minor_);
  resolve("nvmlDeviceGetMigMode", mig_);
  resolve("nvmlDeviceGetTotalEccErrors", ecc_);
  resolve("nvmlDeviceGetPciInfo_v3", pci_);
  resolve("nvmlDeviceGetNvLinkState", linkState_);
  resolve("nvmlDeviceGetNvLinkRemotePciInfo_v2", linkTo_);
  resolve("nvmlEventSetCreate", makeEvents_);
  resolve("nvmlEventSetFree", freeEvents_);
  resolve("nvmlDeviceRegisterEvents", register_);
  if (!resolve("nvmlEventSetWait_v2", wait_)) resolve("nvmlEventSetWait", wait_);
  resolve("nvmlDeviceGetMemoryInfo_v2", memory2_);
  resolve("nvmlDeviceGetMemoryLimits_v1", limits_);
  resolve("nvmlDeviceSetMemoryLimits_v1", setLimits_);
  const char* missing = nullptr;
  const auto need = [&](const char* name, auto& out) {
    if (!resolve(name, out)) missing = name;
  };
  need("nvmlInit_v2", init_);
  need("nvmlShutdown", shutdown_);
  need("nvmlDeviceGetCount_v2", count_);
  need("nvmlDeviceGetHandleByIndex_v2", byIndex_);
  need("nvmlDeviceGetHandleByUUID", byUuid_);
  need("nvmlDeviceGetUUID", uuid_);
  need("nvmlDeviceGetName", name_);
  need("nvmlDeviceGetMemoryInfo", memory_);
  return missing;
}

Result<Nvml> Nvml::open() {
  Nvml nvml;
  nvml.library_ = ::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (nvml.library_ == nullptr) {
    const char* why = ::dlerror();
    return fail(ErrorCode::NotFound, why ? why : "libnvidia-ml.so.1 can't be loaded");
  }
  if (const char* missing = nvml.resolveAll()) {
    return fail(ErrorCode::Unavailable, std::string("libnvidia-ml.so.1 has no ") + missing +
                                            ": is it the one of NVIDIA's driver?");
  }
  const int rc = nvml.init_();
  if (rc == kSuccess) return nvml;
  const auto code = rc == kDriverNotLoaded ? ErrorCode::Unsupported : ErrorCode::Unavailable;
  return fail(code, "NVIDIA's driver can't be asked: " + nvml.describe(rc) + "; " + remedy(rc));
}

void Nvml::close() {
  for (const Watched& card : watched_) freeEvents_(card.events);
  watched_.clear();
  shutdown_();
}

std::string Nvml::describe(int code) const {
  const char* text = errorText_ ? errorText_(code) : nullptr;
  return "NVML error " + std::to_string(code) + " (" + (text ? text : "no text") + ")";
}

int Nvml::count(std::uint32_t& out) const {
  unsigned n = 0;
  const int rc = count_(&n);
  out = n;
  return rc;
}

std::string Nvml::driverVersion() const {
  char text[kTextMax] = "";
  return version_ && version_(text, kTextMax) == kSuccess ? text : "";
}

int Nvml::byIndex(std::uint32_t index, cuda::NvmlDevice& out) const {
  return byIndex_(index, &out);
}

// NVML's own search fails as "lost" where any card is: then each is looked at by its place.
int Nvml::byUuid(const std::string& uuid, cuda::NvmlDevice& out) const {
  if (byUuid_(uuid.c_str(), &out) == kSuccess) return kSuccess;
  std::uint32_t cards = 0;
  if (const int rc = count(cards); rc != kSuccess) return rc;
  for (std::uint32_t index = 0; index < cards; index++) {
    if (byIndex(index, out) == kSuccess && this->uuid(out) == uuid) return kSuccess;
  }
  return kGpuIsLost;
}

std::string Nvml::uuid(cuda::NvmlDevice device) const {
  char text[kTextMax] = "";
  return uuid_(device, text, kTextMax) == kSuccess ? text : "";
}

std::string Nvml::name(cuda::NvmlDevice device) const {
  char text[kTextMax] = "";
  return name_(device, text, kTextMax) == kSuccess ? text : "";
}

std::uint64_t Nvml::bytes(cuda::NvmlDevice device) const {
  cuda::NvmlMemory2 parts{};
  parts.version = sizeof parts | 2u << 24;
  const bool told = memory2_ != nullptr && memory2_(device, &parts) == kSuccess;
  if (told && parts.reserved < parts.total) {
    return parts.total - parts.reserved;
  }
  cuda::NvmlMemory memory{};
  return memory_(device, &memory) == kSuccess ? memory.total : 0;
}

std::uint64_t Nvml::used(cuda::NvmlDevice device) const {
  cuda::NvmlMemory memory{};
  return memory_(device, &memory) == kSuccess ? memory.used : 0;
}

int Nvml::minor(cuda::NvmlDevice device) const {
  unsigned number = 0;
  return minor_ && minor_(device, &number) == kSuccess ? static_cast<int>(number) : -1;
}

bool Nvml::mig(cuda::NvmlDevice device) const {
  unsigned now = 0, next = 0;
  return mig_ != nullptr && mig_(device, &now, &next) == kSuccess && now != 0;
}

std::string Nvml::bus(cuda::NvmlDevice device) const {
  cuda::NvmlPci pci{};
  return pci_ != nullptr && pci_(device, &pci) == kSuccess ? busOf(pci) : "";
}

std::vector<std::string> Nvml::linked(cuda::NvmlDevice device) const {
  std::vector<std::string> ends;
  if (linkState_ == nullptr || linkTo_ == nullptr) return ends;
  for (unsigned link = 0; link < kLinksMax; link++) {
    unsigned up = 0;
    cuda::NvmlPci end{};
    if (linkState_(device, link, &up) != kSuccess || up == 0) continue;
    if (linkTo_(device, link, &end) == kSuccess) ends.push_back(busOf(end));
  }
  return ends;
}

int Nvml::memoryLimit(cuda::NvmlDevice device, const std::string& cgroup,
                      std::uint64_t& hard) const {
  cuda::NvmlLimits limits{cgroup.c_str(), 0, 0, 0};
  const int rc = limits_ == nullptr ? kFunctionNotFound : limits_(device, &limits);
  hard = rc == kSuccess ? limits.hard : kNoLimit;
  return rc;
}

int Nvml::setMemoryLimit(cuda::NvmlDevice device, const std::string& cgroup,
                         std::uint64_t hard) const {
  cuda::NvmlSetLimits limits{cgroup.c_str(), 0, hard};
  return setLimits_ == nullptr ? kFunctionNotFound : setLimits_(device, &limits);
}

int Nvml::uncorrectedErrors(cuda::NvmlDevice device, std::uint64_t& out) const {
  unsigned long long errors = 0;
  const int rc =
      ecc_ == nullptr ? kNotSupported : ecc_(device, kUncorrected, kSinceLoaded, &errors);
  out = rc == kSuccess ? errors : 0;
  return rc;
}

bool Nvml::watchXids(cuda::NvmlDevice device, const std::string& uuid) {
  if (!makeEvents_ || !freeEvents_ || !register_ || !wait_) return false;
  void* events = nullptr;
  if (makeEvents_(&events) != kSuccess) return false;
  if (register_(device, kXidEvent, events) != kSuccess) {
    freeEvents_(events);
    return false;
  }
  watched_.push_back({uuid, events});
  return true;
}

std::optional<Nvml::Xid> Nvml::nextXid(std::uint32_t waitMs) {
  const auto each = waitMs / static_cast<std::uint32_t>(std::max<std::size_t>(1, watched_.size()));
  for (std::size_t i = 0; i < watched_.size(); i++) {
    turn_ = (turn_ + 1) % watched_.size();
    EventData event{};
    const int rc = wait_(watched_[turn_].events, &event, std::max(each, 1u));
    if (rc == kSuccess && event.type == kXidEvent) return Xid{watched_[turn_].uuid, event.data};
  }
  return std::nullopt;
}

}  // namespace qgpu
