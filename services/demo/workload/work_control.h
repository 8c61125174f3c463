#pragma once
// When the workload runs: until a deadline, a signal, or a word on stdin. "pause" lets what is in
// flight finish and submits no more, "go" continues, "mark" notes how much is done by now, "end"
// and end of file stop. Whoever starts a workload with a pipe as its stdin thus takes it along when
// it dies itself.

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "services/demo/workload/work_report.h"

namespace qgpu::demo {

class WorkControl {
 public:
  // From now on SIGTERM and SIGINT end the work, also before it began, and no more the process.
  static void takeSignals();
  // untilNs: CLOCK_MONOTONIC, INT64_MAX for none.
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

  // One more kernel is done, checked and right, of so many loops. After the first, who reads stdin
  // says "ready" on stderr: from then on nothing is compiled any more.
  void finished(std::uint64_t loops);
  // Notes how much is done by now, as the word on stdin does; and all that was noted so far.
  void mark();
  std::vector<Mark> marks() const;

 private:
  enum class Word { Go, Pause, End };
  void readWords();
  void say(Word word);

  const std::int64_t untilNs_;
  int wake_[2] = {-1, -1};  // a pipe that ends the reader; its write end is closed at the end
  mutable std::mutex lock_;
  std::condition_variable changed_;
  std::atomic<std::uint64_t> loops_{0};
  std::vector<Mark> marks_;
  Word word_ = Word::Go;
  std::thread reader_;
};

}  // namespace qgpu::demo
