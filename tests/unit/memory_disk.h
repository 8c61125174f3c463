#pragma once
// A disk in memory under SQLite: it counts I/O, runs out of space, fails an fsync, and loses what
// was not synced when the power is cut. It exists so that a test can crash at every single I/O of
// a run (D1) and fill a disk (D4), which no real disk offers on demand.

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <sqlite3.h>
#include <string>
#include <vector>

namespace qgpu {

class MemoryDisk {
 public:
  // Registers itself with SQLite under `name`; one at a time may have a name.
  explicit MemoryDisk(std::string name);
  ~MemoryDisk();
  MemoryDisk(const MemoryDisk&) = delete;
  MemoryDisk& operator=(const MemoryDisk&) = delete;

  const char* vfs() const { return name_.c_str(); }

  // Bytes that all files may have together.
  void setCapacity(std::int64_t bytes);
  // From now on each fsync fails.
  void failSync();
  // The I/O with this number (writes, truncations, syncs, deletions) and all after it fail.
  void crashAt(std::uint64_t io);
  std::uint64_t ioCount() const;
  // What a machine finds after a power cut: of each write that was not synced, some sectors,
  // chosen by `seed`. Works again afterwards.
  void powerCut(std::uint64_t seed);

  // For the layer below; `code` is SQLite's result where the I/O must not happen.
  struct Write {
    std::int64_t offset;
    std::vector<unsigned char> bytes;  // empty: a truncation to `offset`
  };
  struct File {
    std::vector<unsigned char> now;
    std::vector<unsigned char> durable;
    std::vector<Write> unsynced;
  };
  bool exists(const std::string& path) const;
  void create(const std::string& path);
  int remove(const std::string& path);
  int read(const std::string& path, void* into, int size, std::int64_t offset) const;
  int write(const std::string& path, const void* from, int size, std::int64_t offset);
  int truncate(const std::string& path, std::int64_t size);
  int sync(const std::string& path);
  std::int64_t size(const std::string& path) const;

 private:
  bool crashes();
  std::int64_t used() const;

  const std::string name_;
  sqlite3_vfs vfs_ = {};
  mutable std::mutex mutex_;
  std::map<std::string, File> files_;
  std::int64_t capacity_ = INT64_MAX;
  std::uint64_t ioCount_ = 0;
  std::uint64_t crashAt_ = UINT64_MAX;
  bool syncFails_ = false;
};

}  // namespace qgpu
