#pragma once
// What tests of the cluster's RPC share: a real loop, a scripted scheduler with its client, links
// and RPC server on real sockets, and scripted members with real links to it.

#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "services/api/commands/schema_names.h"
#include "services/api/rpc/node_traces.h"
#include "services/api/rpc/rpc_server.h"
#include "services/api/rpc/scheduler_link.h"
#include "services/api/rpc/scheduler_service.h"
#include "tests/unit/services/api/actor_client_fixture.h"

namespace qgpu::testing {

// Keeps a copy of each message that is for it.
class Listener : public Actor {
 public:
  struct Word {
    schema::Envelope::Which which{};
    std::unique_ptr<capnp::MallocMessageBuilder> message;
    schema::Envelope::Reader read() const {
      return message->getRoot<schema::Envelope>().asReader();
    }
  };
  void handle(schema::Envelope::Reader message, Turn& turn) override {
    auto copy = std::make_unique<capnp::MallocMessageBuilder>();
    copy->setRoot(message);
    heard.push_back(Word{message.which(), std::move(copy)});
    onMessage(message, turn);
  }
  virtual void onMessage(schema::Envelope::Reader, Turn&) {}

  std::size_t count(schema::Envelope::Which which) const {
    std::size_t n = 0;
    for (const Word& word : heard) n += word.which == which ? 1 : 0;
    return n;
  }
  // The links of the fromMember words of a kind.
  std::vector<std::uint32_t> links(schema::FromMember::Which kind) const {
    std::vector<std::uint32_t> out;
    for (const Word& word : heard) {
      if (word.which != schema::Envelope::FROM_MEMBER) continue;
      if (word.read().getFromMember().which() == kind) {
        out.push_back(word.read().getFromMember().getLink());
      }
    }
    return out;
  }
  std::vector<Word> heard;
};

// Answers what the clients ask, and welcomes members.
class ScriptedScheduler final : public Listener {
 public:
  std::optional<Error> failNext;
  std::optional<Error> failAssigned;
  bool binds = true;                      // a submit is bound at once
  std::uint64_t pages = 1;                // of the list of tasks, one on each
  std::vector<std::uint64_t> pagesAsked;  // behind these
  bool silent = false;

  void onMessage(schema::Envelope::Reader message, Turn& turn) override {
    if (silent) return;
    if (message.isClusterRequest()) answer(message.getClusterRequest(), turn);
    if (message.isFromMember() && message.getFromMember().isHello()) {
      const auto words = message.getFromMember();
      const SendResult sent = turn.send(turn.sender(), [&](schema::Envelope::Builder envelope) {
        auto out = envelope.initToMember();
        out.setLink(words.getLink());
        out.setSession(7);
        auto welcome = out.initWelcome();
        welcome.setNonce(words.getHello().getNonce());
      });
      EXPECT_EQ(sent, SendResult::Sent);
    }
  }

 private:
  void answer(schema::ClusterRequest::Reader request, Turn& turn) {
    const SendResult sent = turn.send(turn.sender(), [&](schema::Envelope::Builder envelope) {
      auto reply = envelope.initClusterReply();
      reply.setCorr(request.getCorr());
      std::optional<Error> failure = std::move(failNext);
      failNext.reset();
      if (!failure && request.isAssigned()) failure = failAssigned;
      if (failure) {
        auto failed = reply.initFailed();
        failed.setCode(errorName(failure->code));
        failed.setMessage(ptr(failure->message));
        return;
      }
      fill(request, reply);
    });
    EXPECT_EQ(sent, SendResult::Sent);
  }

  void fill(schema::ClusterRequest::Reader request, schema::ClusterReply::Builder reply) {
    switch (request.which()) {
      case schema::ClusterRequest::INFO:
        reply.initInfo().setTerm(3);
        return;
      case schema::ClusterRequest::NODES:
        reply.initNodes(1)[0].setName("node-1");
        return;
      case schema::ClusterRequest::CARDS:
        reply.initCards(1)[0].setNode("node-1");
        return;
      case schema::ClusterRequest::TASKS: {
        if (request.hasPage()) pagesAsked.push_back(request.getPage().getAfter());
        if (request.hasPage() && request.getPage().getAfter() + 1 < pages) {
          reply.setNext(request.getPage().getAfter() + 1);
        }
        const bool known = request.getTasks().size() == 0 || request.getTasks()[0] == 42;
        auto tasks = reply.initTasks(known ? 1 : 0);
        if (known) {
          tasks[0].setId(42);
          tasks[0].initSpec().initTask().setName("train");
          tasks[0].setState(binds ? schema::PlaceState::BOUND : schema::PlaceState::WAITING);
        }
        return;
      }
      case schema::ClusterRequest::SUBMIT:
      case schema::ClusterRequest::ASSIGNED: {
        auto assigned = reply.initAssigned();
        assigned.setTask(42);
        assigned.setWaiting(!binds);
        if (!binds) return;
        assigned.setNode("node-1");
        assigned.setToken("0123456789abcdef0123456789abcdef");
        assigned.initCards(1).set(0, "sim-0");
        return;
      }
      case schema::ClusterRequest::EXPLAIN:
      case schema::ClusterRequest::EXPLAIN_SPEC:
        reply.initExplanation().setText("why");
        return;
      case schema::ClusterRequest::WHAT_IF:
      case schema::ClusterRequest::PREEMPT:
        reply.initWhatIf().setAllocatedAfter(500);
        return;
      case schema::ClusterRequest::EVENTS: {  // it remembers number 9
        const bool newer = request.getEvents() < 9;
        auto events = reply.initEvents(newer ? 1 : 0);
        if (newer) events[0].setSeq(9);
        return;
      }
      default:
        reply.setDone("done");
        return;
    }
  }
};

// Says hello when its link is up.
class ScriptedMember final : public Listener {
 public:
  bool hello = true;
  std::string name = "node-1";
  std::uint64_t nonce = 0;
  void onMessage(schema::Envelope::Reader message, Turn& turn) override {
    if (!message.isLinkUp() || !hello) return;
    const SendResult sent = turn.send(turn.sender(), [this](schema::Envelope::Builder envelope) {
      auto words = envelope.initFromMember();
      words.setSeq(1);
      auto said = words.initHello();
      said.setNonce(++nonce);
      said.initFacts().setName(ptr(name));
    });
    EXPECT_EQ(sent, SendResult::Sent);
  }
};

// An outlet that a test can shut.
class Gate final : public RequestSink {
 public:
  Gate(Dispatcher& dispatcher, ActorId from, ActorId to) : link_(dispatcher, from, to) {}
  SendResult send(Build build) override {
    return full ? SendResult::Refused : link_.send(kj::mv(build));
  }
  bool full = false;

 private:
  NodeLink link_;
};

// What a scheduler does itself, counted.
struct House final : Housekeeping {
  void snapshot(std::function<void(Status)> done) override {
    ++snapshots;
    done(snapshotEnds);
  }
  Status setLogLevel(const std::string& l) override {
    if (l == "loud") return fail(ErrorCode::InvalidArgument, "no level is called loud");
    level = l;
    return ok();
  }
  Status snapshotEnds = ok();
  int snapshots = 0;
  std::string level;
};

struct ClusterRpcFixture : ::testing::Test {
  // A member with a link of its own.
  struct Member {
    Member(ClusterRpcFixture& f, SchedulerLinkConfig config)
        : actorId(f.dispatcher.add(actor)),
          linkId(f.dispatcher.reserve()),
          sink(f.dispatcher, linkId, actorId),
          link(sink, f.bridge.io().getNetwork(), f.bridge.timer(), std::move(config)),
          dispatcher(f.dispatcher) {
      f.dispatcher.attach(linkId, link);
      link.start();
    }
    ~Member() {
      dispatcher.remove(linkId);
      dispatcher.remove(actorId);
    }
    // As the member actor would.
    template <typename Fill>
    void say(Fill fill) {
      Outlet outlet(dispatcher, actorId);
      const SendResult sent = outlet.send(
          linkId, [&](schema::Envelope::Builder envelope) { fill(envelope.initFromMember()); });
      EXPECT_EQ(sent, SendResult::Sent);
    }
    ScriptedMember actor;
    ActorId actorId;
    ActorId linkId;
    Gate sink;
    SchedulerLink link;
    Dispatcher& dispatcher;
  };

  ~ClusterRpcFixture() noexcept override {
    members.clear();
    stopServer();
    traces.stop();
    links.reset();
  }

  static LinksLimits quickLinks() {
    LinksLimits limits;
    limits.patience = millis(50);
    limits.sweep = millis(10);
    return limits;
  }
  static SchedulerLinkConfig quickConfig(std::string address) {
    SchedulerLinkConfig config;
    config.addresses = {std::move(address)};
    config.pauseMin = millis(1);
    config.pauseMax = config.served = millis(4);
    config.connectDeadline = seconds(2);
    return config;
  }

  void startServer(kj::Maybe<kj::TlsContext&> tls = nullptr,
                   RpcLimits limits = SchedulerRpc::limits(), LinksLimits linkLimits = {}) {
    limits.goodbye = millis(20);
    if (!links) {
      links = std::make_unique<Links>(linksSink, bridge.timer(), plainJoins, linkLimits);
      dispatcher.attach(linksId, *links);
      traces.start(*links, actor);
    }
    server =
        std::make_unique<RpcServer>(kj::heap<SchedulerRpc>(actor, *links, house), ChangeRule(self),
                                    limits, bridge.lowLevel(), bridge.timer());
    auto local = UnixListener::open(path, 0666);
    ASSERT_TRUE(local.ok()) << local.error().message;
    server->serveUnix(std::move(*local));
    auto tcp = TcpListener::open("127.0.0.1:" + std::to_string(port), "--rpc");
    ASSERT_TRUE(tcp.ok()) << tcp.error().message;
    port = tcp->port();
    server->serveTcp(std::move(*tcp), tls);
  }
  void stopServer() { server.reset(); }

  Member& addMember(SchedulerLinkConfig config) {
    members.push_back(std::make_unique<Member>(*this, std::move(config)));
    return *members.back();
  }
  std::string unixAddress() const { return "unix:" + path; }
  std::string tcpAddress() const { return "127.0.0.1:" + std::to_string(port); }

  // As the scheduler actor would.
  template <typename Fill>
  void tell(std::uint32_t link, Fill fill) {
    Outlet outlet(dispatcher, schedulerId);
    const SendResult sent = outlet.send(linksId, [&](schema::Envelope::Builder envelope) {
      auto words = envelope.initToMember();
      words.setLink(link);
      fill(words);
    });
    EXPECT_EQ(sent, SendResult::Sent);
  }

  // Serves until `done`, which the outside brings about; false where it takes too long.
  template <typename Done>
  [[nodiscard]] bool served(Done done) {
    const kj::TimePoint end = bridge.timer().now() + 20 * kj::SECONDS;
    while (!done()) {
      if (bridge.timer().now() > end) return false;
      bridge.timer().afterDelay(kj::MILLISECONDS).wait(bridge.waitScope());
    }
    return true;
  }

  TempFolder folder{"rpc", {.mode = 0755}};  // for peers of another user
  std::string path = folder / "scheduler.rpc";
  uid_t self = ::getuid();
  Links::PlainJoins plainJoins = Links::PlainJoins::Taken;
  std::uint16_t port = 0;
  Loop loop;
  ActorSystem system;
  Dispatcher dispatcher{system, loop};
  KjBridge bridge{loop};
  LoopIo io{bridge};
  ScriptedScheduler scheduler;
  ActorId schedulerId = dispatcher.add(scheduler);
  ActorId clientId = dispatcher.reserve();
  ActorId linksId = dispatcher.reserve();
  Gate clientSink{dispatcher, clientId, schedulerId};
  Gate linksSink{dispatcher, linksId, schedulerId};
  NodeTraces traces{clientSink, bridge.timer(), {.askedMax = 4, .within = millis(500)}};
  ClusterActorClient actor{traces, bridge.timer()};
  bool attached = (dispatcher.attach(clientId, actor), true);
  House house;
  std::unique_ptr<Links> links;
  std::unique_ptr<RpcServer> server;
  std::vector<std::unique_ptr<Member>> members;
};

}  // namespace qgpu::testing
