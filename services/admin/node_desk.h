#pragma once
// The admin commands of a manager: what services/admin/commands.h reads becomes a request of its
// NodeDoor, and the reply a JSON document.

#include <string>

#include "services/admin/commands.h"
#include "services/admin/desk.h"
#include "services/admin/node_door.h"
#include "services/admin/render.h"

namespace qgpu {

class NodeDesk final : public AdminDesk {
 public:
  // `door` and `keeping` outlive the desk. `nodeName` stands in cards and tasks.
  NodeDesk(NodeDoor& door, Housekeeping& keeping, std::string nodeName,
           TenantEnvironment environment)
      : door_(door),
        keeping_(keeping),
        nodeName_(std::move(nodeName)),
        environment_(std::move(environment)) {}

  kj::Promise<AdminAnswer> answer(const Peer& peer, std::string line) override;

 private:
  kj::Promise<AdminAnswer> ask(const Peer& peer, Command command);
  kj::Promise<AdminAnswer> bind(const Peer& peer, const RunSpec& spec);

  NodeDoor& door_;
  Housekeeping& keeping_;
  const std::string nodeName_;
  const TenantEnvironment environment_;
};

}  // namespace qgpu
