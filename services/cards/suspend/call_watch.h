#pragma once
// What this program asks of NVIDIA's kernel driver, read in one layout as libqgpu.so reads it
// (services/guest/rm): the objects that it has there, and the card's memory that they take. It is
// for a trial of that layout, so it also says which call has a form that the layout does not know.
// The program's ioctl() passes each call here, from any thread.

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "services/nvidia_abi/rm_decode.h"
#include "services/nvidia_abi/rm_objects.h"

namespace qgpu::suspend {

class CallWatch {
 public:
  using Ioctl = int (*)(int, unsigned long, ...);

  explicit CallWatch(rm::Layout layout) : layout_(layout) {}
  CallWatch(const CallWatch&) = delete;
  CallWatch& operator=(const CallWatch&) = delete;

  rm::Layout layout() const { return layout_; }
  // Makes the call by `real`, and reads it.
  int pass(Ioctl real, int fd, unsigned long request, void* argument);

  std::uint64_t held();  // bytes of the card
  // Memory of the card, channels and their groups.
  struct Known {
    int fd;  // of the client's open file; -1: not known
    rm::Handle client, object, parent;
    std::uint32_t objectClass;
    std::uint64_t bytes;  // 0: it is no memory

    bool operator==(const Known&) const = default;
  };
  std::vector<Known> known();
  // The first call that makes, names or ends objects and is none in this layout, in words; empty:
  // there was none.
  std::string strange();

 private:
  void saw(int fd, std::uint32_t number, std::uint32_t size, const rm::Call& call);
  void made(int fd, const rm::Call& call);
  static void ended(const rm::Object& object, const rm::Memory* freed, void* watch);

  const rm::Layout layout_;
  std::mutex mutex_;  // of all below
  rm::Objects objects_;
  std::uint64_t held_ = 0;
  std::string strange_;
};

}  // namespace qgpu::suspend
