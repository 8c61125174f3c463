#include "tests/fuzz/memory_io.h"

#include <cstring>
#include <deque>
#include <kj/debug.h>
#include <unistd.h>

namespace qgpu::fuzz {
namespace {

// One end of a pipe that says of the other end what a unix socket would.
class KnownPeerStream final : public kj::AsyncIoStream {
 public:
  KnownPeerStream(kj::Own<kj::AsyncIoStream> pipe, const ucred& peer)
      : pipe_(kj::mv(pipe)), peer_(peer) {}

  kj::Promise<std::size_t> tryRead(void* buffer, std::size_t least, std::size_t most) override {
    return pipe_->tryRead(buffer, least, most);
  }
  kj::Promise<void> write(const void* buffer, std::size_t size) override {
    return pipe_->write(buffer, size);
  }
  kj::Promise<void> write(kj::ArrayPtr<const kj::ArrayPtr<const kj::byte>> pieces) override {
    return pipe_->write(pieces);
  }
  kj::Promise<void> whenWriteDisconnected() override { return pipe_->whenWriteDisconnected(); }
  void shutdownWrite() override { pipe_->shutdownWrite(); }
  void abortRead() override { pipe_->abortRead(); }
  void getsockopt(int level, int option, void* value, kj::uint* length) override {
    KJ_REQUIRE(level == SOL_SOCKET && option == SO_PEERCRED && *length >= sizeof peer_);
    std::memcpy(value, &peer_, sizeof peer_);
    *length = sizeof peer_;
  }

 private:
  kj::Own<kj::AsyncIoStream> pipe_;
  const ucred peer_;
};

}  // namespace

class MemoryIo::Receiver final : public kj::ConnectionReceiver {
 public:
  explicit Receiver(MemoryIo& io) : io_(io) {}
  ~Receiver() noexcept(false) { io_.receiver_ = nullptr; }

  void push(kj::Own<kj::AsyncIoStream> stream) {
    KJ_IF_MAYBE (waiting, waiting_) {
      auto fulfiller = kj::mv(*waiting);
      waiting_ = nullptr;
      fulfiller->fulfill(kj::mv(stream));
      return;
    }
    streams_.push_back(kj::mv(stream));
  }

  kj::Promise<kj::Own<kj::AsyncIoStream>> accept() override {
    if (!streams_.empty()) {
      auto stream = kj::mv(streams_.front());
      streams_.pop_front();
      return kj::mv(stream);
    }
    auto paf = kj::newPromiseAndFulfiller<kj::Own<kj::AsyncIoStream>>();
    waiting_ = kj::mv(paf.fulfiller);
    return kj::mv(paf.promise);
  }
  kj::uint getPort() override { return 0; }

 private:
  MemoryIo& io_;
  std::deque<kj::Own<kj::AsyncIoStream>> streams_;
  kj::Maybe<kj::Own<kj::PromiseFulfiller<kj::Own<kj::AsyncIoStream>>>> waiting_;
};

kj::Own<kj::AsyncIoStream> MemoryIo::connect(const ucred& peer) {
  KJ_REQUIRE(receiver_ != nullptr, "no server listens");
  kj::TwoWayPipe pipe = kj::newTwoWayPipe();
  receiver_->push(kj::heap<KnownPeerStream>(kj::mv(pipe.ends[0]), peer));
  return kj::mv(pipe.ends[1]);
}

kj::Own<kj::ConnectionReceiver> MemoryIo::wrapListenSocketFd(int fd, NetworkFilter&, kj::uint) {
  ::close(fd);
  auto receiver = kj::heap<Receiver>(*this);
  receiver_ = receiver.get();
  return receiver;
}

kj::Own<kj::AsyncInputStream> MemoryIo::wrapInputFd(int, kj::uint) {
  KJ_UNIMPLEMENTED("input");
}
kj::Own<kj::AsyncOutputStream> MemoryIo::wrapOutputFd(int, kj::uint) {
  KJ_UNIMPLEMENTED("output");
}
kj::Own<kj::AsyncIoStream> MemoryIo::wrapSocketFd(int, kj::uint) {
  KJ_UNIMPLEMENTED("socket");
}
kj::Promise<kj::Own<kj::AsyncIoStream>> MemoryIo::wrapConnectingSocketFd(int, const sockaddr*,
                                                                         kj::uint, kj::uint) {
  KJ_UNIMPLEMENTED("connecting");
}

void MemoryPeer::write(std::string bytes) {
  auto kept = kj::heap<std::string>(std::move(bytes));
  writing_ = writing_
                 .then([this, kept = kj::mv(kept)]() mutable {
                   auto written = stream_->write(kept->data(), kept->size());
                   return written.attach(kj::mv(kept));
                 })
                 .eagerlyEvaluate([](kj::Exception&&) {});  // the server has closed it
}

void MemoryPeer::endWrites() {
  writing_ =
      writing_.then([this]() { stream_->shutdownWrite(); }).eagerlyEvaluate([](kj::Exception&&) {});
}

kj::Promise<void> MemoryPeer::read() {
  return stream_->tryRead(chunk_, 1, sizeof chunk_).then([this](std::size_t count) {
    if (count == 0) {
      end();
      return kj::Promise<void>(kj::READY_NOW);
    }
    heard_.append(chunk_, count);
    return read();
  });
}

}  // namespace qgpu::fuzz
