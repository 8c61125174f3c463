#include "services/rpc/tls.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>

#include <fstream>

#include "services/rpc/dial.h"
#include "tests/certificates.h"
#include "tests/unit/cluster_rpc_fixture.h"

namespace qgpu {
namespace {

using testing::Certificates;
using testing::ClusterRpcFixture;

struct RpcTls : ClusterRpcFixture {
  RpcTls() { made.makeCa("ca"); }
  ~RpcTls() noexcept override {
    members.clear();
    stopServer();   // before the contexts that it uses
  }

  kj::TlsContext& open(const TlsFiles& files) {
    auto context = openTls(files);
    EXPECT_TRUE(context.ok()) << context.error().message;
    contexts.push_back(kj::mv(*context));
    return *contexts.back();
  }
  // Certificates name the server as clients write it.
  void serve(const std::string& name = "127.0.0.1") { startServer(open(made.make("ca", name))); }
  Member& join(const TlsFiles& files) {
    SchedulerLinkConfig config = quickConfig(tcpAddress());
    config.tls = open(files);
    return addMember(std::move(config));
  }
  // At once, not when some time is over.
  bool says(const Member& member, const std::string& words) {
    const kj::TimePoint end = bridge.timer().now() + 2 * kj::SECONDS;
    return served([&] {
      return bridge.timer().now() > end || member.link.state().find(words) != std::string::npos;
    }) && bridge.timer().now() <= end;
  }

  Certificates made{folder / ""};
  std::vector<kj::Own<kj::TlsContext>> contexts;
};

TEST_F(RpcTls, ANodeJoinsWithACertificateOfTheCa) {
  serve();
  Member& member = join(made.make("ca", "node-7"));
  ASSERT_TRUE(served([&] { return member.actor.count(schema::Envelope::TO_MEMBER) == 1; }))
      << member.link.state();
}

TEST_F(RpcTls, APeerWithACertificateMayChangeThingsUnderItsName) {
  serve();
  kj::TlsContext& mine = open(made.make("ca", "operator-3"));
  auto stream =
      dial(io.provider->getNetwork(), tcpAddress(), mine).wait(io.waitScope);
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
  files.ca = made.path("ca.pem");   // it trusts the server, but is not trusted
  Member& member = join(files);
  EXPECT_TRUE(says(member, "it refuses the certificate of --tls-cert")) << member.link.state();
  EXPECT_FALSE(member.link.up());
  EXPECT_TRUE(scheduler.heard.empty());
}

TEST_F(RpcTls, AServerOfAnotherNameOrCaIsNotTrusted) {
  serve("another-host");
  Member& member = join(made.make("ca", "node-7"));
  EXPECT_TRUE(says(member, "is not signed by --tls-ca")) << member.link.state();
  members.clear();
  made.makeCa("other");
  Member& second = join(made.make("other", "node-8"));
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
  for (const char* bad : {"", "host", "host:", ":1", "host:0", "host:70000", "a:1,,b:2", "::1:5",
                          "unix:", "a b:1"}) {
    EXPECT_FALSE(parseDialList(bad).ok()) << bad;
  }
}

// The documented client, as a program of its own.
struct RpcExample : ClusterRpcFixture {
  ~RpcExample() noexcept override = default;

  // Its exit code; what it printed is in `printed`.
  int run(const std::string& address) {
    const std::string out = folder / "out";
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    std::string program = QGPU_EXAMPLE;
    std::string argument = address;
    char* argv[] = {program.data(), argument.data(), nullptr};
    pid_t pid = -1;
    EXPECT_EQ(::posix_spawn(&pid, program.c_str(), &actions, nullptr, argv, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    int status = -1;
    EXPECT_TRUE(served([&] { return ::waitpid(pid, &status, WNOHANG) == pid; }));
    std::ifstream file(out);
    printed.assign(std::istreambuf_iterator<char>(file), {});
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  std::string printed;
};

TEST_F(RpcExample, SubmitsWaitsUntilBoundAndDeletes) {
  startServer();
  EXPECT_EQ(run(unixAddress()), 0) << printed;
  EXPECT_EQ(printed, "task 42\nbound on node node-1\ncard sim-0\ndeleted\n");
  ASSERT_TRUE(served([&] { return server->connections() == 0 && door.watchers() == 0; }));
}

TEST_F(RpcExample, SaysWhyItWasRefused) {
  startServer();
  EXPECT_EQ(run(tcpAddress()), 1) << printed;
  EXPECT_NE(printed.find("denied: nothing says who asks over TCP"), std::string::npos) << printed;
}

}  // namespace
}  // namespace qgpu
