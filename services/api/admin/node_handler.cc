#include "services/api/admin/node_handler.h"

#include <optional>

#include "services/api/commands/render.h"
#include "services/api/commands/schema_names.h"
#include "services/base/process.h"

namespace qgpu {

Status NodeHandler::own(const Peer& peer, TaskSpec& task) {
  const auto known = peer.pid == 0 ? std::nullopt : processStart(peer.pid);
  if (!known) {
    return fail(ErrorCode::InvalidArgument,
                "the process that asks (pid " + std::to_string(peer.pid) +
                    ") is not visible here, so its end can't be seen; ask with "
                    "\"owner\":\"none\" and end the task by hand");
  }
  task.ownerPid = peer.pid;
  task.ownerStart = *known;
  return ok();
}

std::string NodeHandler::render(schema::Reply::Reader reply) {
  return renderReply(reply, nodeName_, environment_);
}

}  // namespace qgpu
