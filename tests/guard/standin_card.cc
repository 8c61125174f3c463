#include "tests/guard/standin_card.h"

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <linux/ioctl.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace qgpu::testing {
namespace {

int askForTests(unsigned number, void* argument) {
  const Fd file(::open(kStandinNode, O_RDWR | O_CLOEXEC));
  return ::ioctl(file.get(), _IOC(_IOC_READ, 'Q', number, 8), argument);
}

rm::Handle chosen(rm::Handle handle) {
  static std::atomic<rm::Handle> last{0x5c100000};
  return handle != 0 ? handle : ++last;
}

int statusOf(int rc, std::uint32_t status) {
  return rc != 0 ? rc : static_cast<int>(status);
}

}  // namespace

bool loadStandin(const std::string& file) {
  if (::access(kStandinNode, F_OK) == 0) return true;
  const Fd module(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  if (!module || ::syscall(SYS_finit_module, module.get(), "", 0) != 0) return false;
  return ::access(kStandinNode, F_OK) == 0;
}

std::uint64_t standinGiven() {
  std::uint64_t bytes = 0;
  return askForTests(1, &bytes) == 0 ? bytes : ~std::uint64_t{0};
}

void standinWaits() {
  if (askForTests(2, nullptr) != 0) std::abort();
}

void awaitStandinWaiting() {
  if (askForTests(3, nullptr) != 0) std::abort();
}

void standinGoesOn() {
  if (askForTests(4, nullptr) != 0) std::abort();
}

StandinFile::StandinFile() : file_(::open(kStandinNode, O_RDWR | O_CLOEXEC)) {
  if (file_ && makeClient() == 0) {
    rm::Handle device = kDeviceName;
    if (make(client_, device, rm::kDevice) == 0) return;
  }
  std::perror(kStandinNode);
  ::_exit(252);
}

int StandinFile::call(std::uint32_t number, void* argument, std::uint32_t size, char type) const {
  const unsigned long request = _IOC(_IOC_READ | _IOC_WRITE, type, number, size);
  return ::syscall(SYS_ioctl, file_.get(), request, argument) == 0 ? 0 : -errno;
}

int StandinFile::holdForUnified(rm::Handle object, rm::Handle& name) const {
  rm::Handle words[] = {client_, object, 0};
  const int rc = call(5, words, sizeof words, 'Q');
  name = words[2];
  return rc;
}

int StandinFile::letGoForUnified(rm::Handle name) const {
  rm::Handle words[] = {0, 0, name};
  return call(6, words, sizeof words, 'Q');
}

int StandinFile::makeClient() {
  StandinAlloc made{};
  made.head.objectClass = rm::kRootClient;
  const int rc = call(rm::kEscAlloc, &made, sizeof made);
  client_ = made.head.object;
  return statusOf(rc, made.status);
}

int StandinFile::make(rm::Handle parent, rm::Handle& handle, std::uint32_t objectClass) {
  StandinAlloc made{};
  made.head = {client_, parent, handle, objectClass, 0};
  const int rc = call(rm::kEscAlloc, &made, sizeof made);
  handle = made.head.object;
  return statusOf(rc, made.status);
}

int StandinFile::alloc(rm::Handle parent, rm::Handle& handle, std::uint64_t bytes,
                       std::uint32_t flags) {
  StandinMemory memory;
  memory.known.size = bytes;
  memory.known.flags = flags;
  StandinAlloc made{};
  made.head = {client_, parent, chosen(handle), rm::kLocalMemory,
               reinterpret_cast<std::uintptr_t>(&memory)};
  made.parametersSize = sizeof memory;
  const int rc = call(rm::kEscAlloc, &made, sizeof made);
  handle = made.head.object;
  return statusOf(rc, made.status);
}

int StandinFile::free(rm::Handle handle) {
  rm::FreeCall freed{client_, 0, handle, 0};
  const int rc = call(rm::kEscFree, &freed, sizeof freed);
  return statusOf(rc, freed.status);
}

int StandinFile::heapAlloc(std::uint32_t function, rm::Handle& handle, std::uint64_t bytes,
                           std::uint32_t attributes) {
  rm::HeapCall heap{};
  heap.client = client_;
  heap.parent = kDeviceName;
  heap.function = function;
  heap.bySize.object = chosen(handle);
  heap.bySize.flags = 0x4000;  // which is so
  if (function == rm::kHeapAllocSize) {
    heap.bySize.size = bytes;
    heap.bySize.attributes = attributes;
  } else if (function == rm::kHeapAllocRange) {
    heap.inRange.size = bytes;
    heap.inRange.attributes = attributes;
  } else {
    heap.tiled.height = 64;
    heap.tiled.pitch = static_cast<std::int32_t>(bytes / 64);
    heap.tiled.attributes = attributes;
  }
  const int rc = call(rm::kEscVidHeapControl, &heap, sizeof heap);
  handle = heap.bySize.object;
  return statusOf(rc, heap.status);
}

int StandinFile::heapFree(rm::Handle handle) {
  rm::HeapCall heap{};
  heap.client = client_;
  heap.parent = kDeviceName;
  heap.function = rm::kHeapFree;
  heap.freed.object = handle;
  const int rc = call(rm::kEscVidHeapControl, &heap, sizeof heap);
  return statusOf(rc, heap.status);
}

int StandinFile::duplicate(const StandinFile& from, rm::Handle source, rm::Handle& handle) {
  rm::DupCall dup{client_, kDeviceName, handle, from.client(), source, 0, 0};
  const int rc = call(rm::kEscDupObject, &dup, sizeof dup);
  handle = dup.object;
  return statusOf(rc, dup.status);
}

int StandinFile::control(std::uint32_t command, void* parameters, std::uint32_t size) {
  rm::ControlCall control{
      client_, client_, command, 0, reinterpret_cast<std::uintptr_t>(parameters), size, 0};
  const int rc = call(rm::kEscControl, &control, sizeof control);
  return statusOf(rc, control.status);
}

int StandinFile::exportTo(int fd, rm::Handle handle) {
  rm::ExportOne one{1, kDeviceName, kDeviceName, handle, fd, 0};
  return control(rm::kExportOne, &one, sizeof one);
}

int StandinFile::importFrom(int fd, rm::Handle& handle) {
  rm::ImportOne one{fd, 1, kDeviceName, kDeviceName, handle};
  const int status = control(rm::kImportOne, &one, sizeof one);
  handle = one.object;
  return status;
}

int StandinFile::carried(std::uint32_t number, void* argument, std::uint32_t size) {
  rm::TransferCall carrier{number, size, reinterpret_cast<std::uintptr_t>(argument)};
  return call(rm::kEscTransfer, &carrier, sizeof carrier);
}

}  // namespace qgpu::testing
