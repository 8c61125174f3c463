// The parts of qgpuctl that need no daemon: arguments, units, tables, views, environment.

#include <filesystem>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <unistd.h>

#include "services/base/json.h"
#include "services/ctl/answers/client.h"
#include "services/ctl/answers/table.h"
#include "services/ctl/answers/views.h"
#include "services/ctl/options.h"
#include "services/ctl/run.h"
#include "tests/testing/child_process.h"
#include "tests/testing/temp_folder.h"

namespace qgpu::ctl::ctl_test {
namespace {

Options parsed(std::vector<std::string> argv) {
  auto result = parseOptions(argv);
  if (const auto* exit = std::get_if<ExitNow>(&result)) {
    ADD_FAILURE() << exit->text;
    return {};
  }
  return std::get<Options>(result);
}

int exitCode(std::vector<std::string> argv) {
  const auto result = parseOptions(std::move(argv));
  const auto* exit = std::get_if<ExitNow>(&result);
  return exit != nullptr ? exit->code : -1;
}

TEST(CtlOptions, EachCommandBecomesTheLineOfTheAdminSocket) {
  EXPECT_EQ(lineOf(parsed({"status"}).ask), "status");
  EXPECT_EQ(lineOf(parsed({"cards"}).ask), "cards");
  EXPECT_EQ(lineOf(parsed({"tasks"}).ask), "tasks");
  EXPECT_EQ(lineOf(parsed({"policy", "all", "bs"}).ask), "policy all bs");
  EXPECT_EQ(lineOf(parsed({"cordon", "sim-0"}).ask), "cordon sim-0");
  EXPECT_EQ(lineOf(parsed({"uncordon", "sim-0"}).ask), "uncordon sim-0");
  EXPECT_EQ(lineOf(parsed({"drain", "0"}).ask), "drain 0");
  EXPECT_EQ(lineOf(parsed({"evict", "7"}).ask), "evict 7");
  EXPECT_EQ(lineOf(parsed({"end", "7"}).ask), "end 7");
  EXPECT_EQ(lineOf(parsed({"snapshot"}).ask), "snapshot");
  EXPECT_EQ(lineOf(parsed({"loglevel", "debug"}).ask), "loglevel debug");
}

TEST(CtlOptions, TheGeneralOptionsStandBeforeOrAfterTheCommand) {
  for (const auto& argv : {std::vector<std::string>{"-o", "json", "--socket", "/s", "cards"},
                           std::vector<std::string>{"cards", "-o", "json", "--socket=/s"}}) {
    const Options options = parsed(argv);
    EXPECT_EQ(options.output, Output::Json);
    EXPECT_EQ(options.socket, "/s");
  }
}

TEST(CtlOptions, OfAnOptionThatIsGivenTwiceTheLastCounts) {
  EXPECT_EQ(lineOf(parsed({"submit", "--memory", "1", "--memory", "2"}).ask),
            lineOf(parsed({"submit", "--memory", "2"}).ask));
  EXPECT_EQ(
      parsed({"-o", "json", "cards", "--socket", "/a", "-o", "yaml", "--socket", "/b"}).socket,
      "/b");
}

TEST(CtlOptions, WrongUseExitsWith2AndHelpWith0) {
  const std::vector<std::vector<std::string>> wrong = {
      {},
      {"frobnicate"},
      {"-o", "json", "frob"},
      {"status", "--bogus"},
      {"status", "extra"},
      {"policy", "all"},
      {"policy", "all", "fastest"},
      {"evict"},
      {"evict", "7\nsnapshot"},
      {"cordon", "a b"},
      {"-o", "xml", "cards"},
      {"run"},
      {"run", "--"},
      {"run", "--memory", "0", "--", "true"},
      {"run", "--memory", "x", "--", "true"},
      {"run", "--class", "fast", "--", "true"},
      {"run", "--frob", "--", "true"},
      {"top", "--interval", "0"},
      {"top", "-n", "-1"},
  };
  for (const auto& argv : wrong) {
    EXPECT_EQ(exitCode(argv), 2) << (argv.empty() ? "" : argv.back());
  }
  for (const auto& argv : {std::vector<std::string>{"--help"}, std::vector<std::string>{"help"},
                           std::vector<std::string>{"run", "--help"}}) {
    EXPECT_EQ(exitCode(argv), 0);
  }
}

TEST(CtlOptions, AWordThatOnlyAClusterTakesAsksTheCluster) {
  EXPECT_EQ(lineOf(parsed({"tasks", "7"}).ask), "tasks 7");
  EXPECT_EQ(parsed({"tasks", "7"}).daemon, Daemon::Scheduler);
  EXPECT_EQ(parsed({"tasks"}).daemon, Daemon::Manager);
}

TEST(CtlOptions, AnUnknownOptionIsNamedAndNotTheWordBehindIt) {
  for (const char* option : {"--run-dir", "--run-dir=x", "-x"}) {
    const auto result = parseOptions({"-o", "json", option, "/run/qgpu", "cards"});
    const auto* exit = std::get_if<ExitNow>(&result);
    ASSERT_NE(exit, nullptr);
    EXPECT_EQ(exit->code, 2);
    const std::string name = std::string(option).substr(0, std::string(option).find('='));
    EXPECT_NE(exit->text.find("there is no option " + name + " before a command"),
              std::string::npos)
        << exit->text;
  }
}

// What wrong use is told, but for its exit status.
std::string wrongUse(std::vector<std::string> argv) {
  const auto result = parseOptions(std::move(argv));
  const auto* exit = std::get_if<ExitNow>(&result);
  EXPECT_TRUE(exit != nullptr && exit->code == 2);
  return exit == nullptr ? "" : exit->text;
}

TEST(CtlOptions, AMistypedWordIsToldWhatWasProbablyMeantAndWhereToLook) {
  EXPECT_EQ(wrongUse({"subimt"}),
            "qgpuctl: there is no command \"subimt\": did you mean submit?\n"
            "`qgpuctl help` shows how it is used\n");
  EXPECT_EQ(wrongUse({"what-if", "plcae"}),
            "qgpuctl: there is no command \"what-if plcae\": did you mean place?\n"
            "`qgpuctl what-if --help` shows how it is used\n");
  EXPECT_EQ(wrongUse({"help", "statsu"}),
            "qgpuctl: there is no command \"statsu\": did you mean status?\n"
            "`qgpuctl help` shows how it is used\n");
  EXPECT_EQ(wrongUse({"run", "--memroy=2", "--", "true"}),
            "qgpuctl: there is no option --memroy of run: did you mean --memory?\n"
            "`qgpuctl run --help` shows how it is used\n");
  EXPECT_EQ(wrongUse({"--sevrer", "h:1", "tasks"}),
            "qgpuctl: there is no option --sevrer before a command: did you mean --server?\n"
            "`qgpuctl help` shows how it is used\n");
  EXPECT_EQ(wrongUse({"run", "--class", "onlin", "--", "true"}),
            "qgpuctl: --class: \"onlin\" is none of online, offline, ordinary: did you mean "
            "online?\n`qgpuctl run --help` shows how it is used\n");
  EXPECT_NE(wrongUse({"policy", "all", "best-efort"}).find("did you mean best-effort?"),
            std::string::npos);
  EXPECT_NE(wrongUse({"what-if", "place", "--cout", "1"}).find("`qgpuctl what-if place --help`"),
            std::string::npos);
  EXPECT_EQ(wrongUse({"zzz"}).find("did you mean"), std::string::npos);
}

TEST(CtlOptions, WhatIsMissingOrTooMuchIsNamedWithWhatToDo) {
  const auto said = [](std::vector<std::string> argv) {
    const std::string text = wrongUse(std::move(argv));
    return text.substr(0, text.find('\n'));
  };
  EXPECT_EQ(said({"--cluster"}), "qgpuctl: which command? as in `qgpuctl status`");
  EXPECT_EQ(said({"token"}), "qgpuctl: token needs one of these words: create, list, revoke");
  EXPECT_EQ(said({"evict"}), "qgpuctl: evict needs TASK: its number or name");
  EXPECT_EQ(said({"join", "h:1"}),
            "qgpuctl: join needs --token: the token; -: the first line of stdin");
  EXPECT_EQ(said({"certs", "issue"}),
            "qgpuctl: certs issue needs NAME: of the node, of the scheduler's host, or of a "
            "person");
  EXPECT_EQ(said({"top", "--once", "-n", "2"}),
            "qgpuctl: --once and --count exclude each other: leave one out");
  EXPECT_EQ(said({"trace", "record", "--seconds", "abc"}),
            "qgpuctl: --seconds: \"abc\" is not a number of seconds from 0.1 to 600");
  EXPECT_EQ(said({"status", "extra"}), "qgpuctl: status does not take \"extra\"");
  EXPECT_EQ(said({"submit", "--memory"}).find("qgpuctl: --memory needs one value, "), 0u)
      << said({"submit", "--memory"});
}

TEST(CtlOptions, HelpOfEachCommandHasAnExampleThatIsRight) {
  const auto text = [](std::vector<std::string> argv) {
    return std::get<ExitNow>(parseOptions(std::move(argv))).text;
  };
  Document document;
  ASSERT_TRUE(readJson(text({"-o", "json", "help"}), document));
  std::size_t seen = 0;
  const std::function<void(Value, std::vector<std::string>)> look =
      [&](Value command, std::vector<std::string> argv) {
        argv.push_back(textOf(command, "name"));
        const std::string help = text(argv);
        const std::size_t example = help.find("example");
        ASSERT_NE(example, std::string::npos) << help;
        std::string called = "qgpuctl ";
        for (std::size_t i = 1; i < argv.size(); ++i) called += (i > 1 ? " " : "") + argv[i];
        EXPECT_NE(textOf(command, "example"), "") << called;
        const bool named = help.find(argv[1], example) != std::string::npos;
        EXPECT_TRUE(named) << help;
        ++seen;
        for (const Value sub : listOf(command, "commands")) look(sub, argv);
      };
  for (const Value command : listOf(document.root(), "commands")) look(command, {"help"});
  EXPECT_GT(seen, 40u);
}

TEST(CtlOptions, HelpGoesToACommandBelowAnother) {
  const auto help = parseOptions({"help", "certs", "issue"});
  const auto* exit = std::get_if<ExitNow>(&help);
  ASSERT_NE(exit, nullptr);
  EXPECT_EQ(exit->code, 0);
  EXPECT_NE(exit->text.find("qgpuctl certs issue"), std::string::npos) << exit->text;
  EXPECT_NE(exit->text.find("--role"), std::string::npos) << exit->text;
  EXPECT_NE(wrongUse({"help", "certs", "isue"}).find("\"certs isue\": did you mean issue?"),
            std::string::npos);
}

TEST(CtlOptions, AnEnvironmentIsOfASubmitAlone) {
  EXPECT_EQ(parsed({"-o", "env", "submit", "--memory", "2"}).output, Output::Env);
  EXPECT_NE(wrongUse({"-o", "env", "tasks"}).find("-o env is for submit"), std::string::npos);
}

TEST(CtlOptions, NoNumberIsLongerThanItSaysSomething) {
  const std::string nines(309, '9');
  for (const auto& argv : {std::vector<std::string>{"top", "-n", "-1"},
                           {"top", "-n", nines},
                           {"top", "--interval", nines},
                           {"top", "--interval", "0"},
                           {"events", nines},
                           {"run", "--memory", nines, "--", "true"},
                           {"run", "--core", "-" + nines, "--", "true"}}) {
    EXPECT_LT(wrongUse(argv).size(), 200u) << wrongUse(argv);
  }
  EXPECT_NE(wrongUse({"top", "--interval", "0"}).find("not a number of seconds from 0.1 to 3600"),
            std::string::npos)
      << wrongUse({"top", "--interval", "0"});
  EXPECT_EQ(parsed({"top", "--interval", "0.5"}).top.intervalSeconds, 0.5);
  EXPECT_EQ(exitCode({"top", "--once", "-n", "2"}), 2);
  EXPECT_EQ(parsed({"--cluster", "top", "--once"}).daemon, Daemon::Scheduler);
}

TEST(CtlOptions, TheVersionIsSaidWithoutACommandToo) {
  const auto version = parseOptions({"--version"});
  const auto* exit = std::get_if<ExitNow>(&version);
  ASSERT_NE(exit, nullptr);
  EXPECT_EQ(exit->code, 0);
  EXPECT_TRUE(exit->text.starts_with("qgpuctl ")) << exit->text;
}

TEST(CtlOptions, AFieldOfASpecIsCalledByItsOption) {
  EXPECT_EQ(asTyped("core_percent: expected 1 to 100"), "--core: expected 1 to 100");
  EXPECT_EQ(asTyped("models: expected an array"), "--model: expected an array");
  EXPECT_EQ(asTyped("no card has room"), "no card has room");
  EXPECT_EQ(asTyped("cards are full"), "cards are full");
}

TEST(CtlOptions, TheCommandOfRunKeepsItsOwnOptions) {
  const Options dashes = parsed({"run", "--name", "a", "--core=30", "--", "prog", "--name", "-o"});
  EXPECT_EQ(lineOf(dashes.ask), R"(run {"name":"a","class":"ordinary","core_percent":30})");
  EXPECT_EQ(dashes.program, (std::vector<std::string>{"prog", "--name", "-o"}));
  const Options bare = parsed({"--socket", "/s", "run", "--memory", "2", "prog", "--memory", "9"});
  EXPECT_EQ(lineOf(bare.ask), R"(run {"name":"prog","class":"ordinary","memory_gib":2})");
  EXPECT_EQ(bare.program, (std::vector<std::string>{"prog", "--memory", "9"}));
  const Options twice = parsed({"run", "--", "sh", "--", "x"});
  EXPECT_EQ(twice.program, (std::vector<std::string>{"sh", "--", "x"}));
}

class CtlSocket : public ::testing::Test {
 protected:
  CtlSocket() {
    // Root's manager is the machine's: the tests are those of somebody else, also under root.
    around.uid = ::getuid() == 0 ? 12'345 : ::getuid();
    around.runtimeDir = folder_.path();
    machine = folder_ / "machine";
    std::filesystem::create_directory(machine);
  }
  void makeOwnFolder() {
    std::filesystem::create_directory(defaultRunDir(around));
    if (::getuid() != 0) return;
    ASSERT_EQ(::chown(defaultRunDir(around).c_str(), around.uid, static_cast<gid_t>(-1)), 0);
  }
  static void listen(const std::string& folder) { std::ofstream(folder + "/manager.sock") << ""; }

  const testing::TempFolder folder_{"ctl"};
  Platform around;
  std::string machine;
};

TEST_F(CtlSocket, IsWhereTheManagerOfTheSameUserListens) {
  EXPECT_EQ(defaultSocket(around, machine), defaultRunDir(around) + "/manager.sock");
  makeOwnFolder();
  listen(defaultRunDir(around));
  listen(machine);
  EXPECT_EQ(defaultSocket(around, machine), defaultRunDir(around) + "/manager.sock");
  around.runtimeDir.clear();  // no XDG_RUNTIME_DIR, as with su or in a container
  std::filesystem::remove(machine + "/manager.sock");
  EXPECT_EQ(defaultSocket(around, machine),
            "/tmp/qgpu-" + std::to_string(around.uid) + "/manager.sock");
}

TEST_F(CtlSocket, IsTheMachinesWhereTheUserHasNoManager) {
  listen(machine);
  EXPECT_EQ(defaultSocket(around, machine), machine + "/manager.sock");
  makeOwnFolder();
  EXPECT_EQ(defaultSocket(around, machine), machine + "/manager.sock");
}

TEST_F(CtlSocket, IsNeverInAFolderOfSomebodyElse) {
  makeOwnFolder();
  listen(defaultRunDir(around));
  std::filesystem::rename(defaultRunDir(around), folder_ / "real");
  std::filesystem::create_directory_symlink(folder_ / "real", defaultRunDir(around));
  EXPECT_EQ(defaultSocket(around, machine), machine + "/manager.sock");
}

TEST(CtlRun, AsksForWhatWasTypedAndLeavesTheRestToTheDaemon) {
  EXPECT_EQ(lineOf(parsed({"run", "--", "/usr/bin/clpeak"}).ask),
            R"(run {"name":"clpeak","class":"ordinary"})");
  EXPECT_EQ(lineOf(parsed({"run", "--name", "a\"b", "--class", "online", "--memory", "3", "--core",
                           "0", "--cards", "1", "--card", "sim-1", "--", "x"})
                       .ask),
            R"(run {"name":"a\"b","class":"online","memory_gib":3,"core_percent":0,)"
            R"("cards":1,"card":"sim-1"})");
}

TEST(CtlRun, TheLibraryStandsBeforeWhatWasPreloadedAnyway) {
  const auto bound = parseBound(
      R"({"ok":true,"task":7,"token":"t","cards":["c"],"env":{"QGPU_TOKEN":"t",)"
      R"("LD_PRELOAD":"/d/libqgpu.so","OPENCL_LAYERS":"/d/libqgpu.so","POCL_DEVICES":"p p"}})");
  ASSERT_TRUE(bound.ok());
  EXPECT_EQ(bound->id, 7u);
  const Environment expected = {{"QGPU_TOKEN", "t"},
                                {"POCL_DEVICES", "p p"},
                                {"QGPU_SOCKET", "/r/attach.sock"},
                                {"LD_PRELOAD", "/own/libqgpu.so:/other.so"},
                                {"OPENCL_LAYERS", "/own/libqgpu.so"}};
  const std::string socket = "/r/attach.sock";
  EXPECT_EQ(*tenantEnvironment(*bound, "/own/libqgpu.so", socket, "/other.so", ""), expected);
  EXPECT_FALSE(tenantEnvironment(*bound, "", socket, "", "").ok()) << "no path comes from a daemon";
  EXPECT_FALSE(tenantEnvironment(*bound, "/a b/libqgpu.so", socket, "", "").ok());
  EXPECT_EQ(attachSocketOf("/run/qgpu/manager.sock"), "/run/qgpu/attach.sock");
  EXPECT_TRUE(attachSocketOf("manager.sock").starts_with("/")) << "CMD may go elsewhere";
}

TEST(CtlRun, NoPoclVariableDiffersFromTheManagers) {
  const char* const now[] = {"POCL_DEVICES=basic", "POCL_DEBUG=all", "PATH=/bin",
                             "XPOCL_A=1",          "POCL_EMPTY=",    nullptr};
  const std::vector<std::string> expected = {"POCL_DEBUG", "POCL_EMPTY"};
  EXPECT_EQ(strangers({{"QGPU_TOKEN", "t"}, {"POCL_DEVICES", "cpu"}}, now), expected);
}

TEST(CtlRun, AtItsEndItSaysWhatItWantedAndGot) {
  const Answer task(R"({"name":"train","share_permille":300,"used_ns":3000000000,)"
                    R"("held_ns":7500000000,"mem_peak_bytes":943718400,"mem_bytes":1073741824})");
  EXPECT_EQ(gotLine(task.root(), seconds(12)),
            "train: 12 s, wanted 30%, got 25% of the card, held for 7.5 s, memory at most 900 MiB "
            "of 1 GiB");
  const Answer online(R"({"name":"a\u001b[2J","share_permille":0,"used_ns":9007199254740993})");
  EXPECT_TRUE(gotLine(online.root(), Nanos(0)).starts_with("a?[2J: 0, got 0% of the card"))
      << gotLine(online.root(), Nanos(0));
}

TEST(CtlRun, AHintIsAddedOnlyWhereTheDaemonGaveNone) {
  EXPECT_EQ(helpFor(fail(ErrorCode::Infeasible,
                         "online and offline tasks run on mixed nodes only: start the manager "
                         "with --mixed, or ask for an ordinary task")),
            "");
  EXPECT_EQ(helpFor(fail(ErrorCode::NoRoom, "no card has room now; wait until a task ends")), "");
  EXPECT_NE(helpFor(fail(ErrorCode::NoRoom, "no card has 9 GiB left")).find("--memory"),
            std::string::npos);
}

TEST(CtlOptions, HelpShowsTheCommandsAndEachOfThem) {
  const auto text = [](std::vector<std::string> argv) {
    return std::get<ExitNow>(parseOptions(std::move(argv))).text;
  };
  EXPECT_NE(text({}).find("uncordon"), std::string::npos) << text({});
  EXPECT_NE(text({"help"}).find("uncordon"), std::string::npos);
  EXPECT_NE(text({"help", "run"}).find("--memory"), std::string::npos) << text({"help", "run"});
  EXPECT_EQ(exitCode({"help", "run"}), 0);
  EXPECT_NE(text({"help", "drain"}).find("NODE/CARD"), std::string::npos);
  EXPECT_EQ(text({"help", "drain"}).find("examples:"), std::string::npos) << "those of qgpuctl";
  EXPECT_EQ(exitCode({"help", "frobnicate"}), 2);
}

TEST(CtlOptions, WhatOnlyANodeCanDoIsRefusedOfAServer) {
  for (const auto& argv : {std::vector<std::string>{"--server", "localhost:1", "evict", "7"},
                           std::vector<std::string>{"end", "--server", "h:1", "7"},
                           std::vector<std::string>{"--cluster", "timeline"}}) {
    EXPECT_EQ(exitCode(argv), 2) << argv[0];
  }
  EXPECT_EQ(exitCode({"--server", "h:1", "--socket", "/a", "tasks"}), 2);
  EXPECT_EQ(exitCode({"--server", "h:1", "--cluster", "tasks"}), 2);
}

TEST(CtlOptions, ARunIsPlacedByTheSchedulerThatIsNamed) {
  EXPECT_EQ(parsed({"run", "--node", "n", "--cluster", "--", "true"}).daemon, Daemon::Scheduler);
  EXPECT_EQ(parsed({"--server", "h:1", "run", "--", "true"}).daemon, Daemon::Scheduler);
  EXPECT_EQ(parsed({"run", "--", "true"}).daemon, Daemon::Manager);
  EXPECT_EQ(exitCode({"run", "--node", "n", "--", "true"}), 2);
}

TEST(CtlOptions, ATaskMayBeNamedAndAnExplanationIsANodesToo) {
  EXPECT_EQ(lineOf(parsed({"evict", "my task"}).ask), "evict my task") << "until it is looked up";
  EXPECT_EQ(exitCode({"evict", "a\nb"}), 2);
  EXPECT_EQ(exitCode({"explain", ""}), 2);
  EXPECT_EQ(parsed({"explain", "train"}).action, Action::Explain);
  EXPECT_EQ(parsed({"--cluster", "explain", "7"}).daemon, Daemon::Scheduler);
  EXPECT_EQ(parsed({"--server", "h:1", "explain", "7"}).daemon, Daemon::Scheduler);
  EXPECT_EQ(parsed({"--socket", "/s", "explain", "7"}).daemon, Daemon::Either);
}

TEST(CtlOptions, AServerOfTheEnvironmentIsForWhatAClusterKnows) {
  ::setenv("QGPU_SERVER", "h:1", 1);
  ::setenv("QGPU_TLS_CERT", "/c.pem", 1);
  EXPECT_EQ(parsed({"nodes"}).server, "h:1");
  const Options drain = parsed({"drain", "node-3"});
  EXPECT_EQ(drain.server, "h:1");
  EXPECT_EQ(drain.daemon, Daemon::Scheduler);
  EXPECT_EQ(drain.tls.cert, "/c.pem");
  EXPECT_EQ(parsed({"--tls-cert", "/d.pem", "nodes"}).tls.cert, "/d.pem") << "the flag wins";
  EXPECT_EQ(parsed({"--socket", "/a.sock", "drain", "0"}).server, "") << "the flag wins";
  EXPECT_EQ(parsed({"--cluster", "drain", "node-3"}).server, "h:1");
  EXPECT_TRUE(parsed({"run", "--", "true"}).socket.ends_with("/manager.sock"));
  ::unsetenv("QGPU_SERVER");
  ::unsetenv("QGPU_TLS_CERT");
}

TEST(CtlOptions, ASocketOfTheEnvironmentStandsForTheOption) {
  ::setenv("QGPU_SOCKET", "/e/some.sock", 1);
  EXPECT_EQ(parsed({"tasks"}).socket, "/e/some.sock");
  EXPECT_EQ(parsed({"nodes"}).socket, "/e/some.sock");
  EXPECT_EQ(parsed({"--socket", "/a", "tasks"}).socket, "/a") << "the flag wins";
  EXPECT_EQ(parsed({"--server", "h:1", "tasks"}).socket, "");
  EXPECT_EQ(parsed({"--cluster", "tasks"}).socket, "/e/scheduler.sock");
  ::setenv("QGPU_SERVER", "h:1", 1);
  EXPECT_EQ(parsed({"tasks"}).server, "h:1");
  EXPECT_EQ(parsed({"run", "--", "true"}).socket, "/e/some.sock") << "no scheduler runs programs";
  ::unsetenv("QGPU_SERVER");
  ::unsetenv("QGPU_SOCKET");
}

TEST(CtlOptions, ASocketOfTheEnvironmentLeadsToTheOtherDaemonBesideIt) {
  for (const char* chosen : {"/e/manager.sock", "/e/scheduler.sock"}) {
    ::setenv("QGPU_SOCKET", chosen, 1);
    EXPECT_EQ(parsed({"--cluster", "tasks"}).socket, "/e/scheduler.sock");
    EXPECT_EQ(parsed({"--cluster", "tasks"}).daemon, Daemon::Scheduler);
    EXPECT_EQ(parsed({"nodes"}).socket, "/e/scheduler.sock");
    EXPECT_EQ(parsed({"run", "--", "true"}).socket, "/e/manager.sock");
    EXPECT_EQ(parsed({"tasks"}).socket, chosen);
  }
  ::unsetenv("QGPU_SOCKET");
}

TEST(CtlOptions, InATaskTheManagerBesideItsAttachSocketIsMeant) {
  ::setenv("QGPU_SOCKET", "/e/attach.sock", 1);
  EXPECT_EQ(parsed({"run", "--", "true"}).socket, "/e/manager.sock");
  EXPECT_TRUE(parsed({"nodes"}).socket.ends_with("/scheduler.sock"));
  EXPECT_EQ(parsed({"nodes"}).socket.find("/e/"), std::string::npos);
  ::unsetenv("QGPU_SOCKET");
}

TEST(CtlOptions, VersionAndSocketStandBeforeOrAfterACommand) {
  const std::vector<std::vector<std::string>> commands = {
      {"status"},          {"run"},    {"submit"}, {"what-if", "place"}, {"trace", "list"}, {"top"},
      {"trace", "record"}, {"doctor"}, {"events"}, {"version"}};
  for (std::vector<std::string> words : commands) {
    for (const bool before : {true, false}) {
      std::vector<std::string> argv = words;
      argv.insert(before ? argv.begin() : argv.end(), "--version");
      const auto told = parseOptions(argv);
      const auto* exit = std::get_if<ExitNow>(&told);
      ASSERT_NE(exit, nullptr) << words.back();
      EXPECT_EQ(exit->code, 0) << words.back();
      EXPECT_TRUE(exit->text.starts_with("qgpuctl ")) << exit->text;
    }
    if (words.front() == "run") continue;  // needs a program behind
    words.insert(words.end(), {"--socket", "/a/b.sock"});
    if (words[1] == "list") words.emplace_back("0");
    EXPECT_EQ(parsed(words).socket, "/a/b.sock") << words.front();
  }
  EXPECT_EQ(parsed({"run", "--socket", "/a/b.sock", "--", "true"}).socket, "/a/b.sock");
}

TEST(CtlOptions, DoctorLooksWhereOtherCommandsAsk) {
  EXPECT_EQ(parsed({"doctor"}).doctor.runDir + "/manager.sock", parsed({"tasks"}).socket);
  EXPECT_EQ(parsed({"--socket", "/a/b/manager.sock", "doctor"}).doctor.runDir, "/a/b");
  EXPECT_EQ(parsed({"doctor", "--root", "/usr"}).doctor.runDir, kMachineRunDir);
  EXPECT_EQ(parsed({"--socket", "/a/m.sock", "doctor", "--root", "/usr"}).doctor.runDir, "/a");
  EXPECT_EQ(parsed({"--socket", "/a/m.sock", "doctor", "--run-dir", "/c"}).doctor.runDir, "/c");
  EXPECT_EQ(exitCode({"--server", "h:1", "doctor"}), 2);
}

TEST(CtlOptions, ANumberThatCannotBeMeantIsToldItsUnit) {
  for (const char* cards : {"1.5", "2x", "-1", "0", "17"}) {
    const auto result = parseOptions({"run", std::string("--cards=") + cards, "--", "true"});
    const auto* exit = std::get_if<ExitNow>(&result);
    ASSERT_NE(exit, nullptr) << cards;
    EXPECT_EQ(exit->code, 2);
    EXPECT_NE(exit->text.find("--cards: \"" + std::string(cards) +
                              "\" is not a whole number of cards from 1 to 16"),
              std::string::npos)
        << exit->text;
  }
}

TEST(CtlOptions, MemoryIsASizeAsPeopleWriteIt) {
  const std::pair<const char*, const char*> sizes[] = {{"1.5GiB", R"("memory":"1536MiB")"},
                                                       {"512MiB", R"("memory":"512MiB")"},
                                                       {"2G", R"("memory_gib":2)"},
                                                       {"2", R"("memory_gib":2)"}};
  for (const auto& [size, said] : sizes) {
    const Options options = parsed({"run", "--memory", size, "prog"});
    EXPECT_NE(lineOf(options.ask).find(said), std::string::npos) << lineOf(options.ask);
  }
  for (const char* size : {"1.5Gi", "2GB", "-1", "1048577"}) {
    const auto result = parseOptions({"run", std::string("--memory=") + size, "--", "true"});
    const auto* exit = std::get_if<ExitNow>(&result);
    ASSERT_NE(exit, nullptr) << size;
    EXPECT_EQ(exit->code, 2);
    EXPECT_NE(exit->text.find("--memory: '" + std::string(size) +
                              "' is not a size: write 1.5GiB, 512MiB or 2"),
              std::string::npos)
        << exit->text;
  }
}

TEST(CtlOptions, ClusterCommandsGoToTheSchedulerAndOthersWhereTheyAreSent) {
  EXPECT_EQ(parsed({"nodes"}).daemon, Daemon::Scheduler);
  EXPECT_TRUE(parsed({"nodes"}).socket.ends_with("/scheduler.sock"));
  EXPECT_EQ(parsed({"tasks"}).daemon, Daemon::Manager);
  EXPECT_TRUE(parsed({"tasks"}).socket.ends_with("/manager.sock"));
  EXPECT_TRUE(parsed({"--cluster", "tasks"}).socket.ends_with("/scheduler.sock"));
  EXPECT_EQ(parsed({"--server", "h:1", "tasks"}).daemon, Daemon::Scheduler);
  EXPECT_EQ(parsed({"--server", "h:1", "tasks"}).socket, "");
  EXPECT_EQ(parsed({"--socket", "/a.sock", "tasks"}).socket, "/a.sock");
}

TEST(CtlOptions, ASubmitSaysWhereItsTaskMayGo) {
  const Options options = parsed({"submit", "--memory", "8", "--core", "50", "--node", "n-1",
                                  "--model", "A", "--model", "B", "--preempt", "--wait"});
  EXPECT_EQ(options.action, Action::Submit);
  EXPECT_TRUE(options.wait);
  EXPECT_EQ(
      lineOf(options.ask),
      R"(submit {"name":"task","class":"ordinary","memory_gib":8,"core_percent":50,"node":"n-1",)"
      R"("models":["A","B"],"preempt":true})");
  EXPECT_EQ(exitCode({"submit", "--node-score", "best"}), 2);
}

TEST(CtlOptions, AWhatIfPlacesOrDrains) {
  EXPECT_EQ(lineOf(parsed({"what-if", "place", "--name", "a", "--count", "20"}).ask),
            R"(whatif {"place":{"name":"a","class":"ordinary"},"count":20})");
  EXPECT_EQ(lineOf(parsed({"what-if", "drain", "n-1/sim-0"}).ask),
            R"(whatif {"drain":"n-1/sim-0"})");
  EXPECT_EQ(exitCode({"what-if"}), 2);
}

TEST(CtlOptions, ADrainOfAClusterHasATimeout) {
  const Options options = parsed({"drain", "n-1", "--timeout", "10m"});
  EXPECT_EQ(lineOf(options.ask), "drain n-1 10m");
  EXPECT_EQ(options.daemon, Daemon::Scheduler);
  EXPECT_EQ(parsed({"drain", "sim-0"}).daemon, Daemon::Manager);
}

TEST(CtlOptions, ADrainMayOnlyBeThoughtOf) {
  const Options dry = parsed({"drain", "n-1/gpu-0", "--dry-run", "--timeout", "10m"});
  EXPECT_TRUE(dry.dryRun);
  EXPECT_EQ(dry.daemon, Daemon::Scheduler);
  EXPECT_EQ(lineOf(askFor("whatif", "n-1/gpu-0")), R"(whatif {"drain":"n-1/gpu-0"})");
  EXPECT_TRUE(parsed({"drain", "0", "-y"}).yes);
  EXPECT_EQ(parsed({"drain", "0"}).action, Action::Drain);
}

TEST(CtlOptions, APreemptionIsOnlyAskedFor) {
  EXPECT_EQ(lineOf(parsed({"preempt", "7"}).ask), "preempt 7");
  EXPECT_EQ(lineOf(parsed({"preempt", "7", "--dry-run"}).ask), "preempt 7");
}

TEST(CtlOptions, AModelIsOneWord) {
  const Options options = parsed({"submit", "--model", "A", "--model", "B"});
  EXPECT_EQ(options.ask.said.back().second.texts.size(), 2u);
  EXPECT_EQ(exitCode({"submit", "--model", "A", "B"}), 2);
}

TEST(CtlViews, ASubmitShowsAllThatALauncherNeeds) {
  const auto view =
      viewOf(Shown::Assigned, R"({"ok":true,"task":7,"waiting":false,"node":"n-1",)"
                              R"("cards":["sim-0"],"token":"t","env":{"QGPU_TOKEN":"t"}})");
  ASSERT_TRUE(view.ok());
  EXPECT_NE(view->find("environment QGPU_TOKEN=t\n"), std::string::npos) << *view;
  EXPECT_NE(view->find("n-1"), std::string::npos) << *view;
  EXPECT_NE(viewOf(Shown::Assigned, R"({"ok":true,"task":7,"waiting":true})")->find("explain 7"),
            std::string::npos);
}

TEST(CtlViews, AShellEvaluatesTheEnvironmentOfASubmit) {
  const Answer answer(R"({"ok":true,"waiting":false,"env":{"QGPU_TOKEN":"it's $HOME `id`\n2",)"
                      R"("a;touch x":"no","9A":"no","B":""}})");
  testing::Child shell(
      {"/bin/sh", "-ec", "eval \"$0\"; printf %s \"$QGPU_TOKEN|$B|\"", exportsOf(answer)});
  EXPECT_EQ(shell.wait(), 0);
  EXPECT_EQ(shell.output(), "it's $HOME `id`\n2||");
  EXPECT_EQ(exportsOf(answer).find("no"), std::string::npos) << "no name of a variable";
}

TEST(CtlViews, AnExplanationEndsWithTheNearestCards) {
  const auto view =
      viewOf(Shown::Explanation,
             R"({"ok":true,"text":"it waits","remedy":"end task 3","nodes":)"
             R"([{"node":"n-1","card":"sim-0","reason":"MemShort","text":"4 GiB short"}]})");
  ASSERT_TRUE(view.ok());
  for (const char* part : {"it waits\n", "what would help: end task 3\n", "4 GiB short"}) {
    EXPECT_NE(view->find(part), std::string::npos) << *view;
  }
  const auto repeated =
      viewOf(Shown::Explanation,
             R"({"ok":true,"nodes":[{"node":"n","card":"c","reason":"R","text":"c: full"}]})");
  EXPECT_NE(repeated->find("R       full\n"), std::string::npos) << *repeated;
}

TEST(CtlViews, TasksThatLandAlikeShareALine) {
  const std::string landing = R"({"task":0,"node":"n-1","cards":["sim-0"],"evicts":[]})";
  const auto view = viewOf(Shown::Plan, R"({"ok":true,"landed":[)" + landing + "," + landing +
                                            R"(],"stay":[{"task":0,"node":"","reason":"3 of 5"}],)"
                                            R"("allocated_before_permille":100})");
  ASSERT_TRUE(view.ok());
  EXPECT_NE(view->find("    2  n-1      sim-0"), std::string::npos) << *view;
  EXPECT_NE(view->find("    -  nowhere  -"), std::string::npos) << *view;
  EXPECT_NE(view->find("allocated   10% -> 0%"), std::string::npos) << *view;
  EXPECT_NE(viewOf(Shown::Plan, R"({"ok":true})")->find("no task is concerned"), std::string::npos);
}

TEST(CtlViews, NodesStandInTheOrderOfTheirNumbers) {
  const auto view = viewOf(Shown::Nodes, R"({"ok":true,"nodes":[{"name":"n-10"},{"name":"n-9"},)"
                                         R"({"name":"m"},{"name":"n-9a"}]})");
  ASSERT_TRUE(view.ok());
  EXPECT_LT(view->find("\nm "), view->find("n-9 ")) << *view;
  EXPECT_LT(view->find("n-9 "), view->find("n-9a")) << *view;
  EXPECT_LT(view->find("n-9a"), view->find("n-10")) << *view;
}

TEST(CtlViews, ATaskOfWholeCardsShowsThemAll) {
  const auto view = viewOf(Shown::Tasks, R"({"ok":true,"tasks":[{"id":4,"place":"bound","cards":2,)"
                                         R"("share_permille":1000,"mem_bytes":1073741824}]})");
  ASSERT_TRUE(view.ok());
  EXPECT_NE(view->find("200%  0 B / all"), std::string::npos) << *view;
  EXPECT_EQ(*viewOf(Shown::Tasks, R"({"ok":true,"tasks":[]})"), "no tasks\n");
}

TEST(CtlOptions, EventsTakeWhereToBeginEitherWay) {
  EXPECT_EQ(parsed({"events", "17"}).events.since, 17u);
  EXPECT_EQ(parsed({"events", "--since", "17", "-f"}).events.since, 17u);
  EXPECT_TRUE(parsed({"audit", "17"}).events.changes);
  EXPECT_EQ(parsed({"events", "--since", "30m"}).events.age, seconds(1800));
  EXPECT_EQ(parsed({"events", "1h"}).events.age, seconds(3600));
  EXPECT_NE(wrongUse({"events", "--since", "x"}).find("\"x\" is neither the number of an event"),
            std::string::npos);
  EXPECT_EQ(exitCode({"events", "-1"}), 2);
  EXPECT_EQ(exitCode({"events", "1", "--since", "2"}), 2);
}

TEST(CtlOptions, EventsAreThoseOfATaskACardAndKinds) {
  const EventOptions events = parsed({"events", "--task", "train", "--card=gpu-0", "--kind",
                                      "task-bound", "--kind", "task-ended", "-f"})
                                  .events;
  EXPECT_EQ(events.task, "train");
  EXPECT_EQ(events.card, "gpu-0");
  EXPECT_EQ(events.kinds, (std::vector<std::string>{"task-bound", "task-ended"}));
  EXPECT_TRUE(events.follow);
  EXPECT_NE(wrongUse({"events", "--kind", "task-bonud"}).find("did you mean task-bound?"),
            std::string::npos);
}

TEST(CtlRun, ARefusalKeepsItsCode) {
  const auto bound = parseBound(R"({"ok":false,"error":"no room","code":"no-room"})");
  ASSERT_FALSE(bound.ok());
  EXPECT_EQ(bound.error().code, ErrorCode::NoRoom);
  EXPECT_EQ(bound.error().message, "no room");
  EXPECT_EQ(parseBound("{}").error().code, ErrorCode::Corrupt);
  EXPECT_EQ(parseBound("nonsense").error().code, ErrorCode::Corrupt);
  EXPECT_EQ(parseBound(R"({"ok":true})").error().code, ErrorCode::Corrupt);
}

TEST(CtlTable, ColumnsAreAlignedByCodePointsAndEmptyCellsShow) {
  Table table({{"NAME"}, {"N", Align::Right}, {"NOTE"}});
  table.add({"ä", "1", ""});
  table.add({"longer", "1000", "x"});
  EXPECT_EQ(table.text(),
            "NAME       N  NOTE\n"
            "ä          1  -\n"
            "longer  1000  x\n");
}

TEST(CtlTable, NoTextOfATenantReachesTheTerminalAsACommand) {
  EXPECT_EQ(printable("a\x1b[2Jb\nc\x7F"), "a?[2Jb?c?");
  EXPECT_EQ(printable("\xC2\x9B"
                      "31m"),
            "?31m");
  EXPECT_EQ(printable("\xFF"), "\xEF\xBF\xBD");
}

TEST(CtlTable, UnitsAreThoseThatPeopleRead) {
  EXPECT_EQ(humanBytes(0), "0 B");
  EXPECT_EQ(humanBytes(1023), "1023 B");
  EXPECT_EQ(humanBytes(1536ULL << 20U), "1.5 GiB");
  EXPECT_EQ(humanBytes(1100ULL << 20U), "1100 MiB") << "1 GiB would be less than it is";
  EXPECT_EQ(humanBytes(15'109ULL << 20U), "14.7 GiB");
  EXPECT_EQ(humanBytes(16ULL << 30U), "16 GiB");
  EXPECT_EQ(humanBytes(UINT64_MAX), "16383 PiB");
  EXPECT_EQ(humanTime(0), "0");
  EXPECT_EQ(humanTime(999), "999 ns");
  EXPECT_EQ(humanTime(850'000), "850 us");
  EXPECT_EQ(humanTime(1'250'000), "1.2 ms");
  EXPECT_EQ(humanTime(12'300'000'000), "12.3 s");
  EXPECT_EQ(humanTime(125'000'000'000), "2m05s");
  EXPECT_EQ(humanTime(7'380'000'000'000), "2h03m");
  EXPECT_EQ(humanPermille(300), "30%");
  EXPECT_EQ(humanPermille(25), "2.5%");
  EXPECT_EQ(humanCount(9'999), "9999");
  EXPECT_EQ(humanCount(12'300), "12.3k");
}

TEST(CtlViews, AListWithoutAViewOfItsOwnIsATableOfItsFields) {
  EXPECT_EQ(
      *viewOf(Shown::Rows, R"({"ok":true,"rows":[{"what":"tasks","mem_used_bytes":1073741824,)"
                           R"("wait_ns":1500000,"share_permille":300,"now":7},)"
                           R"({"what":"cards","now":"x"}]})"),
      "WHAT   MEM USED    WAIT  SHARE  NOW\n"
      "tasks     1 GiB  1.5 ms    30%    7\n"
      "cards         -       -      -    x\n");
  EXPECT_EQ(*viewOf(Shown::Rows, R"({"ok":true,"rows":[]})"), "none\n");
  EXPECT_EQ(*viewOf(Shown::Rows, R"({"ok":true,"rows":[7]})"), "none\n");
}

TEST(CtlViews, AnswersOfAnotherVersionStillShow) {
  EXPECT_EQ(*viewOf(Shown::Rows, R"({"ok":true,"done":"yes"})"), "none\n");
  EXPECT_EQ(*viewOf(Shown::Done, R"({"ok":true,"done":"card sim-0 is cordoned"})"),
            "card sim-0 is cordoned\n");
  EXPECT_NE(viewOf(Shown::Cards, R"({"ok":true,"cards":[{"id":"x","new":{}}]})")->find("x"),
            std::string::npos);
  EXPECT_TRUE(viewOf(Shown::Tasks, R"({"ok":true})").ok());
  EXPECT_FALSE(viewOf(Shown::Tasks, "{").ok());
}

TEST(CtlViews, BelowTheCardsStandsWhyTheySuspendAsTheyDoAndWhereMemoryCounts) {
  const auto card = [](const std::string& id, const std::string& more) {
    const std::string index = id.substr(id.find('-') + 1);
    return R"({"node":"here","id":")" + id + R"(","index":)" + index + more + "}";
  };
  const auto below = [](const std::string& cards) {
    const std::string view = *viewOf(Shown::Cards, R"({"ok":true,"cards":[)" + cards + "]}");
    const auto rows = 1 + std::count(cards.begin(), cards.end(), '}');
    std::size_t at = 0;
    for (std::ptrdiff_t i = 0; i < rows; ++i) at = view.find('\n', at) + 1;
    return view.substr(at);
  };
  const std::string gate = R"(,"suspend":"gate","suspend_why":"no\u001b[2J such driver")";
  const std::string memory = R"(,"memory_counted":"at CUDA's calls")";
  EXPECT_EQ(below(card("sim-0", R"(,"suspend":"freeze")")), "");
  EXPECT_EQ(below(card("GPU-1", gate + memory) + "," + card("GPU-2", memory)),
            "gpu-1: gate: no?[2J such driver\nall cards: memory counts at CUDA's calls\n");
  std::string many = card("0", "");
  for (int i = 1; i <= 2; ++i) many += "," + card(std::to_string(i), memory);
  EXPECT_EQ(below(many), "1, 2: memory counts at CUDA's calls\n");
  for (int i = 3; i <= 5; ++i) many += "," + card(std::to_string(i), memory);
  EXPECT_EQ(below(many), "5 cards: memory counts at CUDA's calls\n");
}

TEST(CtlViews, ACardIsShortInATableAndWholeInAWideOne) {
  const Answer cards(R"({"ok":true,"cards":[{"id":"GPU-5f0c","index":0,"node":"n-1",)"
                     R"("backend":"nvidia","holder":7}]})");
  const Answer tasks(R"({"ok":true,"tasks":[{"id":7,"node":"n-1","card":"GPU-5f0c",)"
                     R"("mem_peak_bytes":1048576,"owner_pid":12}]})");
  const Answer event(R"({"seq":1,"card":"GPU-5f0c"})"), there(R"({"seq":1,"card":"n-1/GPU-5f0c"})");
  const Style plain{false, CardNames(cards.root())}, wide{true, CardNames(cards.root())};
  for (const auto& [shown, answer] : {std::pair(Shown::Cards, &cards), {Shown::Tasks, &tasks}}) {
    EXPECT_NE(viewOf(shown, *answer, plain)->find("gpu-0"), std::string::npos);
    EXPECT_EQ(viewOf(shown, *answer, plain)->find("GPU-5f0c"), std::string::npos);
    EXPECT_NE(viewOf(shown, *answer, wide)->find("GPU-5f0c"), std::string::npos);
  }
  EXPECT_EQ(viewOf(Shown::Tasks, tasks, plain)->find("PEAK"), std::string::npos);
  EXPECT_NE(viewOf(Shown::Tasks, tasks, wide)->find("PEAK"), std::string::npos);
  EXPECT_NE(viewOf(Shown::Cards, cards, wide)->find("SHORT"), std::string::npos);
  EXPECT_NE(eventLine(event.root(), plain).find("  gpu-0\n"), std::string::npos);
  EXPECT_NE(eventLine(there.root(), plain).find("  n-1/gpu-0\n"), std::string::npos);
  EXPECT_NE(eventLine(there.root(), wide).find("  n-1/GPU-5f0c\n"), std::string::npos);
}

TEST(CtlViews, NamesAreTheIdsOfAListOneALine) {
  EXPECT_EQ(idsOf(Shown::Tasks, R"({"ok":true,"tasks":[{"id":7},{"id":12}]})"), "7\n12\n");
  EXPECT_EQ(idsOf(Shown::Nodes, R"({"ok":true,"nodes":[{"name":"n-10"},{"name":"n-9"}]})"),
            "n-9\nn-10\n");
  const std::string card = R"({"id":"GPU-5f0c","node":"n-1"})";
  EXPECT_EQ(idsOf(Shown::Cards, R"({"ok":true,"cards":[)" + card + "]}"), "GPU-5f0c\n");
  EXPECT_EQ(idsOf(Shown::Cards,
                  R"({"ok":true,"cards":[)" + card + R"(,{"id":"GPU-5f0d","node":"n-2"}]})"),
            "n-1/GPU-5f0c\nn-2/GPU-5f0d\n");
  EXPECT_EQ(exitCode({"-o", "name", "status"}), 2);
  EXPECT_EQ(exitCode({"-o", "name", "events"}), 2);
  EXPECT_EQ(parsed({"tasks", "-o", "name"}).output, Output::Name);
  EXPECT_EQ(parsed({"tasks", "-o", "yaml"}).output, Output::Yaml);
  EXPECT_EQ(parsed({"tasks"}).output, Output::Table);
}

TEST(CtlClient, SaysHowToStartTheDaemonOfASocket) {
  EXPECT_EQ(startLine("/run/qgpu/manager.sock").find("--run-dir"), std::string::npos);
  EXPECT_NE(startLine("/tmp/x/manager.sock").find("qgpu-manager --run-dir=/tmp/x"),
            std::string::npos);
}

}  // namespace
}  // namespace qgpu::ctl::ctl_test
