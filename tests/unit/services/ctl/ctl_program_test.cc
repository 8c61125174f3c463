// qgpuctl as a program, against the admin socket of a scripted node.

#include <algorithm>
#include <cstdlib>
#include <fcntl.h>
#include <fstream>
#include <iterator>
#include <optional>
#include <signal.h>
#include <simdjson.h>
#include <unistd.h>

#include "services/api/admin/admin_server.h"
#include "services/api/admin/node_handler.h"
#include "tests/testing/child_process.h"
#include "tests/testing/pseudo_terminal.h"
#include "tests/unit/services/api/actor_client_fixture.h"

namespace qgpu::ctl_program_test {
namespace {

using testing::ApiFixture;
using testing::Child;
using testing::PseudoTerminal;

struct NoHouse final : Housekeeping {
  void snapshot(std::function<void(Status)> done) override { done(ok()); }
  Status setLogLevel(const std::string&) override { return ok(); }
};

struct Ctl : ApiFixture {
  Ctl() : path(folder / "manager.sock") {
    start();
    // A library of that name which changes nothing, so that CMD may really be started.
    ::setenv("QGPU_LIB", "/lib/x86_64-linux-gnu/libc.so.6", 1);
    if (::access(::getenv("QGPU_LIB"), R_OK) != 0) {
      ::setenv("QGPU_LIB", "/lib/aarch64-linux-gnu/libc.so.6", 1);
    }
    ::unsetenv("OPENCL_LAYERS");
  }
  ~Ctl() noexcept override = default;

  void start(std::vector<std::pair<std::string, std::string>> extras = {}) {
    handler.emplace(actor, house, "here", TenantEnvironment{"", std::move(extras)});
    auto listener = UnixListener::open(path, 0666);
    ASSERT_TRUE(listener.ok()) << listener.error().message;
    server =
        std::make_unique<AdminServer>(*handler, ChangeRule(::getuid()), AdminLimits{},
                                      *io.lowLevelProvider, bridge.timer(), std::move(*listener));
  }
  std::unique_ptr<Child> begin(std::vector<std::string> arguments) {
    std::vector<std::string> argv = {QGPUCTL, "--socket", path};
    argv.insert(argv.end(), arguments.begin(), arguments.end());
    return std::make_unique<Child>(argv);
  }
  // With stdin and stderr at a terminal.
  std::unique_ptr<Child> beginAt(const PseudoTerminal& terminal,
                                 std::vector<std::string> arguments) {
    std::vector<std::string> argv = {
        "/bin/sh", "-c",       "exec \"$0\" \"$@\" <" + terminal.name() + " 2>" + terminal.name(),
        QGPUCTL,   "--socket", path};
    argv.insert(argv.end(), arguments.begin(), arguments.end());
    return std::make_unique<Child>(argv);
  }
  int finish(Child& program) {
    waitUntil([&] { return program.status().has_value(); });
    return *program.status();
  }
  int run(std::vector<std::string> arguments) {
    const auto program = begin(std::move(arguments));
    const int status = finish(*program);
    output = program->output();
    return status;
  }
  bool asked(schema::Request::Which which) const {
    for (const auto& a : node.asked) {
      if (a.which == which) return true;
    }
    return false;
  }

  std::string path;
  NoHouse house;
  std::optional<NodeHandler> handler;
  std::unique_ptr<AdminServer> server;
  std::string output;
};

TEST_F(Ctl, ShowsTablesAndPassesJsonThrough) {
  EXPECT_EQ(run({"cards"}), 0);
  EXPECT_NE(output.find("sim-0"), std::string::npos);
  EXPECT_NE(output.find("2 GiB / 16 GiB"), std::string::npos) << output;
  EXPECT_EQ(output.find('\x1b'), std::string::npos) << "no colours outside a terminal";
  EXPECT_EQ(run({"tasks"}), 0);
  EXPECT_NE(output.find("train"), std::string::npos) << output;
  EXPECT_EQ(run({"status"}), 0);
  EXPECT_NE(output.find("here"), std::string::npos) << output;
  EXPECT_EQ(run({"-o", "json", "tasks"}), 0);
  EXPECT_TRUE(output.starts_with(R"({"ok":true,"tasks":[{"id":7,)")) << output;
  EXPECT_NE(output.find("\"gpu_ns\":9007199254740993"), std::string::npos);
  EXPECT_EQ(run({"version"}), 0);
}

TEST_F(Ctl, AListIsAlsoWideYamlAndNames) {
  EXPECT_EQ(run({"-o", "wide", "tasks"}), 0);
  EXPECT_NE(output.find("PEAK"), std::string::npos) << output;
  EXPECT_EQ(run({"-o", "yaml", "tasks"}), 0);
  EXPECT_TRUE(output.starts_with("ok: true\ntasks:\n  - id: 7\n    name: train\n")) << output;
  EXPECT_EQ(run({"-o", "name", "tasks"}), 0);
  EXPECT_EQ(output, "7\n");
  EXPECT_EQ(run({"-o", "name", "cards"}), 0);
  EXPECT_EQ(output, "sim-0\nsim-1\n");
  EXPECT_EQ(run({"-o", "yaml", "top", "-n", "1"}), 0);
  EXPECT_TRUE(output.starts_with("---\nstatus:\n  ok: true\n")) << output;
  node.failNext = fail(ErrorCode::NotFound, "no task 999");
  EXPECT_EQ(run({"-o", "yaml", "evict", "999"}), 3);
  EXPECT_EQ(output, "ok: false\nerror: \"no task 999\"\ncode: not-found\n");
}

TEST_F(Ctl, CompletesNamesThatTheDaemonKnows) {
  const auto complete = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {QGPUCTL, "complete", "--socket", path});
    Child program(words);
    EXPECT_EQ(finish(program), 0);
    return program.output();
  };
  EXPECT_EQ(complete({"end", ""}), "7\ttrain\n");
  EXPECT_EQ(complete({"end", "8"}), "");
  EXPECT_EQ(complete({"end", "tr"}), "train\t7\n") << "by its name, where that was begun";
  EXPECT_TRUE(complete({"cordon", "sim-"}).starts_with("sim-0\t"));
  server.reset();
  EXPECT_EQ(complete({"end", ""}), "") << "a daemon that is not there says nothing";
}

TEST_F(Ctl, RefusalsExitWith3) {
  node.failNext = fail(ErrorCode::NotFound, "no task 999");
  EXPECT_EQ(run({"evict", "999"}), 3);
  EXPECT_EQ(output, "qgpuctl: no task 999 (not-found)\n");
  node.failNext = fail(ErrorCode::NotFound, "no task 999");
  EXPECT_EQ(run({"-o", "json", "evict", "999"}), 3);
  EXPECT_EQ(output, R"({"ok":false,"error":"no task 999","code":"not-found"})"
                    "\n");
}

TEST_F(Ctl, ATaskIsCalledByItsNameWhereThatFitsOne) {
  EXPECT_EQ(run({"end", "train"}), 0) << output;
  EXPECT_EQ(node.asked.back().which, schema::Request::UNBIND);
  EXPECT_EQ(node.asked.back().number, 7u);
  EXPECT_EQ(run({"evict", "nobody"}), 3);
  EXPECT_EQ(output,
            "qgpuctl: no task is called \"nobody\": `qgpuctl tasks` lists them (not-found)\n");
  EXPECT_EQ(run({"explain", "trian"}), 3);
  EXPECT_EQ(output,
            "qgpuctl: no task is called \"trian\": did you mean train? `qgpuctl tasks` "
            "lists them (not-found)\n");
  EXPECT_EQ(run({"-o", "json", "evict", "nobody"}), 3);
  EXPECT_TRUE(output.starts_with(R"({"ok":false,"error":"no task is called)")) << output;
  node.taskName = "my task";
  EXPECT_EQ(run({"end", "my task"}), 0) << output;
}

TEST_F(Ctl, ANodeByItselfExplainsATaskToo) {
  EXPECT_EQ(run({"explain", "train"}), 0) << output;
  for (const char* part :
       {"task 7 (train, ordinary) is on sim-0 of here: it asked for 2 GiB and 30% of a card",
        "sim-0 is shared by fixed-share between 1 task(s), which have 2 GiB of its 16 GiB",
        "fixed-share: at most 30% of the card", "it had 0% of the card", "it has the card now"}) {
    EXPECT_NE(output.find(part), std::string::npos) << part << "\n" << output;
  }
  EXPECT_EQ(run({"explain", "8"}), 3);
  EXPECT_EQ(output, "qgpuctl: no task 8 here: `qgpuctl tasks` lists them (not-found)\n");
}

TEST_F(Ctl, ADrainSaysFirstWhatItWouldEnd) {
  EXPECT_EQ(run({"drain", "0", "--dry-run"}), 0);
  EXPECT_EQ(output, "to drain sim-0 ends 1 task: 7 (train)\n");
  EXPECT_EQ(run({"drain", "sim-1", "--dry-run"}), 0);
  EXPECT_EQ(output, "to drain sim-1 ends no task\n");
  EXPECT_EQ(run({"-o", "json", "drain", "0", "--dry-run"}), 0);
  EXPECT_EQ(output, "{\"ok\":true,\"card\":\"sim-0\",\"ends\":[{\"id\":7,\"name\":\"train\"}]}\n");
  EXPECT_EQ(run({"drain", "9", "--dry-run"}), 3);
  EXPECT_NE(output.find("no card '9' here"), std::string::npos) << output;
  EXPECT_FALSE(asked(schema::Request::DRAIN));
}

TEST_F(Ctl, ADrainAsksWhoSitsAtATerminalBeforeTasksEnd) {
  PseudoTerminal terminal;
  const std::string question = "qgpuctl: to drain 0 ends 1 task: 7 (train); go on? [y/N] ";
  const auto asks = [&] { waitUntil([&] { return terminal.shown().ends_with(question); }); };
  const auto no = beginAt(terminal, {"drain", "0"});
  asks();
  terminal.type("\n");
  EXPECT_EQ(finish(*no), 3);
  EXPECT_TRUE(terminal.shown().ends_with("qgpuctl: nothing was changed\r\n")) << terminal.shown();
  EXPECT_FALSE(asked(schema::Request::DRAIN));

  const auto yes = beginAt(terminal, {"drain", "0"});
  asks();
  terminal.type("y\n");
  EXPECT_EQ(finish(*yes), 0);
  EXPECT_TRUE(asked(schema::Request::DRAIN));
}

TEST_F(Ctl, ADrainAsksNobodyWhereThatWasSaidOrNobodySitsThereOrNothingEnds) {
  PseudoTerminal terminal;
  const auto finishes = [&](std::unique_ptr<Child> program) {
    node.asked.clear();
    EXPECT_EQ(finish(*program), 0);
    EXPECT_TRUE(asked(schema::Request::DRAIN));
  };
  finishes(beginAt(terminal, {"drain", "0", "--yes"}));
  finishes(beginAt(terminal, {"drain", "1"}));
  EXPECT_EQ(terminal.shown(), "");
  finishes(begin({"drain", "0"}));
}

TEST_F(Ctl, WithoutADaemonItExitsWith4AndSaysHowToStartOne) {
  server.reset();
  for (const char* command : {"status", "top", "events", "timeline"}) {
    EXPECT_EQ(run({command}), 4) << command;
    EXPECT_NE(output.find("start one: "), std::string::npos) << output;
    EXPECT_NE(output.find("qgpu-manager"), std::string::npos) << output;
  }
}

TEST_F(Ctl, ATraceIsListedDrawnAndRecorded) {
  const auto contentOf = [](const std::string& file) {
    std::ifstream stream(file);
    return std::string(std::istreambuf_iterator<char>(stream), {});
  };
  EXPECT_EQ(run({"trace", "list", "0"}), 0);
  EXPECT_NE(output.find("running"), std::string::npos) << output;
  EXPECT_NE(output.find("train"), std::string::npos) << output;
  EXPECT_EQ(run({"timeline", "--card", "0"}), 0);
  EXPECT_NE(output.find("sim-0: "), std::string::npos) << output;
  EXPECT_NE(output.find("train offline"), std::string::npos) << output;
  EXPECT_EQ(output.find('\x1b'), std::string::npos) << "no colours outside a terminal";
  EXPECT_EQ(run({"-o", "json", "timeline", "--card", "0"}), 0);
  EXPECT_TRUE(output.starts_with(R"({"ok":true,"card":"sim-0",)")) << output;
  EXPECT_EQ(run({"-o", "yaml", "timeline", "--card", "0"}), 0);
  EXPECT_TRUE(output.starts_with("---\nok: true\ncard: ")) << output;
  EXPECT_EQ(run({"timeline", "--svg", folder / "t.svg"}), 0);
  EXPECT_TRUE(contentOf(folder / "t.svg").starts_with("<svg "));
  EXPECT_EQ(run({"trace", "record", "--seconds", "0.1", "-o", folder / "t.json"}), 0);
  EXPECT_NE(output.find("0.1 s of 2 card(s)"), std::string::npos) << output;
  EXPECT_TRUE(contentOf(folder / "t.json").starts_with(R"({"displayTimeUnit":"ms",)"));
  EXPECT_EQ(run({"trace", "record", "--seconds", "0.1", "-o", "-"}), 0);
  EXPECT_TRUE(output.starts_with(R"({"displayTimeUnit":"ms",)")) << output;
}

TEST_F(Ctl, ATraceIsFollowedFromTheLastNumberThatWasShown) {
  const auto follower = begin({"trace", "list", "0", "--follow"});
  waitUntil([&] { return node.asked.size() >= 3; });
  EXPECT_EQ(node.asked[0].number, 0u);
  EXPECT_EQ(node.asked[1].number, 42u);
  EXPECT_EQ(node.asked[2].number, 42u);
  waitUntil([&] { return follower->output().find("released") != std::string::npos; });
  const std::string said = follower->output();
  EXPECT_EQ(said.find("SEQ"), said.rfind("SEQ")) << said;
  server.reset();
  EXPECT_EQ(finish(*follower), 4) << follower->output();
}

TEST_F(Ctl, ARecordThatCannotBeWrittenIsRefusedBeforeItBegins) {
  EXPECT_EQ(run({"trace", "record", "-o", "/nonexistent/t.json"}), 3);
  EXPECT_EQ(output, "qgpuctl: can't write /nonexistent/t.json: No such file or directory\n");
  node.failNext = fail(ErrorCode::NotFound, "no card '9' here");
  EXPECT_EQ(run({"trace", "record", "--card", "9", "-o", folder / "t.json"}), 3);
  EXPECT_EQ(output, "qgpuctl: no card '9' here\n");
  EXPECT_NE(::access((folder / "t.json").c_str(), F_OK), 0) << "nothing is left behind";
}

TEST_F(Ctl, EventsAreListedAndFollowed) {
  node.eventSeqs = {1, 2};
  EXPECT_EQ(run({"events", "--since", "1"}), 0);
  EXPECT_NE(output.find("task-bound  task 7  sim-0  bound  (uid 0 pid 12)"), std::string::npos)
      << output;
  const auto follower = begin({"events", "--follow"});
  waitUntil([&] { return actor.watchers() == 1; });
  sink.tellEvent(3);
  const auto shows = [&](const char* part) {
    waitUntil([&] { return follower->output().find(part) != std::string::npos; });
  };
  shows("     3  ");
  server.reset();
  shows("looking again");
  start();
  waitUntil([&] { return actor.watchers() == 1; });
  sink.tellEvent(4);
  shows("     4  ");
  ::kill(follower->pid(), SIGINT);
  EXPECT_EQ(finish(*follower), 128 + SIGINT);
}

TEST_F(Ctl, EventsAreThoseThatAreAskedFor) {
  node.eventSeqs = {1, 2};
  const auto lines = [&](std::vector<std::string> arguments) {
    EXPECT_EQ(run(std::move(arguments)), 0) << output;
    return std::count(output.begin(), output.end(), '\n');
  };
  EXPECT_EQ(lines({"events", "--task", "train"}), 2);
  EXPECT_EQ(lines({"events", "--task", "8"}), 1);
  EXPECT_EQ(output, "qgpuctl: no task \"8\" is known lately\n");
  EXPECT_EQ(lines({"events", "--task", "trian"}), 1);
  EXPECT_EQ(output, "qgpuctl: no task \"trian\" is known lately: did you mean train?\n");
  EXPECT_EQ(lines({"events", "--card", "sim-9"}), 1);
  EXPECT_EQ(output, "qgpuctl: no card \"sim-9\" is known lately: did you mean sim-0?\n");
  EXPECT_EQ(lines({"events", "--card", "0"}), 2);
  EXPECT_EQ(lines({"events", "--card", "sim-1"}), 0);
  EXPECT_EQ(lines({"events", "--kind", "task-ended"}), 0);
  EXPECT_EQ(lines({"events", "--since", "1h"}), 0) << "they are of another year";
  EXPECT_EQ(run({"-o", "json", "events", "--kind", "task-ended"}), 0);
  EXPECT_EQ(output, "{\"ok\":true,\"events\":[]}\n");
  const auto follower = begin({"events", "--follow", "--task", "train", "--kind", "task-bound"});
  waitUntil([&] { return actor.watchers() == 1; });
  sink.tellEvent(3);
  waitUntil([&] { return follower->output().find("     3  ") != std::string::npos; });
}

TEST_F(Ctl, AnAuditShowsWhatWasAskedForOnly) {
  node.eventSeqs = {1, 2};
  node.eventActor = "node";
  EXPECT_EQ(run({"audit"}), 0);
  EXPECT_EQ(output, "");
  node.eventActor = "uid 0 pid 12";
  EXPECT_EQ(run({"audit"}), 0);
  EXPECT_EQ(std::count(output.begin(), output.end(), '\n'), 2) << output;
}

TEST_F(Ctl, WhoMeantAClusterIsToldHowToAskIt) {
  node.failNext = fail(ErrorCode::NotFound, "no card 'node-3' here");
  EXPECT_EQ(run({"drain", "node-3"}), 3);
  EXPECT_NE(output.find("of a cluster: --cluster"), std::string::npos) << output;
  EXPECT_EQ(run({"nodes"}), 3);
  EXPECT_NE(output.find("is no scheduler: --server"), std::string::npos) << output;
  EXPECT_EQ(output.find("unknown command"), std::string::npos) << output;
}

TEST_F(Ctl, EventsAreAskedForUntilTheNewestIsTold) {
  for (std::uint64_t seq = 1; seq <= 7; ++seq) node.eventSeqs.push_back(seq);
  node.eventsPerReply = 3;
  EXPECT_EQ(run({"events", "1"}), 0);
  EXPECT_EQ(std::count(output.begin(), output.end(), '\n'), 6) << output;
  EXPECT_NE(output.find("\n     7  "), std::string::npos) << output;
  EXPECT_EQ(run({"-o", "json", "events"}), 0);
  EXPECT_EQ(std::count(output.begin(), output.end(), '\n'), 1) << "one document";
  EXPECT_TRUE(output.starts_with(R"({"ok":true,"events":[{"seq":1,)")) << output;
  EXPECT_NE(output.find(R"(,{"seq":7,)"), std::string::npos) << output;
}

TEST_F(Ctl, TopPrintsPlainPicturesIntoAPipe) {
  EXPECT_EQ(run({"top", "-n", "2", "--interval", "0.1"}), 0);
  EXPECT_EQ(output.find('\x1b'), std::string::npos);
  const std::size_t first = output.find("CARD");
  EXPECT_NE(output.find("CARD", first + 1), std::string::npos) << output;
}

TEST_F(Ctl, TopGivesOneDocumentForEachPictureAsJson) {
  EXPECT_EQ(run({"-o", "json", "top", "-n", "2", "--interval", "0.1"}), 0);
  EXPECT_EQ(std::count(output.begin(), output.end(), '\n'), 2) << output;
  simdjson::dom::parser parser;
  simdjson::dom::element root;
  ASSERT_EQ(parser.parse(output.substr(0, output.find('\n'))).get(root), simdjson::SUCCESS);
  for (const char* part : {"status", "cards", "tasks"}) {
    EXPECT_TRUE(root[part]["ok"].get_bool().value()) << part;
  }
}

TEST_F(Ctl, TopEndsCleanlyAtCtrlC) {
  const auto program = begin({"top", "--interval", "0.1"});
  waitUntil([&] { return program->output().find("CARD") != std::string::npos; });
  ::kill(program->pid(), SIGINT);
  EXPECT_EQ(finish(*program), 0);
}

// --- run ---------------------------------------------------------------------------------------

TEST_F(Ctl, RunGivesItsCommandTheEnvironmentAndItsExitStatus) {
  EXPECT_EQ(run({"run", "--name", "a", "--memory", "2", "--core", "30", "--", "sh", "-c",
                 "echo $QGPU_TOKEN $QGPU_SOCKET $LD_PRELOAD $OPENCL_LAYERS; exit 7"}),
            7);
  const std::string library = ::getenv("QGPU_LIB");
  EXPECT_EQ(output, "0123456789abcdef0123456789abcdef " + folder / "attach.sock" + " " + library +
                        " " + library + "\n");
  ASSERT_EQ(node.asked.size(), 3u);
  EXPECT_EQ(node.asked[0].which, schema::Request::INFO) << "whether it has joined its scheduler";
  EXPECT_EQ(node.asked[1].which, schema::Request::BIND);
  EXPECT_EQ(node.asked[1].text, "a");
  EXPECT_EQ(node.asked[1].memBytes, 2ULL << 30U);
  EXPECT_EQ(node.asked[1].sharePermille, 300u);
  EXPECT_EQ(node.asked[2].which, schema::Request::UNBIND);
  EXPECT_EQ(node.asked[2].number, 7u);
}

TEST_F(Ctl, RunLeavesNoPoclVariableOfTheCallerToItsCommand) {
  server.reset();
  start({{"POCL_DEVICES", "cpu"}});
  ::setenv("POCL_DEVICES", "basic", 1);
  ::setenv("POCL_KERNEL_CACHE", "0", 1);
  EXPECT_EQ(run({"run", "--", "sh", "-c", "env | grep ^POCL_"}), 0);
  EXPECT_EQ(output, "POCL_DEVICES=cpu\n");
  ::unsetenv("POCL_DEVICES");
  ::unsetenv("POCL_KERNEL_CACHE");
}

TEST_F(Ctl, RunReturnsWhatAShellReturns) {
  EXPECT_EQ(run({"run", "--", "/nonexistent/program"}), 127);
  EXPECT_NE(output.find("command not found"), std::string::npos) << output;
  EXPECT_EQ(run({"run", "--", "/tmp"}), 126);
  EXPECT_EQ(run({"run", "--", "sh", "-c", "kill -KILL $$"}), 128 + SIGKILL);
  EXPECT_EQ(run({"run", "true"}), 0);
}

TEST_F(Ctl, RunIsRefusedWith125TheReasonAndWhatWouldHelp) {
  node.failBind = fail(ErrorCode::NoRoom, "no card has 9 GiB left");
  EXPECT_EQ(run({"run", "--memory", "9", "--", "sh", "-c", "echo started"}), 125);
  EXPECT_NE(output.find("no card has 9 GiB left"), std::string::npos);
  EXPECT_NE(output.find("--memory"), std::string::npos);
  EXPECT_EQ(output.find("started"), std::string::npos);

  ::setenv("QGPU_LIB", "/nonexistent/libqgpu.so", 1);
  EXPECT_EQ(run({"run", "--", "true"}), 125);
  server.reset();
  ::setenv("QGPU_LIB", "/etc/passwd", 1);
  EXPECT_EQ(run({"run", "--", "true"}), 125);
  EXPECT_NE(output.find("start one"), std::string::npos) << output;
}

TEST_F(Ctl, NoErrorNamesAFieldThatTheCommandLineLacks) {
  EXPECT_EQ(run({"run", "--core", "150", "--", "true"}), 125);
  EXPECT_EQ(output, "qgpuctl: --core: expected 1 to 100, or N*100 for N whole cards\n");
}

TEST_F(Ctl, RunWaitsAMomentForAManagerThatIsAboutToJoinItsScheduler) {
  node.cluster = "joining";
  const auto program = begin({"run", "--", "sh", "-c", "echo started"});
  const std::string says = "(joining): waiting up to";
  waitUntil([&] { return program->output().find(says) != std::string::npos; });
  EXPECT_FALSE(asked(schema::Request::BIND));
  node.cluster = "joined: term 1";
  EXPECT_EQ(finish(*program), 0);
  EXPECT_NE(program->output().find("started"), std::string::npos) << program->output();
  for (const char* cluster : {"none", "turned away: another node has this name"}) {
    node.cluster = cluster;
    EXPECT_EQ(run({"run", "--", "true"}), 0);
    EXPECT_EQ(output.find("waiting"), std::string::npos) << cluster << ": " << output;
  }
}

TEST_F(Ctl, RunWaitsForRoomWhereThatIsAskedFor) {
  node.failBind = fail(ErrorCode::NoRoom, "no card has 9 GiB left");
  node.eventKind = "task-ended";
  const auto program = begin({"run", "--wait", "--", "sh", "-c", "echo started"});
  const std::string says = "waiting for room (ctrl-c ends that): no card has 9 GiB left\n";
  waitUntil([&] { return program->output() == "qgpuctl: " + says; });
  EXPECT_FALSE(program->status().has_value());
  sink.tellEvent(3);
  EXPECT_EQ(finish(*program), 0);
  EXPECT_TRUE(program->output().ends_with("started\n")) << program->output();
  EXPECT_EQ(std::ranges::count(node.asked, schema::Request::BIND, &testing::Asked::which), 2);
}

TEST_F(Ctl, RunWaitsForRoomOverARestartOfTheManagerAndUntilCtrlC) {
  node.failBind = fail(ErrorCode::Cordoned, "all cards are cordoned");
  const auto program = begin({"run", "--wait", "--", "true"});
  waitUntil([&] { return program->output().find("waiting for room") != std::string::npos; });
  server.reset();
  start();
  EXPECT_EQ(finish(*program), 0);

  node.failBind = fail(ErrorCode::NoRoom, "no card has 9 GiB left");
  const auto other = begin({"run", "--wait", "--", "true"});
  waitUntil([&] { return other->output().find("waiting for room") != std::string::npos; });
  ::kill(other->pid(), SIGINT);
  EXPECT_EQ(finish(*other), 128 + SIGINT);
}

// An answer that was lost with the manager is no second task.
TEST_F(Ctl, RunAsksAgainForTheSameTask) {
  const auto idsOf = [this] {
    std::vector<std::string> ids;
    for (const testing::Asked& asked : node.asked) {
      if (asked.which == schema::Request::BIND) ids.push_back(asked.requestId);
    }
    return ids;
  };
  node.failBind = fail(ErrorCode::NoRoom, "no card has 9 GiB left");
  const auto program = begin({"run", "--wait", "--", "true"});
  waitUntil([&] { return program->output().find("waiting for room") != std::string::npos; });
  server.reset();
  start();
  EXPECT_EQ(finish(*program), 0);
  const std::vector<std::string> asked = idsOf();
  ASSERT_EQ(asked.size(), 2u);
  EXPECT_FALSE(asked[0].empty());
  EXPECT_EQ(asked[0], asked[1]);
}

TEST_F(Ctl, RunDoesNotWaitForWhatNoTimeMends) {
  node.failBind = fail(ErrorCode::Infeasible, "no card is that big");
  EXPECT_EQ(run({"run", "--wait", "--", "true"}), 125);
  node.failBind = fail(ErrorCode::Conflict, "request 'x' is task 3, which asks for something else");
  EXPECT_EQ(run({"run", "--wait", "--request-id", "x", "--", "true"}), 125);
  server.reset();
  EXPECT_EQ(run({"run", "--wait", "--", "true"}), 125) << "no manager was there at all";
}

TEST_F(Ctl, RunEndsWithALineOfWhatItGotOnATerminalAlone) {
  PseudoTerminal terminal;
  node.eventKind = "memory-refused";
  node.eventSeqs = {1};
  const auto program = beginAt(terminal, {"run", "--", "sh", "-c", "exit 7"});
  EXPECT_EQ(finish(*program), 7);
  const std::string shown = terminal.shown();
  EXPECT_TRUE(shown.starts_with("qgpuctl: train: ")) << shown;
  EXPECT_NE(shown.find(", wanted 30%, got "), std::string::npos) << shown;
  EXPECT_TRUE(shown.ends_with("of 2 GiB; bound\r\n")) << shown << ": the text of the event";
  EXPECT_EQ(program->output(), "");
  EXPECT_EQ(run({"run", "--", "true"}), 0);
  EXPECT_EQ(output, "") << "a script reads no such line";
  const auto json = beginAt(terminal, {"-o", "json", "run", "--", "true"});
  EXPECT_EQ(finish(*json), 0);
  EXPECT_EQ(terminal.shown(), shown);
}

TEST_F(Ctl, RunForwardsSignals) {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2}) {
    const auto program = begin({"run", "--", "sh", "-c",
                                "trap 'exit 40' TERM; trap 'exit 41' INT; trap 'exit 42' HUP;"
                                "trap 'exit 43' QUIT; trap 'exit 44' USR1; trap 'exit 45' USR2;"
                                "echo ready; while :; do sleep 0.01; done"});
    waitUntil([&] { return program->output() == "ready\n"; });
    ::kill(program->pid(), signal);
    const int status = finish(*program);
    EXPECT_GE(status, 40) << signal;
    EXPECT_LE(status, 45) << signal;
  }
  EXPECT_TRUE(asked(schema::Request::UNBIND));
}

TEST_F(Ctl, RunStopsAndContinuesWithItsCommand) {
  const auto program = begin(
      {"run", "--", "sh", "-c", "echo ready; read -r line < " + (folder / "fifo") + "; exit 5"});
  ASSERT_EQ(::mkfifo((folder / "fifo").c_str(), 0600), 0);
  waitUntil([&] { return program->output() == "ready\n"; });
  ::kill(program->pid(), SIGTSTP);
  waitUntil([&] { return program->stopped(); });
  ::kill(program->pid(), SIGCONT);
  int fifo = -1;
  waitUntil([&] {
    fifo = ::open((folder / "fifo").c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    return fifo >= 0;
  });
  ASSERT_EQ(::write(fifo, "go\n", 3), 3);
  EXPECT_EQ(finish(*program), 5);
  ::close(fifo);
}

TEST_F(Ctl, C9_ARestartOfTheManagerDoesNotDisturbACommand) {
  const auto program = begin(
      {"run", "--", "sh", "-c", "trap 'exit 9' TERM; echo ready; while :; do sleep 0.01; done"});
  waitUntil([&] { return program->output() == "ready\n"; });
  server.reset();
  start();
  EXPECT_FALSE(program->status().has_value());
  ::kill(program->pid(), SIGTERM);
  EXPECT_EQ(finish(*program), 9);
  EXPECT_TRUE(asked(schema::Request::UNBIND));
}

}  // namespace
}  // namespace qgpu::ctl_program_test
