#include "bench/cluster/cluster_daemons.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bench/load_manager.h"
#include "runtime/check.h"

namespace qgpu::bench {
namespace {

// A port that nobody has, below those that the kernel gives to clients: thousands of them try to
// connect while the scheduler is away, and one that got its port would connect to itself.
int freePort() {
  constexpr int kFirst = 20'000, kCount = 10'000;
  for (int i = 0; i < kCount; ++i) {
    const int port = kFirst + (::getpid() + i) % kCount;
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

}  // namespace

OwnScheduler::OwnScheduler() : OwnScheduler("127.0.0.1:" + std::to_string(freePort())) {}

OwnScheduler::OwnScheduler(const std::string& tcp)
    : PrivateDaemon("scheduler", testing::TempFolder("bench"), {"--rpc=" + tcp, "--insecure"}),
      tcp_(tcp) {}

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
