#include "runtime/kj/streams.h"

#include <cstring>
#include <errno.h>
#include <fcntl.h>
#include <kj/debug.h>
#include <kj/io.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

namespace qgpu {

namespace {

using kj::byte;
using kj::uint;

constexpr std::size_t kFdsPerMessage = 253;  // SCM_MAX_FD
constexpr std::size_t kPiecesPerWrite = 64;
constexpr auto kAcceptRetry = 100 * kj::MILLISECONDS;  // after the process ran out of descriptors
constexpr uint kNewFd = kj::LowLevelAsyncIoProvider::TAKE_OWNERSHIP |
                        kj::LowLevelAsyncIoProvider::ALREADY_CLOEXEC |
                        kj::LowLevelAsyncIoProvider::ALREADY_NONBLOCK;

template <typename Call>
auto retryOnSignal(Call&& call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

// Promises for the edges of one descriptor. Ask only after the call said EAGAIN: an edge that
// nobody waits for is forgotten.
class Edges {
 public:
  Edges(KjPort& port, int fd)
      : watch_(port.loop().fds().watchEdge(fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP,
                                           [this](std::uint32_t events) { fire(events); })) {}

  kj::Promise<void> readable() { return arm(read_); }
  kj::Promise<void> writable() { return arm(write_); }
  kj::Promise<void> hungUp() { return arm(hangUp_); }

 private:
  using Waiter = kj::Maybe<kj::Own<kj::PromiseFulfiller<void>>>;

  static kj::Promise<void> arm(Waiter& waiter) {
    auto pair = kj::newPromiseAndFulfiller<void>();
    waiter = kj::mv(pair.fulfiller);
    return kj::mv(pair.promise);
  }
  static void go(Waiter& waiter) {
    KJ_IF_MAYBE (fulfiller, waiter) {
      fulfiller->get()->fulfill();
      waiter = nullptr;
    }
  }
  void fire(std::uint32_t events) {
    if (events & (EPOLLIN | EPOLLHUP | EPOLLRDHUP | EPOLLERR)) go(read_);
    if (events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) go(write_);
    if (events & (EPOLLHUP | EPOLLERR)) go(hangUp_);
  }

  Waiter read_;
  Waiter write_;
  Waiter hangUp_;
  FdWatch watch_;
};

// First member of what uses a descriptor, so that it is closed last.
class FdHold {
 public:
  FdHold(int fd, uint flags)
      : fd_(fd), owned_((flags & kj::LowLevelAsyncIoProvider::TAKE_OWNERSHIP) != 0) {
    if (!(flags & kj::LowLevelAsyncIoProvider::ALREADY_NONBLOCK)) {
      int status = 0;
      KJ_SYSCALL(status = fcntl(fd, F_GETFL));
      KJ_SYSCALL(fcntl(fd, F_SETFL, status | O_NONBLOCK));
    }
    if (owned_ && !(flags & kj::LowLevelAsyncIoProvider::ALREADY_CLOEXEC)) {
      KJ_SYSCALL(fcntl(fd, F_SETFD, FD_CLOEXEC));
    }
  }
  FdHold(const FdHold&) = delete;
  FdHold& operator=(const FdHold&) = delete;
  ~FdHold() {
    if (owned_) ::close(fd_);
  }
  int fd() const { return fd_; }

 private:
  const int fd_;
  const bool owned_;
};

void socketOption(int fd, int level, int option, void* value, uint* length) {
  socklen_t size = *length;
  KJ_SYSCALL(::getsockopt(fd, level, option, value, &size));
  *length = size;
}
void socketName(int fd, sockaddr* address, uint* length) {
  socklen_t size = *length;
  KJ_SYSCALL(::getsockname(fd, address, &size));
  *length = size;
}

// Room for the descriptors of one message.
struct ControlBuffer {
  alignas(cmsghdr) char bytes[CMSG_SPACE(sizeof(int) * kFdsPerMessage)];
};

// Moves the received descriptors to `fds` (at most `max`); those beyond are closed.
std::size_t takeFds(msghdr& message, kj::AutoCloseFd* fds, std::size_t max) {
  std::size_t taken = 0;
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < n; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof fd);
      kj::AutoCloseFd owned(fd);
      if (taken < max) fds[taken++] = kj::mv(owned);
    }
  }
  return taken;
}

void putFds(msghdr& message, ControlBuffer& control, kj::ArrayPtr<const int> fds) {
  KJ_REQUIRE(fds.size() <= kFdsPerMessage, "too many descriptors in one message", fds.size());
  std::memset(control.bytes, 0, sizeof control.bytes);
  message.msg_control = control.bytes;
  message.msg_controllen = CMSG_SPACE(sizeof(int) * fds.size());
  cmsghdr* c = CMSG_FIRSTHDR(&message);
  c->cmsg_level = SOL_SOCKET;
  c->cmsg_type = SCM_RIGHTS;
  c->cmsg_len = CMSG_LEN(sizeof(int) * fds.size());
  std::memcpy(CMSG_DATA(c), fds.begin(), sizeof(int) * fds.size());
}

class Stream final : public kj::AsyncCapabilityStream {
 public:
  using Bytes = kj::ArrayPtr<const byte>;
  using Pieces = kj::ArrayPtr<const kj::ArrayPtr<const byte>>;

  Stream(KjPort& port, int fd, uint flags) : port_(port), hold_(fd, flags), edges_(port, fd) {}

  kj::Promise<size_t> tryRead(void* buffer, size_t minBytes, size_t maxBytes) override {
    return readSome({static_cast<byte*>(buffer), minBytes, maxBytes, nullptr, 0}, {0, 0})
        .then([](ReadResult result) { return result.byteCount; });
  }
  kj::Promise<ReadResult> tryReadWithFds(void* buffer, size_t minBytes, size_t maxBytes,
                                         kj::AutoCloseFd* fds, size_t maxFds) override {
    return readSome({static_cast<byte*>(buffer), minBytes, maxBytes, fds, maxFds}, {0, 0});
  }
  kj::Promise<ReadResult> tryReadWithStreams(void* buffer, size_t minBytes, size_t maxBytes,
                                             kj::Own<kj::AsyncCapabilityStream>* streams,
                                             size_t maxStreams) override;

  kj::Promise<void> write(const void* buffer, size_t size) override {
    return writeAll(kj::arrayPtr(static_cast<const byte*>(buffer), size), nullptr, nullptr);
  }
  kj::Promise<void> write(Pieces pieces) override {
    if (pieces.size() == 0) return kj::READY_NOW;
    return writeAll(pieces[0], pieces.slice(1, pieces.size()), nullptr);
  }
  kj::Promise<void> writeWithFds(Bytes data, Pieces more, kj::ArrayPtr<const int> fds) override {
    return writeAll(data, more, fds);
  }
  kj::Promise<void> writeWithStreams(
      Bytes data, Pieces more, kj::Array<kj::Own<kj::AsyncCapabilityStream>> streams) override {
    auto fds = KJ_MAP(stream, streams) {
      return KJ_REQUIRE_NONNULL(stream->getFd(), "only a stream with a descriptor can be sent");
    };
    auto promise = writeAll(data, more, fds);
    return promise.attach(kj::mv(fds), kj::mv(streams));
  }

  kj::Promise<void> whenWriteDisconnected() override {
    KJ_IF_MAYBE (promise, hungUp_) {
      return promise->addBranch();
    }
    auto fork = edges_.hungUp().fork();
    auto branch = fork.addBranch();
    hungUp_ = kj::mv(fork);
    return kj::mv(branch);
  }
  void shutdownWrite() override { KJ_SYSCALL(shutdown(fd(), SHUT_WR)); }
  void abortRead() override { KJ_SYSCALL(shutdown(fd(), SHUT_RD)); }
  void getsockopt(int level, int option, void* value, uint* length) override {
    socketOption(fd(), level, option, value, length);
  }
  void setsockopt(int level, int option, const void* value, uint length) override {
    KJ_SYSCALL(::setsockopt(fd(), level, option, value, length));
  }
  void getsockname(sockaddr* address, uint* length) override { socketName(fd(), address, length); }
  void getpeername(sockaddr* address, uint* length) override {
    socklen_t size = *length;
    KJ_SYSCALL(::getpeername(fd(), address, &size));
    *length = size;
  }
  kj::Maybe<int> getFd() const override { return hold_.fd(); }

  // After connect(): the edge may have come before anybody asked, so look first.
  kj::Promise<void> connected() {
    pollfd p{fd(), POLLOUT, 0};
    if (::poll(&p, 1, 0) != 0) return kj::READY_NOW;
    return edges_.writable();
  }

 private:
  struct ReadInto {
    byte* buffer;
    size_t minBytes;
    size_t maxBytes;
    kj::AutoCloseFd* fds;
    size_t maxFds;
  };
  int fd() const { return hold_.fd(); }
  kj::Promise<ReadResult> readSome(ReadInto into, ReadResult got);
  ssize_t readOnce(ReadInto& into, ReadResult& got);
  kj::Promise<void> writeAll(Bytes first, Pieces more, kj::ArrayPtr<const int> fds);
  ssize_t writeOnce(Bytes first, Pieces more, kj::ArrayPtr<const int> fds);

  KjPort& port_;
  FdHold hold_;
  Edges edges_;
  kj::Maybe<kj::ForkedPromise<void>> hungUp_;
};

kj::Promise<Stream::ReadResult> Stream::tryReadWithStreams(
    void* buffer, size_t minBytes, size_t maxBytes, kj::Own<kj::AsyncCapabilityStream>* streams,
    size_t maxStreams) {
  auto fds = kj::heapArray<kj::AutoCloseFd>(maxStreams);
  auto read = tryReadWithFds(buffer, minBytes, maxBytes, fds.begin(), maxStreams);
  return read.then([this, fds = kj::mv(fds), streams](ReadResult result) mutable {
    for (size_t i = 0; i < result.capCount; ++i) {
      streams[i] = kj::heap<Stream>(port_, fds[i].release(),
                                    kj::LowLevelAsyncIoProvider::TAKE_OWNERSHIP |
                                        kj::LowLevelAsyncIoProvider::ALREADY_CLOEXEC);
    }
    return result;
  });
}

// One read, with or without descriptors; -1 and errno as read(2).
ssize_t Stream::readOnce(ReadInto& into, ReadResult& got) {
  if (into.maxFds == 0) {
    return retryOnSignal([&] { return ::read(fd(), into.buffer, into.maxBytes); });
  }
  iovec piece{into.buffer, into.maxBytes};
  ControlBuffer control;
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = sizeof control.bytes;
  const ssize_t n = retryOnSignal([&] { return ::recvmsg(fd(), &message, MSG_CMSG_CLOEXEC); });
  if (n >= 0) {
    const std::size_t taken = takeFds(message, into.fds, into.maxFds);
    into.fds += taken;
    into.maxFds -= taken;
    got.capCount += taken;
  }
  return n;
}

// Until minBytes arrived, or the end.
kj::Promise<Stream::ReadResult> Stream::readSome(ReadInto into, ReadResult got) {
  for (;;) {
    const ssize_t n = readOnce(into, got);
    if (n < 0) {
      if (errno != EAGAIN) KJ_FAIL_SYSCALL("read", errno);
      return edges_.readable().then([this, into, got] { return readSome(into, got); });
    }
    const auto bytes = static_cast<size_t>(n);
    got.byteCount += bytes;
    if (bytes == 0 || bytes >= into.minBytes) return got;
    into.buffer += bytes;
    into.minBytes -= bytes;
    into.maxBytes -= bytes;
  }
}

ssize_t Stream::writeOnce(Bytes first, Pieces more, kj::ArrayPtr<const int> fds) {
  iovec pieces[kPiecesPerWrite];
  std::size_t count = 0;
  const auto add = [&](Bytes piece) {
    pieces[count++] = {const_cast<byte*>(piece.begin()), piece.size()};
  };
  add(first);
  for (std::size_t i = 0; i < more.size() && count < kPiecesPerWrite; ++i) add(more[i]);
  if (fds.size() == 0) {
    return retryOnSignal([&] { return ::writev(fd(), pieces, static_cast<int>(count)); });
  }
  ControlBuffer control;
  msghdr message{};
  message.msg_iov = pieces;
  message.msg_iovlen = count;
  putFds(message, control, fds);
  return retryOnSignal([&] { return ::sendmsg(fd(), &message, MSG_NOSIGNAL); });
}

// The descriptors go with the first byte.
kj::Promise<void> Stream::writeAll(Bytes first, Pieces more, kj::ArrayPtr<const int> fds) {
  for (;;) {
    while (first.size() == 0) {
      if (more.size() == 0) return kj::READY_NOW;
      first = more[0];
      more = more.slice(1, more.size());
    }
    const ssize_t n = writeOnce(first, more, fds);
    if (n < 0) {
      if (errno != EAGAIN) KJ_FAIL_SYSCALL("write", errno);
      return edges_.writable().then(
          [this, first, more, fds] { return writeAll(first, more, fds); });
    }
    fds = nullptr;
    auto left = static_cast<size_t>(n);
    while (left > 0 && left >= first.size()) {
      left -= first.size();
      if (more.size() == 0) return kj::READY_NOW;
      first = more[0];
      more = more.slice(1, more.size());
    }
    first = first.slice(left, first.size());
  }
}

class Listener final : public kj::ConnectionReceiver {
 public:
  using Filter = kj::LowLevelAsyncIoProvider::NetworkFilter;
  Listener(KjPort& port, int fd, Filter& filter, uint flags)
      : port_(port), filter_(filter), hold_(fd, flags), edges_(port, fd) {}

  kj::Promise<kj::Own<kj::AsyncIoStream>> accept() override;
  kj::Promise<kj::AuthenticatedStream> acceptAuthenticated() override;

  uint getPort() override {
    sockaddr_in6 address{};
    uint length = sizeof address;
    socketName(hold_.fd(), reinterpret_cast<sockaddr*>(&address), &length);
    const bool internet = address.sin6_family == AF_INET || address.sin6_family == AF_INET6;
    return internet ? ntohs(address.sin6_port) : 0;
  }
  void getsockopt(int level, int option, void* value, uint* length) override {
    socketOption(hold_.fd(), level, option, value, length);
  }
  void setsockopt(int level, int option, const void* value, uint length) override {
    KJ_SYSCALL(::setsockopt(hold_.fd(), level, option, value, length));
  }
  void getsockname(sockaddr* address, uint* length) override {
    socketName(hold_.fd(), address, length);
  }

 private:
  KjPort& port_;
  Filter& filter_;
  FdHold hold_;
  Edges edges_;
};

kj::Promise<kj::Own<kj::AsyncIoStream>> Listener::accept() {
  for (;;) {
    sockaddr_storage address{};
    socklen_t length = sizeof address;
    auto* peer = reinterpret_cast<sockaddr*>(&address);
    const int fd = ::accept4(hold_.fd(), peer, &length, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
      if (!filter_.shouldAllow(peer, length)) {
        ::close(fd);
        continue;
      }
      const int one = 1;
      ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);  // no effect on Unix sockets
      return kj::Own<kj::AsyncIoStream>(kj::heap<Stream>(port_, fd, kNewFd));
    }
    switch (errno) {
      case EAGAIN:
        return edges_.readable().then([this] { return accept(); });
      case EMFILE:
      case ENFILE:
      case ENOBUFS:
      case ENOMEM:  // the connection stays in the backlog and no new edge would tell of it
        return port_.timer().afterDelay(kAcceptRetry).then([this] { return accept(); });
      case EINTR:
      case ENETDOWN:
      case EPROTO:
      case EHOSTDOWN:
      case EHOSTUNREACH:
      case ENETUNREACH:
      case ECONNABORTED:
      case ETIMEDOUT:
        continue;
      default:
        KJ_FAIL_SYSCALL("accept", errno);
    }
  }
}

kj::Promise<kj::AuthenticatedStream> Listener::acceptAuthenticated() {
  return accept().then([](kj::Own<kj::AsyncIoStream> stream) {
    ucred peer{};
    uint length = sizeof peer;
    stream->getsockopt(SOL_SOCKET, SO_PEERCRED, &peer, &length);
    kj::LocalPeerIdentity::Credentials credentials;
    if (peer.pid > 0) {
      credentials.pid = peer.pid;
      credentials.uid = peer.uid;
    }
    kj::AuthenticatedStream result;
    result.peerIdentity = kj::LocalPeerIdentity::newInstance(credentials);
    result.stream = kj::mv(stream);
    return result;
  });
}

class Streams final : public kj::LowLevelAsyncIoProvider {
 public:
  explicit Streams(KjPort& port) : port_(port) {}

  kj::Own<kj::AsyncInputStream> wrapInputFd(int fd, uint flags) override {
    return kj::heap<Stream>(port_, fd, flags);
  }
  kj::Own<kj::AsyncOutputStream> wrapOutputFd(int fd, uint flags) override {
    return kj::heap<Stream>(port_, fd, flags);
  }
  kj::Own<kj::AsyncIoStream> wrapSocketFd(int fd, uint flags) override {
    return kj::heap<Stream>(port_, fd, flags);
  }
  kj::Own<kj::AsyncCapabilityStream> wrapUnixSocketFd(int fd, uint flags) override {
    return kj::heap<Stream>(port_, fd, flags);
  }
  kj::Promise<kj::Own<kj::AsyncIoStream>> wrapConnectingSocketFd(int fd, const sockaddr* address,
                                                                 uint length, uint flags) override {
    auto stream = kj::heap<Stream>(port_, fd, flags);
    const int result = retryOnSignal([&] { return ::connect(fd, address, length); });
    if (result < 0 && errno != EINPROGRESS) KJ_FAIL_SYSCALL("connect()", errno);
    auto connected = stream->connected();
    return connected.then([stream = kj::mv(stream)]() mutable -> kj::Own<kj::AsyncIoStream> {
      int error = 0;
      uint size = sizeof error;
      stream->getsockopt(SOL_SOCKET, SO_ERROR, &error, &size);
      if (error != 0) KJ_FAIL_SYSCALL("connect()", error);
      return kj::mv(stream);
    });
  }
  kj::Own<kj::ConnectionReceiver> wrapListenSocketFd(int fd, NetworkFilter& filter,
                                                     uint flags) override {
    return kj::heap<Listener>(port_, fd, filter, flags);
  }
  kj::Timer& getTimer() override { return port_.timer(); }

 private:
  KjPort& port_;
};

}  // namespace

kj::Own<kj::LowLevelAsyncIoProvider> newKjStreams(KjPort& port) {
  return kj::heap<Streams>(port);
}

}  // namespace qgpu
