#pragma once
// When the workload runs: until a deadline, a signal, or a word on stdin. "pause" lets what is in
// flight finish and submits no more, "go" continues, "end" and end of file stop. Whoever starts a
// workload with a pipe as its stdin thus takes it along when it dies itself.

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

namespace qgpu::demo {

class WorkControl {
 public:
  // untilNs: CLOCK_MONOTONIC, INT64_MAX for none. SIGTERM and SIGINT end the work.
  WorkControl(bool readStdin, std::int64_t untilNs);
  ~WorkControl();
  WorkControl(const WorkControl&) = delete;
  WorkControl& operator=(const WorkControl&) = delete;

  bool ended() const;
  bool paused() const;
  // Sleeps for `ns` or until the end. Returns false at the end.
  bool sleep(std::int64_t ns);
  // Returns when not paused any more, or at the end (false).
  bool awaitGo();

 private:
  enum class Word { Go, Pause, End };
  void readWords();
  void say(Word word);

  const std::int64_t untilNs_;
  int wake_[2] = {-1, -1};  // a pipe that ends the reader; its write end is closed at the end
  mutable std::mutex lock_;
  std::condition_variable changed_;
  Word word_ = Word::Go;
  std::thread reader_;
};

}  // namespace qgpu::demo
