#include "services/api/admin/admin_server.h"

#include <fcntl.h>
#include <random>
#include <simdjson.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "services/api/admin/node_handler.h"
#include "services/api/commands/command_line.h"
#include "services/base/process.h"
#include "tests/testing/forked_process.h"
#include "tests/unit/services/api/actor_client_fixture.h"

namespace qgpu::admin_server_test {
namespace {

using testing::ApiFixture;
using testing::LineClient;

struct KeepsHouse final : Housekeeping {
  void snapshot(std::function<void(Status)> done) override { done(snapshotResult); }
  Status setLogLevel(const std::string& l) override {
    if (l == "loud") return fail(ErrorCode::InvalidArgument, "loud is no level");
    level = l;
    return ok();
  }
  Status snapshotResult = ok();
  std::string level;
};

NodeActorClient::Limits smallLimits() {
  NodeActorClient::Limits limits;
  limits.watcherQueueMax = 4;
  return limits;
}

struct Admin : ApiFixture {
  Admin() : ApiFixture(smallLimits()), path(folder / "manager.sock") { start(); }

  ~Admin() noexcept override = default;

  void start() {
    AdminLimits limits;
    limits.connectionsMax = 4;
    limits.connectionsReserved = 2;
    auto listener = UnixListener::open(path, 0666);
    ASSERT_TRUE(listener.ok()) << listener.error().message;
    server =
        std::make_unique<AdminServer>(handler, ChangeRule(::getuid()), limits, *io.lowLevelProvider,
                                      bridge.timer(), std::move(*listener));
  }
  std::string ask(const std::string& line) { return LineClient(io, path).ask(line); }
  std::string codeOf(const std::string& answer) {
    simdjson::dom::parser parser;
    std::string_view code;
    bool isOk = true;
    const auto root = parser.parse(answer);
    if (root["ok"].get(isOk) != simdjson::SUCCESS) return "no JSON: " + answer;
    if (isOk) return "ok";
    if (root["code"].get(code) != simdjson::SUCCESS) return "no code";
    return std::string(code);
  }

  std::string path;
  KeepsHouse house;
  NodeHandler handler{
      actor, house, "here", {"/opt/lib/libqgpu.so", {{"POCL_DEVICES", "pthread pthread"}}}};
  std::unique_ptr<AdminServer> server;
};

TEST_F(Admin, AnswersEachCommandWithOneDocument) {
  LineClient client(io, path);
  for (const char* line : {"help", "status", "cards", "tasks", "events", "events 3", "trace 0",
                           "policy all bs", "cordon 0", "uncordon 0", "drain sim-0", "evict 7",
                           "snapshot", "loglevel debug", "run {}", "end 7"}) {
    EXPECT_EQ(codeOf(client.ask(line)), "ok") << line;
  }
  EXPECT_EQ(house.level, "debug");
}

TEST_F(Admin, CardsAndTasksHaveTheFieldsOfTheContract) {
  simdjson::dom::parser parser;
  const std::string cards = ask("cards");
  const auto card = parser.parse(cards)["cards"].at(0);
  EXPECT_EQ(std::string_view(card["id"]), "sim-0");
  EXPECT_EQ(std::uint64_t(card["index"]), 0u);
  EXPECT_EQ(std::string_view(card["node"]), "here");
  EXPECT_EQ(std::string_view(card["model"]), "sim \"16\"");
  EXPECT_EQ(std::string_view(card["backend"]), "sim");
  EXPECT_EQ(std::uint64_t(card["mem_bytes"]), 16ULL << 30U);
  EXPECT_EQ(std::uint64_t(card["mem_bound_bytes"]), 2ULL << 30U);
  EXPECT_EQ(std::uint64_t(card["share_bound_permille"]), 300u);
  EXPECT_EQ(std::string_view(card["policy"]), "fixed-share");
  EXPECT_EQ(std::string_view(card["kind"]), "ordinary");
  EXPECT_EQ(std::string_view(card["suspend"]), "freeze");
  EXPECT_EQ(card["suspend_why"].error(), simdjson::NO_SUCH_FIELD) << "nothing to say";
  EXPECT_EQ(card["memory_counted"].error(), simdjson::NO_SUCH_FIELD);
  EXPECT_EQ(card["report_unix_ms"].error(), simdjson::NO_SUCH_FIELD);
  EXPECT_EQ(std::string_view(card["state"]), "ready");
  EXPECT_EQ(std::uint64_t(card["tasks"]), 1u);
  const std::string_view figures =
      R"("tasks":1,"holder":0,"online_active":false,"used_ns":1500000000,"idle_ns":0,)"
      R"("online_ns":0,"holds":3,"overruns":0,"settle_us":{"p50":0,"p99":90,"n":0},)"
      R"("preempt_us":{"p50":40,"p99":90,"n":200},"release_us":{"p50":0,"p99":0,"n":0}})";
  EXPECT_NE(cards.find(figures), std::string::npos) << cards;
  const auto other = parser.parse(cards)["cards"].at(1);
  EXPECT_EQ(std::string_view(other["suspend_why"]), "a \"reason\"");
  EXPECT_EQ(std::string_view(other["memory_counted"]), "at CUDA's calls");

  const std::string tasks = ask("tasks");
  const auto task = parser.parse(tasks)["tasks"].at(0);
  EXPECT_EQ(std::uint64_t(task["id"]), 7u);
  EXPECT_EQ(std::string_view(task["name"]), "train");
  EXPECT_EQ(std::string_view(task["class"]), "ordinary");
  EXPECT_EQ(std::string_view(task["node"]), "here");
  EXPECT_EQ(std::string_view(task["card"]), "sim-0");
  EXPECT_EQ(std::uint64_t(task["share_permille"]), 300u);
  EXPECT_EQ(std::uint64_t(task["mem_bytes"]), 2ULL << 30U);
  EXPECT_EQ(std::uint64_t(task["mem_used_bytes"]), 1ULL << 30U);
  EXPECT_EQ(std::string_view(task["state"]), "running");
  EXPECT_EQ(std::uint64_t(task["processes"]), 2u);
  EXPECT_EQ(std::uint64_t(task["gpu_ns"]), 9'007'199'254'740'993u);
  EXPECT_EQ(std::uint64_t(task["held_ns"]), 0u);
  EXPECT_EQ(std::uint64_t(task["turns"]), 5u);
  EXPECT_EQ(std::uint64_t(task["launches"]), 42u);
}

TEST_F(Admin, ATraceIsItsEntriesByNumberAndTheNamesInThem) {
  EXPECT_EQ(ask("trace sim-0 40"),
            R"({"ok":true,"card":"sim-0","now_ns":9000000000,"newest":42,"lost":3,"entries":[)"
            R"({"seq":41,"at_ns":5000000000,"kind":"running","task":7},)"
            R"({"seq":42,"at_ns":6000000000,"kind":"released","since_ns":5900000000}],)"
            R"("tasks":[{"id":7,"name":"train","class":"offline"}]})");
  EXPECT_EQ(node.asked.back().text, "sim-0");
  EXPECT_EQ(node.asked.back().number, 40u);
}

TEST_F(Admin, RunBindsForThePeerAndTellsTheEnvironment) {
  simdjson::dom::parser parser;
  const std::string answer = ask(R"(run {"name":"a","memory_gib":2,"core_percent":30})");
  const auto root = parser.parse(answer);
  EXPECT_EQ(std::uint64_t(root["task"]), 7u);
  EXPECT_EQ(std::string_view(root["token"]), "0123456789abcdef0123456789abcdef");
  EXPECT_EQ(std::string_view(root["cards"].at(0)), "sim-0");
  EXPECT_EQ(std::string_view(root["env"]["QGPU_SOCKET"]), "/run/qgpu/attach.sock");
  EXPECT_EQ(std::string_view(root["env"]["QGPU_TOKEN"]), "0123456789abcdef0123456789abcdef");
  EXPECT_EQ(std::string_view(root["env"]["LD_PRELOAD"]), "/opt/lib/libqgpu.so");
  EXPECT_EQ(std::string_view(root["env"]["OPENCL_LAYERS"]), "/opt/lib/libqgpu.so");
  EXPECT_EQ(std::string_view(root["env"]["POCL_DEVICES"]), "pthread pthread");
  EXPECT_FALSE(answer.find("VISIBLE_DEVICES") != std::string::npos) << "no card of NVIDIA's";
  const testing::Asked& asked = node.asked.back();
  EXPECT_EQ(asked.text, "a");
  EXPECT_EQ(asked.ownerPid, static_cast<std::uint32_t>(::getpid()));
  EXPECT_EQ(asked.ownerStart, processStart(static_cast<std::uint32_t>(::getpid())));
  EXPECT_EQ(asked.ownerUid, ::getuid());
  EXPECT_EQ(asked.sharePermille, 300u);
  ask(R"(run {"owner":"none"})");
  EXPECT_EQ(node.asked.back().ownerPid, 0u);
}

TEST_F(Admin, RunTellsAProgramWhichOfNvidiasCardsItHasByUuid) {
  node.card = "GPU-5f1b1b0c-0000-4000-8000-000000000001";
  simdjson::dom::parser parser;
  const auto root = parser.parse(ask(R"(run {"name":"a"})"));
  EXPECT_EQ(std::string_view(root["env"]["CUDA_VISIBLE_DEVICES"]), node.card);
  EXPECT_EQ(std::string_view(root["env"]["NVIDIA_VISIBLE_DEVICES"]), node.card);
}

TEST_F(Admin, RefusalsOfTheNodeKeepTheirCode) {
  for (const ErrorCode code : {ErrorCode::NoRoom, ErrorCode::NotFound, ErrorCode::Conflict}) {
    node.failNext = fail(code, "because \"this\"");
    EXPECT_EQ(codeOf(ask("run {}")), errorName(code));
  }
  node.failNext = fail(ErrorCode::Denied, "no");
  EXPECT_EQ(codeOf(ask("loglevel trace")), "denied");
  EXPECT_EQ(house.level, "") << "the actor acts only on what the node permitted";
  EXPECT_EQ(codeOf(ask("loglevel loud")), "invalid-argument");
  house.snapshotResult = fail(ErrorCode::Unavailable, "disk full");
  EXPECT_EQ(codeOf(ask("snapshot")), "unavailable");
}

TEST_F(Admin, ServesSeveralLinesOfOneWriteInOrder) {
  LineClient client(io, path);
  client.write("cordon a\ncordon b\nfrobnicate\ncordon c\n");
  for (const char* code : {"ok", "ok", "invalid-argument", "ok"}) {
    EXPECT_EQ(codeOf(client.readLine()), code);
  }
  ASSERT_EQ(node.asked.size(), 3u);
  EXPECT_EQ(node.asked[0].text, "a");
  EXPECT_EQ(node.asked[2].text, "c");
}

TEST_F(Admin, C7_ALineThatIsTooLongIsRefusedAndOnlyItsConnectionCloses) {
  LineClient client(io, path);
  client.write(std::string(1 << 20, 'x') + "\nstatus\n");
  EXPECT_EQ(codeOf(client.readLine()), "invalid-argument");
  EXPECT_EQ(client.readLine(), "");
  EXPECT_TRUE(node.asked.empty());
  EXPECT_EQ(codeOf(ask("status")), "ok");
}

TEST_F(Admin, C7_ALineOfTheGreatestLengthIsServed) {
  std::string line = "status";
  line.resize(kLineMax, ' ');
  EXPECT_EQ(codeOf(ask(line)), "ok");
  EXPECT_EQ(codeOf(ask(line + " ")), "invalid-argument");
}

TEST_F(Admin, C7_HalfALineDoesNothing) {
  LineClient client(io, path);
  client.write("evict 7");
  client.endWrites();
  EXPECT_EQ(codeOf(client.readLine()), "invalid-argument");
  EXPECT_EQ(client.readLine(), "");
  EXPECT_TRUE(node.asked.empty());
}

TEST_F(Admin, C7_GarbageIsAnsweredOrIgnored) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 20; ++round) {
    std::string bytes(1 + random() % 8192, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    LineClient client(io, path);
    client.write(bytes);
    client.endWrites();
    for (std::string line = client.readLine(); !line.empty(); line = client.readLine()) {
      EXPECT_NE(codeOf(line), "ok") << line;
    }
  }
  EXPECT_TRUE(node.asked.empty());
  EXPECT_EQ(codeOf(ask("status")), "ok");
}

TEST_F(Admin, C7_ConnectionsAreLimitedAndAPlaceIsFreeAgainWhenOneLeaves) {
  std::vector<std::unique_ptr<LineClient>> clients;
  for (int i = 0; i < 4; ++i) {
    clients.push_back(std::make_unique<LineClient>(io, path));
    EXPECT_EQ(codeOf(clients.back()->ask("status")), "ok");
  }
  LineClient extra(io, path);
  EXPECT_EQ(codeOf(extra.readLine()), "overloaded");
  EXPECT_EQ(extra.readLine(), "");
  clients.pop_back();
  waitUntil([&] { return server->connections() <= 3; });
  EXPECT_EQ(codeOf(ask("status")), "ok");
}

TEST_F(Admin, WatchStreamsThePastAndWhatHappens) {
  node.eventSeqs = {1, 2};
  LineClient client(io, path);
  EXPECT_EQ(client.ask("watch 1"), R"({"ok":true,"watching":true})");
  simdjson::dom::parser parser;
  EXPECT_EQ(std::uint64_t(parser.parse(client.readLine())["event"]["seq"]), 2u);
  sink.tellEvent(3);
  EXPECT_EQ(std::uint64_t(parser.parse(client.readLine())["event"]["seq"]), 3u);
  client.endWrites();  // has nothing more to say, and goes on listening
  sink.tellEvent(4);
  const std::string line = client.readLine();
  EXPECT_EQ(std::string_view(parser.parse(line)["event"]["kind"]), "task-bound");
}

TEST_F(Admin, AWatchEndsWithItsPeer) {
  {
    LineClient client(io, path);
    client.ask("watch");
    EXPECT_EQ(actor.watchers(), 1u);
  }
  waitUntil([&] { return actor.watchers() == 0; });
  EXPECT_EQ(server->connections(), 0u);
}

TEST_F(Admin, C5_ASlowWatcherIsToldAndDropped) {
  LineClient client(io, path);
  client.ask("watch");
  for (std::uint64_t seq = 1; seq <= 20; ++seq) sink.tellEvent(seq);
  std::string last;
  for (std::string line = client.readLine(); !line.empty(); line = client.readLine()) last = line;
  EXPECT_EQ(codeOf(last), "overloaded");
}

// --- the socket file --------------------------------------------------------------------------

TEST_F(Admin, TheSocketIsForEverybodyAndGoesWithTheServer) {
  struct stat info {};
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0666U);
  server.reset();
  EXPECT_NE(::stat(path.c_str(), &info), 0);
}

TEST_F(Admin, ALiveSocketIsLeftAloneAndAStaleOneReplaced) {
  const auto second = UnixListener::open(path, 0666);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, ErrorCode::AlreadyExists);
  EXPECT_NE(second.error().message.find("another daemon"), std::string::npos);
  EXPECT_EQ(codeOf(ask("status")), "ok");

  const std::string stale = folder / "stale.sock";
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  stale.copy(address.sun_path, sizeof address.sun_path - 1);
  const int dead = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ASSERT_EQ(::bind(dead, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ::close(dead);
  EXPECT_TRUE(UnixListener::open(stale, 0666).ok());
}

TEST_F(Admin, APathThatIsNoSocketOrTooLongIsRefused) {
  const std::string file = folder / "file";
  std::fclose(std::fopen(file.c_str(), "w"));
  EXPECT_EQ(UnixListener::open(file, 0666).error().code, ErrorCode::AlreadyExists);
  EXPECT_EQ(UnixListener::open(folder / std::string(120, 'x'), 0666).error().code,
            ErrorCode::InvalidArgument);
  EXPECT_EQ(UnixListener::open(folder / "no/such/sock", 0666).error().code, ErrorCode::Unavailable);
}

TEST(TcpListenerTest, ListensOnTheLoopbackOfIpVersion6) {
  const auto six = TcpListener::open("[::1]:0", "--rpc");
  if (!six && six.error().code == ErrorCode::Unavailable) {
    GTEST_SKIP() << "this machine has no IPv6: " << six.error().message;
  }
  ASSERT_TRUE(six.ok()) << six.error().message;
  EXPECT_EQ(six->address(), "[::1]:" + std::to_string(six->port()));
  EXPECT_EQ(TcpListener::open(six->address(), "--rpc").error().code, ErrorCode::AlreadyExists);
}

TEST(TcpListenerTest, ListensOnLoopbackOnlyAndTellsTheRealPort) {
  auto any = TcpListener::open("127.0.0.1:0", "--http");
  ASSERT_TRUE(any.ok()) << any.error().message;
  EXPECT_NE(any->port(), 0);
  EXPECT_EQ(any->address(), "127.0.0.1:" + std::to_string(any->port()));
  EXPECT_EQ(TcpListener::open(any->address(), "--http").error().code, ErrorCode::AlreadyExists);
  EXPECT_NE(TcpListener::open(any->address(), "--rpc").error().message.find("port with --rpc"),
            std::string::npos);
  EXPECT_EQ(TcpListener::open("0.0.0.0:0", "--http").error().code, ErrorCode::Denied);
  EXPECT_EQ(TcpListener::open("10.1.2.3:80", "--http").error().code, ErrorCode::Denied);
  EXPECT_EQ(TcpListener::open("[2001:db8::1]:80", "--http").error().code, ErrorCode::Denied);
  for (const char* bad : {"", ":", "localhost:", "127.0.0.1:http", "127.0.0.1:65536", "host:1"}) {
    EXPECT_EQ(TcpListener::open(bad, "--http").error().code, ErrorCode::InvalidArgument) << bad;
  }
}

// --- who may change ----------------------------------------------------------------------------

TEST(ChangeRuleTest, RootTheDaemonsUserAndTheGroupMayChangeAndNobodyElse) {
  ChangeRule rule(12345, "games");  // uid and gid 5 and 60 on every Debian
  EXPECT_TRUE(rule.mayChange({0, 0, 1}));
  EXPECT_TRUE(rule.mayChange({12345, 1, 1}));
  EXPECT_TRUE(rule.mayChange({4000, 60, 1}));
  EXPECT_TRUE(rule.mayChange({5, 100, 1})) << "the group database says so";
  EXPECT_FALSE(rule.mayChange({4000, 4000, 1}));
  EXPECT_FALSE(ChangeRule(12345, "no-such-group").mayChange({4000, 60, 1}));
}

TEST(ChangeRuleTest, AFloodOfConnectionsLooksUpAGroupOnce) {
  Nanos now = seconds(1);
  int asked = 0;
  bool member = false;
  ChangeRule rule(
      12345, "qgpu",
      [&](const PeerIds&, const std::string&) {
        ++asked;
        return member;
      },
      [&] { return now; });
  for (int i = 0; i < 1000; ++i) EXPECT_FALSE(rule.mayChange({4000, 4000, 1}));
  EXPECT_EQ(asked, 1);
  EXPECT_FALSE(rule.mayChange({4000, 4001, 1})) << "another group is another question";
  EXPECT_EQ(asked, 2);
  member = true;
  now = now + ChangeRule::kRemembered;
  EXPECT_TRUE(rule.mayChange({4000, 4000, 1})) << "/etc/group was changed";
  for (uid_t uid = 5000; uid < 5000 + 3 * ChangeRule::kRememberedMax; ++uid) {
    EXPECT_TRUE(rule.mayChange({uid, 1, 1})) << "what is remembered is bounded";
  }
}

TEST(ProcessStart, TellsAProcessFromALaterOne) {
  EXPECT_TRUE(processStart(static_cast<std::uint32_t>(::getpid())).has_value());
  EXPECT_FALSE(processStart(0).has_value());
}

// Asks as another user, from a process of its own, while this one serves.
std::string askAsNobody(Admin& admin, const std::string& line) {
  int pipe[2];
  EXPECT_EQ(::pipe2(pipe, O_CLOEXEC), 0);
  testing::ForkedProcess child([&] {
    if (::setgid(65534) != 0 || ::setuid(65534) != 0) return 1;
    const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    admin.path.copy(address.sun_path, sizeof address.sun_path - 1);
    if (::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) return 2;
    // A refusal may be there before anything was asked; it is read all the same.
    if (::send(fd, line.data(), line.size(), MSG_NOSIGNAL) < 0 && errno != EPIPE) return 3;
    ::shutdown(fd, SHUT_WR);
    char chunk[4096];
    for (ssize_t n; (n = ::read(fd, chunk, sizeof chunk)) > 0;) {
      if (::write(pipe[1], chunk, static_cast<std::size_t>(n)) != n) return 4;
    }
    return 0;
  });
  ::close(pipe[1]);
  auto input =
      admin.io.lowLevelProvider->wrapInputFd(pipe[0], kj::LowLevelAsyncIoProvider::TAKE_OWNERSHIP);
  const std::string text = input->readAllText().wait(admin.io.waitScope).cStr();
  EXPECT_EQ(child.wait(), 0);
  return text;
}

TEST_F(Admin, AnotherUserMayReadAndRunButNotChange) {
  if (::getuid() != 0) GTEST_SKIP() << "becoming another user needs root";
  EXPECT_EQ(codeOf(askAsNobody(*this, "tasks\n")), "ok");
  EXPECT_FALSE(node.asked.back().mayChange);
  EXPECT_EQ(node.asked.back().uid, 65534u);
  for (const char* line : {"policy all be\n", "cordon 0\n", "uncordon 0\n", "drain 0\n",
                           "evict 7\n", "snapshot\n", "loglevel off\n"}) {
    const std::size_t before = node.asked.size();
    EXPECT_EQ(codeOf(askAsNobody(*this, line)), "denied") << line;
    EXPECT_EQ(node.asked.size(), before);
  }
  EXPECT_EQ(codeOf(askAsNobody(*this, "run {}\n")), "ok");
  EXPECT_EQ(node.asked.back().ownerUid, 65534u);
  EXPECT_EQ(codeOf(askAsNobody(*this, "end 7\n")), "ok");
  EXPECT_FALSE(node.asked.back().mayChange) << "the node decides whose task it is";
}

TEST_F(Admin, PlacesAreKeptForThoseWhoMayChange) {
  if (::getuid() != 0) GTEST_SKIP() << "becoming another user needs root";
  LineClient one(io, path);
  LineClient other(io, path);
  one.ask("status");
  other.ask("status");
  EXPECT_EQ(codeOf(askAsNobody(*this, "status\n")), "overloaded");
  EXPECT_EQ(codeOf(ask("status")), "ok");
}

}  // namespace
}  // namespace qgpu::admin_server_test
