#pragma once
// qgpu-manager or qgpu-scheduler as a process of a test: with its sockets and its database in a
// folder of its own, started, killed and started again on it. It is spoken to through its admin
// socket, as a user of socat would; what its answers mean, and what it is that there is none, is
// the caller's to say.

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/testing/child_process.h"
#include "tests/testing/temp_folder.h"

namespace qgpu::testing {

// One line to a unix socket, one line back with its end; less when the peer hung up or `limit`
// passed, and nothing where nobody listens.
std::string askSocket(const std::string& socket, const std::string& line,
                      std::chrono::milliseconds limit = std::chrono::seconds(10));

class PrivateDaemon {
 public:
  // qgpu-NAME, as it stands beside this program. `arguments` come behind those for the folder and
  // --http; the later of two of one name holds.
  PrivateDaemon(std::string name, TempFolder folder, std::vector<std::string> arguments,
                Environment environment = {});

  // Again, after its end. Returns before it serves. `program`: instead of the one beside this.
  void launch(const std::string& program = "");
  // Whether it answers before `limit` passed or it ended; log() says why not.
  bool awaitService(std::chrono::milliseconds limit);
  void kill();  // SIGKILL, reaped
  // SIGTERM; the exit status, or -1 when `limit` passed.
  int stop(std::chrono::milliseconds limit = std::chrono::seconds(10));
  void signal(int number) const { child_->signal(number); }
  std::optional<int> wait(std::chrono::milliseconds limit) { return child_->wait(limit); }
  bool alive() { return child_ && child_->alive(); }
  pid_t pid() const { return child_->pid(); }
  const std::string& name() const { return name_; }
  std::string log() const { return child_ ? child_->output() : ""; }

  const TempFolder& folder() const { return folder_; }
  std::string runDir() const { return folder_ / "run"; }
  std::string socket() const { return runDir() + "/" + name_ + ".sock"; }
  std::string attachSocket() const { return runDir() + "/attach.sock"; }
  std::string database() const { return folder_ / (name_ + ".db"); }

 private:
  const TempFolder folder_;
  const std::string name_;
  const std::vector<std::string> arguments_;
  const Environment environment_;
  std::unique_ptr<Child> child_;
};

}  // namespace qgpu::testing
