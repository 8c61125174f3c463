#include <algorithm>
#include <random>

#include "services/api/rpc/links.h"
#include "services/api/rpc/standing_by.h"
#include "services/base/net/dial.h"
#include "tests/unit/services/api/cluster_rpc_fixture.h"

namespace qgpu::rpc_links_test {
namespace {

using testing::ClusterRpcFixture;

constexpr auto kNo = std::string::npos;

struct RpcLinks : ClusterRpcFixture {
  ~RpcLinks() noexcept override = default;

  std::vector<std::uint32_t> hellos() const { return scheduler.links(schema::FromMember::HELLO); }
  std::vector<std::uint32_t> lost() const { return scheduler.links(schema::FromMember::LOST); }
  bool welcomed(const Member& member, std::size_t times = 1) {
    return served([&] { return member.actor.count(schema::Envelope::TO_MEMBER) >= times; });
  }
};

TEST_F(RpcLinks, CarryWordsBothWaysOverTcpAndUnixSockets) {
  startServer();
  for (const std::string& address : {unixAddress(), tcpAddress()}) {
    Member& member = addMember(quickConfig(address));
    ASSERT_TRUE(welcomed(member)) << member.link.state();
    EXPECT_EQ(member.link.state(), "connected to " + address);
    const auto word = member.actor.heard.back().read().getToMember();
    EXPECT_EQ(word.getWelcome().getNonce(), 1u);
    EXPECT_EQ(word.getSession(), 7u);
  }
  EXPECT_EQ(hellos(), (std::vector<std::uint32_t>{1, 2}));
  EXPECT_EQ(links->size(), 2u);
  EXPECT_EQ(server->connections(), 0u) << "links have a limit of their own";
}

TEST_F(RpcLinks, NobodyJoinsOverTcpWithoutTlsUnlessTheDaemonWasToldToTrustItsNetwork) {
  plainJoins = Links::PlainJoins::Refused;
  startServer();
  Member& owner = addMember(quickConfig(unixAddress()));
  ASSERT_TRUE(welcomed(owner));
  Member& thief = addMember(quickConfig(tcpAddress()));
  ASSERT_TRUE(served([&] {
    return thief.link.state().find("nothing says who joins over TCP") != std::string::npos;
  })) << thief.link.state();
  EXPECT_EQ(hellos(), std::vector<std::uint32_t>{1});
  EXPECT_TRUE(owner.link.up());
}

TEST_F(RpcLinks, AMemberWaitsWithOneAskingUntilItIsKnownWhoActs) {
  LinksLimits one;
  one.linksMax = 1;
  startServer(nullptr, SchedulerRpc::limits(), one);
  std::vector<kj::Own<kj::PromiseFulfiller<Status>>> asked;
  links->setMayJoin([&] {
    auto paf = kj::newPromiseAndFulfiller<Status>();
    asked.push_back(kj::mv(paf.fulfiller));
    return kj::mv(paf.promise);
  });
  Member& member = addMember(quickConfig(unixAddress()));
  ASSERT_TRUE(served([&] { return asked.size() == 1; }));
  EXPECT_FALSE(member.link.up());
  Member& second = addMember(quickConfig(tcpAddress()));
  ASSERT_TRUE(served([&] { return second.link.state().find("linked already") != kNo; }))
      << "who waits is one of linksMax, but " << second.link.state();
  asked[0]->fulfill(ok());
  ASSERT_TRUE(welcomed(member)) << member.link.state();
  EXPECT_EQ(asked.size(), 1u);
  members.pop_back();

  members.clear();  // its place is free again, and who leaves while it waits leaves none taken
  for (std::size_t i = 1; i < 3; ++i) {
    ASSERT_TRUE(served([&] { return links->size() == 0; }));
    addMember(quickConfig(unixAddress()));
    ASSERT_TRUE(served([&] { return asked.size() == i + 1; }));
    members.clear();
  }
}

TEST_F(RpcLinks, WhomNobodyMayJoinSaysWhoActs) {
  startServer();
  links->setMayJoin([]() -> kj::Promise<Status> { return Status(standsBy("b:1")); });
  Member& member = addMember(quickConfig(unixAddress()));
  ASSERT_TRUE(served([&] { return member.link.state().starts_with("b:1: "); }))
      << member.link.state();
  EXPECT_EQ(links->size(), 0u);
}

TEST_F(RpcLinks, C6_KeepTheOrderOfAMembersWords) {
  startServer();
  Member& member = addMember(quickConfig(unixAddress()));
  ASSERT_TRUE(welcomed(member));
  for (std::uint64_t seq = 2; seq < 500; ++seq) {
    member.say([seq](schema::FromMember::Builder words) {
      words.setSeq(seq);
      words.setBeat(seq);
    });
  }
  ASSERT_TRUE(served([&] { return scheduler.count(schema::Envelope::FROM_MEMBER) == 499; }));
  std::uint64_t last = 0;
  for (const auto& word : scheduler.heard) {
    EXPECT_EQ(word.read().getFromMember().getSeq(), ++last);
    EXPECT_EQ(word.read().getFromMember().getLink(), 1u);
  }
}

TEST_F(RpcLinks, C6_WhatIsSaidAtOnceLeavesInFewCallsAndInOrder) {
  startServer();
  for (const std::string& address : {unixAddress(), tcpAddress()}) {  // of these, TCP reads least
    members.clear();
    Member& member = addMember(quickConfig(address));
    ASSERT_TRUE(welcomed(member));
    const std::uint32_t link = hellos().back();
    const std::uint64_t calls = links->callsOut();
    const std::string reason(200, 'x');
    for (std::uint64_t i = 1; i <= 500; ++i) {
      tell(link, [&](schema::ToMember::Builder words) {
        words.setSession(i);
        words.initEnd().setReason(ptr(reason));
      });
      member.say([&](schema::FromMember::Builder words) {
        words.setSeq(1 + i);
        if (i % 100 == 0)
          words.initTasks(900);  // too long to leave with others
        else
          words.initRefused().initFailure().setMessage(ptr(reason));
      });
    }
    ASSERT_TRUE(welcomed(member, 501)) << member.link.state();
    std::uint64_t told = 0;
    for (const auto& word : member.actor.heard) {
      if (word.which != schema::Envelope::TO_MEMBER || word.read().getToMember().isWelcome()) {
        continue;
      }
      EXPECT_EQ(word.read().getToMember().getSession(), ++told);
    }
    EXPECT_LT(links->callsOut() - calls, 200u);
    const auto said = [&] {
      std::vector<std::uint64_t> seqs;
      for (const auto& word : scheduler.heard) {
        if (word.which != schema::Envelope::FROM_MEMBER) continue;
        const auto words = word.read().getFromMember();
        if (words.getLink() == link && !words.isHello()) seqs.push_back(words.getSeq());
      }
      return seqs;
    };
    ASSERT_TRUE(served([&] { return said().size() == 500; }));
    const std::vector<std::uint64_t> seqs = said();
    EXPECT_TRUE(std::is_sorted(seqs.begin(), seqs.end()));
  }
}

TEST_F(RpcLinks, WhatWasSaidBeforeAMemberIsTurnedAwayArrivesBeforeThat) {
  startServer();
  Member& member = addMember(quickConfig(unixAddress()));
  ASSERT_TRUE(welcomed(member));
  for (std::uint64_t i = 0; i < 3; ++i) {
    tell(1, [i](schema::ToMember::Builder words) { words.setBeatSeen(i); });
  }
  tell(1, [](schema::ToMember::Builder words) { words.initTurnedAway().setCode("conflict"); });
  ASSERT_TRUE(welcomed(member, 5));
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(member.actor.heard[2 + i].read().getToMember().getBeatSeen(), i);
  }
  EXPECT_TRUE(member.actor.heard[5].read().getToMember().isTurnedAway());
}

// A manager that was built before tellAll() was.
class PlainEnd final : public schema::MemberEnd::Server {
 public:
  explicit PlainEnd(std::size_t& told) : told_(told) {}
  kj::Promise<void> tell(TellContext) override {
    ++told_;
    return kj::READY_NOW;
  }

 private:
  std::size_t& told_;
};

TEST_F(RpcLinks, AMemberThatDoesNotGatherHearsWordByWord) {
  startServer();
  std::size_t told = 0;
  auto stream = dial(io.provider->getNetwork(), unixAddress(), nullptr).wait(io.waitScope);
  capnp::TwoPartyClient client(*stream);
  auto registry = client.bootstrap().castAs<schema::Scheduler>().registryRequest().send();
  auto join = registry.getRegistry().joinRequest();
  join.setNode(kj::heap<PlainEnd>(told));
  const auto joined = join.send().wait(io.waitScope);
  for (std::uint64_t i = 0; i < 20; ++i) {
    tell(1, [i](schema::ToMember::Builder words) { words.setBeatSeen(i); });
  }
  EXPECT_TRUE(served([&] { return told == 20; }));
  EXPECT_TRUE(lost().empty());
}

// --- beats ---

void beat(ClusterRpcFixture::Member& member, std::uint64_t seq) {
  member.say([seq](schema::FromMember::Builder words) {
    words.setSession(7);
    words.setSeq(seq);
    words.setBeat(seq);
  });
}

TEST_F(RpcLinks, ABeatIsAnsweredByTheReturnOfItsCall) {
  startServer();
  for (const std::string& address : {unixAddress(), tcpAddress()}) {
    members.clear();
    Member& member = addMember(quickConfig(address));
    ASSERT_TRUE(welcomed(member));
    const std::uint32_t link = hellos().back();
    const std::uint64_t calls = links->callsOut();
    for (std::uint64_t seq = 2; seq < 10; ++seq) {
      const std::size_t heard = scheduler.heard.size();
      beat(member, seq);
      ASSERT_TRUE(served([&] { return scheduler.heard.size() > heard; }));
      const auto word = scheduler.heard.back().read().getFromMember();
      EXPECT_EQ(word.getLink(), link);
      EXPECT_EQ(word.getSession(), 7u);
      EXPECT_EQ(word.getBeat(), seq);
      tell(link, [seq](schema::ToMember::Builder words) {
        words.setSession(7);
        words.setBeatSeen(seq);
      });
      ASSERT_TRUE(welcomed(member, seq));
      const auto seen = member.actor.heard.back().read().getToMember();
      EXPECT_EQ(seen.getBeatSeen(), seq);
      EXPECT_EQ(seen.getSession(), 7u);
    }
    EXPECT_EQ(links->callsOut(), calls) << "nothing was called";
  }
}

TEST_F(RpcLinks, ABeatComesBehindWhatWasSaidInTheSameTurn) {
  startServer();
  Member& member = addMember(quickConfig(unixAddress()));
  ASSERT_TRUE(welcomed(member));
  for (std::uint64_t seq = 2; seq < 100; ++seq) {
    if (seq % 7 == 0) {
      beat(member, seq);
    } else {
      member.say([seq](schema::FromMember::Builder words) {
        words.setSeq(seq);
        words.initTasks(0);
      });
    }
  }
  ASSERT_TRUE(served([&] { return scheduler.count(schema::Envelope::FROM_MEMBER) == 99; }));
  std::uint64_t last = 0;
  for (const auto& word : scheduler.heard) {
    EXPECT_EQ(word.read().getFromMember().getSeq(), ++last);
  }
}

TEST_F(RpcLinks, ABeatThatNobodyAnswersEndsWithTheNextOrWithItsLink) {
  startServer();
  Member& member = addMember(quickConfig(unixAddress()));
  ASSERT_TRUE(welcomed(member));
  beat(member, 2);
  beat(member, 3);
  ASSERT_TRUE(served([&] { return links->messagesIn() == 3; }));
  tell(1, [](schema::ToMember::Builder words) { words.setBeatSeen(3); });
  ASSERT_TRUE(welcomed(member, 2));
  EXPECT_EQ(member.actor.heard.back().read().getToMember().getBeatSeen(), 3u);
  beat(member, 4);
  ASSERT_TRUE(served([&] { return links->messagesIn() == 4; }));
  members.clear();
  ASSERT_TRUE(served([&] { return !lost().empty(); }));
  EXPECT_EQ(lost(), (std::vector<std::uint32_t>{1}));
  EXPECT_EQ(links->size(), 0u);
  tell(1, [](schema::ToMember::Builder words) { words.setBeatSeen(4); });  // nobody hears it
  Member& next = addMember(quickConfig(unixAddress()));
  EXPECT_TRUE(welcomed(next));
}

TEST_F(RpcLinks, C7_OtherWordsThanABeatAreNotTakenAsOne) {
  startServer();
  std::size_t told = 0;
  auto stream = dial(io.provider->getNetwork(), unixAddress(), nullptr).wait(io.waitScope);
  capnp::TwoPartyClient client(*stream);
  auto registry = client.bootstrap().castAs<schema::Scheduler>().registryRequest().send();
  auto join = registry.getRegistry().joinRequest();
  join.setNode(kj::heap<PlainEnd>(told));
  auto joined = join.send().wait(io.waitScope);
  auto request = joined.getScheduler().beatRequest();
  request.initWords().initHello();
  EXPECT_ANY_THROW(request.send().wait(io.waitScope));
  EXPECT_EQ(links->messagesIn(), 0u);
}

// A scheduler that was built before tellAll() and beat() were.
struct Older {
  std::vector<std::uint64_t> seqs;
  kj::Maybe<schema::MemberEnd::Client> member;
};
class OlderEnd final : public schema::SchedulerEnd::Server {
 public:
  explicit OlderEnd(Older& older) : older_(older) {}
  kj::Promise<void> tell(TellContext context) override {
    const auto words = context.getParams().getWords();
    older_.seqs.push_back(words.getSeq());
    if (!words.isBeat()) return kj::READY_NOW;
    auto request = KJ_ASSERT_NONNULL(older_.member).tellRequest();
    request.initWords().setBeatSeen(words.getBeat());
    return request.send();
  }

 private:
  Older& older_;
};
class OlderRegistry final : public schema::Registry::Server {
 public:
  explicit OlderRegistry(Older& older) : older_(older) {}
  kj::Promise<void> join(JoinContext context) override {
    older_.member = context.getParams().getNode();
    context.getResults().setScheduler(kj::heap<OlderEnd>(older_));
    return kj::READY_NOW;
  }

 private:
  Older& older_;
};
class OlderScheduler final : public schema::Scheduler::Server {
 public:
  explicit OlderScheduler(Older& older) : older_(older) {}
  kj::Promise<void> registry(RegistryContext context) override {
    context.getResults().setRegistry(kj::heap<OlderRegistry>(older_));
    return kj::READY_NOW;
  }

 private:
  Older& older_;
};

TEST_F(RpcLinks, AMemberOfAnOlderSchedulerTellsWordByWord) {
  Older older;
  capnp::TwoPartyServer listening(kj::heap<OlderScheduler>(older));
  const std::string address = "unix:" + (folder / "older.rpc");
  auto receiver =
      io.provider->getNetwork().parseAddress(address.c_str()).wait(io.waitScope)->listen();
  auto serving = listening.listen(*receiver).eagerlyEvaluate(nullptr);
  Member& member = addMember(quickConfig(address));
  ASSERT_TRUE(served([&] { return older.seqs.size() == 1; })) << member.link.state();
  for (std::uint64_t seq = 2; seq < 10; ++seq) beat(member, seq);
  ASSERT_TRUE(welcomed(member, 8)) << member.link.state();
  EXPECT_EQ(older.seqs, (std::vector<std::uint64_t>{1, 2, 3, 4, 5, 6, 7, 8, 9}));
  EXPECT_EQ(member.actor.heard.back().read().getToMember().getBeatSeen(), 9u);
  members.clear();
  older.member = nullptr;
}

TEST_F(RpcLinks, SayLostOnceWhenTheConnectionIsOver) {
  startServer();
  Member& member = addMember(quickConfig(unixAddress()));
  ASSERT_TRUE(welcomed(member));
  members.clear();
  ASSERT_TRUE(served([&] { return !lost().empty(); }));
  EXPECT_EQ(lost(), (std::vector<std::uint32_t>{1}));
  EXPECT_EQ(links->size(), 0u);
}

TEST_F(RpcLinks, AMemberComesBackUnderANewNumberAfterTheSchedulerRestarts) {
  startServer();
  Member& member = addMember(quickConfig(tcpAddress()));
  ASSERT_TRUE(welcomed(member));
  stopServer();
  ASSERT_TRUE(served([&] { return member.actor.count(schema::Envelope::LINK_DOWN) == 1; }));
  ASSERT_TRUE(served([&] { return member.link.state().find("refused") != std::string::npos; }))
      << member.link.state();
  startServer();
  ASSERT_TRUE(welcomed(member, 2));
  EXPECT_EQ(hellos(), (std::vector<std::uint32_t>{1, 2}));
  EXPECT_EQ(member.actor.count(schema::Envelope::LINK_UP), 2u);
}

// However long it took them: it may act no more and not know.
TEST_F(RpcLinks, WhoTakesAConnectionAndSaysNothingIsNotTriedAgainFirst) {
  startServer();
  scheduler.silent = true;
  SchedulerLinkConfig config = quickConfig(unixAddress());
  config.addresses.push_back(tcpAddress());
  config.pauseMin = config.pauseMax = config.served = Nanos(2);
  Member& member = addMember(std::move(config));
  ASSERT_TRUE(served([&] { return member.link.state() == "connected to " + unixAddress(); }));
  Outlet outlet(dispatcher, member.actorId);
  ASSERT_EQ(outlet.send(member.linkId,
                        [](schema::Envelope::Builder down) { down.setLinkDown("no welcome"); }),
            SendResult::Sent);
  EXPECT_TRUE(served([&] { return member.link.state() == "connected to " + tcpAddress(); }))
      << member.link.state();
}

TEST_F(RpcLinks, AMemberTriesItsAddressesInTurn) {
  startServer();
  SchedulerLinkConfig config = quickConfig("unix:" + (folder / "nobody.rpc"));
  config.addresses.push_back(unixAddress());
  Member& member = addMember(std::move(config));
  ASSERT_TRUE(welcomed(member)) << member.link.state();
  EXPECT_EQ(member.link.state(), "connected to " + unixAddress());
}

TEST_F(RpcLinks, AMemberThatWantsToStartAnewGetsAnotherLink) {
  startServer();
  Member& member = addMember(quickConfig(unixAddress()));
  ASSERT_TRUE(welcomed(member));
  Outlet outlet(dispatcher, member.actorId);
  ASSERT_EQ(outlet.send(member.linkId,
                        [](schema::Envelope::Builder envelope) { envelope.setLinkDown("a gap"); }),
            SendResult::Sent);
  ASSERT_TRUE(welcomed(member, 2));
  EXPECT_EQ(hellos(), (std::vector<std::uint32_t>{1, 2}));
  ASSERT_TRUE(served([&] { return lost() == std::vector<std::uint32_t>{1}; }));
  ASSERT_GE(member.actor.heard.size(), 3u);
  EXPECT_EQ(view(member.actor.heard[2].read().getLinkDown()), "a gap");
}

TEST_F(RpcLinks, WhoIsTurnedAwayHearsWhyAndTriesAgain) {
  startServer();
  Member& member = addMember(quickConfig(unixAddress()));
  ASSERT_TRUE(welcomed(member));
  tell(1, [](schema::ToMember::Builder words) {
    auto failure = words.initTurnedAway();
    failure.setCode("conflict");
    failure.setMessage("another node has this name");
  });
  ASSERT_TRUE(served([&] { return member.actor.count(schema::Envelope::LINK_DOWN) == 1; }));
  EXPECT_EQ(lost(), (std::vector<std::uint32_t>{1})) << "closed from this side";
  ASSERT_TRUE(welcomed(member, 3));  // welcome, turnedAway, welcome
}

TEST_F(RpcLinks, C5_AFullMailboxHoldsWordsUpAndLosesNone) {
  startServer();
  Member& member = addMember(quickConfig(unixAddress()));
  ASSERT_TRUE(welcomed(member));
  linksSink.full = true;
  for (std::uint64_t seq = 2; seq < 50; ++seq) {
    member.say([seq](schema::FromMember::Builder words) {
      words.setSeq(seq);
      words.setBeat(seq);
    });
  }
  ASSERT_TRUE(served([&] { return links->messagesIn() >= 2; }));
  linksSink.full = false;
  ASSERT_TRUE(served([&] { return scheduler.count(schema::Envelope::FROM_MEMBER) == 49; }));
  EXPECT_TRUE(lost().empty());
}

TEST_F(RpcLinks, C5_AMailboxThatStaysFullEndsTheLinkAndSaysSo) {
  startServer(nullptr, SchedulerRpc::limits(), quickLinks());
  Member& member = addMember(quickConfig(unixAddress()));
  ASSERT_TRUE(welcomed(member));
  linksSink.full = true;
  member.say([](schema::FromMember::Builder words) { words.setBeat(1); });
  ASSERT_TRUE(served([&] { return member.actor.count(schema::Envelope::LINK_DOWN) >= 1; }));
  linksSink.full = false;
  ASSERT_TRUE(served([&] { return !lost().empty(); }));
  EXPECT_EQ(lost().front(), 1u);
  EXPECT_GE(links->cutOff(), 1u);
}

TEST_F(RpcLinks, C5_AMemberWhoseMailboxIsFullHearsEverythingLater) {
  startServer();
  Member& member = addMember(quickConfig(unixAddress()));
  ASSERT_TRUE(welcomed(member));
  member.sink.full = true;
  for (std::uint64_t i = 0; i < 20; ++i) {
    tell(1, [i](schema::ToMember::Builder words) { words.setBeatSeen(i); });
  }
  ASSERT_TRUE(served([&] { return links->messagesOut() == 21; }));
  EXPECT_EQ(member.actor.count(schema::Envelope::TO_MEMBER), 1u);
  member.sink.full = false;
  ASSERT_TRUE(welcomed(member, 21));
}

TEST_F(RpcLinks, C5_AMemberThatDoesNotReadIsCutOff) {
  LinksLimits limits = quickLinks();
  limits.unsentWordsMax = 4'096;
  startServer(nullptr, SchedulerRpc::limits(), limits);
  Member& member = addMember(quickConfig(unixAddress()));
  ASSERT_TRUE(welcomed(member));
  member.sink.full = true;  // so that its stream stands still
  const std::string reason(1'000, 'x');
  const auto more = [&] {
    for (int i = 0; i < 10; ++i) {
      tell(1, [&](schema::ToMember::Builder words) { words.initEnd().setReason(ptr(reason)); });
    }
    return !lost().empty();
  };
  ASSERT_TRUE(served(more));
  EXPECT_EQ(links->cutOff(), 1u);
  EXPECT_NE(links->metrics().find("\nqgpu_link_cut_off_total 1\n"), std::string::npos);
}

TEST_F(RpcLinks, ASilentMemberIsCutOff) {
  LinksLimits limits = quickLinks();
  limits.silence = millis(30);
  startServer(nullptr, SchedulerRpc::limits(), limits);
  SchedulerLinkConfig config = quickConfig(unixAddress());
  config.pauseMin = config.pauseMax = config.served = seconds(60);
  Member& member = addMember(std::move(config));
  ASSERT_TRUE(served([&] { return !lost().empty(); }));
  EXPECT_TRUE(served([&] { return !member.link.up(); }));
  EXPECT_NE(member.link.state().find("nothing was heard of this node"), std::string::npos)
      << member.link.state();
}

TEST_F(RpcLinks, ASilentSchedulerIsLeft) {
  startServer();
  scheduler.silent = true;
  SchedulerLinkConfig config = quickConfig(unixAddress());
  config.silence = millis(20);
  Member& member = addMember(std::move(config));
  ASSERT_TRUE(served([&] { return member.actor.count(schema::Envelope::LINK_DOWN) >= 2; }));
  ASSERT_TRUE(served([&] { return lost().size() >= 2; }));
}

TEST_F(RpcLinks, C7_WordsThatNoMemberMaySayEndTheLink) {
  startServer();
  const std::string longName(300, 'x');
  const std::vector<std::function<void(schema::FromMember::Builder)>> bad = {
      [](auto words) { words.setLost(); },
      [&](auto words) { words.initFacts().setName(ptr(longName)); },
      [](auto words) { words.initFacts(); },
      [](auto words) { words.initTasks(1)[0].setState(static_cast<schema::TaskState>(99)); },
      [&](auto words) { words.initForward().initSpec().setNode(ptr(longName)); },
      [](auto words) { words.initBound().initCards(65); },
  };
  std::size_t ended = 0;
  for (const auto& fill : bad) {
    members.clear();
    Member& member = addMember(quickConfig(unixAddress()));
    ASSERT_TRUE(welcomed(member));
    const std::size_t words = scheduler.count(schema::Envelope::FROM_MEMBER);
    member.actor.hello = false;
    member.say(fill);
    ASSERT_TRUE(served([&] { return member.actor.count(schema::Envelope::LINK_DOWN) >= 1; }));
    EXPECT_EQ(links->cutOff(), ++ended);
    EXPECT_EQ(scheduler.count(schema::Envelope::FROM_MEMBER), words + 1) << "lost, and no more";
  }
}

TEST_F(RpcLinks, AUserWithoutRightsMayNotJoinAndNobodyJoinsTwice) {
  startServer();
  const RpcLimits limits;
  std::size_t count = 0;
  schema::MemberEnd::Client nobody = kj::Exception(kj::Exception::Type::FAILED, "", 0);
  const auto codeOf = [&](RpcSession& session) {
    ErrorCode code = ErrorCode::Internal;
    const auto refused = kj::runCatchingExceptions([&] {
      links->join(kj::addRef(session), nobody, Links::Takes::Words).wait(bridge.waitScope());
    });
    KJ_IF_MAYBE (exception, refused) code = fromException(*exception).code;
    return code;
  };
  auto stranger =
      kj::refcounted<RpcSession>(bridge.timer(), limits, Peer{5, 6, false, {}}, Face::Unix, count);
  EXPECT_EQ(codeOf(*stranger), ErrorCode::Denied);
  auto node =
      kj::refcounted<RpcSession>(bridge.timer(), limits, Peer{0, 6, true, {}}, Face::Unix, count);
  EXPECT_EQ(codeOf(*node), ErrorCode::Internal) << "joins";
  EXPECT_EQ(codeOf(*node), ErrorCode::Conflict);
}

TEST_F(RpcLinks, WhoWaitsAsksOnceAndWhoIsRefusedIsLetGo) {
  startServer();
  auto paf = kj::newPromiseAndFulfiller<Status>();
  kj::Maybe<kj::Promise<Status>> mayJoin = kj::mv(paf.promise);
  links->setMayJoin([&] { return kj::mv(KJ_ASSERT_NONNULL(mayJoin)); });
  const RpcLimits limits;
  std::size_t count = 0;
  schema::MemberEnd::Client nobody = kj::Exception(kj::Exception::Type::FAILED, "", 0);
  auto node =
      kj::refcounted<RpcSession>(bridge.timer(), limits, Peer{0, 6, true, {}}, Face::Unix, count);
  bool closed = false;
  auto end = node->whenClosed().then([&] { closed = true; }).eagerlyEvaluate(nullptr);
  const auto join = [&](std::optional<ErrorCode>& code) {
    return links->join(kj::addRef(*node), nobody, Links::Takes::Words)
        .then([](auto&&) {}, [&](kj::Exception&& why) { code = fromException(why).code; })
        .eagerlyEvaluate(nullptr);
  };
  std::optional<ErrorCode> first, second;
  const auto waits = join(first), again = join(second);
  ASSERT_TRUE(served([&] { return second.has_value(); }));
  EXPECT_EQ(second, ErrorCode::Conflict);
  EXPECT_FALSE(first.has_value());
  EXPECT_EQ(count, 0u) << "it is one of linksMax";
  EXPECT_FALSE(closed);
  paf.fulfiller->fulfill(standsBy("b:1"));
  ASSERT_TRUE(served([&] { return first.has_value() && closed; }));
  EXPECT_EQ(first, ErrorCode::StandsBy);
}

TEST_F(RpcLinks, C5_OnlySoManyNodesAreLinked) {
  LinksLimits limits = quickLinks();
  limits.linksMax = 1;
  startServer(nullptr, SchedulerRpc::limits(), limits);
  Member& first = addMember(quickConfig(unixAddress()));
  ASSERT_TRUE(welcomed(first));
  Member& second = addMember(quickConfig(unixAddress()));
  ASSERT_TRUE(served([&] {
    return second.link.state().find("linked already") != std::string::npos;
  })) << second.link.state();
  EXPECT_EQ(links->size(), 1u);
}

TEST_F(RpcLinks, ManyNodesJoinAndAreForgottenTogether) {
  startServer();
  constexpr std::size_t kNodes = 200;
  for (std::size_t i = 0; i < kNodes; ++i) addMember(quickConfig(unixAddress()));
  ASSERT_TRUE(served([&] { return hellos().size() == kNodes; }));
  EXPECT_EQ(links->size(), kNodes);
  members.clear();
  ASSERT_TRUE(served([&] { return lost().size() == kNodes; }));
  EXPECT_EQ(links->size(), 0u);
}

}  // namespace
}  // namespace qgpu::rpc_links_test
