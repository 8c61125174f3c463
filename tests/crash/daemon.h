#pragma once
// A real qgpu-manager that is started, killed and started again on the same folder. What it answers
// is JSON; no answer is a fact to be told, since the tests take the manager away while they ask.

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/crash/bindings.h"
#include "tests/e2e/processes.h"

namespace qgpu::crash {

using e2e::Json;
using std::chrono::milliseconds;

struct DaemonPlan {
  std::string runDir;
  std::string database;
  std::vector<std::string> arguments;   // besides folder, database and sockets
  e2e::Environment environment;
};

class Daemon {
 public:
  explicit Daemon(DaemonPlan plan) : plan_(std::move(plan)) {}

  void launch();                                  // returns before it serves
  void awaitService(milliseconds limit = std::chrono::seconds(20));   // or a Violation
  void start() { launch(), awaitService(); }
  void kill();                                    // SIGKILL, reaped
  int stop();                                     // SIGTERM; its exit status
  void signal(int number) const { child_->signal(number); }
  bool alive() { return child_ && child_->alive(); }
  std::optional<int> wait(milliseconds limit) { return child_->wait(limit); }
  pid_t pid() const { return child_->pid(); }
  std::string said() const { return child_ ? child_->output() : ""; }

  std::string socket() const { return plan_.runDir + "/manager.sock"; }
  std::string attachSocket() const { return plan_.runDir + "/attach.sock"; }
  const std::string& database() const { return plan_.database; }

  // Null where there was no answer within `limit`.
  Json tryAsk(const std::string& line, milliseconds limit = std::chrono::seconds(10)) const;
  // A Violation where there was none, or it says no.
  Json ask(const std::string& line) const;
  std::vector<Listed> list() const;

 private:
  DaemonPlan plan_;
  std::unique_ptr<e2e::Child> child_;
};

// The line of the admin socket that binds it.
std::string bindLine(const Wish& wish);

// Throws a Violation where the manager's tasks are not what its clients were promised.
void checkBindings(const Daemon& daemon, const Bindings& bindings);

// Waits; real time is what these tests are about.
void pause(milliseconds time);

}  // namespace qgpu::crash
