#pragma once
// Who may change a node. The kernel tells a peer's user, group and process (SO_PEERCRED); root, the
// daemon's own user and members of group qgpu may change anything, everybody may read and may run
// and end tasks of their own. Nothing that a peer writes takes part in this decision.

#include <cstdint>
#include <functional>
#include <kj/async-io.h>
#include <map>
#include <optional>
#include <string>
#include <sys/types.h>
#include <utility>

#include "runtime/loop.h"
#include "runtime/result.h"
#include "services/api/commands/node_actor_client.h"

namespace qgpu {

// A peer of a unix socket, as the kernel knew it when it connected.
struct PeerIds {
  uid_t uid = 0;
  gid_t gid = 0;
  pid_t pid = 0;  // 0: lives in a pid namespace that we do not see
};

// Whether a peer is of a group, as NSS says now, which may ask the network.
bool isMember(const PeerIds& peer, const std::string& group);

// The rule of one daemon. AdminServer and RpcServer ask it for each connection, on the main loop.
class ChangeRule {
 public:
  static constexpr Nanos kRemembered = seconds(10);
  static constexpr std::size_t kRememberedMax = 1024;
  using LookUp = std::function<bool(const PeerIds&, const std::string& group)>;
  using Now = std::function<Nanos()>;

  // `self`: the daemon's user. `group`: its members may change too; it need not exist.
  explicit ChangeRule(uid_t self, std::string group = "qgpu", LookUp lookUp = isMember,
                      Now now = monotonicNow)
      : self_(self), group_(std::move(group)), lookUp_(std::move(lookUp)), now_(std::move(now)) {}

  // What was looked up is remembered for a while: a flood of connections asks NSS once, and a
  // change of /etc/group needs no restart.
  bool mayChange(const PeerIds& peer);

  // The same with who it is: what requests are asked in the name of.
  Peer peer(const PeerIds& ids) {
    return Peer{ids.uid, static_cast<std::uint32_t>(ids.pid), mayChange(ids)};
  }

 private:
  struct Known {
    bool member;
    Nanos until;
  };
  uid_t self_;
  std::string group_;
  LookUp lookUp_;
  Now now_;
  std::map<std::pair<uid_t, gid_t>, Known> known_;
};

// Of a connected unix socket. Unavailable where the kernel tells nothing.
Result<PeerIds> peerIds(kj::AsyncIoStream& stream);

}  // namespace qgpu
