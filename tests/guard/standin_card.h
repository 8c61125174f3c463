#pragma once
// A program's side of the driver that stands in for NVIDIA's (tests/guard/driver): the calls that
// move memory, made past libc and past any library, as who wants to leave it out would.

#include <cstdint>
#include <string>

#include "runtime/fd.h"
#include "services/nvidia_abi/rm_abi.h"

namespace qgpu::testing {

inline constexpr const char* kStandinNode = "/dev/standin";
inline constexpr std::uint64_t kMiB = 1 << 20;

// Loads the driver from `file`, where it is not loaded. False: that can't be here.
bool loadStandin(const std::string& file);

// What the driver has given to all, by its own account.
std::uint64_t standinGiven();

// The next call of whoever it is waits in the driver before that reads it, until it may go on.
void standinWaits();
void awaitStandinWaiting();
void standinGoesOn();

// An open control file with a client and a device beneath it. What fails ends the process.
class StandinFile {
 public:
  StandinFile();

  // Each: the driver's status, or minus the error of the call. A handle of 0 lets the driver choose
  // it; for memory one is chosen here, as NVIDIA's libraries do it.
  int makeClient();
  int make(rm::Handle parent, rm::Handle& handle, std::uint32_t objectClass);
  int alloc(rm::Handle parent, rm::Handle& handle, std::uint64_t bytes, std::uint32_t flags = 0);
  int free(rm::Handle handle);
  int heapAlloc(std::uint32_t function, rm::Handle& handle, std::uint64_t bytes,
                std::uint32_t attributes = 0);
  int heapFree(rm::Handle handle);
  int duplicate(const StandinFile& from, rm::Handle source, rm::Handle& handle);
  int exportTo(int fd, rm::Handle handle);
  int importFrom(int fd, rm::Handle& handle);
  int control(std::uint32_t command, void* parameters, std::uint32_t size);
  // `number` with the call's bytes, through the call that carries others.
  int carried(std::uint32_t number, void* call, std::uint32_t size);

  // As the driver takes it, by the plain system call. Minus the error, else 0. The driver looks at
  // no type.
  int call(std::uint32_t number, void* argument, std::uint32_t size, char type = 'F') const;
  // What the module of unified memory does when a program maps an object.
  int holdForUnified(rm::Handle object, rm::Handle& name) const;
  int letGoForUnified(rm::Handle name) const;

  int fd() const { return file_.get(); }
  void close() { file_.reset(); }
  rm::Handle client() const { return client_; }
  static constexpr rm::Handle kDeviceName = 0xd0000001;

 private:
  Fd file_;
  rm::Handle client_ = 0;
};

// The long form of the call that makes an object, of 535 and later.
struct StandinAlloc {
  rm::AllocCall head;
  std::uint64_t rights = 0;
  std::uint32_t parametersSize = 0, flags = 0, status = 0, pad = 0;
};
static_assert(sizeof(StandinAlloc) == 48);

// 128 bytes: what the driver copies.
struct StandinMemory {
  rm::MemoryParameters known{};
  std::uint8_t rest[56] = {};
};
static_assert(sizeof(StandinMemory) == 128);

}  // namespace qgpu::testing
