#include "services/nvidia_abi/rm_card.h"

#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <linux/ioctl.h>
#include <sys/ioctl.h>
#include <unistd.h>

namespace qgpu::rm {
namespace {

constexpr Handle kOurDevice = 0x716d0001, kOurSubdevice = 0x716d0002;

template <typename Call>
int call(int fd, std::uint32_t number, Call& argument) {
  return ::ioctl(fd, _IOC(_IOC_READ | _IOC_WRITE, kIoctlType, number, sizeof argument), &argument);
}

template <typename Parameters>
std::uint32_t control(int fd, Handle client, Handle object, std::uint32_t command,
                      Parameters& parameters) {
  ControlCall asked{};
  asked.client = client;
  asked.object = object;
  asked.command = command;
  asked.parameters = reinterpret_cast<std::uintptr_t>(&parameters);
  asked.parametersSize = sizeof parameters;
  asked.status = kNoAnswer;
  return call(fd, kEscControl, asked) == 0 ? asked.status : kNoAnswer;
}

int openFile(const char* root, const char* name) {
  char path[512];
  const int n = std::snprintf(path, sizeof path, "%s/dev/%s", root, name);
  if (n < 0 || static_cast<std::size_t>(n) >= sizeof path) return -1;
  return ::open(path, O_RDWR | O_CLOEXEC);
}

}  // namespace

Card::~Card() {
  if (card_ >= 0) ::close(card_);
  if (control_ >= 0) ::close(control_);  // which ends the client
}

const char* Card::openFiles(const char* root, int minor) {
  control_ = openFile(root, "nvidiactl");
  if (control_ < 0) return "/dev/nvidiactl can't be opened";
  if (minor < 0) return nullptr;
  char name[32];
  std::snprintf(name, sizeof name, "nvidia%d", minor);
  card_ = openFile(root, name);
  if (card_ < 0) return "the card's file in /dev can't be opened";
  return call(card_, kEscRegisterFd, control_) == 0 ? nullptr : "the driver takes no file of ours";
}

// The call has two lengths; the short one is enough.
std::uint32_t Card::allocate(Handle parent, Handle name, std::uint32_t objectClass,
                             void* parameters, std::uint32_t size, Handle& made) {
  const AllocForm form = allocForms(layout_).shortForm;
  refused_ = kNoAnswer;
  alignas(8) unsigned char bytes[64] = {};
  AllocCall asked{};
  asked.client = client_;
  asked.parent = parent;
  asked.object = name;
  asked.objectClass = objectClass;
  asked.parameters = reinterpret_cast<std::uintptr_t>(parameters);
  if (form.size == 0 || form.size > sizeof bytes) return kNoAnswer;
  std::memcpy(bytes, &asked, sizeof asked);
  if (form.sizeAt != 0) std::memcpy(bytes + form.sizeAt, &size, sizeof size);
  const unsigned long request = _IOC(_IOC_READ | _IOC_WRITE, kIoctlType, kEscAlloc, form.size);
  if (::ioctl(control_, request, bytes) != 0) return kNoAnswer;
  std::memcpy(&refused_, bytes + form.statusAt, sizeof refused_);
  std::memcpy(&asked, bytes, sizeof asked);
  made = asked.object;
  return refused_;
}

const char* Card::open(const char* root, int minor, const char* uuid, Layout layout) {
  layout_ = layout;
  if (const char* why = openFiles(root, minor)) return why;
  if (allocate(0, 0, kRootClient, nullptr, 0, client_) != kOk) return "the driver gives no client";
  UuidInfo info{};
  const std::size_t length = std::strlen(uuid);
  if (length >= sizeof info.uuid) return "the card's name is too long";
  std::memcpy(info.uuid, uuid, length);
  if (control(control_, client_, client_, kUuidInfo, info) != kOk) {
    return "the driver does not know the card by its UUID";
  }
  return openDevice(root, minor, info.device, layout);
}

const char* Card::openDevice(const char* root, int minor, std::uint32_t device, Layout layout) {
  layout_ = layout;
  if (control_ < 0) {
    if (const char* why = openFiles(root, minor)) return why;
  }
  if (client_ == 0 && allocate(0, 0, kRootClient, nullptr, 0, client_) != kOk) {
    return "the driver gives no client";
  }
  Handle made = 0;
  DeviceParameters parameters{};
  parameters.device = device;
  if (allocate(client_, kOurDevice, kDevice, &parameters, sizeof parameters, made) != kOk) {
    return "the driver gives no device";
  }
  std::uint32_t first = 0;
  if (allocate(kOurDevice, kOurSubdevice, kSubdevice, &first, sizeof first, subdevice_) != kOk) {
    subdevice_ = 0;
    return "the driver gives no subdevice";
  }
  device_ = device;
  return nullptr;
}

std::uint32_t Card::disable(bool off, bool onlyScheduling, const Named* channels,
                            std::uint32_t count) {
  if (!isOpen() || count > kDisabledMax) return kNoAnswer;
  DisableChannels parameters{};
  parameters.disable = off ? 1 : 0;
  parameters.onlyScheduling = off && onlyScheduling ? 1 : 0;
  parameters.count = count;
  for (std::uint32_t i = 0; i < count; ++i) {
    parameters.clients[i] = channels[i].client;
    parameters.channels[i] = channels[i].object;
  }
  return control(control_, client_, subdevice_, kFifoDisableChannels, parameters);
}

std::uint32_t preempt(int fd, Named group, std::uint32_t timeoutUs) {
  Preempt parameters{};
  parameters.wait = 1;
  parameters.ownTimeout = 1;
  parameters.timeoutUs = timeoutUs;
  return control(fd, group.client, group.object, kGroupPreempt, parameters);
}

std::uint32_t restartRunlist(int fd, Named channel) {
  RestartRunlist parameters{1, 0};
  return control(fd, channel.client, channel.object, kChannelRestartRunlist, parameters);
}

std::uint32_t setTimeslice(int fd, Named group, std::uint64_t us) {
  Timeslice parameters{us};
  return control(fd, group.client, group.object, kGroupSetTimeslice, parameters);
}

namespace {

std::uint32_t handleInfo(int fd, Named object, std::uint32_t index, std::uint32_t& result) {
  HandleInfo parameters{object.object, index, 0};
  const std::uint32_t status =
      control(fd, object.client, object.client, kClientHandleInfo, parameters);
  result = status == kOk ? static_cast<std::uint32_t>(parameters.result) : 0;
  return status;
}

}  // namespace

std::uint32_t classOf(int fd, Named object, std::uint32_t& objectClass) {
  return handleInfo(fd, object, kHandleClass, objectClass);
}

std::uint32_t parentOf(int fd, Named object, Handle& parent) {
  return handleInfo(fd, object, kHandleParent, parent);
}

}  // namespace qgpu::rm
