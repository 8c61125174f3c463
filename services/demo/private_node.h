#pragma once
// The demo's own little node: a private folder, a manager in it, and tenants that are started the
// way a person starts them, through `qgpuctl run`. Leaving the node ends them all and removes the
// folder, whatever happened before.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/result.h"
#include "services/demo/children.h"
#include "services/demo/node_client.h"
#include "services/demo/timeline.h"
#include "services/demo/workload/work_report.h"

namespace qgpu::demo {

struct TenantSpec {
  std::string name;
  TenantClass tenantClass = TenantClass::Ordinary;
  int corePercent = 10;
  std::vector<std::string> program;  // what `qgpuctl run` starts; empty: qgpu-work
  std::vector<std::string> work;     // further options of qgpu-work
};

class PrivateNode {
 public:
  // Binaries stand beside this one.
  explicit PrivateNode(std::string binDir);
  ~PrivateNode();
  PrivateNode(const PrivateNode&) = delete;
  PrivateNode& operator=(const PrivateNode&) = delete;

  Status open();  // measures the idle machine, then starts the manager and waits until it answers

  // Starts a tenant under qgpu, or (bare) the same workload beside it.
  std::unique_ptr<Child> start(const TenantSpec& spec);
  std::unique_ptr<Child> startBare(const TenantSpec& spec);
  // `qgpuctl top` of this node, where stdout is a terminal and this program has it; else null.
  std::unique_ptr<Child> screen(const std::string& title) const;

  NodeClient& client() { return *client_; }
  bool managerRuns() { return manager_ != nullptr && manager_->running(); }
  double loopsPerMs() const { return loopsPerMs_; }
  std::string managerLog() const;  // its last lines, for a failure's report

 private:
  Status calibrate();
  Status startManager();
  std::vector<std::string> workCommand(const TenantSpec& spec) const;
  std::string outputPath(const std::string& name);

  const std::string binDir_;
  std::string dir_;
  double loopsPerMs_ = 0;
  int started_ = 0;
  std::unique_ptr<Child> manager_;
  std::unique_ptr<NodeClient> client_;
};

// Tells a workload to end and reads its report; an error says what it printed instead.
Result<WorkReport> finishWork(Child& child, const std::string& name);

}  // namespace qgpu::demo
