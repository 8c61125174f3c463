#pragma once
// One card as a client of NVIDIA's kernel driver sees it, for taking channels off its hardware and
// putting them back: the manager's for those of its tasks, and a program's own for its own channels
// when the manager is lost. No CUDA is needed. A channel is named by its client and handle, and
// whose they are the driver does not ask: who calls disable() must know. classOf() is how to know:
// the driver answers a control on a client only through that client's own open file.
//
// Plain C++ without the standard library, since it is part of libqgpu.so.

#include "services/nvidia_abi/rm_controls.h"

namespace qgpu::rm {

inline constexpr std::uint32_t kNoAnswer = ~0u;  // the call itself failed

// The driver has not looked, or not to the end: it is busy, or has no memory.
constexpr bool mayPass(std::uint32_t status) {
  constexpr std::uint32_t kBusy = 0x03, kTimeout = 0x65, kTimeoutRetry = 0x66;
  return status == kNoAnswer || status == kNoMemory || status == kBusy || status == kTimeout ||
         status == kTimeoutRetry;
}

struct Named {
  Handle client, object;
};

class Card {
 public:
  // `root` stands before /dev (empty but in tests), `minor` is the card's number there; -1: its
  // file need not be opened, since the process has it open already. Null; or what failed, as text.
  const char* open(const char* root, int minor, const char* uuid, Layout layout);
  // The same by the driver's number of the card.
  const char* openDevice(const char* root, int minor, std::uint32_t device, Layout layout);
  Card() = default;
  Card(const Card&) = delete;
  Card& operator=(const Card&) = delete;
  ~Card();

  bool isOpen() const { return subdevice_ != 0; }
  // Of one that could not be opened: another try may do it. False: the driver has no such card.
  bool mayOpenLater() const { return mayPass(refused_); }
  std::uint32_t device() const { return device_; }  // the driver's number of the card

  // Takes up to kDisabledMax channels off, or puts them back. The driver's status; kNoAnswer.
  std::uint32_t disable(bool off, bool onlyScheduling, const Named* channels, std::uint32_t count);

 private:
  const char* openFiles(const char* root, int minor);
  std::uint32_t allocate(Handle parent, Handle name, std::uint32_t objectClass, void* parameters,
                         std::uint32_t size, Handle& made);

  int control_ = -1, card_ = -1;
  Layout layout_ = Layout::kUnknown;
  Handle client_ = 0, subdevice_ = 0;
  std::uint32_t refused_ = kNoAnswer;  // the status of what was asked of the driver last to open it
  std::uint32_t device_ = ~0u;
};

// On an open control file of the client that is named: a descriptor of its process, duplicated.
std::uint32_t preempt(int fd, Named group, std::uint32_t timeoutUs);
std::uint32_t restartRunlist(int fd, Named channel);
std::uint32_t setTimeslice(int fd, Named group, std::uint64_t us);
// What class an object of the client is.
std::uint32_t classOf(int fd, Named object, std::uint32_t& objectClass);
// Beneath which it lies.
std::uint32_t parentOf(int fd, Named object, Handle& parent);

}  // namespace qgpu::rm
