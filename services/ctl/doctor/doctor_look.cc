#include "services/ctl/doctor/doctor_look.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <utility>

#include "runtime/fd.h"

namespace qgpu::ctl {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kFileMax = 4U << 20U;
constexpr std::size_t kPieceMax = 64U << 10U;
constexpr int kConnectMs = 1000;

// 0, or the errno of connecting a socket of this type.
int connectError(const std::string& path, int type) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return ENAMETOOLONG;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  const int fd = ::socket(AF_UNIX, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return errno;
  const int done = ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address);
  const int error = done == 0 ? 0 : errno;
  ::close(fd);
  return error;
}

// Empty where nothing listens; `host` is an IP address.
Fd connectTo(const std::string& host, const std::string& port) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), port.c_str(), &hints, &found) != 0) return Fd();
  Fd fd(::socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const bool now = fd && ::connect(fd.get(), found->ai_addr, found->ai_addrlen) == 0;
  const bool later = fd && !now && errno == EINPROGRESS;
  ::freeaddrinfo(found);
  if (now) return fd;
  pollfd entry{fd.get(), POLLOUT, 0};
  int error = 0;
  socklen_t size = sizeof error;
  const bool connected = later && ::poll(&entry, 1, kConnectMs) == 1 &&
                         ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size) == 0 &&
                         error == 0;
  return connected ? std::move(fd) : Fd();
}

}  // namespace

std::optional<std::string> readWhole(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return std::nullopt;
  // The kernel's own files refuse who asks for 4 MiB at a time.
  std::string text;
  std::string piece(kPieceMax, '\0');
  while (text.size() < kFileMax) {
    in.read(piece.data(), static_cast<std::streamsize>(piece.size()));
    if (in.bad()) return std::nullopt;
    if (in.gcount() == 0) break;
    text.append(piece, 0, static_cast<std::size_t>(in.gcount()));
  }
  return text;
}

std::string firstLine(const std::string& path) {
  const auto text = readWhole(path);
  return text ? text->substr(0, text->find('\n')) : "";
}

bool exists(const std::string& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0;
}

std::vector<std::string> namesIn(const std::string& folder, std::string_view begin,
                                 std::string_view end) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    std::string name = entry.path().filename().string();
    if (name.starts_with(begin) && name.ends_with(end)) names.push_back(std::move(name));
  }
  std::sort(names.begin(), names.end());
  return names;
}

SocketState socketState(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return SocketState::Missing;
  if (!S_ISSOCK(info.st_mode)) return SocketState::NoSocket;
  int error = connectError(path, SOCK_STREAM);
  if (error == EPROTOTYPE) error = connectError(path, SOCK_SEQPACKET);
  if (error == 0 || error == EAGAIN) return SocketState::Alive;  // EAGAIN: its queue is full
  return error == ECONNREFUSED || error == ENOENT ? SocketState::Stale : SocketState::Closed;
}

bool listensAt(const std::string& host, const std::string& port) {
  return static_cast<bool>(connectTo(host, port));
}

Result<std::string> fetch(const std::string& address, const std::string& path, Nanos limit) {
  const std::size_t colon = address.rfind(':');
  const auto broken = [&](const std::string& why) {
    return fail(ErrorCode::Unavailable, (address.empty() ? "its address" : address) + why);
  };
  if (colon == std::string::npos) return broken(" is not known");
  std::string host = address.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  const Fd fd = connectTo(host, address.substr(colon + 1));
  if (!fd) return broken(" takes no connection");
  const std::string ask = "GET " + path + " HTTP/1.0\r\nHost: " + address + "\r\n\r\n";
  if (::send(fd.get(), ask.data(), ask.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(ask.size())) {
    return broken(" takes no question");
  }
  std::string answer;
  char chunk[16'384];
  pollfd entry{fd.get(), POLLIN, 0};
  const int limitMs = static_cast<int>(limit / millis(1));
  while (answer.size() < kFileMax && ::poll(&entry, 1, limitMs) == 1) {
    const ssize_t n = ::recv(fd.get(), chunk, sizeof chunk, 0);
    if (n <= 0) break;
    answer.append(chunk, static_cast<std::size_t>(n));
  }
  const std::size_t body = answer.find("\r\n\r\n");
  const bool well = answer.starts_with("HTTP/1.") && answer.find(" 200 ") == 8;
  if (!well || body == std::string::npos) return broken(" answers no page, or wants TLS");
  return answer.substr(body + 4);
}

std::vector<unsigned> versionNumbers(std::string_view text, std::size_t count) {
  std::vector<unsigned> numbers(count, 0);
  std::size_t at = 0;
  for (unsigned& number : numbers) {
    while (at < text.size() && text[at] >= '0' && text[at] <= '9' && number < 100'000'000) {
      number = number * 10 + static_cast<unsigned>(text[at++] - '0');
    }
    if (at >= text.size() || text[at] != '.') break;
    ++at;
  }
  return numbers;
}

}  // namespace qgpu::ctl
