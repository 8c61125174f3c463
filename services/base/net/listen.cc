#include "services/base/net/listen.h"

#include <arpa/inet.h>
#include <cstring>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "services/base/net/socket_file.h"
#include "services/base/text.h"

namespace qgpu {
namespace {

constexpr int kBacklog = 4'096;  // kube-scheduler binds a thousand pods at once
constexpr kj::uint kFdFlags = kj::LowLevelAsyncIoProvider::TAKE_OWNERSHIP |
                              kj::LowLevelAsyncIoProvider::ALREADY_CLOEXEC |
                              kj::LowLevelAsyncIoProvider::ALREADY_NONBLOCK;

std::string why(int error) {
  return std::strerror(error);
}

int newSocket(int family) {
  return ::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

struct TcpAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;
};

Error badAddress(const std::string& address) {
  return fail(ErrorCode::InvalidArgument,
              address + ": no address; write 127.0.0.1:PORT, [::1]:PORT or PORT");
}

Result<TcpAddress> parseTcp(const std::string& text, Reach reach) {
  const std::size_t colon = text.rfind(':');
  std::string host = colon == std::string::npos ? "127.0.0.1" : text.substr(0, colon);
  const auto port = parseUint(colon == std::string::npos ? text : text.substr(colon + 1));
  if (!port || *port > 65535) return badAddress(text);
  if (host == "localhost") host = "127.0.0.1";
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  TcpAddress out;
  auto* v4 = reinterpret_cast<sockaddr_in*>(&out.storage);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&out.storage);
  bool loopback = false;
  if (::inet_pton(AF_INET, host.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(static_cast<std::uint16_t>(*port));
    out.length = sizeof *v4;
    loopback = (ntohl(v4->sin_addr.s_addr) >> 24U) == 127;
  } else if (::inet_pton(AF_INET6, host.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(static_cast<std::uint16_t>(*port));
    out.length = sizeof *v6;
    loopback = IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
  } else {
    return badAddress(text);
  }
  if (loopback || reach == Reach::Anywhere) return out;
  return fail(ErrorCode::Denied,
              text +
                  " is not loopback: a node has no way to tell who asks over a network; "
                  "listen on 127.0.0.1 and tunnel to it");
}

}  // namespace

Result<UnixListener> UnixListener::open(const std::string& path, mode_t mode) {
  const Result<sockaddr_un> address = socketAddress(path);
  if (!address) return address.error();
  if (Status clear = clearSocketFile(path, SOCK_STREAM); !clear) return clear.error();

  const int raw = newSocket(AF_UNIX);
  if (raw < 0) return fail(ErrorCode::Unavailable, "no socket for " + path + ": " + why(errno));
  kj::AutoCloseFd fd(raw);
  const auto* name = reinterpret_cast<const sockaddr*>(&*address);
  if (::bind(fd.get(), name, sizeof *address) != 0) {
    return fail(errno == EADDRINUSE ? ErrorCode::AlreadyExists : ErrorCode::Unavailable,
                "can't listen on " + path + ": " + why(errno));
  }
  // Nobody can connect before listen(), so the mode is right before it matters.
  struct stat info {};
  if (::chmod(path.c_str(), mode) != 0 || ::lstat(path.c_str(), &info) != 0 ||
      ::listen(fd.get(), kBacklog) != 0) {
    const int error = errno;
    ::unlink(path.c_str());
    return fail(ErrorCode::Unavailable, "can't listen on " + path + ": " + why(error));
  }
  return UnixListener(path, kj::mv(fd), info.st_dev, info.st_ino);
}

UnixListener::~UnixListener() {
  if (path_.empty()) return;  // moved from
  struct stat info {};
  // A successor may have taken the path already; its file is not ours to remove.
  if (::lstat(path_.c_str(), &info) == 0 && info.st_dev == device_ && info.st_ino == inode_) {
    ::unlink(path_.c_str());
  }
}

kj::Own<kj::ConnectionReceiver> UnixListener::receive(kj::LowLevelAsyncIoProvider& io) {
  QGPU_CHECK(fd_.get() >= 0, "a listener is received once");
  return io.wrapListenSocketFd(fd_.release(), kFdFlags);
}

Result<TcpListener> TcpListener::open(const std::string& address, const std::string& flag,
                                      Reach reach) {
  Result<TcpAddress> parsed = parseTcp(address, reach);
  if (!parsed) return fail(parsed.error().code, flag + "=" + parsed.error().message);
  auto* name = reinterpret_cast<sockaddr*>(&parsed->storage);
  const int raw = newSocket(name->sa_family);
  if (raw < 0) return fail(ErrorCode::Unavailable, "no socket for " + address + ": " + why(errno));
  kj::AutoCloseFd fd(raw);
  const int one = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  const std::size_t colon = address.rfind(':');
  if (::bind(fd.get(), name, parsed->length) != 0 || ::listen(fd.get(), kBacklog) != 0) {
    return fail(errno == EADDRINUSE ? ErrorCode::AlreadyExists : ErrorCode::Unavailable,
                "can't listen on " + address + ": " + why(errno) + "; choose another port with " +
                    flag + "; " + flag + "=" +
                    (colon == std::string::npos ? "127.0.0.1" : address.substr(0, colon)) +
                    ":0 takes a free one");
  }
  socklen_t length = parsed->length;
  if (::getsockname(fd.get(), name, &length) != 0) {
    return fail(ErrorCode::Unavailable, address + ": " + why(errno));
  }
  const bool v6 = name->sa_family == AF_INET6;
  const std::uint16_t port = ntohs(v6 ? reinterpret_cast<sockaddr_in6*>(name)->sin6_port
                                      : reinterpret_cast<sockaddr_in*>(name)->sin_port);
  char host[INET6_ADDRSTRLEN] = {};
  if (v6) {
    ::inet_ntop(AF_INET6, &reinterpret_cast<sockaddr_in6*>(name)->sin6_addr, host, sizeof host);
  } else {
    ::inet_ntop(AF_INET, &reinterpret_cast<sockaddr_in*>(name)->sin_addr, host, sizeof host);
  }
  std::string text = v6 ? "[" + std::string(host) + "]" : std::string(host);
  return TcpListener(text + ":" + std::to_string(port), port, kj::mv(fd));
}

kj::AutoCloseFd TcpListener::staying() const {
  return kj::AutoCloseFd(::fcntl(fd_.get(), F_DUPFD_CLOEXEC, 0));
}

kj::Own<kj::ConnectionReceiver> TcpListener::receive(kj::LowLevelAsyncIoProvider& io) {
  QGPU_CHECK(fd_.get() >= 0, "a listener is received once");
  return io.wrapListenSocketFd(fd_.release(), kFdFlags);
}

}  // namespace qgpu
