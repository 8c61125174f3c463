#pragma once
// A disk in memory under SQLite: it counts I/O, runs out of space, fails reads, writes and fsyncs,
// and loses what was not synced when the power is cut. It exists so that a test can crash at every
// single I/O of a run (D1) and fill a disk (D4), which no real disk offers on demand. Everything it
// does follows from its calls and seeds.
//
// Fast enough for a simulator: no look-up by name and no allocation per I/O, a sync costs nothing.

#include <array>
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
  enum class Op : std::uint8_t { Read, Write, Truncate, Sync, Delete };
  static constexpr std::uint64_t kForever = UINT64_MAX;

  // Registers itself with SQLite under `name`; one at a time may have a name.
  explicit MemoryDisk(std::string name);
  ~MemoryDisk();
  MemoryDisk(const MemoryDisk&) = delete;
  MemoryDisk& operator=(const MemoryDisk&) = delete;

  const char* vfs() const { return name_.c_str(); }

  // Bytes that all files may have together; a write beyond them fails with SQLITE_FULL.
  void setCapacity(std::int64_t bytes);
  // The next `times` operations of this kind fail with an I/O error and change nothing.
  void fail(Op op, std::uint64_t times = kForever);
  // No operation fails any more. The capacity stays.
  void mend();

  // The I/O with this number (writes, truncations, syncs, deletions, counted from 1) and all after
  // it fail, as if the process had ended there.
  void crashAt(std::uint64_t io);
  // No I/O reaches the disk any more: the process is dead, what it still calls does not count.
  void crashNow();
  // An I/O has failed for crashAt() or crashNow().
  bool crashed() const;
  std::uint64_t ioCount() const;
  // What the next process finds after a crash of the process alone: all that was written.
  void restart();
  // What a machine finds after a power cut: of each write that was not synced nothing, all, or
  // some sectors, one of them torn; of each name that was not synced the file or none. `seed`
  // chooses. Faults are mended.
  void powerCut(std::uint64_t seed);
  // Deletes every file, as an operator would while no process runs.
  void wipe();

  std::int64_t used() const;

  // --- for the layer below; `int` is SQLite's result ---
  struct File;
  bool exists(const std::string& path) const;
  File& create(const std::string& path);
  int remove(const std::string& path, bool synced);
  int read(const File& file, void* into, int size, std::int64_t offset);
  int write(File& file, const void* from, int size, std::int64_t offset);
  int truncate(File& file, std::int64_t size);
  int sync(File& file);
  std::int64_t size(const File& file) const;

  // A write, or a truncation (no bytes written) to `offset`.
  struct Change {
    std::size_t offset = 0;
    std::size_t written = 0;   // bytes
    std::size_t replaced = 0;  // bytes that were there before
    std::size_t sizeBefore = 0;
    std::size_t at = 0;  // in File::kept: what was replaced, then what was written
  };
  struct File {
    std::vector<unsigned char> now;
    std::vector<Change> unsynced;      // since the last sync, oldest first
    std::vector<unsigned char> kept;   // bytes of `unsynced`
    std::vector<unsigned char> ghost;  // content of its forerunner, whose deletion was not synced
    bool exists = false;
    bool nameSynced = false;
    bool hasGhost = false;
  };

 private:
  bool dies();
  bool failsNow(Op op);
  void setSize(File& file, std::size_t size);
  void undo(File& file);
  void redoSome(File& file, const Change& change, const std::vector<unsigned char>& kept,
                std::uint64_t& seed);
  void cutName(File& file, std::uint64_t& seed);
  void syncNames();

  const std::string name_;
  sqlite3_vfs vfs_ = {};
  mutable std::mutex mutex_;
  std::map<std::string, File> files_;  // a removed one stays, without content
  std::int64_t used_ = 0;
  std::int64_t capacity_ = INT64_MAX;
  std::uint64_t ioCount_ = 0;
  std::uint64_t crashAt_ = kForever;
  bool crashed_ = false;
  std::array<std::uint64_t, 5> failing_{};  // by Op: how many more fail
};

}  // namespace qgpu
