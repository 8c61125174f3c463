#include "services/daemons/extender_door.h"

#include <fstream>
#include <sstream>
#include <utility>

#include "runtime/check.h"

namespace qgpu {
namespace {

std::string textOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

ExtenderDoor::ExtenderDoor(std::vector<HttpRoute> routes, HttpLimits limits,
                           const std::string& folder, kj::LowLevelAsyncIoProvider& io,
                           kj::Timer& timer, TcpListener listener, Log& log, Nanos lookEvery)
    : files_{folder + "/tls.crt", folder + "/tls.key", folder + "/ca.crt"},
      timer_(timer),
      log_(log),
      lookEvery_(lookEvery),
      contexts_(closedTls()),
      http_(std::move(routes), limits, io, timer, std::move(listener), *contexts_.front()),
      tasks_(*this) {
  read();
  tasks_.add(look());
}

kj::Promise<void> ExtenderDoor::look() {
  return timer_.afterDelay(lookEvery_.value * kj::NANOSECONDS).then([this]() {
    read();
    return look();
  });
}

void ExtenderDoor::read() {
  std::string now = textOf(files_.cert) + "\n" + textOf(files_.key) + "\n" + textOf(files_.ca);
  if (now == seen_) return;
  auto tls = openTls(files_);
  if (!tls) {
    // While they are being put there some are missing, or don't belong together.
    if (std::exchange(trouble_, tls.error().message) != trouble_) {
      log_.info("extender-closed", {{"address", address()}, {"why", trouble_}});
    }
    return;
  }
  seen_ = std::move(now);
  trouble_.clear();
  contexts_.push_back(kj::mv(*tls));
  http_.setTls(*contexts_.back());
  log_.info("extender-open", {{"address", address()}, {"certificate", files_.cert}});
}

void ExtenderDoor::taskFailed(kj::Exception&&) {
  QGPU_CHECK(false, "looking at certificates handles its own failures");
}

}  // namespace qgpu
