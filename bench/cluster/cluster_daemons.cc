#include "bench/cluster/cluster_daemons.h"

#include <netinet/in.h>
#include <nlohmann/json.hpp>
#include <sys/socket.h>
#include <unistd.h>

#include "bench/load_manager.h"
#include "runtime/check.h"

namespace qgpu::bench {
namespace {

// A port that nobody has, another one each time, below those that the kernel gives to clients:
// thousands of them try to connect while the scheduler is away, and one that got its port would
// connect to itself.
int freePort() {
  constexpr int kFirst = 20'000, kCount = 10'000;
  static int next = ::getpid();
  for (int i = 0; i < kCount; ++i) {
    const int port = kFirst + next++ % kCount;
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    const bool free = ::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
    ::close(fd);
    if (free) return port;
  }
  QGPU_CHECK(false, "a port is free");
  return 0;
}

std::string freeAddress() {
  return "127.0.0.1:" + std::to_string(freePort());
}

std::vector<std::string> arguments(const std::string& tcp, std::vector<std::string> more) {
  more.insert(more.end(), {"--rpc=" + tcp, "--insecure"});
  return more;
}

std::string joined(const std::vector<std::string>& all) {
  std::string text;
  for (const std::string& one : all) text += (text.empty() ? "" : ",") + one;
  return text;
}

}  // namespace

OwnScheduler::OwnScheduler(std::vector<std::string> more)
    : OwnScheduler(freeAddress(), std::move(more)) {}

OwnScheduler::OwnScheduler(const std::string& tcp, std::vector<std::string> more)
    : PrivateDaemon("scheduler", testing::TempFolder("bench"), arguments(tcp, std::move(more))),
      tcp_(tcp) {}

OwnEtcd::OwnEtcd(std::size_t members) : folder_("bench") {
  std::vector<std::string> peers, named;
  for (std::size_t i = 0; i < members; ++i) {
    clients_.push_back("http://" + freeAddress());
    peers.push_back("http://" + freeAddress());
    named.push_back("e" + std::to_string(i) + "=" + peers.back());
  }
  for (std::size_t i = 0; i < members; ++i) {
    const std::string name = "e" + std::to_string(i);
    processes_.push_back(std::make_unique<testing::Child>(std::vector<std::string>{
        "etcd", "--name=" + name, "--data-dir=" + (folder_ / name),
        "--listen-client-urls=" + clients_[i], "--advertise-client-urls=" + clients_[i],
        "--listen-peer-urls=" + peers[i], "--initial-advertise-peer-urls=" + peers[i],
        "--initial-cluster=" + joined(named), "--quota-backend-bytes=8589934592",
        "--auto-compaction-mode=revision", "--auto-compaction-retention=1000", "--logger=zap",
        "--log-level=error"}));
  }
}

bool OwnEtcd::isHere() {
  return ::access("/usr/bin/etcd", X_OK) == 0 || ::access("/usr/local/bin/etcd", X_OK) == 0;
}

std::string OwnEtcd::store() const {
  return "--store=etcd:" + joined(clients_);
}

EtcdUse OwnEtcd::use() const {
  const testing::Finished told =
      testing::run({"etcdctl", "--endpoints=" + clients_.front(), "endpoint", "status", "-w=json"},
                   {{"ETCDCTL_API", "3"}});
  const auto status = nlohmann::json::parse(told.output).at(0).at("Status");
  return {status.at("dbSize").get<double>() / (1 << 20), status.at("raftIndex")};
}

Status OwnScheduler::start() {
  launch();
  if (awaitService(std::chrono::seconds(60))) return ok();
  return fail(ErrorCode::Unavailable, "the scheduler does not serve: " + log());
}

OwnManagers::OwnManagers(std::size_t count, const std::string& scheduler) {
  for (std::size_t i = 1; i <= count; ++i) {
    managers_.push_back(std::make_unique<testing::PrivateDaemon>(
        "manager", testing::TempFolder("bench"),
        std::vector<std::string>{"--cards=sim:8x128", "--max-tasks-per-card=100",
                                 "--nodename=bench-" + std::to_string(i),
                                 "--scheduler=" + scheduler, "--log-level=error"}));
    managers_.back()->launch();
  }
}

Nanos OwnManagers::cpuTime() const {
  Nanos used{0};
  for (const auto& one : managers_) used = used + cpuTimeOf(one->pid());
  return used;
}

}  // namespace qgpu::bench
