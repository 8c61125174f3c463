#pragma once
// Which files are NVIDIA's, told by what fstat() says of them and never by a name that they were
// opened by; and how the child of a fork lets go of those that it only inherited. The driver holds
// a process's memory of the card until the last reference to its files is gone: a worker that was
// forked and outlives a killed parent would keep all of it, uncounted, where others are given the
// room. It could not use it: CUDA does not survive a fork.
//
// A file is referenced by its descriptors, by those of the cards that were registered with it, and
// by what is mapped through those; and files and dma-bufs that memory was exported to hold it, too.
// In the child all those descriptors become /dev/null under the same numbers, and such maps become
// empty memory at the same addresses, so nothing there is closed, taken or touched twice. What the
// control file maps is memory of the host, which a child may read. What is mapped of unified memory
// the driver lets no child touch, and so does what replaces it: a child that reads it is ended, as
// without this library, and is not told zeros.
//
// Everything here is for the child of a fork in a program with threads: no locks and no heap.

#include <cstddef>

namespace qgpu::guest {

enum class FileClass { kForeign, kControl, kCard };
FileClass classOf(int fd);

// The driver's second module, for unified memory: it holds what is mapped there, too.
bool isUnifiedMemory(int fd);

// A file that the driver makes of memory for other drivers, and that holds that memory.
bool isDmaBuf(int fd);

// The version of the driver's module that is loaded, as sysfs tells it, with a NUL behind it.
// False: it is not told here.
bool readModuleVersion(char* text, std::size_t size);

class Inherited {
 public:
  Inherited() = default;
  ~Inherited();
  Inherited(const Inherited&) = delete;
  Inherited& operator=(const Inherited&) = delete;

  // Replaces one descriptor, if it still is the driver's.
  void drop(int fd);
  // What was mapped of the files whose descriptors were dropped, but for the control file's.
  void dropMaps() const;

 private:
  static constexpr int kFilesMost = 64;

  struct File {
    unsigned long device, inode;
    int rights;  // that its maps have afterwards, as mmap() takes them
  };
  void remember(int fd, int rights);
  const File* find(unsigned long device, unsigned long inode) const;

  File files_[kFilesMost] = {};
  int count_ = 0, nothing_ = -1;
};

}  // namespace qgpu::guest
