#pragma once
// Writes the recordings of a daemon into a folder, a file for each life, on a thread of its own:
//
//   FOLDER/scheduler-20261125T140300.123-4711.recording       mode 0600
//
// Who records never waits for the disk. What is not written yet lies in memory; where that grows
// beyond its bound the recording stops, as it does where the disk is full or fails. The daemon goes
// on, and is told once. All recordings of the folder together have a bound: the oldest files go,
// and one that fills it alone stops.

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "runtime/fd.h"
#include "services/replay/recorder.h"

namespace qgpu {

class RecordingWriter final : public RecordSink {
 public:
  struct Limits {
    std::uint64_t folderBytes = 1UL << 30U;
    std::size_t pendingBytes = 64UL << 20U;  // in memory
  };
  // Told once, on the writer's thread, why nothing more is recorded.
  using Stopped = std::function<void(const std::string& why)>;

  // Makes the folder where its parent is there, and claims it. Errors name it: it can't be written
  // to, or another process records there.
  static Result<std::unique_ptr<RecordingWriter>> open(const std::string& folder, Limits limits);
  // Writes that the recording ended, and all that came before.
  ~RecordingWriter();
  RecordingWriter(const RecordingWriter&) = delete;
  RecordingWriter& operator=(const RecordingWriter&) = delete;

  // Begins the file, with these records in it. Once, before anything is put.
  Status begin(const std::vector<Words>& records, std::int64_t unixMs, Stopped stopped);
  const std::string& path() const { return path_; }

  // RecordSink, for one thread.
  bool takes() const override { return takes_.load(std::memory_order_relaxed); }
  void put(Words record) override;

 private:
  RecordingWriter(std::string folder, Fd claimed, Limits limits);
  void listOthers();
  Status makeFile(std::int64_t unixMs);
  void run();
  Status write(std::string& batch);
  bool makeRoom(std::uint64_t bytes);
  void writeEnded(const std::string& why);

  const std::string folder_;
  const Fd claimed_;
  const Limits limits_;
  Stopped stopped_;
  std::string path_;
  Fd file_;
  std::atomic<bool> takes_{false};

  // The writer's.
  struct Other {
    std::string path;
    std::uint64_t bytes = 0;
  };
  std::deque<Other> others_;  // recordings of earlier lives, the oldest first
  std::uint64_t otherBytes_ = 0;
  std::uint64_t written_ = 0;  // of this file
  std::uint32_t sum_ = 0;

  std::mutex mutex_;
  std::condition_variable wake_;
  std::string pending_;  // records without sums
  bool idle_ = false;    // the thread waits
  bool tooSlow_ = false;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace qgpu
