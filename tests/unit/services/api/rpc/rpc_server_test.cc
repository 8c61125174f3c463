#include "services/api/rpc/rpc_server.h"

#include <capnp/serialize-async.h>
#include <random>

#include "schema/node.capnp.h"
#include "services/api/commands/schema_names.h"
#include "services/base/process.h"
#include "tests/unit/services/api/actor_client_fixture.h"
#include "tests/unit/services/api/rpc_client.h"

namespace qgpu::rpc_server_test {
namespace {

using testing::ApiFixture;

struct EventLog final : schema::EventWatcher::Server {
  explicit EventLog(std::vector<std::uint64_t>& s, bool& t) : seqs(s), takes(t) {}
  kj::Promise<void> event(EventContext context) override {
    if (!takes) return kj::NEVER_DONE;
    seqs.push_back(context.getParams().getEvent().getSeq());
    return kj::READY_NOW;
  }
  std::vector<std::uint64_t>& seqs;
  bool& takes;
};

using RpcClient = testing::RpcClient<schema::Node>;

struct Rpc : ApiFixture {
  Rpc() : path(folder / "manager.rpc") { start(ChangeRule(::getuid())); }
  ~Rpc() noexcept override = default;

  void start(ChangeRule rule) {
    server.reset();
    RpcLimits limits;
    limits.connectionsMax = 4;
    limits.connectionsReserved = 2;
    limits.callsMax = 3;
    limits.watchesMax = 1;
    server = std::make_unique<RpcServer>(actor, std::move(rule), limits, *io.lowLevelProvider,
                                         bridge.timer());
    auto listener = UnixListener::open(path, 0666);
    ASSERT_TRUE(listener.ok()) << listener.error().message;
    server->serveUnix(std::move(*listener));
    auto tcp = TcpListener::open("127.0.0.1:0", "--rpc");
    ASSERT_TRUE(tcp.ok()) << tcp.error().message;
    tcpAddress = tcp->address();
    server->serveTcp(std::move(*tcp));
  }
  RpcClient connect() { return RpcClient(io, "unix:" + path); }

  // The error that a call ends with.
  template <typename Promise>
  Error errorOf(Promise&& promise) {
    Error error = fail(ErrorCode::Internal, "the call succeeded");
    promise.ignoreResult()
        .then([]() {}, [&](kj::Exception&& exception) { error = fromException(exception); })
        .wait(io.waitScope);
    return error;
  }

  std::string path;
  std::string tcpAddress;
  std::unique_ptr<RpcServer> server;
};

TEST_F(Rpc, ServesEveryMethodOverAUnixSocket) {
  RpcClient client = connect();
  const auto info = client.root.infoRequest().send().wait(io.waitScope);
  EXPECT_EQ(view(info.getInfo().getName()), "here");
  EXPECT_EQ(client.root.cardsRequest().send().wait(io.waitScope).getCards().size(), 2u);
  const auto tasks = client.root.tasksRequest().send().wait(io.waitScope);
  EXPECT_EQ(tasks.getTasks()[0].getUse().getGpuNs(), 9'007'199'254'740'993u);

  auto bind = client.root.bindRequest();
  bind.initSpec().setName("a");
  bind.getSpec().setMemBytes(1ULL << 30U);
  bind.getSpec().setOwnerPid(static_cast<std::uint32_t>(::getpid()));
  const auto bound = bind.send().wait(io.waitScope);
  EXPECT_EQ(bound.getTask(), 7u);
  EXPECT_EQ(view(bound.getToken()), "0123456789abcdef0123456789abcdef");
  EXPECT_EQ(view(bound.getCards()[0]), "sim-0");
  EXPECT_EQ(view(bound.getAttachSocket()), "/run/qgpu/attach.sock");
  EXPECT_EQ(node.asked.back().text, "a");
  EXPECT_EQ(node.asked.back().ownerStart, processStart(static_cast<std::uint32_t>(::getpid())));

  auto unbind = client.root.unbindRequest();
  unbind.setTask(7);
  unbind.send().wait(io.waitScope);
  EXPECT_EQ(node.asked.back().number, 7u);

  auto policy = client.root.setPolicyRequest();
  policy.setCard("all");
  policy.setPolicy(schema::Policy::BURST_SHARE);
  policy.send().wait(io.waitScope);
  EXPECT_EQ(node.asked.back().text, "all");
  EXPECT_EQ(node.asked.back().number, 2u);

  auto cordon = client.root.cordonRequest();
  cordon.setCard("sim-0");
  cordon.send().wait(io.waitScope);
  EXPECT_EQ(node.asked.back().which, schema::Request::CORDON);
  auto uncordon = client.root.uncordonRequest();
  uncordon.setCard("sim-0");
  uncordon.send().wait(io.waitScope);
  EXPECT_EQ(node.asked.back().which, schema::Request::UNCORDON);

  node.eventSeqs = {1, 2, 3};
  auto events = client.root.eventsRequest();
  events.setSince(1);
  EXPECT_EQ(events.send().wait(io.waitScope).getEvents().size(), 2u);
}

TEST_F(Rpc, AnyCommandIsAskedByItsRequest) {
  RpcClient client = connect();
  auto evict = client.root.askRequest();
  evict.initRequest().setEvict(7);
  evict.send().wait(io.waitScope);
  EXPECT_EQ(node.asked.back().which, schema::Request::EVICT);
  EXPECT_EQ(node.asked.back().number, 7u);
  for (const bool end : {true, false}) {  // for the member actor alone
    auto own = client.root.askRequest();
    if (end)
      own.initRequest().initEnd();
    else
      own.initRequest().initPlace();
    EXPECT_EQ(errorOf(own.send()).code, ErrorCode::Unsupported);
  }
  RpcClient stranger(io, tcpAddress);
  auto again = stranger.root.askRequest();
  again.initRequest().setEvict(7);
  EXPECT_EQ(errorOf(again.send()).code, ErrorCode::Denied);
  auto cards = stranger.root.askRequest();
  cards.initRequest().setCards();
  EXPECT_EQ(cards.send().wait(io.waitScope).getReply().getCards().size(), 2u);
  auto trace = stranger.root.askRequest();
  trace.initRequest().initTrace().setCard("0");
  trace.getRequest().getTrace().setSince(40);
  const auto told = trace.send().wait(io.waitScope);
  EXPECT_EQ(told.getReply().getTrace().getEntries().size(), 2u);
  EXPECT_EQ(told.getReply().getTrace().getNewest(), 42u);
  EXPECT_EQ(node.asked.back().number, 40u);
}

TEST_F(Rpc, RefusalsAreFailedWithCodeAndMessageAndAFullMailboxIsOverloaded) {
  RpcClient client = connect();
  node.failNext = fail(ErrorCode::NoRoom, "no card has 9 GiB left: wait");
  const Error noRoom = errorOf(client.root.bindRequest().send());
  EXPECT_EQ(noRoom.code, ErrorCode::NoRoom);
  EXPECT_EQ(noRoom.message, "no card has 9 GiB left: wait");

  sink.full = true;
  kj::Exception::Type type = kj::Exception::Type::FAILED;
  client.root.infoRequest()
      .send()
      .ignoreResult()
      .catch_([&](kj::Exception&& exception) { type = exception.getType(); })
      .wait(io.waitScope);
  EXPECT_EQ(type, kj::Exception::Type::OVERLOADED);
}

TEST_F(Rpc, C5_CallsOfAConnectionAreLimited) {
  scripted.silent = true;
  RpcClient client = connect();
  std::vector<kj::Promise<void>> calls;
  for (int i = 0; i < 3; ++i) {
    calls.push_back(client.root.infoRequest().send().ignoreResult());
  }
  EXPECT_EQ(errorOf(client.root.infoRequest().send()).code, ErrorCode::Overloaded);
  EXPECT_EQ(actor.outstanding(), 3u);
  calls.clear();
  waitUntil([&] { return actor.outstanding() == 0; });
  scripted.silent = false;
  client.root.infoRequest().send().wait(io.waitScope);
}

TEST_F(Rpc, WatchTellsEventsUntilTheSubscriptionIsDropped) {
  std::vector<std::uint64_t> seqs;
  bool takes = true;
  RpcClient client = connect();
  auto request = client.root.watchRequest();
  request.setWatcher(kj::heap<EventLog>(seqs, takes));
  auto subscription = kj::heap(request.send().wait(io.waitScope).getSubscription());
  sink.tellEvent(1);
  sink.tellEvent(2);
  waitUntil([&] { return seqs.size() == 2; });
  EXPECT_EQ(seqs, (std::vector<std::uint64_t>{1, 2}));

  auto second = client.root.watchRequest();
  second.setWatcher(kj::heap<EventLog>(seqs, takes));
  EXPECT_EQ(errorOf(second.send()).code, ErrorCode::Overloaded);

  subscription = nullptr;
  waitUntil([&] { return actor.watchers() == 0; });
}

TEST_F(Rpc, AWatcherThatLeavesIsForgotten) {
  std::vector<std::uint64_t> seqs;
  bool takes = false;  // and it never took an event
  {
    RpcClient client = connect();
    auto request = client.root.watchRequest();
    request.setWatcher(kj::heap<EventLog>(seqs, takes));
    const auto response = request.send().wait(io.waitScope);
    sink.tellEvent(1);
    sink.tellEvent(2);
  }
  waitUntil([&] { return actor.watchers() == 0 && server->connections() == 0; });
}

TEST_F(Rpc, ATcpPeerMayReadButNeitherChangeNorBind) {
  RpcClient client(io, tcpAddress);
  EXPECT_EQ(view(client.root.infoRequest().send().wait(io.waitScope).getInfo().getName()), "here");
  EXPECT_FALSE(node.asked.back().mayChange);
  EXPECT_EQ(errorOf(client.root.bindRequest().send()).code, ErrorCode::Denied);
  EXPECT_EQ(errorOf(client.root.unbindRequest().send()).code, ErrorCode::Denied);
  EXPECT_EQ(errorOf(client.root.cordonRequest().send()).code, ErrorCode::Denied);
  EXPECT_EQ(errorOf(client.root.uncordonRequest().send()).code, ErrorCode::Denied);
  EXPECT_EQ(errorOf(client.root.setPolicyRequest().send()).code, ErrorCode::Denied);
}

TEST_F(Rpc, WrongArgumentsAreRefusedBeforeTheNodeIsAsked) {
  RpcClient client = connect();
  auto cordon = client.root.cordonRequest();
  const std::string longName(300, 'x');
  cordon.setCard(ptr(longName));
  EXPECT_EQ(errorOf(cordon.send()).code, ErrorCode::InvalidArgument);
  auto policy = client.root.setPolicyRequest();
  policy.setPolicy(static_cast<schema::Policy>(99));
  EXPECT_EQ(errorOf(policy.send()).code, ErrorCode::InvalidArgument);
  auto bind = client.root.bindRequest();
  bind.initSpec().setClass(static_cast<schema::TaskClass>(99));
  EXPECT_EQ(errorOf(bind.send()).code, ErrorCode::InvalidArgument);
  auto gone = client.root.bindRequest();
  gone.initSpec().setOwnerPid(0x7FFFFFFF);
  EXPECT_EQ(errorOf(gone.send()).code, ErrorCode::InvalidArgument);
  EXPECT_TRUE(node.asked.empty());
}

TEST_F(Rpc, C7_AMessageAboveTheLimitClosesItsConnectionOnly) {
  RpcClient client = connect();
  RpcClient other = connect();
  auto cordon = client.root.cordonRequest();
  const std::string huge(1 << 20, 'x');
  cordon.setCard(ptr(huge));
  EXPECT_EQ(errorOf(cordon.send()).code, ErrorCode::Unavailable);
  other.root.infoRequest().send().wait(io.waitScope);
}

TEST_F(Rpc, C7_GarbageIsHarmless) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 20; ++round) {
    std::string bytes(8 + random() % 4096, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    testing::LineClient client(io, path);
    client.write(bytes);
    client.endWrites();
    while (!client.readLine().empty()) {
    }
  }
  EXPECT_TRUE(node.asked.empty());
  RpcClient client = connect();
  client.root.infoRequest().send().wait(io.waitScope);
}

TEST_F(Rpc, C7_ConnectionsAreLimited) {
  std::vector<kj::Own<RpcClient>> clients;
  for (int i = 0; i < 4; ++i) {
    clients.push_back(kj::heap<RpcClient>(io, "unix:" + path));
    clients.back()->root.infoRequest().send().wait(io.waitScope);
  }
  RpcClient extra = connect();
  EXPECT_EQ(errorOf(extra.root.infoRequest().send()).code, ErrorCode::Unavailable);
  clients.pop_back();
  waitUntil([&] { return server->connections() == 3; });
  connect().root.infoRequest().send().wait(io.waitScope);
}

}  // namespace
}  // namespace qgpu::rpc_server_test
