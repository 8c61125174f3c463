#pragma once
// The network of a client under fuzz: a provider whose listening sockets get their connections from
// a test, over pipes in memory, with peers that are who the test says. So a real server runs its
// whole path from accept to answer without a system call.

#include <kj/async-io.h>
#include <string>
#include <sys/socket.h>

namespace qgpu::fuzz {

class MemoryIo final : public kj::LowLevelAsyncIoProvider {
 public:
  explicit MemoryIo(kj::Timer& timer) : timer_(timer) {}

  // The other end of a connection that the server accepts next, from a peer of these ids.
  kj::Own<kj::AsyncIoStream> connect(const ucred& peer);

  // kj::LowLevelAsyncIoProvider; only listening and time exist here.
  kj::Own<kj::AsyncInputStream> wrapInputFd(int, kj::uint) override;
  kj::Own<kj::AsyncOutputStream> wrapOutputFd(int, kj::uint) override;
  kj::Own<kj::AsyncIoStream> wrapSocketFd(int, kj::uint) override;
  kj::Promise<kj::Own<kj::AsyncIoStream>> wrapConnectingSocketFd(int, const sockaddr*, kj::uint,
                                                                 kj::uint) override;
  kj::Own<kj::ConnectionReceiver> wrapListenSocketFd(int fd, NetworkFilter& filter,
                                                     kj::uint flags) override;
  kj::Timer& getTimer() override { return timer_; }

 private:
  class Receiver;
  kj::Timer& timer_;
  Receiver* receiver_ = nullptr;
};

// What a peer does with one connection: writes pieces, reads all that comes, or nothing at all.
class MemoryPeer {
 public:
  explicit MemoryPeer(kj::Own<kj::AsyncIoStream> stream) : stream_(kj::mv(stream)) {}

  void startReading() {
    reading_ = read().eagerlyEvaluate([this](kj::Exception&&) { end(); });
  }
  // Queues `bytes` behind what was written before.
  void write(std::string bytes);
  // No more bytes come; the server may still answer.
  void endWrites();

  const std::string& heard() const { return heard_; }
  bool ended() const { return ended_; }  // the server closed the connection

 private:
  kj::Promise<void> read();
  void end() { ended_ = true; }

  kj::Own<kj::AsyncIoStream> stream_;
  std::string heard_;
  bool ended_ = false;
  char chunk_[4096];
  kj::Promise<void> writing_ = kj::READY_NOW;
  kj::Promise<void> reading_ = nullptr;
};

}  // namespace qgpu::fuzz
