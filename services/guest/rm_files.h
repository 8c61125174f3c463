#pragma once
// Which descriptors of NVIDIA's control file are one open file. Clients belong to the file, and the
// driver ends them when its last descriptor is closed. A descriptor is learnt when a client is made
// through it, when a known one is duplicated, and when the driver takes a known client's call from
// it, which it does for that client's own file alone. What is not known is held to be open: then
// charges stay, which harms only their owner.
//
// known() may be asked from anywhere, at any time; for the rest the caller has the lock.

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace qgpu::rm {

class Files {
 public:
  // No number of a file: nothing is known of it, and it is never seen closed.
  static constexpr std::uint32_t kNone = 0;

  bool known(int fd) const {
    const auto at = static_cast<std::size_t>(fd);
    return at < kDescriptors && (marks_[at / 64].load(std::memory_order_relaxed) >> at % 64 & 1);
  }
  // The open file of a descriptor, a new one where it is not known; kNone where there is no room.
  std::uint32_t of(int fd);
  // `fd` is a descriptor of that file.
  void learn(int fd, std::uint32_t file);
  // The file whose last descriptor is gone with `fd`; kNone: there are more, or it was not known.
  std::uint32_t closed(int fd);
  // A descriptor of the file; -1: none is known.
  int descriptorOf(std::uint32_t file) const;
  void forget();

 private:
  static constexpr std::size_t kDescriptors = 65'536;
  static constexpr std::size_t kMost = 256;

  struct Entry {
    int fd;
    std::uint32_t file;  // kNone: free
  };
  Entry* entryOf(int fd);

  Entry entries_[kMost] = {};
  std::uint32_t lastFile_ = kNone;
  std::atomic<std::uint64_t> marks_[kDescriptors / 64] = {};
};

}  // namespace qgpu::rm
