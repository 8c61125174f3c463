// qgpu-manager as a process with simulated cards: what it serves where, what it keeps over a
// restart, what it refuses to start with.

#include <arpa/inet.h>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/e2e/harness.h"
#include "tests/testing/certificates.h"

namespace qgpu::e2e::manager_test {
namespace {

const char kBind[] =
    R"(run {"name":"kept","class":"ordinary","memory_gib":2,"core_percent":20,"owner":"none"})";

// The port behind `before` in a line of the manager's log; that of --http in the line with which it
// says that it serves.
int httpPortOf(const Manager& manager, const std::string& before = "http=127.0.0.1:") {
  const std::string log = manager.log();
  const std::size_t at = log.find(before);
  return at == std::string::npos ? 0 : std::stoi(log.substr(at + before.size()));
}

// Whether an HTTP answer has as many bytes after its header as it announced.
bool isWhole(const std::string& answer) {
  const std::string length = "Content-Length: ";
  const std::size_t body = answer.find("\r\n\r\n");
  const std::size_t at = answer.find(length);
  return body != std::string::npos && at < body &&
         answer.size() >= body + 4 + std::stoul(answer.substr(at + length.size()));
}

std::string httpGet(int port, const std::string& path) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  timeval limit{10, 0};
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::string answer;
  if (::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) {
    const std::string request = "GET " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n";
    EXPECT_EQ(::send(fd, request.data(), request.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(request.size()));
    char text[4096];
    while (!isWhole(answer)) {
      const ssize_t n = ::recv(fd, text, sizeof text, 0);
      if (n <= 0) break;
      answer.append(text, static_cast<std::size_t>(n));
    }
  }
  ::close(fd);
  return answer;
}

TEST(Manager, ServesEveryDoorUntilSigtermAndLeavesNoSocketBehind) {
  Manager manager({"--cards=sim:2x16", "--rpc=127.0.0.1:0", "--realtime=off"});
  EXPECT_EQ(manager.cards().size(), 2u);
  EXPECT_EQ(manager.ask("status")["realtime"], "none");
  const int port = httpPortOf(manager);
  EXPECT_NE(httpGet(port, "/healthz").find("200 OK"), std::string::npos);
  EXPECT_NE(httpGet(port, "/metrics").find("qgpu_"), std::string::npos);
  for (const char* name : {"manager.sock", "manager.rpc", "attach.sock"}) {
    EXPECT_TRUE(std::filesystem::exists(manager.runDir() + "/" + name)) << name;
  }
  EXPECT_EQ(manager.stop(), 0) << manager.log();
  for (const char* name : {"manager.sock", "manager.rpc", "attach.sock"}) {
    EXPECT_FALSE(std::filesystem::exists(manager.runDir() + "/" + name)) << name;
  }
}

constexpr const char* kScrapesAt = "metrics-open address=0.0.0.0:";

TEST(Manager, ShowsNothingButMetricsToOtherMachines) {
  Manager manager({"--cards=sim:1x16", "--metrics=0.0.0.0:0"});
  const int port = httpPortOf(manager, kScrapesAt);
  ASSERT_NE(port, 0) << manager.log();
  EXPECT_NE(httpGet(port, "/metrics").find("qgpu_card_preempt_seconds_bucket"), std::string::npos);
  EXPECT_NE(httpGet(port, "/healthz").find("404"), std::string::npos);
  EXPECT_EQ(manager.stop(), 0) << manager.log();
}

TEST(Manager, ShowsMetricsByCertificateWhereThatIsSaid) {
  const TempFolder dir;
  testing::Certificates made(dir.path());
  made.makeCa("ca");
  made.makeCa("other");
  const TlsFiles server = made.make("ca", "here");
  Manager manager({"--cards=sim:1x16", "--metrics=0.0.0.0:0", "--metrics-tls",
                   "--tls-cert=" + server.cert, "--tls-key=" + server.key,
                   "--tls-ca=" + server.ca});
  const int port = httpPortOf(manager, kScrapesAt);
  ASSERT_NE(port, 0) << manager.log();
  const auto scrape = [&](std::vector<std::string> shown) {
    std::vector<std::string> argv = {"curl", "-sSk", "-m", "10"};
    argv.insert(argv.end(), shown.begin(), shown.end());
    argv.push_back("https://127.0.0.1:" + std::to_string(port) + "/metrics");
    return run(argv).output;
  };
  const auto certificate = [](const TlsFiles& files) {
    return std::vector<std::string>{"--cert", files.cert, "--key", files.key};
  };
  EXPECT_NE(scrape(certificate(made.make("ca", "prometheus"))).find("qgpu_"), std::string::npos);
  EXPECT_EQ(scrape({}).find("qgpu_"), std::string::npos) << "without a certificate";
  EXPECT_EQ(scrape(certificate(made.make("other", "stranger"))).find("qgpu_"), std::string::npos);
  EXPECT_EQ(httpGet(port, "/metrics").find("qgpu_"), std::string::npos) << "without TLS";
  EXPECT_EQ(manager.stop(), 0) << manager.log();
}

TEST(Manager, KeepsTasksPoliciesAndMarksOverARestartUnderANewIncarnation) {
  Manager manager({"--cards=sim:2x16"});
  ASSERT_TRUE(manager.ask(kBind)["ok"]);
  ASSERT_TRUE(manager.ask("policy 0 burst-share")["ok"]);
  ASSERT_TRUE(manager.ask("cordon 1")["ok"]);
  ASSERT_TRUE(manager.ask("snapshot")["ok"]);
  const auto incarnation = manager.ask("status")["incarnation"].get<std::int64_t>();
  const Json before = manager.task("kept");
  EXPECT_EQ(manager.stop(), 0);

  manager.start();
  const Json after = manager.task("kept");
  EXPECT_EQ(after["id"], before["id"]);
  EXPECT_EQ(after["share_permille"], 200);
  EXPECT_EQ(manager.cards()[0]["policy"], "burst-share");
  EXPECT_EQ(manager.cards()[1]["state"], "cordoned");
  EXPECT_EQ(manager.ask("status")["incarnation"].get<std::int64_t>(), incarnation + 1);
  EXPECT_TRUE(manager.ask("evict " + std::to_string(after["id"].get<std::int64_t>()))["ok"]);
  EXPECT_TRUE(eventually([&] { return manager.tasks().empty(); }));
}

TEST(Manager, C1_WithoutItsSchedulerItBindsNothingAndServesEverythingElse) {
  const TempFolder dir;
  Manager manager({"--cards=sim:1x16", "--scheduler=unix:" + dir.path() + "/nobody.rpc"});
  EXPECT_TRUE(eventually([&] {
    return manager.ask("status")["cluster"].get<std::string>().rfind("no scheduler", 0) == 0;
  }));
  const Json refused = manager.ask(kBind);
  EXPECT_FALSE(refused["ok"]);
  EXPECT_EQ(refused["code"], "unavailable");
  EXPECT_TRUE(manager.ask("cordon 0")["ok"]);
  EXPECT_NE(httpGet(httpPortOf(manager), "/metrics").find("qgpu_node_cluster{state=\"no sched"),
            std::string::npos);
  EXPECT_EQ(manager.stop(), 0) << manager.log();
}

TEST(Manager, RefusesCertificatesThatItCannotRead) {
  const TempFolder dir;
  const Finished refused =
      run({binary("qgpu-manager"), "--cards=sim:1x16", "--http=127.0.0.1:0",
           "--run-dir=" + dir.path() + "/run", "--dbfile=" + dir.path() + "/meta.db",
           "--scheduler=10.0.0.1:12346", "--tls-cert=" + dir.path() + "/no",
           "--tls-key=" + dir.path() + "/no", "--tls-ca=" + dir.path()});
  EXPECT_EQ(refused.status, 2);
  EXPECT_NE(refused.output.find("--tls-"), std::string::npos) << refused.output;
  EXPECT_TRUE(std::filesystem::is_empty(dir.path())) << "it left files behind";
}

TEST(Manager, ChangesItsLogLevelWhileItRuns) {
  Manager manager({"--cards=sim:1x16"});
  EXPECT_FALSE(manager.ask("loglevel loud")["ok"]);
  ASSERT_TRUE(manager.ask("loglevel off")["ok"]);
  const std::size_t said = manager.log().size();
  EXPECT_EQ(manager.stop(), 0);
  EXPECT_EQ(manager.log().size(), said) << "it announces its end where it may speak";
}

TEST(Manager, RefusesADamagedDatabaseAndLeavesItAsItIs) {
  const TempFolder dir;
  const std::string damaged = dir.path() + "/meta.db";
  std::ofstream(damaged) << std::string(8192, 'x');
  const Finished refused = run({binary("qgpu-manager"), "--cards=sim:1x16", "--http=127.0.0.1:0",
                                "--run-dir=" + dir.path() + "/run", "--dbfile=" + damaged});
  EXPECT_EQ(refused.status, 2);
  EXPECT_NE(refused.output.find(damaged), std::string::npos) << refused.output;
  EXPECT_NE(refused.output.find("taken over"), std::string::npos) << refused.output;
  EXPECT_EQ(std::filesystem::file_size(damaged), 8192u);
}

TEST(Manager, RefusesAnAddressThatSomebodyServesAlready) {
  Manager first({"--cards=sim:1x16"});
  const std::string taken = "127.0.0.1:" + std::to_string(httpPortOf(first));
  for (const std::string actor : {"--http=", "--rpc=", "--metrics="}) {
    const TempFolder dir;
    std::vector<std::string> argv = {binary("qgpu-manager"), "--cards=sim:1x16",
                                     "--run-dir=" + dir.path() + "/run",
                                     "--dbfile=" + dir.path() + "/meta.db", "--http=127.0.0.1:0"};
    argv.push_back(actor + taken);
    if (actor == "--http=") argv.erase(argv.end() - 2);
    const Finished refused = run(argv);
    EXPECT_EQ(refused.status, 2) << refused.output;
    EXPECT_NE(refused.output.find(taken), std::string::npos) << refused.output;
    EXPECT_TRUE(std::filesystem::is_empty(dir.path())) << actor << " left files behind";
  }
}

TEST(Manager, SaysItsVersionAndItsFlagsWithoutStarting) {
  const Finished version = run({binary("qgpu-manager"), "--version"});
  EXPECT_EQ(version.status, 0);
  EXPECT_NE(version.output.find("qgpu-manager"), std::string::npos) << version.output;
  const Finished help = run({binary("qgpu-manager"), "--help"});
  EXPECT_EQ(help.status, 0);
  EXPECT_NE(help.output.find("--cards"), std::string::npos) << help.output;
}

}  // namespace
}  // namespace qgpu::e2e::manager_test
