#include "services/base/net/listener_end.h"

#include <cerrno>
#include <kj/io.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include "services/base/net/dial.h"

namespace qgpu {
namespace {

constexpr auto kPause = 500 * kj::MILLISECONDS;  // before it is dialled again
constexpr auto kLook = 5 * kj::MILLISECONDS;
constexpr int kLooks = 40;  // at a connection under way
constexpr auto kClosing = 10 * kj::MILLISECONDS;
constexpr int kClosings = 20;  // looks at a process that may be about to end

struct Peer {
  explicit Peer(kj::AsyncIoStream& stream) {
    stream.getpeername(reinterpret_cast<sockaddr*>(&address), &length);
  }
  sockaddr_storage address{};
  kj::uint length = sizeof address;
};

// By the peer's FIN, and not by a reset or for want of any answer.
bool isClosedInOrder(kj::AsyncIoStream& stream) {
  tcp_info info{};
  kj::uint length = sizeof info;
  stream.getsockopt(IPPROTO_TCP, TCP_INFO, &info, &length);
  return info.tcpi_state == TCP_CLOSE_WAIT;
}

class Watch {
 public:
  Watch(kj::Network& network, kj::Timer& timer, std::string address, kj::Maybe<kj::TlsContext&> tls)
      : network_(network), timer_(timer), address_(std::move(address)), tls_(tls) {}

  kj::Promise<void> run() {
    return kj::evalNow([this]() { return dial(network_, address_, tls_); })
        .then([this](kj::Own<kj::AsyncIoStream> stream) { return hold(kj::mv(stream)); },
              [](kj::Exception&&) -> kj::Promise<bool> { return false; })
        .then([this](bool ended) -> kj::Promise<void> {
          if (ended) return kj::READY_NOW;
          return timer_.afterDelay(kPause).then([this]() { return run(); });
        });
  }

 private:
  // Whether the process has ended, once the connection is over.
  kj::Promise<bool> hold(kj::Own<kj::AsyncIoStream> stream) {
    const Peer peer(*stream);
    kj::AsyncIoStream& open = *stream;
    return open.tryRead(&byte_, 1, 1)
        .then([](std::size_t) {}, [](kj::Exception&&) {})
        .then([&open]() { return isClosedInOrder(open); })
        .attach(kj::mv(stream))
        .then([this, peer](bool closed) -> kj::Promise<bool> {
          if (!closed) return false;
          return ended(peer, kClosings);
        });
  }

  // A process that ends closes what it has open one after the other: that it listens comes after a
  // connection, or before.
  kj::Promise<bool> ended(const Peer& peer, int looks) {
    return refused(peer).then([this, peer, looks](bool refused) -> kj::Promise<bool> {
      if (refused || looks == 0) return refused;
      return timer_.afterDelay(kClosing).then(
          [this, peer, looks]() { return ended(peer, looks - 1); });
    });
  }

  kj::Promise<bool> refused(const Peer& peer) {
    const int made =
        ::socket(peer.address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (made < 0) return false;
    kj::AutoCloseFd fd(made);
    const auto* to = reinterpret_cast<const sockaddr*>(&peer.address);
    if (::connect(made, to, peer.length) == 0) return false;
    if (errno != EINPROGRESS) return errno == ECONNREFUSED;
    return outcome(kj::mv(fd), kLooks);
  }

  kj::Promise<bool> outcome(kj::AutoCloseFd fd, int looks) {
    pollfd one{fd.get(), POLLOUT, 0};
    if (::poll(&one, 1, 0) > 0) {
      int error = 0;
      socklen_t size = sizeof error;
      ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
      return error == ECONNREFUSED;
    }
    if (looks == 0) return false;
    return timer_.afterDelay(kLook).then(
        [this, fd = kj::mv(fd), looks]() mutable { return outcome(kj::mv(fd), looks - 1); });
  }

  kj::Network& network_;
  kj::Timer& timer_;
  const std::string address_;
  kj::Maybe<kj::TlsContext&> tls_;
  char byte_ = 0;
};

}  // namespace

kj::Promise<void> listenerEnd(kj::Network& network, kj::Timer& timer, std::string address,
                              kj::Maybe<kj::TlsContext&> tls) {
  auto watch = kj::heap<Watch>(network, timer, std::move(address), tls);
  auto ended = watch->run();
  return ended.attach(kj::mv(watch));
}

}  // namespace qgpu
