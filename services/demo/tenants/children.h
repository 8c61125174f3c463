#pragma once
// Programs that the demo starts. Each but a screen runs in a process group of its own, so a Ctrl-C
// at the terminal reaches only the demo, which then ends them in order. Nothing outlives the demo:
// a child dies with it (PR_SET_PDEATHSIG), a grandchild whose parent died becomes ours (subreaper).

#include <cstdint>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

namespace qgpu::demo {

// Catches SIGINT and SIGTERM, adopts orphans. Call once, first.
void becomeKeeper();
// True since SIGINT or SIGTERM: whoever waits gives up.
bool interrupted();
// Kills and reaps whatever descends from this process and still lives.
void killDescendants();
// Sleeps for `ns`; returns false at once when interrupted.
bool pauseFor(std::int64_t ns);

class Child {
 public:
  // Starts argv[0] with its stdin on a pipe of ours, stdout and stderr in `outputPath`.out and
  // .err. A program that can't be started exits with 127.
  Child(const std::vector<std::string>& argv, const std::string& outputPath);
  // Starts argv[0] as a screen: with the demo's own terminal, and told by SIGTERM when the demo
  // died.
  explicit Child(const std::vector<std::string>& argv);
  ~Child();  // kills the group if it still runs
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  void say(const std::string& line);  // to its stdin, with a newline
  void signal(int number) const;
  // The exit status (128 + signal number if killed) once it has ended, within `ns`.
  std::optional<int> wait(std::int64_t ns);
  bool running() { return !wait(0).has_value(); }

  // What it has started and not waited for.
  std::vector<pid_t> children() const;

  std::string output() const;  // stdout so far
  std::string errors() const;  // stderr so far

 private:
  std::string outputPath_;
  pid_t pid_ = -1;
  int stdin_ = -1;
  std::optional<int> status_;
};

std::string readWhole(const std::string& path);

}  // namespace qgpu::demo
