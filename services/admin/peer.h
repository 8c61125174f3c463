#pragma once
// Who may change a node. The kernel tells a peer's user, group and process (SO_PEERCRED); root, the
// daemon's own user and members of group qgpu may change anything, everybody may read and may run
// and end tasks of their own. Nothing that a peer writes takes part in this decision.

#include <kj/async-io.h>
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "runtime/result.h"
#include "services/admin/node_door.h"

namespace qgpu {

struct PeerIds {
  uid_t uid = 0;
  gid_t gid = 0;
  pid_t pid = 0;  // 0: lives in a pid namespace that we do not see
};

class ChangeRule {
 public:
  // `self`: the daemon's user. `group`: its members may change too; it need not exist.
  explicit ChangeRule(uid_t self, std::string group = "qgpu")
      : self_(self), group_(std::move(group)) {}

  // Groups are looked up at each call, so that a change of /etc/group needs no restart.
  bool mayChange(const PeerIds& peer) const;

  Peer peer(const PeerIds& ids) const {
    return Peer{ids.uid, static_cast<std::uint32_t>(ids.pid), mayChange(ids)};
  }

 private:
  uid_t self_;
  std::string group_;
};

// Of a connected unix socket. Unavailable where the kernel tells nothing.
Result<PeerIds> peerIds(kj::AsyncIoStream& stream);

}  // namespace qgpu
