#pragma once
// The daemons of a bench's own cluster, real processes in folders that are gone afterwards.

#include <memory>
#include <string>
#include <vector>

#include "runtime/result.h"
#include "runtime/units.h"
#include "tests/testing/private_daemon.h"

namespace qgpu::bench {

// qgpu-scheduler, with its database on the disk that holds /tmp.
class OwnScheduler : public testing::PrivateDaemon {
 public:
  OwnScheduler();

  // Returns once it answers; says why it does not. Again after kill().
  Status start();

  std::string rpc() const { return "unix:" + runDir() + "/scheduler.rpc"; }
  const std::string& tcp() const { return tcp_; }  // stays the same when it starts again

 private:
  explicit OwnScheduler(const std::string& tcp);

  const std::string tcp_;
};

// Real qgpu-managers with simulated cards that join this scheduler.
class OwnManagers {
 public:
  OwnManagers(std::size_t count, const std::string& scheduler);
  Nanos cpuTime() const;   // of all of them

 private:
  std::vector<std::unique_ptr<testing::PrivateDaemon>> managers_;
};

}  // namespace qgpu::bench
