#include "services/api/rpc/paced_stream.h"

namespace qgpu {

kj::Promise<size_t> PacedStream::tryRead(void* buffer, size_t minBytes, size_t maxBytes) {
  if (!writing_) return inner_->tryRead(buffer, minBytes, maxBytes);
  auto paf = kj::newPromiseAndFulfiller<void>();
  reader_ = kj::mv(paf.fulfiller);
  return paf.promise.then(
      [this, buffer, minBytes, maxBytes]() { return inner_->tryRead(buffer, minBytes, maxBytes); });
}

kj::Promise<void> PacedStream::paced(kj::Promise<void> write) {
  writing_ = true;
  since_ = timer_.now();
  if (!watched_) watch_ = watch(writeDeadline_.value * kj::NANOSECONDS).eagerlyEvaluate(nullptr);
  return write.then([this]() { written(); },
                    [this](kj::Exception&& exception) {
                      written();
                      over_();
                      kj::throwFatalException(kj::mv(exception));
                    });
}

// As long as something is being written. A timer for each write would cost as much as the write.
kj::Promise<void> PacedStream::watch(kj::Duration time) {
  watched_ = true;
  return timer_.afterDelay(time).then([this]() -> kj::Promise<void> {
    const kj::Duration left = writeDeadline_.value * kj::NANOSECONDS - (timer_.now() - since_);
    if (writing_ && left > 0 * kj::NANOSECONDS) return watch(left);
    watched_ = false;
    if (writing_) over_();
    return kj::READY_NOW;
  });
}

void PacedStream::written() {
  writing_ = false;
  KJ_IF_MAYBE (reader, reader_) {
    auto fulfiller = kj::mv(*reader);
    reader_ = nullptr;
    fulfiller->fulfill();
  }
}

}  // namespace qgpu
