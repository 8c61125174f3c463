#include "services/admin/admin_server.h"

#include <memory>

#include "services/admin/words.h"
#include "services/attach/process.h"

namespace qgpu {
namespace {

constexpr std::size_t kReadMax = 16 * 1024;          // bytes taken from a socket at once
constexpr std::size_t kDrainMax = 8 * 1024 * 1024;   // of a line that is too long, then we close
constexpr Nanos kAcceptPause = millis(100);
constexpr Nanos kDrainTime = seconds(2);

kj::Duration duration(Nanos time) { return time.value * kj::NANOSECONDS; }

Error tooLong() {
  return fail(ErrorCode::InvalidArgument, "a line has at most " + std::to_string(kLineMax) +
                                              " bytes; this connection is closed");
}

void fillSpec(schema::TaskSpec::Builder out, const RunSpec& spec, const Peer& peer,
              std::uint64_t ownerStart) {
  out.setName(ptr(spec.name));
  out.setClass(spec.taskClass);
  out.setMemBytes(spec.memBytes);
  out.setSharePermille(spec.sharePermille);
  out.setCards(spec.cards);
  out.setCard(ptr(spec.card));
  out.setRequestId(ptr(spec.requestId));
  out.setOwnerUid(peer.uid);
  if (!spec.owned) return;
  out.setOwnerPid(peer.pid);
  out.setOwnerStart(ownerStart);
}

// The request that a command stands for. Help, watch and run are the server's own.
void fillRequest(schema::Request::Builder request, const Command& command) {
  switch (command.verb) {
    case Verb::Info: request.setInfo(); return;
    case Verb::Cards: request.setCards(); return;
    case Verb::Tasks: request.setTasks(); return;
    case Verb::Events: request.setEvents(command.number); return;
    case Verb::Cordon: request.setCordon(ptr(command.card)); return;
    case Verb::Uncordon: request.setUncordon(ptr(command.card)); return;
    case Verb::Drain: request.setDrain(ptr(command.card)); return;
    case Verb::Evict: request.setEvict(command.number); return;
    case Verb::End: request.setUnbind(command.number); return;
    case Verb::Snapshot: request.setSnapshot(); return;
    case Verb::LogLevel: request.setLogLevel(ptr(command.level)); return;
    case Verb::Policy: {
      auto policy = request.initPolicy();
      policy.setCard(ptr(command.card));
      policy.setPolicy(command.policy);
      return;
    }
    case Verb::Help:
    case Verb::Watch:
    case Verb::Run: break;
  }
  QGPU_CHECK(false, "the server answers help, watch and run itself");
}

}  // namespace

struct AdminServer::Connection {
  Connection(kj::Own<kj::AsyncIoStream> s, Peer p) : stream(kj::mv(s)), peer(p) {}

  kj::Own<kj::AsyncIoStream> stream;
  Peer peer;
  std::string buffer;  // what was read and is no whole line yet; at most kLineMax + kReadMax
  char chunk[kReadMax];
};

AdminServer::AdminServer(NodeDoor& door, Housekeeping& keeping, ChangeRule rule,
                         AdminOptions options, kj::LowLevelAsyncIoProvider& io, kj::Timer& timer,
                         UnixListener listener)
    : door_(door),
      keeping_(keeping),
      rule_(std::move(rule)),
      options_(std::move(options)),
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
        tasks_.add(kj::evalNow([&]() { return admit(kj::mv(stream)); })
                       .catch_([](kj::Exception&&) {}));
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
      options_.connectionsMax - (peer.mayChange ? 0 : options_.connectionsReserved);
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
  return timer_.timeoutAfter(duration(options_.writeDeadline), kj::mv(written));
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
  Result<Command> command = parseCommand(line);
  if (command && command->verb == Verb::Watch) {
    return watch(connection, command->number).then([]() { return false; });
  }
  auto text = command ? answer(connection.peer, std::move(*command))
                      : kj::Promise<std::string>(renderError(command.error()));
  return text
      .then([this, &connection](std::string json) { return write(connection, std::move(json)); })
      .then([]() { return true; });
}

kj::Promise<std::string> AdminServer::answer(const Peer& peer, Command command) {
  if (command.verb == Verb::Help) return renderHelp();
  if (command.verb == Verb::Run) return bind(peer, std::move(command.spec));
  if (command.changes && !peer.mayChange) {
    return renderError(fail(ErrorCode::Denied,
                            "uid " + std::to_string(peer.uid) +
                                " may read only: root, the daemon's own user and group qgpu "
                                "may change a node"));
  }
  auto asked = door_.ask(
      peer, [&command](schema::Request::Builder request) { fillRequest(request, command); });
  return asked.then([this, command = std::move(command)](
                        Result<Answer> got) mutable -> kj::Promise<std::string> {
    if (!got) return renderError(got.error());
    const auto reply = got->reply();
    if (command.verb == Verb::Snapshot || command.verb == Verb::LogLevel) {
      return keepHouse(std::move(command),
                       reply.isDone() ? std::string(view(reply.getDone())) : std::string());
    }
    return renderReply(reply, options_.nodeName);
  });
}

kj::Promise<std::string> AdminServer::keepHouse(Command command, std::string done) {
  if (command.verb == Verb::LogLevel) {
    const Status status = keeping_.setLogLevel(command.level);
    return status ? renderDone(done) : renderError(status.error());
  }
  struct Waiting {
    kj::Own<kj::PromiseFulfiller<std::string>> fulfiller;
  };
  auto paf = kj::newPromiseAndFulfiller<std::string>();
  // std::function wants what can be copied; the loop is one thread, so the count needs no lock.
  auto waiting = std::make_shared<Waiting>(Waiting{kj::mv(paf.fulfiller)});
  keeping_.snapshot([waiting, done = std::move(done)](const Status& status) {
    waiting->fulfiller->fulfill(status ? renderDone(done) : renderError(status.error()));
  });
  return kj::mv(paf.promise);
}

kj::Promise<std::string> AdminServer::bind(const Peer& peer, RunSpec spec) {
  std::uint64_t start = 0;
  if (spec.owned) {
    const auto known = peer.pid == 0 ? std::nullopt : processStart(peer.pid);
    if (!known) {
      return renderError(fail(ErrorCode::InvalidArgument,
                              "the process that asks (pid " + std::to_string(peer.pid) +
                                  ") is not visible here, so its end can't be seen; ask with "
                                  "\"owner\":\"none\" and end the task by hand"));
    }
    start = *known;
  }
  auto asked = door_.ask(peer, [&](schema::Request::Builder request) {
    fillSpec(request.initBind(), spec, peer, start);
  });
  return asked.then([this](Result<Answer> got) {
    if (!got) return renderError(got.error());
    const auto reply = got->reply();
    if (!reply.isBound()) return renderReply(reply, options_.nodeName);
    return renderBound(reply.getBound(), options_.environment);
  });
}

kj::Promise<void> AdminServer::watch(Connection& connection, std::uint64_t since) {
  return EventFeed::open(door_, connection.peer, since)
      .then([this, &connection](Result<kj::Own<EventFeed>> feed) -> kj::Promise<void> {
        if (!feed) return write(connection, renderError(feed.error()));
        kj::Own<EventFeed> events = kj::mv(feed.value());
        EventFeed& source = *events;
        auto told = write(connection, renderWatching()).then([this, &connection, &source]() {
          return tell(connection, source);
        });
        return told.exclusiveJoin(untilGone(connection)).attach(kj::mv(events));
      });
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

kj::Promise<void> AdminServer::tell(Connection& connection, EventFeed& feed) {
  return feed.next().then(
      [this, &connection, &feed](kj::Maybe<NodeDoor::EventCopy> event) -> kj::Promise<void> {
        KJ_IF_MAYBE(copy, event) {
          return write(connection,
                       renderEvent((*copy)->getRoot<schema::Event>().asReader()))
              .then([this, &connection, &feed]() { return tell(connection, feed); });
        }
        return write(connection, renderError(fail(ErrorCode::Overloaded,
                                                  "this watcher reads too slowly and is dropped; "
                                                  "watch again with the last seq it saw")));
      });
}

}  // namespace qgpu
