#include "services/api/admin/admin_server.h"

#include "services/api/commands/command_line.h"
#include "services/api/commands/render.h"

namespace qgpu {
namespace {

constexpr std::size_t kReadMax = 16 * 1024;         // bytes taken from a socket at once
constexpr std::size_t kDrainMax = 8 * 1024 * 1024;  // of a line that is too long, then we close
constexpr Nanos kAcceptPause = millis(100);
constexpr Nanos kDrainTime = seconds(2);

kj::Duration duration(Nanos time) {
  return time.value * kj::NANOSECONDS;
}

Error tooLong() {
  return fail(ErrorCode::InvalidArgument, "a line has at most " + std::to_string(kLineMax) +
                                              " bytes; this connection is closed");
}

}  // namespace

struct AdminServer::Connection {
  Connection(kj::Own<kj::AsyncIoStream> s, Peer p) : stream(kj::mv(s)), peer(p) {}

  kj::Own<kj::AsyncIoStream> stream;
  Peer peer;
  std::string buffer;  // what was read and is no whole line yet; at most kLineMax + kReadMax
  char chunk[kReadMax];
};

AdminServer::AdminServer(AdminHandler& handler, ChangeRule rule, AdminLimits limits,
                         kj::LowLevelAsyncIoProvider& io, kj::Timer& timer, UnixListener listener)
    : handler_(handler),
      rule_(std::move(rule)),
      limits_(limits),
      timer_(timer),
      listener_(std::move(listener)),
      receiver_(listener_.receive(io)),
      tasks_(*this) {
  tasks_.add(accept());
}

AdminServer::~AdminServer() noexcept = default;

kj::Promise<void> AdminServer::accept() {
  return receiver_->accept().then(
      [this](kj::Own<kj::AsyncIoStream> stream) {
        // A peer that goes away is no failure of ours.
        tasks_.add(
            kj::evalNow([&]() { return admit(kj::mv(stream)); }).catch_([](kj::Exception&&) {}));
        return accept();
      },
      [this](kj::Exception&&) {
        // Out of descriptors: who is connected is served on, and somebody may leave.
        return timer_.afterDelay(duration(kAcceptPause)).then([this]() { return accept(); });
      });
}

void AdminServer::taskFailed(kj::Exception&&) {
  QGPU_CHECK(false, "every task of the admin server handles its own failures");
}

kj::Promise<void> AdminServer::admit(kj::Own<kj::AsyncIoStream> stream) {
  const Result<PeerIds> ids = peerIds(*stream);
  const Peer peer = ids ? rule_.peer(*ids) : Peer();
  const std::size_t most =
      limits_.connectionsMax - (peer.mayChange ? 0 : limits_.connectionsReserved);
  auto connection = kj::heap<Connection>(kj::mv(stream), peer);
  Connection& c = *connection;
  ++connections_;
  auto counted = kj::defer([this]() { --connections_; });
  kj::Promise<void> served = nullptr;
  if (!ids) {
    served = write(c, renderError(ids.error()));
  } else if (connections_ > most) {
    served = write(c, renderError(fail(ErrorCode::Overloaded, std::to_string(connections_ - 1) +
                                                                  " connections are open")));
  } else {
    served = kj::evalNow([&]() { return serve(c); });  // a read may fail on the spot
  }
  return served.attach(kj::mv(connection), kj::mv(counted));
}

kj::Promise<void> AdminServer::write(Connection& connection, std::string line) {
  line += '\n';
  auto text = kj::heap<std::string>(std::move(line));
  auto written = connection.stream->write(text->data(), text->size()).attach(kj::mv(text));
  return timer_.timeoutAfter(duration(limits_.writeDeadline), kj::mv(written));
}

kj::Promise<void> AdminServer::serve(Connection& connection) {
  const std::size_t newline = connection.buffer.find('\n');
  if (newline != std::string::npos && newline <= kLineMax) {
    std::string line = connection.buffer.substr(0, newline);
    connection.buffer.erase(0, newline + 1);
    return execute(connection, std::move(line))
        .then([this, &connection](bool more) -> kj::Promise<void> {
          if (!more) return kj::READY_NOW;
          return serve(connection);
        });
  }
  if (connection.buffer.size() > kLineMax) return refuseLine(connection);
  return connection.stream->tryRead(connection.chunk, 1, kReadMax)
      .then([this, &connection](std::size_t count) { return onBytes(connection, count); });
}

kj::Promise<void> AdminServer::onBytes(Connection& connection, std::size_t count) {
  if (count > 0) {
    connection.buffer.append(connection.chunk, count);
    return serve(connection);
  }
  if (connection.buffer.empty()) return kj::READY_NOW;
  // Half a command is not carried out: "evict 12" may have been meant as "evict 123".
  return write(connection, renderError(fail(ErrorCode::InvalidArgument,
                                            "the line has no end; nothing was done")));
}

// The error is read for certain only if the peer's bytes are taken first: a close with unread
// bytes resets the connection.
kj::Promise<void> AdminServer::refuseLine(Connection& connection) {
  connection.buffer = std::string();
  return write(connection, renderError(tooLong())).then([this, &connection]() {
    connection.stream->shutdownWrite();
    return timer_.timeoutAfter(duration(kDrainTime), drain(connection, kDrainMax));
  });
}

kj::Promise<void> AdminServer::drain(Connection& connection, std::size_t left) {
  return connection.stream->tryRead(connection.chunk, 1, kReadMax)
      .then([this, &connection, left](std::size_t count) -> kj::Promise<void> {
        if (count == 0 || count >= left) return kj::READY_NOW;
        return drain(connection, left - count);
      });
}

// False where the connection has no more commands to come.
kj::Promise<bool> AdminServer::execute(Connection& connection, std::string line) {
  return handler_.answer(connection.peer, std::move(line))
      .then([this, &connection](AdminAnswer answer) -> kj::Promise<bool> {
        auto written = write(connection, std::move(answer.document));
        KJ_IF_MAYBE (events, answer.events) {
          return kj::mv(written)
              .then([this, &connection, source = kj::mv(*events)]() mutable {
                return stream(connection, kj::mv(source));
              })
              .then([]() { return false; });
        }
        return kj::mv(written).then([]() { return true; });
      });
}

kj::Promise<void> AdminServer::stream(Connection& connection, AdminAnswer::Events events) {
  auto source = kj::heap<AdminAnswer::Events>(kj::mv(events));
  auto told = tell(connection, *source);
  return told.exclusiveJoin(untilGone(connection)).attach(kj::mv(source));
}

// A watch ends when its peer says anything more, or is gone. One that only has no more to say, as
// `echo watch | socat -t 60 - UNIX:...`, goes on listening.
kj::Promise<void> AdminServer::untilGone(Connection& connection) {
  auto spoke = connection.stream->tryRead(connection.chunk, 1, kReadMax)
                   .then([](std::size_t count) -> kj::Promise<void> {
                     if (count > 0) return kj::READY_NOW;
                     return kj::NEVER_DONE;
                   });
  return spoke.exclusiveJoin(connection.stream->whenWriteDisconnected());
}

kj::Promise<void> AdminServer::tell(Connection& connection, AdminAnswer::Events& events) {
  return events().then(
      [this, &connection, &events](kj::Maybe<AdminAnswer::Event> event) -> kj::Promise<void> {
        KJ_IF_MAYBE (copy, event) {
          return write(connection, renderEvent((*copy)->getRoot<schema::Event>().asReader()))
              .then([this, &connection, &events]() { return tell(connection, events); });
        }
        return write(connection, renderError(fail(ErrorCode::Overloaded,
                                                  "this watcher reads too slowly and is dropped; "
                                                  "watch again with the last seq it saw")));
      });
}

}  // namespace qgpu
