#include "bench/cluster_daemons.h"

#include <netinet/in.h>
#include <signal.h>
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

OwnScheduler::OwnScheduler(std::vector<std::string> more)
    : more_(std::move(more)), tcp_("127.0.0.1:" + std::to_string(freePort())) {}

Status OwnScheduler::start() {
  std::vector<std::string> argv = {e2e::binary("qgpu-scheduler"),
                                   "--run-dir=" + dir_.path() + "/run", "--dbfile=" + dbfile(),
                                   "--http=127.0.0.1:0", "--rpc=" + tcp_, "--insecure"};
  argv.insert(argv.end(), more_.begin(), more_.end());
  child_ = std::make_unique<e2e::Child>(argv);
  const std::string socket = dir_.path() + "/run/scheduler.sock";
  const bool answered = e2e::eventually(
      [&] { return !e2e::askSocket(socket, "status").empty() || !child_->alive(); },
      std::chrono::seconds(60));
  if (answered && child_->alive()) return ok();
  return fail(ErrorCode::Unavailable, "the scheduler does not serve: " + log());
}

void OwnScheduler::kill() {
  child_->signal(SIGKILL);
  child_->wait();
}

void OwnScheduler::stop() {
  child_->signal(SIGTERM);
  child_->wait();
}

OwnManagers::OwnManagers(std::size_t count, const std::string& scheduler) {
  for (std::size_t i = 1; i <= count; ++i) {
    auto one = std::make_unique<One>();
    const std::string& dir = one->dir.path();
    one->child = std::make_unique<e2e::Child>(std::vector<std::string>{
        e2e::binary("qgpu-manager"), "--run-dir=" + dir + "/run", "--dbfile=" + dir + "/meta.db",
        "--http=127.0.0.1:0", "--cards=sim:8x128", "--max-tasks-per-card=100",
        "--nodename=bench-" + std::to_string(i), "--scheduler=" + scheduler,
        "--log-level=error"});
    managers_.push_back(std::move(one));
  }
}

Nanos OwnManagers::cpuTime() const {
  Nanos used{0};
  for (const auto& one : managers_) used = used + cpuTimeOf(one->child->pid());
  return used;
}

}  // namespace qgpu::bench
