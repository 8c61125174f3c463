#pragma once
// A server's end of a connection, on which a peer that does not read is not read from either: its
// calls wait in its own kernel buffers instead of their answers in our memory. Only servers may do
// so, clients always read: two ends that wait for each other would stand still.

#include <kj/async-io.h>
#include <kj/timer.h>

#include "runtime/units.h"

namespace qgpu {

// Wraps the stream of an accepted connection; RpcServer makes one for each. Bytes pass unchanged.
// While a write is under way tryRead() waits for its end: Cap'n Proto's RPC then takes no further
// calls whose answers would only queue up.
class PacedStream final : public kj::AsyncIoStream {
 public:
  // A write that takes longer than `writeDeadline`, or fails, ends the connection by `over`, which
  // may be called more than once. `timer` outlives the stream.
  PacedStream(kj::Own<kj::AsyncIoStream> inner, kj::Timer& timer, Nanos writeDeadline,
              kj::Function<void()> over)
      : inner_(kj::mv(inner)), timer_(timer), writeDeadline_(writeDeadline), over_(kj::mv(over)) {}

  kj::Promise<size_t> tryRead(void* buffer, size_t minBytes, size_t maxBytes) override;
  kj::Promise<void> write(const void* buffer, size_t size) override {
    return paced(inner_->write(buffer, size));
  }
  kj::Promise<void> write(kj::ArrayPtr<const kj::ArrayPtr<const kj::byte>> pieces) override {
    return paced(inner_->write(pieces));
  }
  kj::Promise<void> whenWriteDisconnected() override { return inner_->whenWriteDisconnected(); }
  void shutdownWrite() override { inner_->shutdownWrite(); }
  void abortRead() override { inner_->abortRead(); }
  void getsockopt(int level, int option, void* value, kj::uint* length) override {
    inner_->getsockopt(level, option, value, length);
  }

 private:
  kj::Promise<void> paced(kj::Promise<void> write);
  kj::Promise<void> watch(kj::Duration time);
  void written();

  kj::Own<kj::AsyncIoStream> inner_;
  kj::Timer& timer_;
  const Nanos writeDeadline_;
  kj::Function<void()> over_;
  bool writing_ = false;
  kj::TimePoint since_ = kj::origin<kj::TimePoint>();      // of the write
  bool watched_ = false;                                   // one timer for many writes
  kj::Maybe<kj::Own<kj::PromiseFulfiller<void>>> reader_;  // waits for the write to end
  kj::Promise<void> watch_ = kj::READY_NOW;                // last
};

}  // namespace qgpu
