#include "services/api/metrics/health.h"

#include <utility>

#include "runtime/check.h"

namespace qgpu {
namespace {

std::string silent(const std::string& who, Nanos time) {
  return who + ": silent for " + std::to_string(time / seconds(1)) + " s";
}

}  // namespace

Health::Health(AskStorage ask, std::vector<Watched> watched, kj::Timer& timer,
               std::function<void()> onWell, Times times)
    : ask_(std::move(ask)),
      watched_(std::move(watched)),
      timer_(timer),
      onWell_(std::move(onWell)),
      times_(times),
      tasks_(*this) {
  tasks_.add(look());
}

kj::Promise<void> Health::look() {
  return ask_().then([this](Result<std::string> storage) {
    if (storage) storage_ = std::move(*storage);
    // An actor with too much to do is none that hangs.
    if (storage || storage.error().code == ErrorCode::Overloaded) answeredAt_ = monotonicNow();
    if (onWell_ && silence().empty()) onWell_();
    return timer_.afterDelay(times_.every.value * kj::NANOSECONDS).then([this] { return look(); });
  });
}

std::string Health::silence() const {
  std::string text;
  const Nanos unheard = monotonicNow() - answeredAt_;
  if (unheard > times_.silentMax) text += silent("main loop", unheard) + "\n";
  for (const Watched& one : watched_) {
    const Nanos time = one.beat.silentFor();
    if (time > times_.silentMax) text += silent(one.name, time) + "\n";
  }
  return text;
}

std::string Health::trouble() const {
  return silence() + (storage_ == "ok" ? "" : "storage: " + storage_ + "\n");
}

void Health::taskFailed(kj::Exception&&) {
  QGPU_CHECK(false, "looking at the daemon's health handles its own failures");
}

}  // namespace qgpu
