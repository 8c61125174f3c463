#pragma once
// Real daemons and real programs for the end-to-end tests: a manager in a private folder, children
// with captured output, and the admin socket as a user of socat would see it. Whatever a test
// leaves running dies with these objects, and the folder goes with them.

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace qgpu::e2e {

using Json = nlohmann::json;
using Environment = std::map<std::string, std::string>;

// Where the build put what the tests run, e.g. binary("qgpuctl").
std::string binary(const std::string& name);
std::string library();

// Calls `probe` until it is true or `limit` passed; the answer says which.
bool eventually(const std::function<bool()>& probe,
                std::chrono::milliseconds limit = std::chrono::seconds(10));

std::int64_t monotonicNs();

// A child process with its output in a file of its own. Killed and reaped by the destructor.
class Child {
 public:
  Child(std::vector<std::string> argv, const Environment& extra = {});
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const { return pid_; }
  void signal(int number) const;
  void signalChild(int number) const;   // to its own first child: what qgpuctl run started
  bool alive();
  // Exit status as a shell has it (128 + signal), or nothing when `limit` passed.
  std::optional<int> wait(std::chrono::milliseconds limit = std::chrono::seconds(60));
  std::string output() const;   // stdout and stderr so far

 private:
  pid_t pid_ = -1;
  int out_ = -1;
  std::optional<int> status_;
};

// Runs to the end; the status and everything that was printed.
struct Finished {
  int status = -1;
  std::string output;
};
Finished run(std::vector<std::string> argv, const Environment& extra = {},
             std::chrono::milliseconds limit = std::chrono::seconds(60));

class TempDir {
 public:
  TempDir();
  ~TempDir();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// One line to a unix socket, one line back; an empty string when the peer hung up instead.
std::string askSocket(const std::string& socket, const std::string& line,
                      std::chrono::milliseconds limit = std::chrono::seconds(10));

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
