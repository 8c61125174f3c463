#pragma once
// The daemons of a bench's own cluster, and the etcd of its schedulers: real processes, with ports
// of their own, in folders that are gone afterwards.

#include <memory>
#include <string>
#include <vector>

#include "runtime/result.h"
#include "runtime/units.h"
#include "tests/testing/private_daemon.h"

namespace qgpu::bench {

// qgpu-scheduler, with its database on the disk that holds /tmp, or with what it keeps in an etcd.
class OwnScheduler : public testing::PrivateDaemon {
 public:
  explicit OwnScheduler(std::vector<std::string> more = {});

  // Returns once it answers; says why it does not. Again after kill().
  Status start();

  std::string rpc() const { return "unix:" + runDir() + "/scheduler.rpc"; }
  const std::string& tcp() const { return tcp_; }  // stays the same when it starts again

 private:
  OwnScheduler(const std::string& tcp, std::vector<std::string> more);

  const std::string tcp_;
};

// What etcd says of itself.
struct EtcdUse {
  double mebibytes = 0;      // of its file
  std::uint64_t writes = 0;  // since it is there
};

// As many etcd that are one, each with its data on the disk that holds /tmp.
class OwnEtcd {
 public:
  explicit OwnEtcd(std::size_t members);
  static bool isHere();       // Debian's etcd-server is installed
  std::string store() const;  // "--store=etcd:URL,...", of a scheduler
  EtcdUse use() const;        // of the first of them, by etcdctl

 private:
  std::vector<std::string> clients_;
  testing::TempFolder folder_;
  std::vector<std::unique_ptr<testing::Child>> processes_;
};

// Real qgpu-managers with simulated cards that join this scheduler.
class OwnManagers {
 public:
  OwnManagers(std::size_t count, const std::string& scheduler);
  Nanos cpuTime() const;  // of all of them

 private:
  std::vector<std::unique_ptr<testing::PrivateDaemon>> managers_;
};

}  // namespace qgpu::bench
