#pragma once
// The cluster of the run: three etcd and three schedulers on hosts of their own, four managers with
// imagined cards on others, TLS between all of them, and one host more for who asks from outside.
// Each etcd and each manager keeps what it has on a small disk of its own. Faults are done to it,
// and taken back. Of one thread; made before any other.

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "tests/chaos/fault_plan.h"
#include "tests/chaos/process.h"
#include "tests/crash/tmpfs.h"
#include "tests/e2e/hosts/network.h"

namespace qgpu::chaos {

class ChaosCluster {
 public:
  // In a folder that exists; logs in its `logs`. Throws where this machine can't.
  explicit ChaosCluster(std::string folder);

  void begin(const Planned& planned);
  void end(const Planned& planned);
  // Starts again what ended by itself.
  void keepUp(std::int64_t now);
  // Kills all; the logs are whole then.
  void stop();
  // Everything runs, as far as its processes go.
  bool allRun();
  std::size_t ownEnds() const;

  std::string schedulerSocket(std::size_t i) const {
    return folder_ + "/s" + std::to_string(i) + "/scheduler.sock";
  }
  std::string managerSocket(std::size_t i) const {
    return folder_ + "/m" + std::to_string(i) + "/manager.sock";
  }
  static std::string nodeName(std::size_t i) { return "node-" + std::to_string(i); }
  // qgpuctl of an administrator on the host outside, over TLS to all schedulers.
  std::vector<std::string> ctl(std::vector<std::string> words) const;

 private:
  void makeCertificates() const;
  std::unique_ptr<Process> etcd(std::size_t i);
  std::unique_ptr<Process> scheduler(std::size_t i);
  std::unique_ptr<Process> manager(std::size_t i);
  std::unique_ptr<Process> process(std::size_t host, const std::string& name,
                                   std::vector<std::string> argv);
  std::string certificate(const std::string& name) const { return folder_ + "/certs/" + name; }
  std::string delayFile(std::size_t process) const;
  std::string clockFile(std::size_t process) const;
  crash::Tmpfs& disk(std::size_t process);
  void cut(const Planned& planned, bool begins);

  const std::string folder_;
  e2e::Network network_{kHosts + 1};
  std::vector<std::unique_ptr<crash::Tmpfs>> disks_;  // etcds', managers'
  std::array<std::unique_ptr<Process>, kProcesses> processes_;
};

}  // namespace qgpu::chaos
