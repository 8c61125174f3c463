#pragma once
// The daemons of a bench's own cluster, real processes in folders that are gone afterwards.

#include <memory>
#include <string>
#include <vector>

#include "runtime/result.h"
#include "runtime/units.h"
#include "tests/e2e/processes.h"

namespace qgpu::bench {

// qgpu-scheduler, with its database on the disk that holds /tmp.
class OwnScheduler {
 public:
  // `more`: flags beside its folder and addresses.
  explicit OwnScheduler(std::vector<std::string> more = {});

  // Returns once it answers; says why it does not. Again after kill().
  Status start();
  void kill();   // SIGKILL, reaped
  void stop();   // SIGTERM, reaped

  pid_t pid() const { return child_->pid(); }
  std::string rpc() const { return "unix:" + dir_.path() + "/run/scheduler.rpc"; }
  const std::string& tcp() const { return tcp_; }   // stays the same when it starts again
  std::string dbfile() const { return dir_.path() + "/scheduler.db"; }
  const std::string& folder() const { return dir_.path(); }
  std::string log() const { return child_ ? child_->output() : ""; }

 private:
  e2e::TempDir dir_;
  std::vector<std::string> more_;
  std::string tcp_;
  std::unique_ptr<e2e::Child> child_;
};

// Real qgpu-managers with simulated cards that join this scheduler.
class OwnManagers {
 public:
  OwnManagers(std::size_t count, const std::string& scheduler);
  Nanos cpuTime() const;   // of all of them

 private:
  struct One {
    e2e::TempDir dir;
    std::unique_ptr<e2e::Child> child;
  };
  std::vector<std::unique_ptr<One>> managers_;
};

}  // namespace qgpu::bench
