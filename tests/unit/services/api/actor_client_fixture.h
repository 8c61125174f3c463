#pragma once
// What tests of the clients share: a folder of their own, a real loop with KJ as its guest, a
// scripted node and a NodeActorClient as its actors, and a client that speaks lines over a unix
// socket.

#include <gtest/gtest.h>
#include <kj/async-io.h>
#include <string>
#include <unistd.h>

#include "runtime/dispatcher.h"
#include "runtime/kj/bridge.h"
#include "runtime/loop.h"
#include "services/api/commands/node_actor_client.h"
#include "services/api/commands/node_link.h"
#include "tests/testing/temp_folder.h"
#include "tests/unit/services/api/scripted_node.h"

namespace qgpu::testing {

// The scripted node as an actor of a real loop.
class ScriptedActor final : public Actor {
 public:
  explicit ScriptedActor(ScriptedNode& node) : node_(node) {}
  bool silent = false;  // never answers

  void handle(schema::Envelope::Reader message, Turn& turn) override {
    if (!message.isRequest()) return;
    capnp::MallocMessageBuilder reply;
    node_.answer(message.getRequest(), reply.initRoot<schema::Reply>());
    if (silent) return;
    const SendResult sent = turn.send(turn.sender(), [&](schema::Envelope::Builder envelope) {
      envelope.setReply(reply.getRoot<schema::Reply>().asReader());
    });
    EXPECT_EQ(sent, SendResult::Sent);
  }

 private:
  ScriptedNode& node_;
};

// What the tests say to the loop: the names are those of kj::AsyncIoContext.
struct LoopIo {
  explicit LoopIo(KjBridge& kj)
      : provider(&kj.io()), lowLevelProvider(&kj.lowLevel()), waitScope(kj.waitScope()) {}
  kj::AsyncIoProvider* provider;
  kj::LowLevelAsyncIoProvider* lowLevelProvider;
  kj::WaitScope& waitScope;
};

// ActorClient and node as in the daemon: two actors of one loop, which KJ shares.
struct ApiFixture : ::testing::Test {
  struct Sink final : RequestSink {
    Sink(ApiFixture& f) : fixture(f), link(f.dispatcher, f.clientId, f.nodeId) {}
    SendResult send(Build build) override {
      return full ? SendResult::Refused : link.send(kj::mv(build));
    }
    void tellEvent(std::uint64_t seq) {
      Outlet outlet(fixture.dispatcher, fixture.nodeId);
      const SendResult sent =
          outlet.send(fixture.clientId, [&](schema::Envelope::Builder envelope) {
            fixture.node.fillEvent(envelope.initEventTold(), seq);
          });
      EXPECT_EQ(sent, SendResult::Sent);
    }
    bool full = false;  // the mailbox refuses
    ApiFixture& fixture;
    NodeLink link;
  };

  explicit ApiFixture(NodeActorClient::Limits limits = {})
      : nodeId(dispatcher.add(scripted)),
        clientId(dispatcher.reserve()),
        sink(*this),
        actor(sink, bridge.timer(), limits) {
    dispatcher.attach(clientId, actor);
  }
  ~ApiFixture() noexcept override = default;

  // Serves until `done`, which the outside brings about.
  template <typename Done>
  void waitUntil(Done done) {
    while (!done()) bridge.timer().afterDelay(kj::MILLISECONDS).wait(io.waitScope);
  }

  TempFolder folder{"clients", {.mode = 0755}};  // for peers of another user
  Loop loop;
  ActorSystem system;
  Dispatcher dispatcher{system, loop};
  KjBridge bridge{loop};
  LoopIo io{bridge};
  ScriptedNode node;
  ScriptedActor scripted{node};
  ActorId nodeId;
  ActorId clientId;
  Sink sink;
  NodeActorClient actor;
};

// A connection that reads lines, on the fixture's loop.
class LineClient {
 public:
  LineClient(LoopIo& io, const std::string& path)
      : io_(io),
        stream_(io.provider->getNetwork()
                    .parseAddress(kj::str("unix:", path.c_str()))
                    .wait(io.waitScope)
                    ->connect()
                    .wait(io.waitScope)) {}

  // Nothing where the server closed before it took everything.
  bool write(const std::string& text) {
    bool written = true;
    kj::evalNow([&]() {
      return stream_->write(text.data(), text.size());
    }).catch_([&](kj::Exception&&) {
        written = false;
      }).wait(io_.waitScope);
    return written;
  }
  void endWrites() { stream_->shutdownWrite(); }

  // The next line, or "" at the end.
  std::string readLine() {
    std::size_t newline = 0;
    while ((newline = buffer_.find('\n')) == std::string::npos) {
      char chunk[4096];
      std::size_t count = 0;
      kj::evalNow([&]() { return stream_->tryRead(chunk, 1, sizeof chunk); })
          .then([&](std::size_t n) { count = n; }, [](kj::Exception&&) {})
          .wait(io_.waitScope);
      if (count == 0) return "";
      buffer_.append(chunk, count);
    }
    std::string line = buffer_.substr(0, newline);
    buffer_.erase(0, newline + 1);
    return line;
  }
  std::string ask(const std::string& line) {
    write(line + "\n");
    return readLine();
  }

 private:
  LoopIo& io_;
  kj::Own<kj::AsyncIoStream> stream_;
  std::string buffer_;
};

}  // namespace qgpu::testing
