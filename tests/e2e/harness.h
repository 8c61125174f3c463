#pragma once
// The daemons of an end-to-end test: each in a private folder, spoken to through its admin socket
// as a user of socat would. What they say is shown where a test fails; they end with their objects.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/e2e/testing_names.h"

namespace qgpu::e2e {

// What they have in common.
class Daemon : public testing::PrivateDaemon {
 public:
  void start();  // again, after kill() or stop()

  Json ask(const std::string& line);  // the admin socket's answer; fails the test if there is none
  Json tasks() { return ask("tasks")["tasks"]; }
  Json cards() { return ask("cards")["cards"]; }
  // What GET answers, and its status behind it.
  std::string get(const std::string& path) const;

 protected:
  // Starts qgpu-NAME with these arguments besides its own folder, and waits until it serves.
  Daemon(std::string name, std::vector<std::string> arguments, Environment environment);
  ~Daemon();

  std::string logged(const std::string& field) const { return loggedIn(log(), field); }
};

class Manager final : public Daemon {
 public:
  explicit Manager(std::vector<std::string> arguments, Environment environment = {});

  Json task(const std::string& name);  // null when there is none of this name

  // qgpuctl run with these arguments, e.g. {"--name", "a", "--", "program"}.
  std::unique_ptr<Child> runTask(std::vector<std::string> arguments, Environment extra = {});
};

// Ends a qgpu-work that a task runs, by SIGTERM, and fails the test where it does not end well.
void endWork(Child& task);

class Scheduler final : public Daemon {
 public:
  explicit Scheduler(std::vector<std::string> arguments = {}, Environment environment = {});

  std::string rpc() const { return "unix:" + runDir() + "/scheduler.rpc"; }
  std::string tcp() const { return logged("rpc"); }
  std::string door() const { return logged("join"); }  // of machines that join by a token
  // As kube-scheduler asks its extender: POST /scheduler/VERB; null where nobody answers.
  Json post(const std::string& verb, const Json& body) const;
  // The first sample of this family on /metrics.
  std::string metric(const std::string& family) const;

  Json task(std::uint64_t id);  // null when there is none of this number
  std::string stateOf(const std::string& node);
  bool waitFor(const std::string& node, const std::string& state);
};

}  // namespace qgpu::e2e
