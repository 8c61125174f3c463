#pragma once
// Where tenants are started the way a person starts them, through `qgpuctl run` of a manager that
// runs, and the same programs beside it, without qgpu: what each figure is measured against. The
// demo has a manager of its own (private_node.h), a report asks the one of the machine.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/result.h"
#include "services/demo/tenants/children.h"
#include "services/demo/tenants/node_client.h"
#include "services/demo/tenants/timeline.h"
#include "services/demo/workload/work_report.h"

namespace qgpu::demo {

struct TenantSpec {
  std::string name;
  TenantClass tenantClass = TenantClass::Ordinary;
  int corePercent = 10;
  std::vector<std::string> program;  // what `qgpuctl run` starts; empty: qgpu-work
  std::vector<std::string> work;     // further options of qgpu-work
  std::string memory = "1";          // as `run --memory` reads it
};

// A tenant that wants the card all the time with kernels of `kernelMs` ("2..8").
TenantSpec busyTenant(const std::string& name, int corePercent, const std::string& kernelMs);

class TenantHost {
 public:
  // qgpuctl and qgpu-work stand in `binDir`.
  explicit TenantHost(std::string binDir) : binDir_(std::move(binDir)) {}
  virtual ~TenantHost() = default;
  TenantHost(const TenantHost&) = delete;
  TenantHost& operator=(const TenantHost&) = delete;

  // Measures the idle card, which takes about a second.
  Status calibrate();
  // Starts a tenant under qgpu, or (bare) the same workload beside it.
  std::unique_ptr<Child> start(const TenantSpec& spec);
  std::unique_ptr<Child> startBare(const TenantSpec& spec);
  // Runs qgpu-work beside qgpu with these options to its end; what it printed.
  Result<std::string> askWork(const std::string& option);
  std::vector<std::string> workCommand(const TenantSpec& spec) const;

  // `qgpuctl top` of this node, where stdout is a terminal and this program has it; else null.
  std::unique_ptr<Child> screen(const std::string& title) const;

  NodeClient& client() { return *client_; }
  double loopsPerMs() const { return loopsPerMs_; }

  virtual bool managerRuns() { return true; }
  virtual std::string managerLog() const { return {}; }  // its last lines, for a failure's report

 protected:
  std::string outputPath(const std::string& name);
  std::string socket() const { return socket_.empty() ? dir_ + "/manager.sock" : socket_; }

  const std::string binDir_;
  std::string dir_;                   // of what children print; of the socket too, where
  std::string socket_;                // this is empty
  std::string card_;                  // its id; empty: any
  std::vector<std::string> bareEnv_;  // NAME=VALUE, by which a bare program has that card
  std::unique_ptr<NodeClient> client_;

 private:
  double loopsPerMs_ = 0;
  int started_ = 0;
};

// Tells a workload to end and reads its report; an error says what it printed instead.
Result<WorkReport> finishWork(Child& child, const std::string& name);
// Waits for one that ends by itself; its report.
Result<WorkReport> reportOf(Child& child, const std::string& name, std::int64_t nsMax);

std::string lastLines(const std::string& text, std::size_t bytes);

}  // namespace qgpu::demo
