#pragma once
// The admin commands of a manager.

#include <string>

#include "services/admin/desk.h"
#include "services/admin/tenant_environment.h"

namespace qgpu {

class NodeDesk final : public CommandDesk<NodeWords> {
 public:
  // `door` and `keeping` outlive the desk. `nodeName` stands in cards and tasks.
  NodeDesk(NodeDoor& door, Housekeeping& keeping, std::string nodeName,
           TenantEnvironment environment)
      : CommandDesk(door, keeping),
        nodeName_(std::move(nodeName)),
        environment_(std::move(environment)) {}

 private:
  Status own(const Peer& peer, TaskSpec& task) override;
  std::string render(schema::Reply::Reader reply) override;

  const std::string nodeName_;
  const TenantEnvironment environment_;
};

}  // namespace qgpu
