#pragma once
// A daemon of the run: killed, stopped and started again at will, with all that its lives printed
// in one file. Of one thread, since children end with the thread that started them.

#include <memory>
#include <string>
#include <vector>

#include "tests/testing/child_process.h"

namespace qgpu::chaos {

class Process {
 public:
  Process(std::vector<std::string> argv, testing::Environment environment, std::string logFile)
      : argv_(std::move(argv)),
        environment_(std::move(environment)),
        logFile_(std::move(logFile)) {}
  ~Process() { end(); }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  void launch();
  void kill();
  void pause();
  void resume();
  bool alive() { return child_ && child_->alive(); }
  // Neither running nor to be: a fault has it.
  bool isHeldDown() const { return heldDown_; }
  void holdDown(bool is) { heldDown_ = is; }
  // Ends that no fault made: a scheduler that lost its seat, an etcd whose disk is full.
  std::size_t ownEnds() const { return ownEnds_; }
  // Starts it again where it ended by itself at least a second ago, as systemd would.
  void keepUp(std::int64_t now);

 private:
  void end();

  const std::vector<std::string> argv_;
  const testing::Environment environment_;
  const std::string logFile_;
  std::unique_ptr<testing::Child> child_;
  bool heldDown_ = false;
  std::int64_t endedAt_ = 0;  // seen; 0: it runs
  std::size_t ownEnds_ = 0;
};

}  // namespace qgpu::chaos
