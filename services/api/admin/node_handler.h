#pragma once
// The admin commands of a manager.

#include <string>

#include "services/api/commands/command_handler.h"
#include "services/api/commands/tenant_environment.h"

namespace qgpu {

class NodeHandler final : public CommandHandler<NodeApi> {
 public:
  // `actor` and `keeping` outlive the handler. `nodeName` stands in cards and tasks.
  NodeHandler(NodeActorClient& actor, Housekeeping& keeping, std::string nodeName,
              TenantEnvironment environment)
      : CommandHandler(actor, keeping),
        nodeName_(std::move(nodeName)),
        environment_(std::move(environment)) {}

 private:
  Status own(const Peer& peer, TaskSpec& task) override;
  std::string render(schema::Reply::Reader reply) override;

  const std::string nodeName_;
  const TenantEnvironment environment_;
};

}  // namespace qgpu
