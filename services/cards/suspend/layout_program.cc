#include "services/cards/suspend/layout_program.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <linux/ioctl.h>
#include <optional>
#include <sys/ioctl.h>

#include "services/cards/suspend/library.h"
#include "services/nvidia_abi/cuda_abi.h"
#include "services/nvidia_abi/rm_card.h"

namespace qgpu::suspend {
namespace {

using Done = cuda::Result;  // of a function of CUDA: not 0 where it failed

constexpr std::uint64_t kMiB = 1 << 20;
// Odd, each larger than those before, so that what was freed does not do, and so large that what is
// said of them can't be said of what lies beside.
constexpr std::uint64_t kSizes[] = {37 * kMiB + 12'345, 101 * kMiB + 1, 163 * kMiB + 65'537};
constexpr std::uint64_t kRounded = 4 * kMiB;  // CUDA asks for so much more at most
constexpr std::uint64_t kBeside = 16 * kMiB;  // the driver takes for tables of such memory
constexpr int kTries = 5;                     // while others may take and free memory as well
constexpr rm::Handle kNobody = 0x716d0bad;    // a client that there is not

template <typename Argument>
bool called(int fd, std::uint32_t number, Argument* argument, std::uint32_t size) {
  return ::ioctl(fd, _IOC(_IOC_READ | _IOC_WRITE, rm::kIoctlType, number, size), argument) == 0;
}

std::string bytesText(std::uint64_t bytes) {
  return std::to_string(bytes) + " bytes";
}

// How much of the card the driver says that an object is.
std::optional<std::uint64_t> sizeTold(const CallWatch::Known& known) {
  rm::SurfaceInfo infos[] = {{rm::kSurfacePages, 0}, {rm::kSurfacePlace, 0}};
  rm::SurfaceInfoCall list{2, 0, reinterpret_cast<std::uintptr_t>(infos)};
  rm::ControlCall control{};
  control.client = known.client;
  control.object = known.object;
  control.command = rm::kSurfaceInfo;
  control.parameters = reinterpret_cast<std::uintptr_t>(&list);
  control.parametersSize = sizeof list;
  if (!called(known.fd, rm::kEscControl, &control, sizeof control)) return std::nullopt;
  if (control.status != rm::kOk || infos[1].value != rm::kPlaceCard) return std::nullopt;
  return rm::bytesGiven(infos[0].value * rm::kSurfacePage);
}

// Empty; or what the driver says otherwise.
std::string classDiffers(const CallWatch::Known& known) {
  std::uint32_t objectClass = 0;
  rm::Handle parent = 0;
  const rm::Named name{known.client, known.object};
  if (rm::classOf(known.fd, name, objectClass) != rm::kOk) {
    return "the driver does not know an object that it was seen to make";
  }
  if (objectClass != known.objectClass) return "the driver says another class of an object";
  if (rm::parentOf(known.fd, name, parent) != rm::kOk || parent != known.parent) {
    return "the driver says another parent of an object";
  }
  return "";
}

std::string versionDiffers(int fd, const std::string& version) {
  rm::VersionCall call{};
  call.command = rm::kVersionQuery;
  const bool told =
      called(fd, rm::kEscCheckVersion, &call, sizeof call) &&
      call.reply == rm::kVersionRecognised &&
      std::string_view(call.version, ::strnlen(call.version, sizeof call.version)) == version;
  return told ? "" : "the driver does not tell its version where it is looked for";
}

struct Form {
  std::uint32_t number, size, statusAt;
  std::uint32_t wordAt, word;  // what makes it such a call, beside the client
};

// A call of nobody's client is refused: the driver writes that where the layout says.
std::string refusalDiffers(int fd, const Form& form) {
  alignas(8) unsigned char bytes[256] = {};
  std::uint32_t status = rm::kNoAnswer;
  std::memcpy(bytes, &kNobody, sizeof kNobody);
  std::memcpy(bytes + form.wordAt, &form.word, sizeof form.word);
  std::memcpy(bytes + form.statusAt, &status, sizeof status);
  char text[96] = "";
  if (!called(fd, form.number, bytes, form.size)) {
    std::snprintf(text, sizeof text, "the driver takes no call 0x%x of %u bytes", form.number,
                  form.size);
    return text;
  }
  std::memcpy(&status, bytes + form.statusAt, sizeof status);
  if (status != rm::kNoAnswer && status != rm::kOk) return "";
  std::snprintf(text, sizeof text, "the status of call 0x%x is not at %u", form.number,
                form.statusAt);
  return text;
}

std::string refusalsDiffer(int fd, rm::Layout layout) {
  const auto [shortForm, longForm] = rm::allocForms(layout);
  constexpr std::uint32_t kClassAt = offsetof(rm::AllocCall, objectClass);
  const Form forms[] = {
      {rm::kEscAlloc, shortForm.size, shortForm.statusAt, kClassAt, rm::kDevice},
      {rm::kEscAlloc, longForm.size, longForm.statusAt, kClassAt, rm::kDevice},
      {rm::kEscFree, sizeof(rm::FreeCall), offsetof(rm::FreeCall, status),
       offsetof(rm::FreeCall, object), kNobody},
      {rm::kEscDupObject, sizeof(rm::DupCall), offsetof(rm::DupCall, status),
       offsetof(rm::DupCall, sourceClient), kNobody},
      {rm::kEscControl, sizeof(rm::ControlCall), offsetof(rm::ControlCall, status),
       offsetof(rm::ControlCall, command), rm::kClientHandleInfo},
      {rm::kEscVidHeapControl, sizeof(rm::HeapCall), offsetof(rm::HeapCall, status),
       offsetof(rm::HeapCall, function), rm::kHeapFree},
  };
  for (const Form& form : forms) {
    if (std::string why = refusalDiffers(fd, form); !why.empty()) return why;
  }
  return "";
}

// What NVML says is used of the card, by everybody.
class Used {
 public:
  // Empty; or why it can't be asked.
  std::string open(const std::string& uuid) {
    if (!library_) return "libnvidia-ml.so.1 can't be loaded";
    const auto init = library_.find<int (*)()>("nvmlInit_v2");
    const auto find =
        library_.find<int (*)(const char*, cuda::NvmlDevice*)>("nvmlDeviceGetHandleByUUID");
    memory_ =
        library_.find<int (*)(cuda::NvmlDevice, cuda::NvmlMemory*)>("nvmlDeviceGetMemoryInfo");
    const bool able = init && find && memory_ && init() == 0 && find(uuid.c_str(), &device_) == 0;
    return able && now() ? "" : "NVML does not say what is used of the card";
  }
  std::optional<std::uint64_t> now() const {
    cuda::NvmlMemory memory{};
    if (memory_(device_, &memory) != 0) return std::nullopt;
    return memory.used;
  }

 private:
  Library library_{"libnvidia-ml.so.1"};
  cuda::NvmlDevice device_{};
  int (*memory_)(cuda::NvmlDevice, cuda::NvmlMemory*) = nullptr;
};

// Of a comparison: empty, or what differs; `others` may be the cause.
struct Finding {
  std::string why;
  bool others = false;
};

class Trial {
 public:
  Trial(CallWatch& calls, const std::string& version) : calls_(calls), version_(version) {}

  std::string whyNot(const std::string& uuid) {
    if (std::string why = used_.open(uuid); !why.empty()) return why;
    if (std::string why = context(); !why.empty()) return why;
    for (const std::uint64_t bytes : kSizes) {
      Finding found = memory(bytes);
      for (int i = 1; i < kTries && found.others; i++) found = memory(bytes);
      if (!found.why.empty()) return found.why;
    }
    return unknownCall();
  }

 private:
  std::string context();
  std::string contextDiffers(std::uint64_t usedBefore);
  std::string unknownCall();
  Finding memory(std::uint64_t bytes);
  Finding taken(std::uint64_t bytes, std::uint64_t seen, std::uint64_t usedMore);
  std::string namesDiffer(const std::vector<CallWatch::Known>& before);
  std::string endsDiffer(const std::vector<CallWatch::Known>& before);

  CallWatch& calls_;
  const std::string version_;
  const Library cuda_{"libcuda.so.1"};
  Done (*const take_)(cuda::Ptr*,
                      cuda::Size) = cuda_.find<Done (*)(cuda::Ptr*, cuda::Size)>("cuMemAlloc_v2");
  Done (*const give_)(cuda::Ptr) = cuda_.find<Done (*)(cuda::Ptr)>("cuMemFree_v2");
  Used used_;
};

std::string Trial::unknownCall() {
  const std::string strange = calls_.strange();
  return strange.empty() ? "" : strange + ", which the layout does not know";
}

std::string Trial::context() {
  cuda::Ctx context = nullptr;
  const auto failed = [](const char* what) { return std::string("the probe failed ") + what; };
  if (!cuda_ || !take_ || !give_) return failed("libcuda.so.1");
  const std::uint64_t before = used_.now().value_or(0);
  if (cuda_.find<Done (*)(cuda::U)>("cuInit")(0)) return failed("cuInit");
  if (cuda_.find<Done (*)(cuda::Ctx*, cuda::Dev)>("cuDevicePrimaryCtxRetain")(&context, 0)) {
    return failed("context");
  }
  if (cuda_.find<Done (*)(cuda::Ctx)>("cuCtxSetCurrent")(context)) return failed("cuCtxSetCurrent");
  // With what it takes at the first allocation alone.
  cuda::Ptr first = 0;
  if (take_(&first, 1) || give_(first)) return failed("its first allocation");
  return contextDiffers(before);
}

std::string Trial::contextDiffers(std::uint64_t usedBefore) {
  if (std::string why = unknownCall(); !why.empty()) return why;
  const std::vector<CallWatch::Known> known = calls_.known();
  const auto channel = std::find_if(known.begin(), known.end(), [](const CallWatch::Known& each) {
    return rm::isChannel(each.objectClass);
  });
  if (channel == known.end()) return "no channel of a context is seen";
  if (std::string why = versionDiffers(channel->fd, version_); !why.empty()) return why;
  if (std::string why = refusalsDiffer(channel->fd, calls_.layout()); !why.empty()) return why;
  for (const CallWatch::Known& each : known) {
    if (std::string why = classDiffers(each); !why.empty()) return why;
  }
  if (calls_.held() == 0) return "no memory of a context is seen";
  if (usedBefore + calls_.held() <= used_.now().value_or(0) + kBeside) return "";
  return "a context is seen to take " + bytesText(calls_.held()) + ", and NVML says less";
}

Finding Trial::taken(std::uint64_t bytes, std::uint64_t seen, std::uint64_t usedMore) {
  const std::string what = "of memory of " + bytesText(bytes) + " ";
  if (seen < bytes || seen > bytes + kRounded) return {what + bytesText(seen) + " are seen"};
  const bool alike = usedMore + kBeside >= seen && usedMore <= seen + kBeside;
  if (alike) return {};
  return {what + "NVML says " + std::to_string(static_cast<std::int64_t>(usedMore)), true};
}

// Of what is known since: the driver says the same.
std::string Trial::namesDiffer(const std::vector<CallWatch::Known>& before) {
  for (const CallWatch::Known& each : calls_.known()) {
    if (std::find(before.begin(), before.end(), each) != before.end()) continue;
    if (std::string why = classDiffers(each); !why.empty()) return why;
    if (each.bytes != 0 && sizeTold(each) != each.bytes) {
      return "the driver says another size of memory of " + bytesText(each.bytes);
    }
  }
  return "";
}

// Of what was known and is not any more: the driver knows it no more.
std::string Trial::endsDiffer(const std::vector<CallWatch::Known>& before) {
  const std::vector<CallWatch::Known> now = calls_.known();
  for (const CallWatch::Known& each : before) {
    std::uint32_t objectClass = 0;
    if (std::find(now.begin(), now.end(), each) != now.end()) continue;
    if (rm::classOf(each.fd, {each.client, each.object}, objectClass) == rm::kOk) {
      return "the driver has an object that was seen to end";
    }
  }
  return "";
}

Finding Trial::memory(std::uint64_t bytes) {
  const std::vector<CallWatch::Known> before = calls_.known();
  const std::uint64_t heldBefore = calls_.held(), usedBefore = used_.now().value_or(0);
  cuda::Ptr at = 0;
  if (take_(&at, bytes)) return {"the probe failed cuMemAlloc"};
  const std::uint64_t usedMore = used_.now().value_or(0) - usedBefore;
  const Finding found = taken(bytes, calls_.held() - heldBefore, usedMore);
  if (!found.why.empty() && !found.others) return found;
  if (std::string why = namesDiffer(before); !why.empty()) return {why};
  const std::vector<CallWatch::Known> with = calls_.known();
  if (give_(at)) return {"the probe failed cuMemFree"};
  if (calls_.held() != heldBefore) return {"the end of memory is not seen"};
  if (std::string why = endsDiffer(with); !why.empty()) return {why};
  return found;
}

}  // namespace

void tryLayout(CallWatch& calls, const std::string& version, const std::string& uuid) {
  const std::string why = Trial(calls, version).whyNot(uuid);
  std::printf("%.200s\n", why.empty() ? kAgrees : why.c_str());
}

}  // namespace qgpu::suspend
