#pragma once
// The admin socket: one command per line in, one JSON document per line out. Peers are known by
// what the kernel tells of them; whatever they write, the daemon lives on and its memory stays
// bounded (C7): lines, connections, answers under way and time to take an answer have limits.
// A connection is served one line at a time, in order.

#include <kj/async-io.h>
#include <kj/timer.h>

#include <functional>
#include <string>

#include "runtime/result.h"
#include "services/admin/commands.h"
#include "services/admin/listen.h"
#include "services/admin/node_door.h"
#include "services/admin/peer.h"
#include "services/admin/render.h"

namespace qgpu {

// What the daemon does itself once the node has permitted and audited it.
class Housekeeping {
 public:
  // Starts a snapshot; `done` is called on the loop, perhaps before this returns.
  virtual void snapshot(std::function<void(Status)> done) = 0;
  // InvalidArgument where the level has no such name.
  virtual Status setLogLevel(const std::string& level) = 0;

 protected:
  ~Housekeeping() = default;
};

struct AdminOptions {
  std::string nodeName;
  TenantEnvironment environment;
  std::size_t connectionsMax = 64;
  std::size_t connectionsReserved = 16;  // of these, only for peers that may change the node
  Nanos writeDeadline = seconds(30);     // a peer that does not take its answer is closed
};

class AdminServer final : private kj::TaskSet::ErrorHandler {
 public:
  // `door`, `keeping`, `io` and `timer` outlive the server. Serves from now on, on the loop of
  // `io`, until it is destroyed, which closes every connection.
  AdminServer(NodeDoor& door, Housekeeping& keeping, ChangeRule rule, AdminOptions options,
              kj::LowLevelAsyncIoProvider& io, kj::Timer& timer, UnixListener listener);
  AdminServer(const AdminServer&) = delete;
  AdminServer& operator=(const AdminServer&) = delete;
  ~AdminServer() noexcept;

  std::size_t connections() const { return connections_; }

 private:
  struct Connection;

  kj::Promise<void> accept();
  kj::Promise<void> admit(kj::Own<kj::AsyncIoStream> stream);
  kj::Promise<void> serve(Connection& connection);
  kj::Promise<void> onBytes(Connection& connection, std::size_t count);
  kj::Promise<void> refuseLine(Connection& connection);
  kj::Promise<void> drain(Connection& connection, std::size_t left);
  kj::Promise<bool> execute(Connection& connection, std::string line);
  kj::Promise<void> watch(Connection& connection, std::uint64_t since);
  kj::Promise<void> untilGone(Connection& connection);
  kj::Promise<void> tell(Connection& connection, EventFeed& feed);
  kj::Promise<std::string> answer(const Peer& peer, Command command);
  kj::Promise<std::string> bind(const Peer& peer, RunSpec spec);
  kj::Promise<std::string> keepHouse(Command command, std::string done);
  kj::Promise<void> write(Connection& connection, std::string line);
  void taskFailed(kj::Exception&& exception) override;

  NodeDoor& door_;
  Housekeeping& keeping_;
  const ChangeRule rule_;
  const AdminOptions options_;
  kj::Timer& timer_;
  UnixListener listener_;
  kj::Own<kj::ConnectionReceiver> receiver_;
  std::size_t connections_ = 0;
  kj::TaskSet tasks_;  // last: its connections use everything above
};

}  // namespace qgpu
