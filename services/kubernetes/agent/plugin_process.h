#pragma once
// qgpu-kubelet-plugin as a child of the manager: started, started again when it ends, with a pause
// that grows while it does not last, and ended with the manager, however that ends.

#include <string>
#include <sys/types.h>
#include <vector>

#include "runtime/log.h"
#include "runtime/loop.h"

namespace qgpu {

class PluginProcess {
 public:
  static constexpr Nanos kPauseMin = millis(100);
  static constexpr Nanos kPauseMax = seconds(5);
  static constexpr Nanos kLasted = seconds(10);  // a life that starts the pauses anew
  static constexpr Nanos kGrace = seconds(2);    // from SIGTERM to SIGKILL

  // `argv`: the program and its arguments; "--parent=PID" is added.
  PluginProcess(Loop& loop, Log& log, std::vector<std::string> argv);
  PluginProcess(const PluginProcess&) = delete;
  PluginProcess& operator=(const PluginProcess&) = delete;
  ~PluginProcess();  // ends it, and waits

  void start();

 private:
  void onDeath();
  void startLater();

  Loop& loop_;
  Log& log_;
  std::vector<std::string> argv_;
  pid_t pid_ = -1;
  int pidfd_ = -1;
  FdWatch death_;
  Nanos startedAt_{0};
  Nanos pause_ = kPauseMin;
  Loop::TimerKey timer_ = 0;
};

}  // namespace qgpu
