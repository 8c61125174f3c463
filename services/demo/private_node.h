#pragma once
// The demo's own little node: a private folder, a manager in it, and its tenants. Leaving the node
// ends them all and removes the folder, whatever happened before.

#include <memory>
#include <string>

#include "runtime/result.h"
#include "services/demo/tenants/output_folder.h"
#include "services/demo/tenants/tenant_host.h"

namespace qgpu::demo {

class PrivateNode final : public TenantHost {
 public:
  // Binaries stand beside this one.
  explicit PrivateNode(std::string binDir) : TenantHost(std::move(binDir)) {}
  ~PrivateNode() override;

  Status open();  // measures the idle machine, then starts the manager and waits until it answers

  bool managerRuns() override { return manager_ != nullptr && manager_->running(); }
  std::string managerLog() const override;

 private:
  Status startManager();

  const OutputFolder folder_{"demo"};
  std::unique_ptr<Child> manager_;
};

}  // namespace qgpu::demo
