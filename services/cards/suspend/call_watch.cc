#include "services/cards/suspend/call_watch.h"

#include <cstdio>
#include <cstring>
#include <linux/ioctl.h>

namespace qgpu::suspend {
namespace {

using rm::Verb;

// Whether the layout has no such call, though it has others of this number.
bool isStrange(std::uint32_t number, std::uint32_t size, const rm::Call& call) {
  switch (number) {
    case rm::kEscAlloc:
    case rm::kEscAllocMemory:
    case rm::kEscAllocObject:
    case rm::kEscFree:
    case rm::kEscDupObject:
      return call.verb == Verb::kOther;
    case rm::kEscControl:
      return size != sizeof(rm::ControlCall);
    case rm::kEscVidHeapControl:
      return size != sizeof(rm::HeapCall);
    case rm::kEscTransfer:
      return true;  // carried() has read what it carries
    default:
      return false;
  }
}

}  // namespace

int CallWatch::pass(Ioctl real, int fd, unsigned long request, void* argument) {
  if (_IOC_TYPE(request) != rm::kIoctlType || !argument) return real(fd, request, argument);
  std::uint32_t number = _IOC_NR(request), size = _IOC_SIZE(request);
  const rm::Call call = rm::decode(layout_, number, size, argument);
  if (number == rm::kEscTransfer && size == sizeof(rm::TransferCall)) {
    rm::TransferCall carried;
    std::memcpy(&carried, argument, sizeof carried);
    number = carried.number;
    size = carried.size;
  }
  const int rc = real(fd, request, argument);
  if (rc == 0) saw(fd, number, size, call);
  return rc;
}

void CallWatch::saw(int fd, std::uint32_t number, std::uint32_t size, const rm::Call& call) {
  const std::lock_guard lock(mutex_);
  if (isStrange(number, size, call) && strange_.empty()) {
    char text[64];
    std::snprintf(text, sizeof text, "call 0x%x has %u bytes", number, size);
    strange_ = text;
  }
  if (call.verb == Verb::kOther || rm::statusOf(call) != rm::kOk) return;
  if (call.verb == Verb::kAlloc || call.verb == Verb::kDup) made(fd, call);
  if (call.verb != Verb::kFree) return;
  if (rm::Object* top = objects_.takeOut(call.client, call.object)) {
    rm::Objects::end(top, ended, this);
  }
}

// With the mutex held. A client has its descriptor in the place of its file.
void CallWatch::made(int fd, const rm::Call& call) {
  const bool isClient = call.verb == Verb::kAlloc && rm::isClient(call.objectClass);
  rm::Objects::Made made;
  made.handle = rm::madeBy(call);
  made.client = isClient ? made.handle : call.client;
  made.parent = call.parent;
  made.objectClass = call.objectClass;
  made.file = isClient ? static_cast<std::uint32_t>(fd) + 1 : 0;
  if (call.sourceObject != 0) {
    objects_.duplicate(made, call.sourceClient, call.sourceObject, ended, this);
    return;
  }
  made.bytes = rm::bytesTaken(call);
  if (objects_.add(made, ended, this) != nullptr) held_ += made.bytes;
}

void CallWatch::ended(const rm::Object&, const rm::Memory* freed, void* watch) {
  if (freed != nullptr) static_cast<CallWatch*>(watch)->held_ -= freed->bytes;
}

std::uint64_t CallWatch::held() {
  const std::lock_guard lock(mutex_);
  return held_;
}

std::string CallWatch::strange() {
  const std::lock_guard lock(mutex_);
  return strange_;
}

std::vector<CallWatch::Known> CallWatch::known() {
  const std::lock_guard lock(mutex_);
  struct Found {
    const rm::Objects& objects;
    std::vector<Known> all;
  } found{objects_, {}};
  const auto visit = [](const rm::Object& object, void* to) {
    auto& out = *static_cast<Found*>(to);
    const std::uint32_t kind = object.objectClass;
    if (!object.memory && kind != rm::kChannelGroup && !rm::isChannel(kind)) return;
    const rm::Object* client = out.objects.find(object.client, object.client);
    const int fd = client ? static_cast<int>(client->file) - 1 : -1;
    out.all.push_back({fd, object.client, object.handle, object.parentHandle, kind,
                       object.memory ? object.memory->bytes : 0});
  };
  objects_.each(visit, &found);
  return std::move(found.all);
}

}  // namespace qgpu::suspend
