#pragma once
// Real processes for tests that run daemons and programs as a user would: children with captured
// output that die with whoever started them, private folders, and a line to a unix socket and back.
// Nothing here knows a test framework, so that programs of the tests use it as well. What the
// system refuses (a process, a folder in /tmp) is thrown as std::system_error.

#include <chrono>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

namespace qgpu::e2e {

using Json = nlohmann::json;
using Environment = std::map<std::string, std::string>;

// What the tests run stands beside the program that asks, e.g. binary("qgpuctl"), and so does the
// library in lib/: in a build folder as in one that was carried to another machine.
std::string binary(const std::string& name);
std::string library();

// Calls `probe` until it is true or `limit` passed; the answer says which.
bool eventually(const std::function<bool()>& probe,
                std::chrono::milliseconds limit = std::chrono::seconds(10));

std::int64_t monotonicNs();

// A child process with its output in memory. The destructor kills and reaps it, and kills with it
// what it started: whom qgpuctl ran would go on without it, and keep a card busy.
class Child {
 public:
  Child(std::vector<std::string> argv, const Environment& extra = {});
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const { return pid_; }
  void signal(int number) const;
  void signalChild(int number) const;  // to its own first child: what qgpuctl run started
  bool alive();
  // Exit status as a shell has it (128 + signal), or nothing when `limit` passed.
  std::optional<int> wait(std::chrono::milliseconds limit = std::chrono::seconds(60));
  std::string output() const;  // stdout and stderr so far

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

}  // namespace qgpu::e2e
