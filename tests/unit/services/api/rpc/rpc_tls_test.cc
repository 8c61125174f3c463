#include <fcntl.h>
#include <fstream>
#include <spawn.h>
#include <sys/wait.h>

#include "services/base/net/dial.h"
#include "services/base/net/tls.h"
#include "tests/testing/certificates.h"
#include "tests/testing/child_process.h"
#include "tests/unit/services/api/cluster_rpc_fixture.h"

namespace qgpu::rpc_tls_test {
namespace {

using testing::Certificates;
using testing::ClusterRpcFixture;

struct RpcTls : ClusterRpcFixture {
  RpcTls() { made.makeCa("ca"); }
  ~RpcTls() noexcept override {
    members.clear();
    stopServer();  // before the contexts that it uses
  }

  kj::TlsContext& open(const TlsFiles& files) {
    auto context = openTls(files);
    EXPECT_TRUE(context.ok()) << context.error().message;
    contexts.push_back(kj::mv(*context));
    return *contexts.back();
  }
  // Certificates name the server as clients write it.
  void serve(const std::string& name = "127.0.0.1") { startServer(open(made.make("ca", name))); }
  Member& join(const TlsFiles& files, const std::string& name) {
    SchedulerLinkConfig config = quickConfig(tcpAddress());
    config.tls = open(files);
    Member& member = addMember(std::move(config));
    member.actor.name = name;
    return member;
  }
  bool welcomed(const Member& member) {
    return served([&] { return member.actor.count(schema::Envelope::TO_MEMBER) == 1; });
  }
  // Which nodes said hello to the scheduler.
  std::vector<std::string> hellos() const {
    std::vector<std::string> names;
    for (const auto& word : scheduler.heard) {
      if (word.which != schema::Envelope::FROM_MEMBER) continue;
      const auto words = word.read().getFromMember();
      if (words.isHello()) names.emplace_back(view(words.getHello().getFacts().getName()));
    }
    return names;
  }
  // What a client with this certificate is refused with when it calls; empty: nothing.
  template <typename Call>
  std::string refusalOf(const TlsFiles& files, Call call) {
    auto stream = dial(io.provider->getNetwork(), tcpAddress(), open(files)).wait(io.waitScope);
    capnp::TwoPartyClient client(*stream);
    auto calls = client.bootstrap().castAs<schema::Scheduler>();
    std::string why;
    kj::evalNow([&]() { return call(calls); })
        .then([] {}, [&](kj::Exception&& e) { why = fromException(e).message; })
        .wait(io.waitScope);
    return why;
  }
  static kj::Promise<void> read(schema::Scheduler::Client& calls) {
    return calls.nodesRequest().send().ignoreResult();
  }
  static kj::Promise<void> submit(schema::Scheduler::Client& calls) {
    auto request = calls.submitRequest();
    request.initSpec().initTask().setName("a");
    return request.send().ignoreResult();
  }
  static kj::Promise<void> change(schema::Scheduler::Client& calls) {
    auto request = calls.cordonRequest();
    request.initTarget().setNode("node-1");
    return request.send().ignoreResult();
  }
  // At once, not when some time is over.
  bool says(const Member& member, const std::string& words) {
    return served([&] { return member.link.state().find(words) != std::string::npos; });
  }

  Certificates made{folder / ""};
  std::vector<kj::Own<kj::TlsContext>> contexts;
};

TEST_F(RpcTls, ANodeJoinsWithACertificateOfTheCa) {
  serve();
  Member& member = join(made.make("ca", "node-7", "", "/OU=qgpu-node"), "node-7");
  ASSERT_TRUE(welcomed(member)) << member.link.state();
}

TEST_F(RpcTls, ANodeMayBeADnsEntryOfItsCertificate) {
  serve();
  const TlsFiles files =
      made.make("ca", "host", "DNS:node-8,DNS:node-8.example.org", "/O=qgpu-admin/OU=qgpu-node");
  Member& member = join(files, "node-8");
  ASSERT_TRUE(welcomed(member)) << member.link.state();
}

TEST_F(RpcTls, ANodeJoinsUnderNoOtherNameThanThatOfItsCertificate) {
  serve();
  Member& owner = join(made.make("ca", "node-1", "", "/OU=qgpu-node"), "node-1");
  ASSERT_TRUE(welcomed(owner)) << owner.link.state();
  const TlsFiles files = made.make("ca", "node-7", "", "/OU=qgpu-node");
  Member& thief = join(files, "node-1");
  EXPECT_TRUE(says(thief, "node node-1 has a certificate of node-7")) << thief.link.state();
  EXPECT_EQ(hellos(), std::vector<std::string>{"node-1"});
  EXPECT_TRUE(owner.link.up());
}

TEST_F(RpcTls, ANodeTellsFactsOfNoOtherNode) {
  serve();
  Member& member = join(made.make("ca", "node-7", "", "/OU=qgpu-node"), "node-7");
  ASSERT_TRUE(welcomed(member)) << member.link.state();
  member.say([](schema::FromMember::Builder words) {
    words.setSession(7);
    words.setSeq(2);
    words.initFacts().setName("node-1");
  });
  EXPECT_TRUE(says(member, "node node-1 has a certificate of node-7")) << member.link.state();
  EXPECT_EQ(scheduler.links(schema::FromMember::FACTS).size(), 0u);
}

TEST_F(RpcTls, WhatACertificateMayIsSaidByItsUnits) {
  serve();
  struct Role {
    const char* units;
    bool joins;
    bool changes;
  };
  const Role roles[] = {
      {"/OU=qgpu-node", true, false},
      {"/OU=qgpu-reader", false, false},
      {"/OU=qgpu-admin", false, true},
      {"/OU=qgpu-node/OU=qgpu-admin", true, true},
      {"/OU=qgpu-nodes", false, false},  // misspelt, or of a later version
      {"", true, false},                 // of before there were roles
      {"/OU=operations", true, false},
  };
  int number = 0;
  for (const Role& role : roles) {
    const std::string name = "machine-" + std::to_string(++number);
    const TlsFiles files = made.make("ca", name, "", role.units);
    EXPECT_EQ(refusalOf(files, read), "") << role.units;
    const std::string refused = "certificate " + name +
                                " may read only: sign one whose subject "
                                "has OU=qgpu-admin for whoever may change things";
    EXPECT_EQ(refusalOf(files, submit), role.changes ? "" : refused) << role.units;
    EXPECT_EQ(refusalOf(files, change), role.changes ? "" : refused) << role.units;
    Member& member = join(files, name);
    if (role.joins) {
      EXPECT_TRUE(welcomed(member)) << role.units << member.link.state();
    } else {
      EXPECT_TRUE(says(member, "may not join as a node: sign one whose subject has OU=qgpu-node"))
          << role.units << member.link.state();
    }
  }
}

TEST_F(RpcTls, AReaderIsTheUserNobodyInNoTask) {
  serve();
  const TlsFiles files = made.make("ca", "watcher", "", "/OU=qgpu-reader");
  const auto get = [](schema::Scheduler::Client& calls) {
    auto request = calls.getRequest();
    request.setTask(42);
    return request.send().then([](auto got) { EXPECT_FALSE(got.hasAssigned()) << "a token"; });
  };
  EXPECT_EQ(refusalOf(files, get), "");
}

TEST_F(RpcTls, ConnectionsThatBeginLaterUseTheLaterCertificates) {
  serve();
  made.makeCa("later");
  kj::TlsContext& later = open(made.make("later", "127.0.0.1"));
  Member& before = join(made.make("ca", "node-1"), "node-1");
  ASSERT_TRUE(welcomed(before)) << before.link.state();
  server->setTls(later);
  Member& after = join(made.make("later", "node-2"), "node-2");
  ASSERT_TRUE(welcomed(after)) << after.link.state();
  EXPECT_TRUE(before.link.up()) << "who was there stays";
  // The member's end takes others as well, once its connection is over.
  before.link.setTls(open(made.make("later", "node-1")));
  const std::size_t ups = before.actor.count(schema::Envelope::LINK_UP);
  tell(1, [](schema::ToMember::Builder words) { words.initTurnedAway().setCode("conflict"); });
  EXPECT_TRUE(served([&] { return before.actor.count(schema::Envelope::LINK_UP) > ups; }))
      << before.link.state();
}

TEST_F(RpcTls, APeerWithACertificateMayChangeThingsUnderItsName) {
  serve();
  kj::TlsContext& mine = open(made.make("ca", "operator-3", "", "/OU=qgpu-admin"));
  auto stream = dial(io.provider->getNetwork(), tcpAddress(), mine).wait(io.waitScope);
  capnp::TwoPartyClient client(*stream);
  auto cordon = client.bootstrap().castAs<schema::Scheduler>().cordonRequest();
  cordon.initTarget().setNode("node-1");
  cordon.send().wait(io.waitScope);
  const auto asked = scheduler.heard.back().read().getClusterRequest();
  EXPECT_TRUE(asked.getMayChange());
  EXPECT_EQ(view(asked.getPeerName()), "operator-3");
  EXPECT_EQ(asked.getPeerUid(), 65534u) << "nobody";
}

TEST_F(RpcTls, ACertificateOfAnotherCaIsRefused) {
  serve();
  made.makeCa("other");
  TlsFiles files = made.make("other", "node-7");
  files.ca = made.path("ca.pem");  // it trusts the server, but is not trusted
  Member& member = join(files, "node-7");
  EXPECT_TRUE(says(member, "it refuses the certificate of --tls-cert")) << member.link.state();
  EXPECT_FALSE(member.link.up());
  EXPECT_TRUE(scheduler.heard.empty());
}

TEST_F(RpcTls, AServerOfAnotherNameOrCaIsNotTrusted) {
  serve("another-host");
  Member& member = join(made.make("ca", "node-7"), "node-7");
  EXPECT_TRUE(says(member, "is not signed by --tls-ca")) << member.link.state();
  members.clear();
  made.makeCa("other");
  Member& second = join(made.make("other", "node-8"), "node-8");
  EXPECT_TRUE(says(second, "is not signed by --tls-ca")) << second.link.state();
  EXPECT_TRUE(scheduler.heard.empty());
}

TEST_F(RpcTls, WhoSpeaksWithoutTlsIsRefused) {
  serve();
  Member& member = addMember(quickConfig(tcpAddress()));
  ASSERT_TRUE(served([&] { return member.link.state() != "not connected yet"; }));
  EXPECT_FALSE(member.link.up());
  ASSERT_TRUE(served([&] { return server->connections() <= 1; }));
  EXPECT_TRUE(scheduler.heard.empty());
}

TEST_F(RpcTls, C5_AHandshakeThatDoesNotEndIsCutOff) {
  RpcLimits limits = SchedulerRpc::limits();
  limits.handshakeDeadline = millis(20);
  startServer(open(made.make("ca", "127.0.0.1")), limits);
  auto stream = dial(io.provider->getNetwork(), tcpAddress(), nullptr).wait(io.waitScope);
  ASSERT_TRUE(served([&] { return server->connections() == 1; }));
  ASSERT_TRUE(served([&] { return server->connections() == 0; }));
}

TEST_F(RpcTls, WrongFilesAreNamedInOneLine) {
  const TlsFiles good = made.make("ca", "node-7");
  const auto messageOf = [](TlsFiles files) {
    const auto opened = openTls(files);
    return opened.ok() ? std::string() : opened.error().message;
  };
  EXPECT_EQ(messageOf(good), "");
  TlsFiles files = good;
  files.key.clear();
  EXPECT_NE(messageOf(files).find("--tls-key is missing"), std::string::npos);
  files.key = folder / "none.key";
  EXPECT_NE(messageOf(files).find("none.key: No such file"), std::string::npos);
  files.key = good.cert;
  EXPECT_NE(messageOf(files).find("it is no private key"), std::string::npos);
  files.key = made.path("ca.key");
  EXPECT_NE(messageOf(files).find("does not belong to"), std::string::npos);
  files = good;
  files.ca = good.key;
  EXPECT_NE(messageOf(files).find("--tls-ca=" + good.key + ": it is no certificate"),
            std::string::npos);
}

TEST(Dial, AddressesAreCheckedOneByOne) {
  const auto list = parseDialList("10.0.0.1:12346,unix:/run/qgpu/scheduler.rpc,[::1]:1");
  ASSERT_TRUE(list.ok()) << list.error().message;
  EXPECT_EQ(list->size(), 3u);
  EXPECT_FALSE(dialStaysHere((*list)[0]));
  EXPECT_TRUE(dialStaysHere((*list)[1]));
  EXPECT_TRUE(dialStaysHere((*list)[2]));
  for (const char* bad :
       {"", "host", "host:", ":1", "host:0", "host:70000", "a:1,,b:2", "::1:5", "unix:", "a b:1"}) {
    EXPECT_FALSE(parseDialList(bad).ok()) << bad;
  }
}

TEST(Dial, AnAddressMayBeANameOfDns) {
  const auto list = parseDialList("srv:_qgpu._tcp.example.com,s1:12346,srv:12346");
  ASSERT_TRUE(list.ok()) << list.error().message;
  EXPECT_EQ(list->size(), 3u);
  for (const std::string& each : *list) EXPECT_FALSE(dialStaysHere(each)) << each;
  EXPECT_FALSE(dialStaysHere("srv:localhost"));
  for (const char* bad :
       {"srv:", "srv:a..b", "srv:_qgpu._tcp.example.com:1", "srv:a b", "srv:a/b", "srv:70000"}) {
    EXPECT_FALSE(parseDialList(bad).ok()) << bad;
  }
}

// The documented client, as a program of its own.
struct RpcExample : ClusterRpcFixture {
  ~RpcExample() noexcept override = default;

  // Its exit code; what it printed is in `printed`.
  int run(const std::string& address) {
    testing::Child example({QGPU_EXAMPLE, address});
    EXPECT_TRUE(served([&] { return !example.alive(); }));
    printed = example.output();
    return example.status().value_or(-1);
  }
  std::string printed;
};

TEST_F(RpcExample, SubmitsWaitsUntilBoundAndDeletes) {
  startServer();
  EXPECT_EQ(run(unixAddress()), 0) << printed;
  EXPECT_EQ(printed, "task 42\nbound on node node-1\ncard sim-0\ndeleted\n");
  ASSERT_TRUE(served([&] { return server->connections() == 0 && actor.watchers() == 0; }));
}

TEST_F(RpcExample, SaysWhyItWasRefused) {
  startServer();
  EXPECT_EQ(run(tcpAddress()), 1) << printed;
  EXPECT_NE(printed.find("denied: nothing says who asks over TCP"), std::string::npos) << printed;
}

}  // namespace
}  // namespace qgpu::rpc_tls_test
