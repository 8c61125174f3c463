#pragma once
// The manager of an end-to-end test: in a private folder, spoken to through the admin socket as a
// user of socat would. What it says is shown where a test fails; it ends with the object.

#include <memory>
#include <string>
#include <vector>

#include "tests/e2e/processes.h"

namespace qgpu::e2e {

class Manager {
 public:
  // Starts qgpu-manager with these arguments besides its own folder, and waits until it serves.
  explicit Manager(std::vector<std::string> arguments, Environment environment = {});
  ~Manager();

  void start();                    // again, after kill() or stop()
  void kill();                     // SIGKILL, reaped
  int stop();                      // SIGTERM; the exit status
  bool alive() { return child_ && child_->alive(); }
  pid_t pid() const { return child_->pid(); }
  std::string log() const { return child_ ? child_->output() : ""; }

  std::string runDir() const { return dir_.path() + "/run"; }
  std::string socket() const { return runDir() + "/manager.sock"; }
  std::string database() const { return dir_.path() + "/meta.db"; }

  Json ask(const std::string& line);   // the admin socket's answer; fails the test if there is none
  Json tasks() { return ask("tasks")["tasks"]; }
  Json cards() { return ask("cards")["cards"]; }
  Json task(const std::string& name);  // null when there is none of this name

  // qgpuctl run with these arguments, e.g. {"--name", "a", "--", "program"}.
  std::unique_ptr<Child> runTask(std::vector<std::string> arguments, Environment extra = {});

 private:
  TempDir dir_;
  std::vector<std::string> arguments_;
  Environment environment_;
  std::unique_ptr<Child> child_;
};

}  // namespace qgpu::e2e
