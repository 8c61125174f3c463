// The manager as an operator meets it: flags, sockets, garbage, a full disk, idle cost.

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <random>
#include <signal.h>
#include <sstream>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/e2e/harness.h"

namespace qgpu::e2e::daemon_test {
namespace {

TEST(Daemon, ServesStatusAndStopsCleanlyOnSigterm) {
  Manager manager({"--cards=sim:2x16"});
  const Json status = manager.ask("status");
  EXPECT_TRUE(status["ok"]);
  EXPECT_EQ(manager.cards().size(), 2u);
  EXPECT_EQ(manager.stop(), 0) << manager.log();
  EXPECT_FALSE(std::filesystem::exists(manager.socket()));
}

// Each line of a log, which has to be a document of its own.
std::vector<Json> documentsOf(const std::string& log) {
  std::vector<Json> documents;
  std::istringstream lines(log);
  for (std::string line; std::getline(lines, line);) {
    documents.push_back(Json::parse(line, nullptr, false));
    const Json& said = documents.back();
    EXPECT_TRUE(said.is_object()) << line;
    if (!said.is_object()) continue;
    EXPECT_TRUE(said.value("time", "").ends_with("Z")) << line;
    EXPECT_NE(said.value("level", ""), "") << line;
    EXPECT_NE(said.value("message", ""), "") << line;
  }
  return documents;
}

TEST(Daemon, LogsAnObjectALineWhereItIsToldTo) {
  Manager manager({"--cards=sim:1x16", "--log-format=json", "--log-level=debug"});
  const auto task = manager.runTask({"--name", "odd \"name\"", "--", "true"});
  EXPECT_EQ(task->wait(), 0) << task->output();
  EXPECT_TRUE(eventually(
      [&] { return manager.log().find("\"message\":\"task-ended\"") != std::string::npos; }));
  EXPECT_EQ(manager.stop(), 0);
  const std::vector<Json> said = documentsOf(manager.log());
  const auto bound = std::ranges::find_if(
      said, [](const Json& one) { return one.value("message", "") == "task-bound"; });
  ASSERT_NE(bound, said.end()) << manager.log();
  EXPECT_EQ((*bound)["level"], "info");
  EXPECT_TRUE((*bound)["task"].is_number_unsigned()) << *bound;
  EXPECT_EQ((*bound)["name"], "odd \"name\"");
  EXPECT_EQ((*bound)["card"], "sim-0");
  Scheduler scheduler({"--log-format=json", "--log-level=debug"});
  EXPECT_EQ(scheduler.stop(), 0);
  EXPECT_GT(documentsOf(scheduler.log()).size(), 1u) << scheduler.log();
}

TEST(Daemon, IsNoProgramThatListensToATest) {
  for (const char* name : {"qgpu-manager", "qgpu-suspend-probe", "qgpu-scheduler"}) {
    std::ifstream file(binary(name), std::ios::binary);
    std::ostringstream bytes;
    bytes << file.rdbuf();
    ASSERT_FALSE(bytes.str().empty()) << name;
    for (const char* hook : {"QGPU_DRIVER_ROOT", "QGPU_TEST", "QGPU_STAND_IN"}) {
      EXPECT_EQ(bytes.str().find(hook), std::string::npos) << hook << " in " << name;
    }
  }
}

TEST(Daemon, RefusesWhatItDoesNotUnderstandWithOneLineAndExit2) {
  const std::vector<std::vector<std::string>> wrong = {
      {"--policy=fastest"},
      {"--cards=sim:0x0"},
      {"--slice=30ms..2ms"},
      {"--online-idle=soon"},
      {"--max-tasks-per-card=-1"},
      {"--no-such-flag"},
      {"--config=/nonexistent/qgpu.conf"},
      {"--cards=sim:1x16", "--http=10.1.2.3:80"},
  };
  for (const auto& flags : wrong) {
    TempFolder dir;
    std::vector<std::string> argv = {binary("qgpu-manager"), "--run-dir=" + dir.path() + "/run",
                                     "--dbfile=" + dir.path() + "/meta.db"};
    argv.insert(argv.end(), flags.begin(), flags.end());
    const Finished result = run(argv);
    EXPECT_EQ(result.status, 2) << flags[0] << ": " << result.output;
    EXPECT_EQ(std::count(result.output.begin(), result.output.end(), '\n'), 1) << result.output;
    EXPECT_TRUE(std::filesystem::is_empty(dir.path())) << flags[0] << " left files behind";
  }
}

TEST(Daemon, RefusesASecondOneOnTheSameFolderAndTheFirstLivesOn) {
  Manager manager({"--cards=sim:1x16"});
  const Finished second = run({binary("qgpu-manager"), "--cards=sim:1x16",
                               "--run-dir=" + manager.runDir(), "--dbfile=" + manager.database()});
  EXPECT_EQ(second.status, 2) << second.output;
  EXPECT_EQ(std::count(second.output.begin(), second.output.end(), '\n'), 1) << second.output;
  EXPECT_TRUE(manager.ask("status")["ok"]);
}

TEST(Daemon, RefusesARunDirThatOthersMayWriteTo) {
  TempFolder dir;
  std::filesystem::permissions(dir.path(), std::filesystem::perms::all);
  const Finished result = run({binary("qgpu-manager"), "--cards=sim:1x16", "--http=127.0.0.1:0",
                               "--run-dir=" + dir.path(), "--dbfile=" + dir.path() + "/meta.db"});
  EXPECT_EQ(result.status, 2) << result.output;
  EXPECT_NE(result.output.find("--run-dir"), std::string::npos) << result.output;
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

TEST(Daemon, QgpuctlSaysHowToStartADaemonThatIsNotThere) {
  TempFolder dir;
  const Finished result =
      run({binary("qgpuctl"), "--socket", dir.path() + "/manager.sock", "status"});
  EXPECT_EQ(result.status, 4);
  EXPECT_NE(result.output.find("qgpu-manager"), std::string::npos) << result.output;
}

TEST(Daemon, QgpuctlAnswersWrongUseWithExit2AndRefusalsWithExit3) {
  Manager manager({"--cards=sim:1x16"});
  EXPECT_EQ(run({binary("qgpuctl"), "--socket", manager.socket(), "frobnicate"}).status, 2);
  EXPECT_EQ(run({binary("qgpuctl"), "--socket", manager.socket(), "status", "--bogus"}).status, 2);
  EXPECT_EQ(run({binary("qgpuctl"), "--socket", manager.socket(), "evict", "999"}).status, 3);
}

// Connects, writes `bytes`, and reads whatever comes until the peer closes or a moment passed.
void scribble(const std::string& path, int type, const std::string& bytes) {
  const int fd = ::socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  timeval limit{1, 0};
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  ASSERT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0) << path;
  std::size_t sent = 0;
  while (sent < bytes.size()) {
    const ssize_t n = ::send(fd, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (n <= 0) break;
    sent += static_cast<std::size_t>(n);
  }
  ::shutdown(fd, SHUT_WR);
  char answer[4096];
  while (::recv(fd, answer, sizeof answer, 0) > 0) {
  }
  ::close(fd);
}

TEST(Daemon, AReportOfDoctorHasItsConfigurationAndNoTokenOfATask) {
  Manager manager({"--cards=sim:1x16", "--online-idle=123ms"});
  TempFolder folder;
  const std::string told = folder.path() + "/environment", report = folder.path() + "/report";
  auto task = manager.runTask(
      {"--name", "train", "--", "sh", "-c",
       "echo $QGPU_TOKEN >" + told + ".new; mv " + told + ".new " + told + "; exec sleep 1000"},
      {{"PASSWORD", "hunter2"}});
  ASSERT_TRUE(eventually([&] { return std::filesystem::exists(told); })) << task->output();
  std::string token;
  std::ifstream(told) >> token;
  ASSERT_EQ(token.size(), 32u);
  const Finished done =
      run({binary("qgpuctl"), "--socket", manager.socket(), "doctor", "--bundle", report});
  std::stringstream text;
  text << std::ifstream(report).rdbuf();
  EXPECT_NE(text.str().find("\"name\":\"train\""), std::string::npos) << done.output << text.str();
  EXPECT_NE(text.str().find("\nonline-idle = \"123ms\""), std::string::npos) << text.str();
  EXPECT_EQ(text.str().find(token), std::string::npos);
  EXPECT_EQ(text.str().find("hunter2"), std::string::npos);
  struct stat info {};
  ASSERT_EQ(::stat(report.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0600u);
  task->signal(SIGTERM);
  task->wait();
}

TEST(Daemon, TheLifeOfATaskIsInTheLogByNumberAndName) {
  Manager manager({"--cards=sim:1x16"});
  auto task = manager.runTask({"--name", "train", "--", "sleep", "1000"});
  const auto says = [&](const std::string& part) {
    return eventually([&] { return manager.log().find(part) != std::string::npos; });
  };
  EXPECT_TRUE(says(" info task-bound task=1 name=train card=sim-0 text=")) << manager.log();
  task->signal(SIGTERM);
  task->wait();
  EXPECT_TRUE(says(" info task-ended task=1 name=train ")) << manager.log();
}

// As at three in the morning: what was looked at is said, also where all is well.
TEST(Daemon, DoctorSaysWhatItLookedAt) {
  Manager manager({"--cards=sim:2x16"});
  const Finished told = run({binary("qgpuctl"), "--socket", manager.socket(), "doctor"});
  for (const char* line :
       {"[ok]   kernel ", "[ok]   memory can be shared and sealed", "[ok]   qgpu-manager ",
        "[ok]   the manager's database takes changes", "[ok]   card sim-0 (", "[ok]   card sim-1 (",
        "[ok]   0 tasks: none is quarantined", "real-time priority"}) {
    EXPECT_NE(told.output.find(line), std::string::npos) << line << "\n" << told.output;
  }
  ASSERT_TRUE(manager.ask("cordon 1")["ok"]);
  const Finished quiet = run({binary("qgpuctl"), "--socket", manager.socket(), "doctor", "-q"});
  const bool broken = quiet.output.find("[fail]") != std::string::npos;  // of the machine itself
  EXPECT_EQ(quiet.status, broken ? 3 : 0) << quiet.output;
  EXPECT_NE(quiet.output.find("[warn] card-cordoned: card sim-1 takes no new tasks"),
            std::string::npos)
      << quiet.output;
  EXPECT_NE(quiet.output.find("fix: once it is well: qgpuctl uncordon sim-1"), std::string::npos)
      << quiet.output;
  EXPECT_EQ(quiet.output.find("[ok]"), std::string::npos) << quiet.output;
}

TEST(Daemon, C7_GarbageOnEverySocketHarmsNothing) {
  Manager manager({"--cards=sim:1x16"});
  std::mt19937_64 random(7);
  for (int round = 0; round < 20; ++round) {
    std::string bytes(1 + random() % 4096, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    scribble(manager.socket(), SOCK_STREAM, bytes);
    scribble(manager.runDir() + "/manager.rpc", SOCK_STREAM, bytes);
    scribble(manager.runDir() + "/attach.sock", SOCK_SEQPACKET, bytes);
  }
  scribble(manager.socket(), SOCK_STREAM, std::string(1 << 20, 'x'));
  scribble(manager.socket(), SOCK_STREAM, std::string(1 << 20, 'x') + "\nstatus\n");
  EXPECT_TRUE(manager.ask("status")["ok"]);
  const Json unknown = manager.ask("frobnicate");
  EXPECT_FALSE(unknown["ok"]);
  EXPECT_FALSE(unknown["error"].get<std::string>().empty());
  EXPECT_EQ(manager.tasks().size(), 0u);
}

struct Cost {
  double cpuSeconds = 0;
  long rssKb = 0;
};

Cost costOf(pid_t pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string text((std::istreambuf_iterator<char>(stat)), {});
  std::istringstream fields(text.substr(text.rfind(')') + 2));
  std::string word;
  long long ticks = 0;
  for (int field = 3; field <= 15 && fields >> word; ++field) {
    if (field >= 14) ticks += std::stoll(word);
  }
  Cost cost;
  cost.cpuSeconds = static_cast<double>(ticks) / static_cast<double>(::sysconf(_SC_CLK_TCK));
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmRSS:")) cost.rssKb = std::stol(line.substr(6));
  }
  return cost;
}

TEST(Daemon, AnIdleManagerOf8CardsCostsUnderOnePercentOfACoreAnd30MiB) {
  Manager manager({"--cards=sim:8x32"});
  const Cost before = costOf(manager.pid());
  const std::int64_t start = monotonicNs();
  eventually([] { return false; }, std::chrono::seconds(5));
  const Cost after = costOf(manager.pid());
  const double wall = static_cast<double>(monotonicNs() - start) / 1e9;
  EXPECT_LE(after.cpuSeconds - before.cpuSeconds, 0.01 * wall + 0.01);
  EXPECT_LE(after.rssKb, 30 * 1024);
  RecordProperty("rss_kb", static_cast<int>(after.rssKb));
}

TEST(Daemon, D4_AFullDiskRefusesNewBindsAndServiceResumesWithoutARestart) {
  TempFolder dir;
  if (::mount("tmpfs", dir.path().c_str(), "tmpfs", 0, "size=2m") != 0) {
    GTEST_SKIP() << "mounting a small tmpfs needs root";
  }
  {
    Manager manager(
        {"--cards=sim:1x64", "--max-tasks-per-card=100", "--dbfile=" + dir.path() + "/meta.db"});
    const std::string spec =
        R"(run {"name":"a","class":"ordinary","memory_gib":1,"core_percent":1,"owner":"none"})";
    EXPECT_TRUE(manager.ask(spec)["ok"]);
    const std::string filler = dir.path() + "/filler";
    {
      std::ofstream out(filler, std::ios::binary);
      const std::string block(4096, 'x');
      while (out.write(block.data(), 4096).flush()) {
      }
    }
    bool refused = false;
    for (int i = 0; i < 40 && !refused; ++i) refused = !manager.ask(spec)["ok"].get<bool>();
    EXPECT_TRUE(refused) << "a full disk was taken for success";
    EXPECT_TRUE(manager.ask("status")["ok"]);
    const std::size_t bound = manager.tasks().size();
    std::filesystem::remove(filler);
    EXPECT_TRUE(eventually([&] { return manager.ask(spec)["ok"].get<bool>(); }));
    EXPECT_EQ(manager.tasks().size(), bound + 1);
    EXPECT_EQ(manager.stop(), 0);
  }
  ::umount(dir.path().c_str());
}

}  // namespace
}  // namespace qgpu::e2e::daemon_test
