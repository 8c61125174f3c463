// The parts of the member without the actor over them, in turns of the test: the node, the link to
// the scheduler and a client are probes.

#include <capnp/message.h>
#include <functional>
#include <gtest/gtest.h>
#include <string>
#include <utility>
#include <vector>

#include "actors/member/member_orders.h"
#include "runtime/testing/fixture.h"

namespace qgpu::testing::member_parts_test {
namespace {

using Step = KnownTask::Step;
using Which = schema::Envelope::Which;

MemberOptions someOptions() {
  MemberOptions options;
  options.attachSocket = "/run/qgpu/attach.sock";
  return options;
}

struct Parts final : Actor, MemberSession::Owner {
  ~Parts() noexcept override = default;
  void handle(schema::Envelope::Reader message, Turn& turn) override {
    if (next) {
      std::exchange(next, nullptr)(turn);
    } else if (message.isReply()) {
      member.onReply(message.getReply(), turn);
    } else if (message.isTick()) {
      const MemberTick kind{message.getTick().getKind()};
      if (kind == MemberTick::Forward)
        forwards.onTick(turn);
      else
        session.onTick(kind, message.getTick().getValue(), turn);
    }
    member.flush(turn);
  }
  void onEntered(Turn&) override { ++entered; }
  void onLeft(const std::string& why) override { left.push_back(why); }

  void inTurn(std::function<void(Turn&)> what) {
    next = std::move(what);
    fixture.tellUrgent(nodeId, self, [](schema::Envelope::Builder e) { e.initTick(); });
    fixture.run();
  }
  // True where it is for the other parts.
  bool hear(const std::function<void(schema::ToMember::Builder)>& fill, std::uint64_t ofSession = 7,
            std::uint64_t ofTerm = 1) {
    capnp::MallocMessageBuilder message;
    auto word = message.initRoot<schema::ToMember>();
    word.setSession(ofSession);
    word.setTerm(ofTerm);
    fill(word);
    bool taken = false;
    inTurn([&](Turn& turn) { taken = session.onToMember(word, turn); });
    return taken;
  }
  void greet() {
    inTurn([&](Turn& turn) { session.onLinkUp(turn); });
    inTurn([&](Turn& turn) { EXPECT_TRUE(session.sayHello([](auto) {}, turn)); });
  }
  void welcome(std::uint64_t term = 1) {
    const std::uint64_t nonce = link.last().getFromMember().getHello().getNonce();
    EXPECT_FALSE(hear(
        [&](schema::ToMember::Builder word) {
          auto welcome = word.initWelcome();
          welcome.setNonce(nonce);
          welcome.setLeaseNs(static_cast<std::uint64_t>(seconds(15).value));
          welcome.setBeatNs(static_cast<std::uint64_t>(seconds(5).value));
        },
        7, term));
  }
  // The node answers its newest question.
  void nodeAnswers(const std::function<void(schema::Reply::Builder)>& fill) {
    const std::uint64_t corr = node.last().getRequest().getCorr();
    EXPECT_EQ(fixture.tell(nodeId, self,
                           [&](schema::Envelope::Builder envelope) {
                             envelope.initReply().setCorr(corr);
                             fill(envelope.getReply());
                           }),
              SendResult::Sent);
    fixture.run();
  }
  // In a session under term 1, which the node knew.
  void join() {
    session.noteTerm(1);
    greet();
    welcome();
  }
  // A client asks for a task.
  void forward() {
    capnp::MallocMessageBuilder message;
    auto request = message.initRoot<schema::Request>();
    TaskSpec spec;
    spec.name = "job";
    writeSpec(spec, request.initBind());
    next = [&](Turn& turn) { forwards.onRequest(request, "here", turn); };
    fixture.tellUrgent(clientId, self, [](schema::Envelope::Builder e) { e.initTick(); });
    fixture.run();
  }
  std::vector<std::string> answers() const {
    std::vector<std::string> found;
    for (std::size_t i = 0; i < client.size(); ++i) {
      const auto reply = client[i].getReply();
      found.push_back(reply.isFailed() ? text(reply.getFailed().getCode()) : "bound");
    }
    return found;
  }

  Fixture fixture;
  Probe node, link, client;
  const ActorId self = fixture.add(*this);
  const ActorId nodeId = fixture.add(node);
  const ActorId linkId = fixture.add(link);
  const ActorId clientId = fixture.add(client);
  MemberContext member{someOptions(), {nodeId, linkId}};
  MemberSession session{member, *this};
  KnownTasks known;
  Forwards forwards{member, session, known};
  MemberView view{member, session, known, forwards};
  MemberOrders orders{member, session, known, forwards, view};
  std::function<void(Turn&)> next;
  int entered = 0;
  std::vector<std::string> left;
};

// --- what is known of tasks ---

TEST(KnownTasks, P6_WhatEndedStaysEndedWithAllThatCameBeforeIt) {
  KnownTasks known;
  known.ask(9, 3);
  EXPECT_TRUE(known.isAsked(9));
  known.hold(9, 3, 1, {"sim-0"}).token = "t";
  KnownTasks::refuse(*known.find(9), 5, {ErrorCode::Conflict, "later"});
  known.end(9, 3, {ErrorCode::Conflict, "earlier"});
  EXPECT_FALSE(known.find(9)->isHere());
  EXPECT_EQ(known.find(9)->over, 5u);
  EXPECT_EQ(known.find(9)->why.message, "later");
  EXPECT_TRUE(known.find(9)->token.empty());
}

TEST(KnownTasks, AnOrderThatNeverReachedTheNodeLeavesWhatWas) {
  KnownTasks known;
  known.ask(1, 1);
  known.askedNoMore(1, false);
  EXPECT_EQ(known.find(1), nullptr);
  known.end(2, 1, {ErrorCode::Conflict, "over"});
  known.ask(2, 2);
  known.askedNoMore(2, false);
  EXPECT_EQ(known.find(2)->step, Step::Over);
  known.hold(3, 1, 5, {});
  known.find(3)->step = Step::Asked;
  known.askedNoMore(3, true);
  EXPECT_EQ(known.find(3)->step, Step::Held);
}

TEST(KnownTasks, C5_RemembersSoManyThatAreOverTheNewestOnes) {
  KnownTasks known;
  known.hold(1, 1, 1, {});
  for (std::uint64_t task = 2; task < KnownTasks::kOverKept + 4; ++task) {
    known.end(task, 1, {ErrorCode::Conflict, "over"});
  }
  EXPECT_NE(known.find(1), nullptr) << "it is here";
  EXPECT_EQ(known.find(2), nullptr);
  EXPECT_NE(known.find(4), nullptr);
}

TEST(HeldRecord, FromSliceToSliceIsNoNews) {
  HeldRecord told;
  told.state = schema::TaskState::RUNNING;
  HeldRecord now = told;
  now.state = schema::TaskState::READY;
  now.shares.usedNs = 5;
  EXPECT_FALSE(differs(told, now, Compare::States));
  EXPECT_TRUE(differs(told, now, Compare::Use));
  now.figures.processes = 1;
  EXPECT_TRUE(differs(told, now, Compare::States));
}

// --- the session ---

TEST(MemberSession, C1_StoresAHigherTermBeforeItObeysIt) {
  Parts parts;
  parts.greet();
  EXPECT_EQ(parts.session.state(), MemberState::Greeting);
  parts.welcome(5);
  EXPECT_EQ(parts.session.state(), MemberState::Admitting);
  EXPECT_EQ(parts.node.last().getRequest().getClusterTerm(), 5u);
  EXPECT_EQ(parts.entered, 0);
  parts.nodeAnswers([](schema::Reply::Builder reply) { reply.setDone("stored"); });
  EXPECT_EQ(parts.session.state(), MemberState::Member);
  EXPECT_EQ(parts.entered, 1);
  EXPECT_EQ(parts.session.termSeen(), 5u);
}

TEST(MemberSession, C1_LeavesASchedulerOfALowerTerm) {
  Parts parts;
  parts.session.noteTerm(6);
  parts.greet();
  parts.welcome(5);
  EXPECT_EQ(parts.session.state(), MemberState::Down);
  ASSERT_EQ(parts.left.size(), 1u);
  EXPECT_TRUE(parts.link.last().isLinkDown());
}

TEST(MemberSession, C1_BindsNothingWithoutALeaseAndAgainWithAnother) {
  Parts parts;
  parts.join();
  EXPECT_EQ(parts.session.state(), MemberState::Member);
  parts.fixture.advance(seconds(15));
  EXPECT_EQ(parts.session.state(), MemberState::LeaseOver);
  parts.inTurn([&](Turn& turn) { EXPECT_FALSE(parts.session.mayBind(turn)); });
  const std::uint64_t stamp = parts.link.last().getFromMember().getBeat();
  EXPECT_TRUE(parts.hear([&](schema::ToMember::Builder word) { word.setBeatSeen(stamp); }));
  EXPECT_EQ(parts.session.state(), MemberState::Member);
  EXPECT_EQ(parts.session.leaseFrom(), Nanos(static_cast<std::int64_t>(stamp)));
}

TEST(MemberSession, A10_DropsWordsOfAnotherSessionOrTerm) {
  Parts parts;
  parts.join();
  const auto end = [](schema::ToMember::Builder word) { word.initEnd().setTask(1); };
  EXPECT_TRUE(parts.hear(end));
  EXPECT_FALSE(parts.hear(end, 8));
  EXPECT_FALSE(parts.hear(end, 7, 2));
  EXPECT_EQ(parts.session.dropped(), 2u);
}

TEST(MemberSession, DropsTheConnectionWhereAWordDoesNotLeave) {
  Parts parts;
  parts.join();
  parts.fixture.setMailboxMax(parts.linkId, 0);
  parts.inTurn([&](Turn& turn) {
    parts.session.say([](schema::FromMember::Builder word) { word.setBeat(1); }, turn);
  });
  EXPECT_EQ(parts.session.state(), MemberState::Down);
  EXPECT_EQ(parts.left.size(), 1u);
}

// --- forwarded binds ---

TEST(Forwards, C2_HaveOneAnswerEach) {
  Parts parts;
  parts.join();
  for (int i = 0; i < 4; ++i) parts.forward();
  EXPECT_EQ(parts.forwards.size(), 4u);
  parts.known.hold(9, 1, 3, {"sim-0"}).token = "t";
  parts.inTurn([&](Turn&) {
    EXPECT_FALSE(parts.forwards.becomes(1, 8)) << "no order of it came before";
    EXPECT_TRUE(parts.forwards.becomes(2, 9));
    parts.forwards.settle(9);
    parts.forwards.settle(9);
    parts.forwards.fail(3, {ErrorCode::NoRoom, "it fits nowhere"});
    parts.forwards.fail(3, {ErrorCode::NoRoom, "it fits nowhere"});
  });
  EXPECT_EQ(parts.answers(), (std::vector<std::string>{"conflict", "bound", "no-room"}));
  parts.fixture.advance(someOptions().forwardMax);
  EXPECT_EQ(parts.answers().back(), "unavailable");
  EXPECT_EQ(parts.forwards.size(), 0u);
}

TEST(Forwards, C1_AreRefusedWithoutASession) {
  Parts parts;
  parts.forward();
  EXPECT_EQ(parts.answers(), std::vector<std::string>{"unavailable"});
}

// --- the node, and orders to it ---

TEST(MemberView, P3_AsksForAHelloOnceNoBindIsAtTheNode) {
  Parts parts;
  parts.inTurn([&](Turn& turn) {
    parts.session.onLinkUp(turn);
    parts.view.begin();
    parts.view.gather(1);
  });
  EXPECT_EQ(parts.node.size(), 1u) << "its standing alone";
  parts.inTurn([&](Turn&) { parts.view.gather(0); });
  EXPECT_EQ(parts.node.size(), 5u) << "watch, info, cards and tasks";
  EXPECT_TRUE(parts.node.last().getRequest().isTasks());
}

TEST(MemberOrders, AreForgottenWithTheConnectionUnlessTheNodeHasThem) {
  Parts parts;
  parts.join();
  capnp::MallocMessageBuilder message;
  auto order = message.initRoot<schema::OrderBind>();
  order.setEpoch(1);
  parts.inTurn([&](Turn& turn) {
    for (std::uint64_t task = 1; task <= MemberOrders::kAtNodeMax + 1; ++task) {
      order.setTask(task);
      parts.orders.onBind(order, turn);
    }
    parts.orders.send(turn);
  });
  EXPECT_EQ(parts.orders.bindsAtNode(), MemberOrders::kAtNodeMax);
  parts.orders.forget();
  EXPECT_TRUE(parts.known.isAsked(MemberOrders::kAtNodeMax));
  EXPECT_EQ(parts.known.find(MemberOrders::kAtNodeMax + 1), nullptr);
}

TEST(MemberOrders, P6_RefuseForGoodWhatTheNodeRefused) {
  Parts parts;
  parts.join();
  capnp::MallocMessageBuilder message;
  auto order = message.initRoot<schema::OrderBind>();
  order.setTask(4);
  order.setEpoch(2);
  const auto bind = [&](Turn& turn) {
    parts.orders.onBind(order, turn);
    parts.orders.send(turn);
  };
  parts.inTurn(bind);
  parts.nodeAnswers([](schema::Reply::Builder reply) { reply.initFailed().setCode("no-room"); });
  const std::size_t asked = parts.node.size();
  parts.inTurn(bind);
  EXPECT_EQ(parts.node.size(), asked);
  const auto refused = parts.link.last().getFromMember().getRefused();
  EXPECT_EQ(refused.getTask(), 4u);
  EXPECT_STREQ(refused.getFailure().getCode().cStr(), "no-room");
}

}  // namespace
}  // namespace qgpu::testing::member_parts_test
