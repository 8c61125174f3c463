#pragma once
// The admin socket: one command per line in, one JSON document per line out. Peers are known by
// what the kernel tells of them; whatever they write, the daemon lives on and its memory stays
// bounded (C7): lines, connections, answers under way and time to take an answer have limits.
// A connection is served one line at a time, in order.

#include <kj/async-io.h>
#include <kj/timer.h>
#include <string>

#include "services/api/commands/command_handler.h"
#include "services/api/commands/peer.h"
#include "services/base/net/listen.h"

namespace qgpu {

// A connection beyond its number is told so in one line (Overloaded) and closed. A line has at most
// kLineMax bytes (command_line.h).
struct AdminLimits {
  std::size_t connectionsMax = 64;
  std::size_t connectionsReserved = 16;  // of these, only for peers that may change something
  Nanos writeDeadline = seconds(30);     // a peer that does not take its answer is closed
};

// Each daemon has one, on its main loop. It knows lines, peers and limits; what a line means the
// handler knows (command_handler.h).
class AdminServer final : private kj::TaskSet::ErrorHandler {
 public:
  // `rule` says which peers may change something; it asks the kernel who a peer is. `handler`, `io`
  // and `timer` outlive the server. Serves from now on, on the loop of `io`, until
  // it is destroyed, which closes every connection.
  AdminServer(AdminHandler& handler, ChangeRule rule, AdminLimits limits,
              kj::LowLevelAsyncIoProvider& io, kj::Timer& timer, UnixListener listener);
  AdminServer(const AdminServer&) = delete;
  AdminServer& operator=(const AdminServer&) = delete;
  ~AdminServer() noexcept;

  // That are open now.
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
  kj::Promise<void> stream(Connection& connection, AdminAnswer::Events events);
  kj::Promise<void> untilGone(Connection& connection);
  kj::Promise<void> tell(Connection& connection, AdminAnswer::Events& events);
  kj::Promise<void> write(Connection& connection, std::string line);
  void taskFailed(kj::Exception&& exception) override;

  AdminHandler& handler_;
  ChangeRule rule_;
  const AdminLimits limits_;
  kj::Timer& timer_;
  UnixListener listener_;
  kj::Own<kj::ConnectionReceiver> receiver_;
  std::size_t connections_ = 0;
  kj::TaskSet tasks_;  // last: its connections use everything above
};

}  // namespace qgpu
