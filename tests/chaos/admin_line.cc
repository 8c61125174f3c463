#include "tests/chaos/admin_line.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/testing/eventually.h"

namespace qgpu::chaos {

Answer askAdmin(const std::string& socket, const std::string& line,
                std::chrono::milliseconds limit) {
  Answer answer;
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  socket.copy(address.sun_path, sizeof address.sun_path - 1);
  const std::string text = line + "\n";
  if (::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) {
    // Short enough for an empty socket; what was cut is no line, and does nothing.
    const ssize_t sent = ::send(fd, text.data(), text.size(), MSG_NOSIGNAL);
    answer.asked = sent == static_cast<ssize_t>(text.size());
  }
  std::string got;
  const std::int64_t end = testing::monotonicNs() + limit.count() * 1'000'000;
  while (answer.asked && !got.ends_with('\n')) {
    const std::int64_t left = (end - testing::monotonicNs()) / 1'000'000;
    pollfd ready{fd, POLLIN, 0};
    if (left <= 0 || ::poll(&ready, 1, static_cast<int>(left)) <= 0) break;
    char chunk[16'384];
    const ssize_t n = ::recv(fd, chunk, sizeof chunk, 0);
    if (n <= 0) break;
    got.append(chunk, static_cast<std::size_t>(n));
  }
  ::close(fd);
  if (got.ends_with('\n')) answer.said = nlohmann::json::parse(got, nullptr, false);
  if (answer.said.is_discarded()) answer.said = nullptr;
  return answer;
}

}  // namespace qgpu::chaos
