#pragma once
// Programs that a test starts, as a user would: children with captured output that die with whoever
// started them. This is the one place of the tests that starts other programs. Nothing here knows a
// test framework, so that programs of the tests and benches use it as well. What the system refuses
// is thrown as std::system_error.

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

namespace qgpu::testing {

// Variables beside those that this process has, or instead of them.
using Environment = std::map<std::string, std::string>;

// What the tests run stands beside the program that asks, e.g. binary("qgpuctl"), and so does the
// library in lib/: in a build folder as in one that was carried to another machine.
std::string binary(const std::string& name);
std::string library();

// What a program has as stdin, stdout and stderr. -1: what this process has.
struct Streams {
  int in = -1;
  int out = -1;
  int err = -1;
  bool session = false;  // `in` is the terminal of a session of its own, as where one logged in
};

// Starts argv[0], which is looked for in PATH; one that can't be started ends with 127. It leads a
// process group of its own and is killed when the thread that started it ends. It does not see what
// names a cluster to the user of the tests (KUBECONFIG, QGPU_SERVER). To be reaped by the caller.
pid_t startProgram(const std::vector<std::string>& argv, const Environment& extra = {},
                   Streams streams = {});

// A file in memory for what programs print; to be closed by the caller. Each write goes to its end:
// the kernel locks the offset of no such file, and two processes would write over each other.
int openOutput();

// As a shell has it, of what waitpid() told: 128 + signal.
int exitStatus(int raw);

// A child process with its output in memory. The destructor kills and reaps it, and kills with it
// what it started: whom qgpuctl ran would go on without it, and keep a card busy.
class Child {
 public:
  explicit Child(const std::vector<std::string>& argv, const Environment& extra = {});
  // At a terminal (see pseudo_terminal.h) that is all its streams; output() stays empty.
  Child(const std::vector<std::string>& argv, const Environment& extra, int terminal);
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const { return pid_; }
  void signal(int number) const;
  void signalChild(int number) const;  // to its own first child: what qgpuctl run started
  // The exit status, or nothing while it runs.
  std::optional<int> status() { return wait(std::chrono::milliseconds(0)); }
  bool alive() { return !status().has_value(); }
  // The exit status, or nothing when `limit` passed.
  std::optional<int> wait(std::chrono::milliseconds limit = std::chrono::seconds(60));
  bool stopped() const;        // by a signal, since this was last asked
  std::string output() const;  // stdout and stderr so far

 private:
  pid_t pid_ = -1;
  int out_ = -1;
  std::optional<int> status_;
};

// Runs to the end; the status and everything that was printed. Status -1: not within `limit`.
struct Finished {
  int status = -1;
  std::string output;
};
Finished run(const std::vector<std::string>& argv, const Environment& extra = {},
             std::chrono::milliseconds limit = std::chrono::seconds(60));

// `sh -c line`, with time for what builds or installs.
Finished shell(const std::string& line, const Environment& extra = {});

}  // namespace qgpu::testing
