#include "services/rpc/paced_stream.h"

namespace qgpu {

kj::Promise<size_t> PacedStream::tryRead(void* buffer, size_t minBytes, size_t maxBytes) {
  if (!writing_) return inner_->tryRead(buffer, minBytes, maxBytes);
  auto paf = kj::newPromiseAndFulfiller<void>();
  reader_ = kj::mv(paf.fulfiller);
  return paf.promise.then([this, buffer, minBytes, maxBytes]() {
    return inner_->tryRead(buffer, minBytes, maxBytes);
  });
}

kj::Promise<void> PacedStream::paced(kj::Promise<void> write) {
  writing_ = true;
  return timer_.timeoutAfter(writeDeadline_.value * kj::NANOSECONDS, kj::mv(write))
      .then([this]() { written(); },
            [this](kj::Exception&& exception) {
              written();
              over_();
              kj::throwFatalException(kj::mv(exception));
            });
}

void PacedStream::written() {
  writing_ = false;
  KJ_IF_MAYBE(reader, reader_) {
    auto fulfiller = kj::mv(*reader);
    reader_ = nullptr;
    fulfiller->fulfill();
  }
}

}  // namespace qgpu
