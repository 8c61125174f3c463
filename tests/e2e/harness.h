#pragma once
// The daemons of an end-to-end test: each in a private folder, spoken to through its admin socket
// as a user of socat would. What they say is shown where a test fails; they end with their objects.

#include <memory>
#include <string>
#include <vector>

#include "tests/e2e/processes.h"

namespace qgpu::e2e {

// What they have in common.
class Daemon {
 public:
  void start();  // again, after kill() or stop()
  void kill();   // SIGKILL, reaped
  int stop();    // SIGTERM; the exit status
  bool alive() { return child_ && child_->alive(); }
  pid_t pid() const { return child_->pid(); }
  std::string log() const { return child_ ? child_->output() : ""; }

  std::string runDir() const { return dir_.path() + "/run"; }
  std::string socket() const { return runDir() + "/" + name_ + ".sock"; }
  std::string database() const { return dir_.path() + "/" + name_ + ".db"; }

  Json ask(const std::string& line);  // the admin socket's answer; fails the test if there is none
  Json tasks() { return ask("tasks")["tasks"]; }
  Json cards() { return ask("cards")["cards"]; }
  // What GET answers, and its status behind it.
  std::string get(const std::string& path) const;

 protected:
  // Starts qgpu-NAME with these arguments besides its own folder, and waits until it serves.
  Daemon(std::string name, std::vector<std::string> arguments, Environment environment);
  ~Daemon();

  std::string file(const std::string& name) const { return dir_.path() + "/" + name; }
  std::string logged(const std::string& field) const;  // its first value there

 private:
  TempDir dir_;
  std::string name_;
  std::vector<std::string> arguments_;
  Environment environment_;
  std::unique_ptr<Child> child_;
};

class Manager final : public Daemon {
 public:
  explicit Manager(std::vector<std::string> arguments, Environment environment = {});

  Json task(const std::string& name);  // null when there is none of this name

  // qgpuctl run with these arguments, e.g. {"--name", "a", "--", "program"}.
  std::unique_ptr<Child> runTask(std::vector<std::string> arguments, Environment extra = {});
};

class Scheduler final : public Daemon {
 public:
  explicit Scheduler(std::vector<std::string> arguments = {}, Environment environment = {});

  std::string rpc() const { return "unix:" + runDir() + "/scheduler.rpc"; }
  std::string tcp() const { return logged("rpc"); }
  // As kube-scheduler asks its extender: POST /scheduler/VERB; null where nobody answers.
  Json post(const std::string& verb, const Json& body) const;
  // The first sample of this family on /metrics.
  std::string metric(const std::string& family) const;

  Json task(std::uint64_t id);  // null when there is none of this number
  std::string stateOf(const std::string& node);
  bool waitFor(const std::string& node, const std::string& state);
};

}  // namespace qgpu::e2e
