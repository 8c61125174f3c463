#pragma once
// Which descriptors of NVIDIA's control file are one open file. Clients belong to the file, and the
// driver ends them when its last descriptor is closed. A descriptor is learnt when a client is made
// through it, when a known one is duplicated, and when the driver takes a known client's call from
// it, which it does for that client's own file alone. A card's descriptor that was registered with
// a control file refers to it, and keeps it open as its own do. A file of which no descriptor is
// known is held to be open: then charges stay, which harms only their owner. Who copies a
// descriptor past libc, and closes all others before its first use, is taken to have closed it.
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
  static constexpr std::size_t kMost = 1024;  // descriptors

  enum class Way : std::uint8_t { kItself, kReference };

  bool known(int fd) const {
    const auto at = static_cast<std::size_t>(fd);
    return at < kDescriptors && (marks_[at / 64].load(std::memory_order_relaxed) >> at % 64 & 1);
  }
  // The open file of a descriptor, a new one where it is not known; kNone where there is no room.
  std::uint32_t of(int fd);
  // `fd` is a descriptor of that file, or of one that refers to it.
  void learn(int fd, std::uint32_t file, Way way = Way::kItself);
  // `to` is now what `from` is, if that is known.
  void duplicated(int from, int to);
  // Memory of the card ends with that file.
  void holdsMemory(std::uint32_t file);
  // The descriptors that keep such files open; needs no lock in the child of a fork, where what
  // another thread was writing may be missing, or wrong.
  template <typename Visit>
  void eachThatHoldsMemory(Visit visit) const {
    for (const Entry& entry : entries_) {
      if (entry.file != kNone && entry.holdsMemory) visit(entry.fd);
    }
  }
  // The file whose last descriptor is gone with `fd`; kNone: there are more, or it was not known.
  std::uint32_t closed(int fd);
  // A descriptor of the file itself; -1: none is known.
  int descriptorOf(std::uint32_t file) const;
  void forget();

 private:
  static constexpr std::size_t kDescriptors = 65'536;

  struct Entry {
    int fd;
    std::uint32_t file;  // kNone: free
    Way way;
    bool holdsMemory;
  };
  Entry* entryOf(int fd);
  const Entry* firstOf(std::uint32_t file) const;

  Entry entries_[kMost] = {};
  std::uint32_t lastFile_ = kNone;
  std::atomic<std::uint64_t> marks_[kDescriptors / 64] = {};
};

}  // namespace qgpu::rm
