#include "services/cards/nvidia/health.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <iterator>
#include <poll.h>
#include <signal.h>
#include <sstream>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <utility>

#include "services/base/child_probe.h"
#include "services/cards/nvidia/nvml.h"
#include "services/cards/nvidia/xid.h"

namespace qgpu {
namespace {

using Change = HealthChange::Kind;

std::int64_t nowMs() {
  timespec t{};
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1'000LL + t.tv_nsec / 1'000'000;
}

std::int64_t msOf(Nanos time) {
  return time.value / 1'000'000;
}

// --- the process that asks ---

// Its lines are "<kind> <number> <uuid>" for a reading, and this one at the end of each round in
// which something was said of a card.
constexpr const char* kAlive = "alive";

class Asker {
 public:
  Asker(int out, const std::vector<std::string>& uuids) : out_(out), uuids_(uuids) {}

  // Until nobody reads any more.
  void run(std::int64_t intervalMs) {
    do {
      if (!answered_ || lost_) begin();
      answered_ = lost_ = false;
      for (const std::string& uuid : uuids_) look(uuid);
      if (answered_) ::dprintf(out_, "%s\n", kAlive);
    } while (waitFor(nowMs() + intervalMs));
  }

 private:
  // Anew while a card is lost, since only then one that came back is found, or none is answered
  // for.
  void begin() {
    if (nvml_) nvml_->close();
    nvml_.reset();
    auto nvml = Nvml::open();
    absent_ = !nvml && nvml.error().code != ErrorCode::Unavailable;
    if (!nvml) return;
    nvml_ = std::move(*nvml);
    for (const std::string& uuid : uuids_) {
      cuda::NvmlDevice device = nullptr;
      if (nvml_->byUuid(uuid, device) == Nvml::kSuccess) nvml_->watchXids(device, uuid);
    }
  }

  void look(const std::string& uuid) {
    std::uint64_t errors = 0;
    const int rc = ask(uuid, errors);
    if (rc == kUnanswered) return;
    answered_ = true;
    const bool lost = rc == Nvml::kGpuIsLost;
    lost_ = lost_ || lost;
    tell({uuid, lost ? HealthReading::Kind::Lost : HealthReading::Kind::Present, 0});
    if (rc == Nvml::kSuccess) tell({uuid, HealthReading::Kind::Errors, errors});
  }

  // What NVML says of a card, or kUnanswered: a library that can't be asked now is no word about
  // any card, but without a driver there is none.
  static constexpr int kUnanswered = -1;
  int ask(const std::string& uuid, std::uint64_t& errors) const {
    if (!nvml_) return absent_ ? Nvml::kGpuIsLost : kUnanswered;
    cuda::NvmlDevice device = nullptr;
    const int rc = nvml_->byUuid(uuid, device);
    if (rc == Nvml::kSuccess) return nvml_->uncorrectedErrors(device, errors);
    return rc == Nvml::kGpuIsLost ? rc : kUnanswered;
  }

  // Xids until then. False: nobody reads any more.
  bool waitFor(std::int64_t untilMs) {
    constexpr std::int64_t kStepMs = 500;  // how late an end of the reader is noticed
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

  void tell(const HealthReading& reading) const {
    ::dprintf(out_, "%d %llu %s\n", static_cast<int>(reading.kind),
              static_cast<unsigned long long>(reading.number), reading.uuid.c_str());
  }

  const int out_;
  const std::vector<std::string>& uuids_;
  std::optional<Nvml> nvml_;
  bool absent_ = false;    // there is no driver
  bool answered_ = false;  // for a card, in the last round
  bool lost_ = false;      // a card, in the last round
};

std::optional<HealthReading> parseReading(const std::string& line) {
  std::istringstream fields(line);
  int kind = 0;
  HealthReading reading;
  if (!(fields >> kind >> reading.number >> reading.uuid)) return std::nullopt;
  if (kind < 0 || kind > static_cast<int>(HealthReading::Kind::Errors)) return std::nullopt;
  reading.kind = static_cast<HealthReading::Kind>(kind);
  return reading;
}

// --- the process that judges, and keeps one that asks ---

class Keeper {
 public:
  Keeper(int out, const std::vector<std::string>& uuids, const HealthTimes& times)
      : out_(out), uuids_(uuids), times_(times), againMs_(msOf(times.again)) {}

  // Until nobody reads any more.
  void run() {
    for (;;) {
      start();
      const std::string why = listen();
      if (why.empty()) return;
      if (!std::exchange(blind_, true)) tell({kEveryCard, Change::Blind, why});
      if (!waitForItsEnd()) return;
    }
  }

 private:
  void start() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return;
    asker_ = ::fork();
    if (asker_ == 0) {
      ::close(ends[0]);
      ::close(out_);
      becomeProbe();
      Asker(ends[1], uuids_).run(msOf(times_.interval));
      ::_exit(0);
    }
    ::close(ends[1]);
    in_ = ends[0];
    text_.clear();
  }

  // What is read goes on. Empty: nobody reads any more; else why nothing comes.
  std::string listen() {
    std::int64_t untilMs = nowMs() + msOf(times_.patience);
    for (;;) {
      if (in_ < 0 || asker_ < 0) return std::string("no process to ask NVML: ") + strerror(errno);
      const std::int64_t left = untilMs - nowMs();
      if (left <= 0)
        return "NVML did not answer for " + std::to_string(msOf(times_.patience)) + " ms";
      pollfd both[2] = {{in_, POLLIN, 0}, {out_, 0, 0}};
      if (::poll(both, 2, static_cast<int>(left)) < 0 && errno != EINTR) return strerror(errno);
      if (both[1].revents != 0) return "";
      if (both[0].revents == 0) continue;
      char chunk[1024];
      const ssize_t n = ::read(in_, chunk, sizeof chunk);
      if (n <= 0) return "the process that asks NVML died";
      text_.append(chunk, static_cast<std::size_t>(n));
      if (onText()) untilMs = nowMs() + msOf(times_.patience);
    }
  }

  // True: a round was ended.
  bool onText() {
    bool alive = false;
    for (std::size_t end = text_.find('\n'); end != std::string::npos; end = text_.find('\n')) {
      const std::string line = text_.substr(0, end);
      text_.erase(0, end + 1);
      if (line == kAlive) {
        alive = true;
        againMs_ = msOf(times_.again);
        if (std::exchange(blind_, false)) tell({kEveryCard, Change::Sees, "NVML answers again"});
      } else if (const auto reading = parseReading(line)) {
        if (const auto change = tracker_.take(*reading, millis(nowMs()))) tell(*change);
      }
    }
    return alive;
  }

  // One that hangs in the kernel can't be ended: beside it there is no second. False: nobody reads
  // any more.
  bool waitForItsEnd() {
    if (in_ >= 0) ::close(std::exchange(in_, -1));
    if (asker_ > 0) ::kill(asker_, SIGKILL);
    do {
      pollfd reader{out_, 0, 0};
      if (::poll(&reader, 1, static_cast<int>(againMs_)) > 0) return false;
      againMs_ = std::min(2 * againMs_, msOf(times_.againMax));
    } while (asker_ > 0 && ::waitpid(asker_, nullptr, WNOHANG) == 0);
    asker_ = -1;
    return true;
  }

  void tell(const HealthChange& change) const {
    ::dprintf(out_, "%s\n", healthLine(change).c_str());
  }

  const int out_;
  const std::vector<std::string>& uuids_;
  const HealthTimes& times_;
  std::int64_t againMs_;
  pid_t asker_ = -1;
  int in_ = -1;
  std::string text_;
  bool blind_ = false;
  HealthTracker tracker_;
};

}  // namespace

std::optional<HealthChange> HealthTracker::take(const HealthReading& reading, Nanos now) {
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
      if (const auto told = known.xids.find(reading.number);
          told != known.xids.end() && now - told->second < kXidAgain) {
        return std::nullopt;
      }
      known.xids[reading.number] = now;
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

Result<HealthWatch> watchNvidiaCards(const std::vector<std::string>& uuids,
                                     const HealthTimes& times) {
  return HealthWatch::start([&](int out) { Keeper(out, uuids, times).run(); });
}

}  // namespace qgpu
