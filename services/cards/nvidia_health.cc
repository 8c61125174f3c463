#include "services/cards/nvidia_health.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <iterator>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <utility>

#include "services/cards/child_probe.h"
#include "services/cards/nvml.h"

namespace qgpu {
namespace {

constexpr std::uint64_t kProgramsXids[] = {13, 31, 43, 45, 68, 109};

std::int64_t nowMs() {
  timespec t{};
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1'000LL + t.tv_nsec / 1'000'000;
}

// --- in the child ---

class Watcher {
 public:
  Watcher(int out, const std::vector<std::string>& uuids) : out_(out), uuids_(uuids) {}

  // Until the daemon is gone.
  void run(std::int64_t intervalMs) {
    nvml_ = Nvml::open();
    for (const std::string& uuid : uuids_) {
      cuda::NvmlDevice device = nullptr;
      if (nvml_ && nvml_->byUuid(uuid.c_str(), device) == Nvml::kSuccess) nvml_->watchXids(device);
    }
    do {
      for (const std::string& uuid : uuids_) look(uuid);
    } while (waitFor(nowMs() + intervalMs));
  }

 private:
  void look(const std::string& uuid) {
    cuda::NvmlDevice device = nullptr;
    std::uint64_t errors = 0;
    const bool there = nvml_ && nvml_->byUuid(uuid.c_str(), device) == Nvml::kSuccess &&
                       nvml_->uncorrectedErrors(device, errors) != Nvml::kGpuIsLost;
    tell({uuid, there ? HealthReading::Kind::Present : HealthReading::Kind::Lost, 0});
    if (there) tell({uuid, HealthReading::Kind::Errors, errors});
  }

  // Xids until then. False: nobody reads any more.
  bool waitFor(std::int64_t untilMs) {
    constexpr std::int64_t kStepMs = 500;  // how late an end of the daemon is noticed
    for (std::int64_t left = untilMs - nowMs(); left > 0; left = untilMs - nowMs()) {
      const auto step = static_cast<std::uint32_t>(std::min(left, kStepMs));
      const std::int64_t before = nowMs();
      const auto xid = nvml_ ? nvml_->nextXid(step) : std::nullopt;
      if (xid) tell({xid->uuid, HealthReading::Kind::Xid, xid->number});
      // A library that tells none does not wait either.
      pollfd reader{out_, 0, 0};
      const std::int64_t rest = xid ? 0 : std::max<std::int64_t>(0, before + step - nowMs());
      if (::poll(&reader, 1, static_cast<int>(rest)) > 0) return false;
    }
    return true;
  }

  void tell(const HealthReading& reading) {
    const auto change = judge_.judge(reading);
    if (change) ::dprintf(out_, "%s\t%s\n", change->uuid.c_str(), change->ill.c_str());
  }

  const int out_;
  const std::vector<std::string>& uuids_;
  std::optional<Nvml> nvml_;
  HealthJudge judge_;
};

}  // namespace

bool isProgramsXid(std::uint64_t xid) {
  return std::find(std::begin(kProgramsXids), std::end(kProgramsXids), xid) !=
         std::end(kProgramsXids);
}

std::optional<HealthChange> HealthJudge::judge(const HealthReading& reading) {
  Known& known = cards_[reading.uuid];
  switch (reading.kind) {
    case HealthReading::Kind::Present:
      if (!std::exchange(known.lost, false)) return std::nullopt;
      return HealthChange{reading.uuid, ""};
    case HealthReading::Kind::Lost:
      if (std::exchange(known.lost, true)) return std::nullopt;
      return HealthChange{reading.uuid, "it does not answer: removed, or off the bus"};
    case HealthReading::Kind::Xid:
      if (isProgramsXid(reading.number) || std::exchange(known.xids[reading.number], true)) {
        return std::nullopt;
      }
      return HealthChange{reading.uuid, "Xid " + std::to_string(reading.number)};
    case HealthReading::Kind::Errors: {
      // What it counted before the watch began is no news.
      const std::uint64_t before = std::exchange(known.errors, reading.number);
      if (!std::exchange(known.counted, true) || reading.number <= before) return std::nullopt;
      return HealthChange{reading.uuid,
                          std::to_string(reading.number - before) + " uncorrected memory errors"};
    }
  }
  return std::nullopt;
}

Result<HealthWatch> HealthWatch::start(const std::vector<std::string>& uuids, Nanos interval) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    return fail(ErrorCode::Unavailable, std::string("pipe: ") + std::strerror(errno));
  }
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(ends[0]);
    becomeProbe();
    ::signal(SIGPIPE, SIG_IGN);
    Watcher(ends[1], uuids).run(interval.value / 1'000'000);
    ::_exit(0);
  }
  ::close(ends[1]);
  if (child < 0) {
    ::close(ends[0]);
    return fail(ErrorCode::Unavailable, std::string("fork: ") + std::strerror(errno));
  }
  return HealthWatch(ends[0], child);
}

HealthWatch::HealthWatch(HealthWatch&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), child_(std::exchange(other.child_, -1)) {}

HealthWatch& HealthWatch::operator=(HealthWatch&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(child_, other.child_);
  return *this;
}

HealthWatch::~HealthWatch() {
  if (child_ > 0) {
    ::kill(child_, SIGKILL);
    while (::waitpid(child_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  if (fd_ >= 0) ::close(fd_);
}

std::optional<HealthChange> parseHealthLine(const std::string& line) {
  const std::size_t tab = line.find('\t');
  if (tab == std::string::npos || tab == 0) return std::nullopt;
  return HealthChange{line.substr(0, tab), line.substr(tab + 1)};
}

}  // namespace qgpu
