#include "tests/testing/private_daemon.h"

#include <csignal>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <utility>

#include "tests/testing/eventually.h"

namespace qgpu::testing {

std::string askSocket(const std::string& socket, const std::string& line,
                      std::chrono::milliseconds limit) {
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  socket.copy(address.sun_path, sizeof address.sun_path - 1);
  std::string answer;
  if (::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) {
    const std::string text = line + "\n";
    std::size_t sent = 0;
    while (sent < text.size()) {
      const ssize_t n = ::send(fd, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
      if (n <= 0) break;
      sent += static_cast<std::size_t>(n);
    }
    const std::int64_t end = monotonicNs() + limit.count() * 1'000'000;
    while (answer.find('\n') == std::string::npos && monotonicNs() < end) {
      pollfd ready{fd, POLLIN, 0};
      if (::poll(&ready, 1, 100) <= 0) continue;
      char chunk[4096];
      const ssize_t n = ::recv(fd, chunk, sizeof chunk, 0);
      if (n <= 0) break;
      answer.append(chunk, static_cast<std::size_t>(n));
    }
  }
  ::close(fd);
  return answer;
}

PrivateDaemon::PrivateDaemon(std::string name, TempFolder folder,
                             std::vector<std::string> arguments, Environment environment)
    : folder_(std::move(folder)),
      name_(std::move(name)),
      arguments_(std::move(arguments)),
      environment_(std::move(environment)) {}

void PrivateDaemon::launch(const std::string& program) {
  std::vector<std::string> argv = {program.empty() ? binary("qgpu-" + name_) : program,
                                   "--run-dir=" + runDir(), "--dbfile=" + database(),
                                   "--http=127.0.0.1:0"};
  argv.insert(argv.end(), arguments_.begin(), arguments_.end());
  child_ = std::make_unique<Child>(argv, environment_);
}

bool PrivateDaemon::awaitService(std::chrono::milliseconds limit) {
  constexpr auto kAnswerWithin = std::chrono::seconds(2);
  const auto serves = [&] { return askSocket(socket(), "status", kAnswerWithin).ends_with('\n'); };
  bool served = false;
  eventually([&] { return (served = serves()) || !child_->alive(); }, limit);
  return served && child_->alive();
}

void PrivateDaemon::kill() {
  child_->signal(SIGKILL);
  child_->wait();
}

int PrivateDaemon::stop(std::chrono::milliseconds limit) {
  child_->signal(SIGTERM);
  return child_->wait(limit).value_or(-1);
}

}  // namespace qgpu::testing
