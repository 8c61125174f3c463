#include "services/base/net/live_tls.h"

#include "runtime/check.h"
#include "services/base/metrics_text.h"

namespace qgpu {

LiveTls::LiveTls(TlsFiles files, TlsPeers peers)
    : files_(std::move(files)), peers_(peers), contexts_(closedTls()), tasks_(*this) {}

LiveTls::~LiveTls() noexcept = default;

Status LiveTls::read() {
  auto texts = readTlsTexts(files_);
  if (texts && opened() && *texts == texts_) {
    trouble_.clear();
    return ok();
  }
  auto context =
      texts ? openTls(files_, *texts, peers_) : Result<kj::Own<kj::TlsContext>>(texts.error());
  if (!context) {
    trouble_ = context.error().message;
    return context.error();
  }
  trouble_.clear();
  texts_ = std::move(*texts);
  contexts_.push_back(kj::mv(*context));
  return ok();
}

void LiveTls::follow(kj::Timer& timer, Listener listener, Nanos every) {
  listener_ = std::move(listener);
  tasks_.add(lookOn(timer, every));
}

void LiveTls::look() {
  const std::size_t before = contexts_.size();
  const std::string known = trouble_;
  if (!read()) {
    if (trouble_ != known) listener_.refused(trouble_);
  } else if (contexts_.size() > before) {
    listener_.changed(now());
  }
}

kj::Promise<void> LiveTls::lookOn(kj::Timer& timer, Nanos every) {
  return timer.afterDelay(every.value * kj::NANOSECONDS).then([this, &timer, every]() {
    look();
    return lookOn(timer, every);
  });
}

std::string LiveTls::metrics() const {
  MetricsText page;
  page.one("qgpu_tls_files_refused", "gauge",
           "1 while the certificate files are broken, so that older ones stay in use.",
           countText(trouble_.empty() ? 0 : 1));
  return page.take();
}

void LiveTls::taskFailed(kj::Exception&&) {
  QGPU_CHECK(false, "looking at certificates handles its own failures");
}

}  // namespace qgpu
