#include <capnp/rpc.capnp.h>
#include <capnp/serialize.h>
#include <random>

#include "services/api/rpc/checked.h"
#include "services/api/rpc/scheduler_service.h"
#include "tests/unit/services/api/cluster_rpc_fixture.h"
#include "tests/unit/services/api/rpc_client.h"

namespace qgpu::rpc_scheduler_test {
namespace {

using testing::ClusterRpcFixture;

struct EventLog final : schema::ClusterWatcher::Server {
  explicit EventLog(std::vector<std::uint64_t>& s) : seqs(s) {}
  kj::Promise<void> event(EventContext context) override {
    seqs.push_back(context.getParams().getEvent().getSeq());
    return kj::READY_NOW;
  }
  std::vector<std::uint64_t>& seqs;
};

// Takes nothing until it is let go.
struct SlowWatcher final : schema::ClusterWatcher::Server {
  struct Seen {
    kj::Vector<kj::Own<kj::PromiseFulfiller<void>>> held;
    bool holds = true;
    std::size_t events = 0;
    std::string last;
  };
  explicit SlowWatcher(Seen& s) : seen(s) {}
  kj::Promise<void> event(EventContext context) override {
    ++seen.events;
    seen.last = view(context.getParams().getEvent().getKind());
    if (!seen.holds) return kj::READY_NOW;
    auto paf = kj::newPromiseAndFulfiller<void>();
    seen.held.add(kj::mv(paf.fulfiller));
    return kj::mv(paf.promise);
  }
  Seen& seen;
};

using Client = testing::RpcClient<schema::Scheduler>;

struct RpcScheduler : ClusterRpcFixture {
  ~RpcScheduler() noexcept override = default;

  template <typename Promise>
  Error errorOf(Promise&& promise) {
    Error error = fail(ErrorCode::Internal, "the call succeeded");
    promise.ignoreResult()
        .then([]() {}, [&](kj::Exception&& exception) { error = fromException(exception); })
        .wait(io.waitScope);
    return error;
  }
  template <typename Request>
  auto done(Request&& request) {
    return request.send().wait(io.waitScope);
  }
  void tellEvent(std::uint64_t seq, const std::string& text = "") {
    Outlet outlet(dispatcher, schedulerId);
    const SendResult sent = outlet.send(clientId, [&](schema::Envelope::Builder m) {
      auto event = m.initEventTold();
      event.setSeq(seq);
      event.setKind("told");
      event.setText(ptr(text));
    });
    EXPECT_EQ(sent, SendResult::Sent);
  }
  schema::ClusterRequest::Reader asked() const {
    return scheduler.heard.back().read().getClusterRequest();
  }
};

TEST_F(RpcScheduler, AnswersEveryQuestion) {
  startServer();
  Client client(io, tcpAddress());  // nobody in particular may ask
  auto& s = client.root;
  EXPECT_EQ(done(s.infoRequest()).getInfo().getTerm(), 3u);
  EXPECT_EQ(view(done(s.nodesRequest()).getNodes()[0].getName()), "node-1");
  EXPECT_EQ(view(done(s.cardsRequest()).getCards()[0].getNode()), "node-1");
  EXPECT_EQ(done(s.listRequest()).getTasks()[0].getId(), 42u);
  EXPECT_EQ(done(s.eventsRequest()).getEvents()[0].getSeq(), 9u);
  auto explain = s.explainRequest();
  explain.setTask(42);
  EXPECT_EQ(view(done(explain).getExplanation().getText()), "why");
  EXPECT_EQ(asked().getExplain(), 42u);
  auto explainSpec = s.explainSpecRequest();
  explainSpec.initSpec().initModels(1).set(0, "H100");
  EXPECT_EQ(view(done(explainSpec).getExplanation().getText()), "why");
  EXPECT_EQ(view(asked().getExplainSpec().getModels()[0]), "H100");
  auto place = s.whatIfRequest();
  place.initQuestion().initPlace().setCount(20);
  EXPECT_EQ(done(place).getAnswer().getAllocatedAfter(), 500u);
  EXPECT_EQ(asked().getWhatIf().getPlace().getCount(), 20u);
  auto drained = s.whatIfRequest();
  drained.initQuestion().initDrain().setNode("node-1");
  EXPECT_EQ(done(drained).getAnswer().getAllocatedAfter(), 500u);
  EXPECT_EQ(view(asked().getWhatIf().getDrain().getNode()), "node-1");
  auto preempt = s.preemptDryRunRequest();
  preempt.setTask(42);
  EXPECT_EQ(done(preempt).getAnswer().getAllocatedAfter(), 500u);
}

TEST_F(RpcScheduler, SubmitsGetsAndDeletesForWhoIsKnown) {
  startServer();
  Client client(io, unixAddress());
  auto submit = client.root.submitRequest();
  auto spec = submit.initSpec();
  spec.setNode("node-1");
  spec.setCpuMilli(4'000);
  spec.setNodeScore(schema::Score::SPREAD);
  spec.setPreempt(true);
  spec.initTask().setName("a");
  spec.getTask().setClusterTask(99);
  spec.getTask().setClusterEpoch(98);
  const auto assigned = done(submit);
  EXPECT_EQ(assigned.getAssigned().getTask(), 42u);
  EXPECT_EQ(view(assigned.getAssigned().getCards()[0]), "sim-0");
  const auto sent = asked().getSubmit();
  EXPECT_EQ(view(sent.getTask().getName()), "a");
  EXPECT_EQ(view(sent.getNode()), "node-1");
  EXPECT_EQ(sent.getCpuMilli(), 4'000u);
  EXPECT_EQ(sent.getNodeScore(), schema::Score::SPREAD);
  EXPECT_TRUE(sent.getPreempt());
  EXPECT_EQ(sent.getTask().getClusterTask(), 0u) << "only a member may say so";
  EXPECT_EQ(sent.getTask().getClusterEpoch(), 0u);

  auto get = client.root.getRequest();
  get.setTask(42);
  const auto got = done(get);
  EXPECT_EQ(got.getTask().getState(), schema::PlaceState::BOUND);
  EXPECT_EQ(view(got.getAssigned().getNode()), "node-1");

  auto gone = client.root.deleteRequest();
  gone.setTask(42);
  done(gone);
  EXPECT_EQ(asked().getDelete(), 42u);
}

TEST_F(RpcScheduler, GetKeepsWhatOnlyTheOwnerMayKnow) {
  startServer();
  scheduler.failAssigned = fail(ErrorCode::Denied, "not yours");
  Client client(io, unixAddress());
  auto get = client.root.getRequest();
  get.setTask(42);
  const auto got = done(get);
  EXPECT_EQ(got.getTask().getId(), 42u);
  EXPECT_FALSE(got.getAssigned().hasToken());
  auto none = client.root.getRequest();
  none.setTask(43);
  EXPECT_EQ(errorOf(none.send()).code, ErrorCode::NotFound);
}

TEST_F(RpcScheduler, ChangesTheClusterForWhoMayChangeIt) {
  startServer();
  Client client(io, unixAddress());
  auto cordon = client.root.cordonRequest();
  cordon.initTarget().setNode("node-1");
  cordon.getTarget().setCard("sim-0");
  done(cordon);
  EXPECT_EQ(view(asked().getCordon().getCard()), "sim-0");
  EXPECT_TRUE(asked().getMayChange());
  auto uncordon = client.root.uncordonRequest();
  uncordon.initTarget().setNode("node-1");
  done(uncordon);
  EXPECT_EQ(view(asked().getUncordon().getNode()), "node-1");
  auto drain = client.root.drainRequest();
  drain.initTarget().setNode("node-1");
  drain.setTimeoutNs(5);
  done(drain);
  EXPECT_EQ(asked().getDrain().getTimeoutNs(), 5u);
  auto priority = client.root.setPriorityRequest();
  priority.setScore(schema::Score::FGD);
  done(priority);
  EXPECT_EQ(asked().getPriority(), schema::Score::FGD);
}

TEST_F(RpcScheduler, AnyCommandIsAskedByItsRequest) {
  startServer();
  Client client(io, unixAddress());
  auto cordon = client.root.askRequest();
  cordon.initRequest().initCordon().setNode("node-1");
  EXPECT_EQ(view(done(cordon).getReply().getDone()), "done");
  EXPECT_EQ(view(asked().getCordon().getNode()), "node-1");
  auto list = client.root.askRequest();
  list.initRequest().initTasks(0);
  list.getRequest().initPage().setAfter(1);
  scheduler.pages = 3;
  EXPECT_EQ(done(list).getReply().getNext(), 2u);
  auto level = client.root.askRequest();
  level.initRequest().setLogLevel("debug");
  done(level);
  EXPECT_EQ(house.level, "debug");
  auto snapshot = client.root.askRequest();
  snapshot.initRequest().setSnapshot();
  done(snapshot);
  EXPECT_EQ(house.snapshots, 1);
}

TEST(CheckedRequest, C7_WhatAPeerSaysOfItselfCountsForNothing) {
  Peer peer;
  peer.uid = 1000;
  CheckedRequest<schema::ClusterRequest> checked(
      peer, false, [](schema::ClusterRequest::Builder request) {
        request.setCorr(77);
        request.setPeerUid(0);
        request.setMayChange(true);
        request.setPeerName("root");
        request.initSubmit();  // and its task, with the owner, is left out
      });
  capnp::MallocMessageBuilder message;
  auto sent = message.initRoot<schema::ClusterRequest>();
  checked.fill(sent);
  EXPECT_EQ(sent.getCorr(), 0u);
  EXPECT_EQ(sent.getPeerUid(), 0u);
  EXPECT_FALSE(sent.getMayChange());
  EXPECT_FALSE(sent.hasPeerName());
  ASSERT_TRUE(sent.isSubmit());
  EXPECT_EQ(sent.getSubmit().getTask().getOwnerUid(), 1000u);
}

TEST(CheckedRequest, C7_EveryTextListAndEnumHasBounds) {
  const auto why = [](auto build) {
    std::string said;
    const auto refused = kj::runCatchingExceptions(
        [&] { CheckedRequest<schema::ClusterRequest> checked(Peer(), false, build); });
    KJ_IF_MAYBE (exception, refused) {
      said = fromException(*exception).message;
    }
    return said;
  };
  using Ask = schema::ClusterRequest::Builder;
  const std::string text(257, 'x');
  EXPECT_EQ(why([&](Ask r) { r.initDrain().initTarget().setNode(ptr(text)); }),
            "drain.target.node has at most 256 bytes");
  EXPECT_EQ(why([&](Ask r) { r.setLogLevel(ptr(text)); }), "logLevel has at most 256 bytes");
  EXPECT_EQ(why([](Ask r) { r.initTasks(65); }), "tasks: at most 64 may be named");
  EXPECT_EQ(why([&](Ask r) { r.initSubmit().initModels(1).set(0, ptr(text)); }),
            "submit.models has at most 256 bytes");
  EXPECT_EQ(why([](Ask r) { r.setPriority(static_cast<schema::Score>(99)); }),
            "priority: this daemon does not know it");
  EXPECT_EQ(why([](Ask r) {
              r.initWhatIf().initPlace().initSpec().initTask().setClass(
                  static_cast<schema::TaskClass>(99));
            }),
            "whatIf.place.spec.task.class: this daemon does not know it");
}

TEST_F(RpcScheduler, C7_WhatIsNoCommandIsNotAsked) {
  startServer();
  Client client(io, unixAddress());
  auto watch = client.root.askRequest();
  watch.initRequest().setWatch(true);
  EXPECT_EQ(errorOf(watch.send()).code, ErrorCode::Unsupported) << "the actor's own";
  auto assigned = client.root.askRequest();
  assigned.initRequest().setAssigned(42);
  EXPECT_EQ(errorOf(assigned.send()).code, ErrorCode::Unsupported) << "`get` says whose token";
  Client stranger(io, tcpAddress());
  auto cordon = stranger.root.askRequest();
  cordon.initRequest().setMayChange(true);
  cordon.getRequest().initCordon().setNode("node-1");
  EXPECT_EQ(errorOf(cordon.send()).code, ErrorCode::Denied);
  EXPECT_TRUE(scheduler.heard.empty());
}

TEST_F(RpcScheduler, ATcpPeerWithoutTlsMayNeitherSubmitNorChange) {
  startServer();
  Client client(io, tcpAddress());
  EXPECT_EQ(errorOf(client.root.submitRequest().send()).code, ErrorCode::Denied);
  EXPECT_EQ(errorOf(client.root.deleteRequest().send()).code, ErrorCode::Denied);
  EXPECT_EQ(errorOf(client.root.cordonRequest().send()).code, ErrorCode::Denied);
  EXPECT_EQ(errorOf(client.root.uncordonRequest().send()).code, ErrorCode::Denied);
  EXPECT_EQ(errorOf(client.root.drainRequest().send()).code, ErrorCode::Denied);
  EXPECT_EQ(errorOf(client.root.setPriorityRequest().send()).code, ErrorCode::Denied);
  EXPECT_EQ(errorOf(client.root.snapshotRequest().send()).code, ErrorCode::Denied);
  EXPECT_EQ(errorOf(client.root.setLogLevelRequest().send()).code, ErrorCode::Denied);
  EXPECT_TRUE(scheduler.heard.empty());
}

TEST_F(RpcScheduler, C7_WrongArgumentsAreRefusedBeforeTheSchedulerIsAsked) {
  startServer();
  Client client(io, unixAddress());
  const std::string longName(300, 'x');
  auto submit = client.root.submitRequest();
  submit.initSpec().setNode(ptr(longName));
  EXPECT_EQ(errorOf(submit.send()).code, ErrorCode::InvalidArgument);
  auto models = client.root.submitRequest();
  models.initSpec().initModels(65);
  EXPECT_EQ(errorOf(models.send()).code, ErrorCode::InvalidArgument);
  auto score = client.root.submitRequest();
  score.initSpec().setCardScore(static_cast<schema::Score>(77));
  EXPECT_EQ(errorOf(score.send()).code, ErrorCode::InvalidArgument);
  auto owned = client.root.submitRequest();
  owned.initSpec().initTask().setOwnerPid(1);
  EXPECT_EQ(errorOf(owned.send()).code, ErrorCode::InvalidArgument);
  EXPECT_TRUE(scheduler.heard.empty());
}

TEST_F(RpcScheduler, RefusalsKeepTheirCodeAndTheirWords) {
  startServer();
  scheduler.failNext = fail(ErrorCode::Infeasible, "fits no node of this cluster");
  Client client(io, unixAddress());
  const Error error = errorOf(client.root.submitRequest().send());
  EXPECT_EQ(error.code, ErrorCode::Infeasible);
  EXPECT_EQ(error.message, "fits no node of this cluster");
}

TEST_F(RpcScheduler, WatchTellsEventsUntilTheSubscriptionIsDropped) {
  startServer();
  std::vector<std::uint64_t> seqs;
  Client client(io, unixAddress());
  auto request = client.root.watchRequest();
  request.setWatcher(kj::heap<EventLog>(seqs));
  auto subscription = kj::heap(done(request).getSubscription());
  tellEvent(1);
  tellEvent(2);
  ASSERT_TRUE(served([&] { return seqs.size() == 2; }));
  subscription = nullptr;
  ASSERT_TRUE(served([&] { return actor.watchers() == 0; }));
}

TEST_F(RpcScheduler, WatchBeginsAfterTheEventThatItsClientHas) {
  startServer();
  std::vector<std::uint64_t> seqs;
  Client client(io, unixAddress());
  auto request = client.root.watchRequest();
  request.setWatcher(kj::heap<EventLog>(seqs));
  request.setSince(8);
  const auto subscription = done(request).getSubscription();
  tellEvent(10);
  ASSERT_TRUE(served([&] { return seqs.size() == 2; }));
  EXPECT_EQ(seqs, (std::vector<std::uint64_t>{9, 10})) << "9 is remembered by the scheduler";
}

TEST_F(RpcScheduler, C5_AWatcherThatHoldsEventsBackIsToldThatItIsDropped) {
  RpcLimits limits = SchedulerRpc::limits();
  limits.eventDeadline = millis(20);
  startServer(nullptr, limits);
  SlowWatcher::Seen seen;
  Client client(io, unixAddress());
  auto request = client.root.watchRequest();
  request.setWatcher(kj::heap<SlowWatcher>(seen));
  const auto subscription = done(request).getSubscription();
  const std::string text(4'000, 'x');
  for (std::uint64_t seq = 1; seq <= 100; ++seq) tellEvent(seq, text);
  // What the window takes has come, and the deadline of the next one passes.
  ASSERT_TRUE(served([&] { return seen.events > 0; }));
  const kj::TimePoint end = bridge.timer().now() + 200 * kj::MILLISECONDS;
  ASSERT_TRUE(served([&] { return bridge.timer().now() > end; }));
  EXPECT_LT(seen.events, 100u) << "what nobody takes stays here";
  seen.holds = false;
  for (auto& held : seen.held) held->fulfill();
  ASSERT_TRUE(served([&] { return seen.last == "watch-dropped" && actor.watchers() == 0; }));
  done(client.root.infoRequest());
}

TEST_F(RpcScheduler, TheDaemonActsOnceTheSchedulerHasPermittedIt) {
  startServer();
  Client client(io, unixAddress());
  EXPECT_EQ(view(done(client.root.snapshotRequest()).getDone()), "done");
  EXPECT_TRUE(asked().isSnapshot());
  EXPECT_EQ(house.snapshots, 1);
  auto level = client.root.setLogLevelRequest();
  level.setLevel("debug");
  done(level);
  EXPECT_EQ(house.level, "debug");
  level = client.root.setLogLevelRequest();
  level.setLevel("loud");
  EXPECT_EQ(errorOf(level.send()).code, ErrorCode::InvalidArgument);
  house.snapshotEnds = fail(ErrorCode::Unavailable, "the disk is full");
  EXPECT_EQ(errorOf(client.root.snapshotRequest().send()).message, "the disk is full");
  scheduler.failNext = fail(ErrorCode::Denied, "not now");
  EXPECT_EQ(errorOf(client.root.snapshotRequest().send()).code, ErrorCode::Denied);
  EXPECT_EQ(house.snapshots, 2) << "what is not permitted is not done";
}

TEST_F(RpcScheduler, ACallThatADaemonDoesNotKnowSaysSo) {
  startServer();
  Client client(io, unixAddress());
  auto older = client.client.bootstrap().castAs<schema::Registry>();  // another interface
  EXPECT_EQ(errorOf(older.joinRequest().send()).code, ErrorCode::Unsupported);
}

TEST_F(RpcScheduler, C5_LongListsAreAskedForAFewAtATime) {
  startServer();
  scheduler.silent = true;
  Client client(io, unixAddress());
  auto first = client.root.listRequest().send();
  auto second = client.root.nodesRequest().send();
  EXPECT_EQ(errorOf(client.root.cardsRequest().send()).code, ErrorCode::Overloaded);
  auto small = client.root.infoRequest().send();
  ASSERT_TRUE(served([&] { return actor.outstanding() == 3; }));
}

TEST_F(RpcScheduler, C5_WhoDoesNotReadIsNotReadFrom) {
  startServer();
  Client other(io, unixAddress());
  auto deaf = io.provider->getNetwork()
                  .parseAddress(ptr(unixAddress()))
                  .wait(io.waitScope)
                  ->connect()
                  .wait(io.waitScope);
  // One message that asks for the first capability, again and again; nobody reads the answers.
  std::size_t written = 0;
  for (std::uint32_t id = 0; id < 200'000; ++id) {
    capnp::MallocMessageBuilder message(16);
    message.initRoot<capnp::rpc::Message>().initBootstrap().setQuestionId(id);
    const auto bytes = capnp::messageToFlatArray(message);
    bool failed = false;
    auto write = deaf->write(bytes.asBytes().begin(), bytes.asBytes().size())
                     .catch_([&](kj::Exception&&) { failed = true; })
                     .eagerlyEvaluate(nullptr);
    for (int turn = 0; turn < 50 && !write.poll(io.waitScope); ++turn) {
      bridge.timer().afterDelay(kj::MILLISECONDS).wait(io.waitScope);
    }
    if (failed || !write.poll(io.waitScope)) break;
    written += bytes.asBytes().size();
  }
  EXPECT_LT(written, 4U << 20U) << "its calls wait in its own buffers";
  done(other.root.infoRequest());
}

TEST_F(RpcScheduler, C7_GarbageAndHalfClosedConnectionsAreHarmless) {
  startServer();
  std::mt19937_64 random(11);
  for (int round = 0; round < 20; ++round) {
    std::string bytes(8 + random() % 4096, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    testing::LineClient client(io, path);
    client.write(bytes);
    client.endWrites();
    while (!client.readLine().empty()) {
    }
  }
  EXPECT_TRUE(scheduler.heard.empty());
  Client client(io, unixAddress());
  done(client.root.infoRequest());
}

TEST_F(RpcScheduler, C5_AFloodOfConnectionsLeavesPlaceForThoseWhoMayChange) {
  RpcLimits limits = SchedulerRpc::limits();
  limits.connectionsMax = 6;
  limits.connectionsReserved = 4;
  startServer(nullptr, limits);
  std::vector<kj::Own<Client>> flood;
  for (int i = 0; i < 8; ++i) flood.push_back(kj::heap<Client>(io, tcpAddress()));
  done(flood[1]->root.infoRequest());
  EXPECT_EQ(errorOf(flood[7]->root.infoRequest().send()).code, ErrorCode::Unavailable);
  EXPECT_EQ(server->connections(), 2u);
  Client known(io, unixAddress());
  done(known.root.infoRequest());
}

}  // namespace
}  // namespace qgpu::rpc_scheduler_test
