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
#include "services/cards/xid.h"

namespace qgpu {
namespace {

using Change = HealthChange::Kind;

constexpr struct {
  Change kind;
  const char* word;
} kWords[] = {{Change::Ill, "ill"},
              {Change::Answers, "answers"},
              {Change::ProgramFault, "program"},
              {Change::Note, "note"}};

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
    if (auto nvml = Nvml::open()) nvml_ = std::move(*nvml);
    for (const std::string& uuid : uuids_) {
      cuda::NvmlDevice device = nullptr;
      if (nvml_ && nvml_->byUuid(uuid.c_str(), device) == Nvml::kSuccess) {
        nvml_->watchXids(device, uuid);
      }
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
    if (change) ::dprintf(out_, "%s\n", healthLine(*change).c_str());
  }

  const int out_;
  const std::vector<std::string>& uuids_;
  std::optional<Nvml> nvml_;
  HealthJudge judge_;
};

}  // namespace

std::optional<HealthChange> HealthJudge::judge(const HealthReading& reading) {
  Known& known = cards_[reading.uuid];
  switch (reading.kind) {
    case HealthReading::Kind::Present:
      if (!std::exchange(known.lost, false)) return std::nullopt;
      return HealthChange{reading.uuid, Change::Answers, "it was lost, and is there again"};
    case HealthReading::Kind::Lost:
      if (std::exchange(known.lost, true)) return std::nullopt;
      return HealthChange{reading.uuid, Change::Ill, "it does not answer: removed, or off the bus"};
    case HealthReading::Kind::Xid:
      if (xidClass(reading.number) == XidClass::Program) {
        return HealthChange{reading.uuid, Change::ProgramFault, xidText(reading.number)};
      }
      if (std::exchange(known.xids[reading.number], true)) return std::nullopt;
      return HealthChange{reading.uuid,
                          xidClass(reading.number) == XidClass::Note ? Change::Note : Change::Ill,
                          xidText(reading.number)};
    case HealthReading::Kind::Errors: {
      // What it counted before the watch began is no news.
      const std::uint64_t before = std::exchange(known.errors, reading.number);
      if (!std::exchange(known.counted, true) || reading.number <= before) return std::nullopt;
      return HealthChange{reading.uuid, Change::Ill,
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

std::string healthLine(const HealthChange& change) {
  std::string line = change.uuid + "\t";
  for (const auto& [kind, word] : kWords) {
    if (kind == change.kind) line += word;
  }
  return line + "\t" + change.why;
}

std::optional<HealthChange> parseHealthLine(const std::string& line) {
  const std::size_t uuidEnd = line.find('\t');
  if (uuidEnd == std::string::npos || uuidEnd == 0) return std::nullopt;
  const std::size_t wordEnd = line.find('\t', uuidEnd + 1);
  if (wordEnd == std::string::npos) return std::nullopt;
  const std::string said = line.substr(uuidEnd + 1, wordEnd - uuidEnd - 1);
  for (const auto& [kind, word] : kWords) {
    if (said == word) return HealthChange{line.substr(0, uuidEnd), kind, line.substr(wordEnd + 1)};
  }
  return std::nullopt;
}

}  // namespace qgpu
