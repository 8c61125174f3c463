#include "services/cards/suspend/driver_calls.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utility>

#include "services/cards/suspend/detached.h"

#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif

namespace qgpu::suspend {
namespace {

constexpr const char* kControlFile = "/dev/nvidiactl";
constexpr std::uint32_t kPreemptLimitUs = 10'000;

std::string statusText(std::uint32_t status) {
  if (status == rm::kNoAnswer) return "the driver takes no call";
  char text[48];
  std::snprintf(text, sizeof text, "the driver's status 0x%x", status);
  return text;
}

// Without a word to the file system, which may be a tenant's.
bool statOf(int fd, const char* path, struct statx& out) {
  return ::statx(fd, path, AT_EMPTY_PATH | AT_STATX_DONT_SYNC, 0, &out) == 0;
}

// Of the same driver; tests have a plain file in the control file's place.
bool isAlike(const struct statx& control, const struct statx& file) {
  if ((control.stx_mode & S_IFMT) != (file.stx_mode & S_IFMT)) return false;
  if (S_ISCHR(control.stx_mode)) return control.stx_rdev_major == file.stx_rdev_major;
  return control.stx_dev_major == file.stx_dev_major &&
         control.stx_dev_minor == file.stx_dev_minor && control.stx_ino == file.stx_ino;
}

std::array<std::uint32_t, 3> nameOf(const Channel& channel) {
  return {channel.process, channel.client, channel.channel};
}

enum class Found : std::uint8_t { kNo, kYes, kUnknown };  // unknown: the asking failed

}  // namespace

// An open file of a channel's process, for a moment, and what is heard through it.
class DriverCalls::File {
 public:
  File(const DriverCalls& calls, const Channel& channel) {
    const auto found = calls.processes_.find(channel.process);
    if (found == calls.processes_.end()) return;
    const Process& process = found->second;
    error_ = EBUSY;
    if (process.closing->load() >= kClosingMost) return;
    fd_ = static_cast<int>(::syscall(SYS_pidfd_getfd, process.pidfd, channel.fd, 0));
    if (fd_ < 0) error_ = errno;
    struct statx file {};
    const bool its = fd_ < 0 || (statOf(fd_, "", file) && isAlike(calls.control_, file));
    if (!its) letGo(process);
  }
  ~File() {
    if (fd_ >= 0) ::close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  bool isGone() const { return fd_ < 0 && error_ == ESRCH; }
  bool isClosed() const { return fd_ < 0 && error_ == EBADF; }
  bool isAnothers() const { return fd_ < 0 && error_ == ENOTTY; }  // no file of the driver's

  // What an object of the client is.
  Found find(std::uint32_t client, std::uint32_t object, bool (*expected)(std::uint32_t)) {
    if (isGone() || isClosed() || isAnothers()) return Found::kNo;
    if (fd_ < 0) return Found::kUnknown;
    std::uint32_t objectClass = 0;
    errno = 0;
    status_ = rm::classOf(fd_, {client, object}, objectClass);
    error_ = errno;
    if (status_ == rm::kOk) return expected(objectClass) ? Found::kYes : Found::kNo;
    const bool another = status_ == rm::kNoAnswer && error_ == ENOTTY;  // of its other modules
    const bool no = status_ == rm::kInvalidClient || status_ == rm::kObjectNotFound || another;
    return no ? Found::kNo : Found::kUnknown;
  }
  // Why nothing was found out, or the last call failed.
  std::string why() const {
    if (isAnothers()) return "its process's file is not the driver's";
    if (error_ == EBUSY && fd_ < 0) return "its process names files that take long to close";
    if (fd_ < 0) return std::string("its process's file: ") + std::strerror(error_);
    return statusText(status_);
  }

 private:
  void letGo(const Process& process) {
    const int fd = std::exchange(fd_, -1);
    error_ = ENOTTY;
    const auto closing = process.closing;
    closing->fetch_add(1);
    const auto close = [fd, closing] {
      ::close(fd);
      closing->fetch_sub(1);
    };
    if (!runDetached(close)) close();
  }

  int fd_ = -1, error_ = ESRCH;
  std::uint32_t status_ = rm::kOk;
};

Result<std::unique_ptr<DriverCalls>> DriverCalls::open(const CardName& name) {
  const std::string& version = name.driverVersion;
  const rm::Layout layout = rm::layoutOf(version.c_str(), version.size() + 1);
  if (layout != rm::Layout::kFrom535) {
    return fail(ErrorCode::Unsupported, "the interface of driver " + version + " is not known");
  }
  std::unique_ptr<DriverCalls> opened(new DriverCalls);
  const char* why = opened->card_.open("", name.minor, name.uuid.c_str(), layout);
  if (why != nullptr) return fail(ErrorCode::Unavailable, why);
  if (!statOf(AT_FDCWD, kControlFile, opened->control_)) {
    return fail(ErrorCode::Unavailable, std::string(kControlFile) + ": " + std::strerror(errno));
  }
  return opened;
}

void DriverCalls::forget(std::uint32_t id) {
  processes_.erase(id);
  std::erase_if(off_, [id](const auto& each) { return each.first[0] == id; });
}

// Channels of another card, and those whose client is not of the process that named it, or ended.
// What was taken off is put back also where the process has closed the file that it named. Who
// can't be asked now is asked later: who is taken for gone, and is not, would run on.
Outcome DriverCalls::strangers(const Order& order) const {
  enum class Own : std::uint8_t { kNo, kYes, kClosed };  // closed: the file that it named
  std::map<std::pair<std::uint32_t, std::uint32_t>, Own> own;
  Outcome found{Answer::kDone, {}, ""};
  for (const Channel& channel : order.channels) {
    const auto [at, fresh] = own.try_emplace({channel.process, channel.client}, Own::kNo);
    if (fresh) {
      File file(*this, channel);
      const Found its = file.find(channel.client, channel.client, rm::isClient);
      if (its == Found::kUnknown) return {Answer::kLater, {}, file.why()};
      if (!file) found.why = file.why();
      if (its == Found::kYes) at->second = Own::kYes;
      if (file.isClosed()) at->second = Own::kClosed;
    }
    const bool elsewhere = channel.device != ~0u && channel.device != card_.device();
    const bool its =
        at->second == Own::kYes || (at->second == Own::kClosed && leftBehind(order, channel));
    if (elsewhere || !its) found.gone.push_back(channel);
  }
  if (found.gone.empty()) return {Answer::kDone, {}, ""};
  found.answer = Answer::kGone;
  if (found.why.empty()) found.why = "the client is not of the process that named it";
  return found;
}

// What was taken off before this call.
bool DriverCalls::leftBehind(const Order& order, const Channel& channel) const {
  const auto off = off_.find(nameOf(channel));
  const int now = order.step == Step::kDisable ? 1 : 0;
  return off != off_.end() && off->second > now;
}

// Without the channels that the driver does not know as such any more, it may not refuse. Of what
// can't be asked now, nothing is known; a refusal that may pass is no word of the card.
Outcome DriverCalls::refused(const Order& order, std::string why, std::uint32_t status) const {
  Outcome found{rm::mayPass(status) ? Answer::kLater : Answer::kFailed, {}, std::move(why)};
  for (const Channel& channel : order.channels) {
    File file(*this, channel);
    if (file.isClosed() && leftBehind(order, channel)) continue;
    const Found there = file.find(channel.client, channel.channel, rm::isChannel);
    if (there == Found::kUnknown) return {Answer::kLater, {}, file.why()};
    if (there == Found::kNo) found.gone.push_back(channel);
  }
  if (!found.gone.empty()) found.answer = Answer::kGone;
  return found;
}

Outcome DriverCalls::set(const Order& order, bool off, bool onlyScheduling) {
  const bool before = !off || std::any_of(order.channels.begin(), order.channels.end(),
                                          [](const Channel& each) { return !each.proven; });
  Outcome found{Answer::kDone, {}, ""};
  if (before) found = strangers(order);
  const bool asked = found.answer == Answer::kDone;
  if (asked) found = take(order, off, onlyScheduling);
  if (!before && found.answer == Answer::kDone) found = strangers(order);
  if (off && asked) giveBack(found.gone);
  const bool back = !off && found.answer == Answer::kDone;
  for (const Channel& each : order.channels) {
    if (const auto at = off_.find(nameOf(each)); back && at != off_.end()) {
      if (--at->second == 0) off_.erase(at);
    }
  }
  for (const Channel& each : found.gone) off_.erase(nameOf(each));
  return found;
}

Outcome DriverCalls::take(const Order& order, bool off, bool onlyScheduling) {
  std::vector<rm::Named> named;
  for (const Channel& each : order.channels) {
    named.push_back({each.client, each.channel});
    if (off) ++off_[nameOf(each)];
  }
  const auto count = static_cast<std::uint32_t>(named.size());
  const std::uint32_t status = card_.disable(off, onlyScheduling, named.data(), count);
  if (status != rm::kOk) return refused(order, statusText(status), status);
  return {Answer::kDone, {}, ""};
}

// Each by itself, since most often the driver knows some no more. What is off for its true owner's
// sake stays off: the driver counts, also what it refuses for another's sake.
void DriverCalls::giveBack(const std::vector<Channel>& strangers) {
  for (const Channel& each : strangers) {
    const rm::Named named{each.client, each.channel};
    card_.disable(false, false, &named, 1);
  }
}

// Its process can't be asked any more. Most often the driver does not know it.
Outcome DriverCalls::reap(const Channel& channel) {
  const rm::Named named{channel.client, channel.channel};
  const std::uint32_t status = card_.disable(true, false, &named, 1);
  if (status == rm::kOk) return {Answer::kDone, {}, ""};
  if (rm::mayPass(status)) return {Answer::kLater, {}, statusText(status)};
  return {Answer::kGone, {channel}, statusText(status)};
}

Outcome DriverCalls::commit(const Order& order) {
  const Channel& channel = order.channels.front();
  const File file(*this, channel);
  if (!file) return refused(order, file.why(), rm::kNoAnswer);
  std::uint32_t status = rm::kOk;
  if (order.step == Step::kPreempt) {
    const rm::Named group{channel.client, channel.group ? channel.group : channel.channel};
    status = rm::preempt(file.get(), group, kPreemptLimitUs);
  } else {
    status = rm::restartRunlist(file.get(), {channel.client, channel.channel});
  }
  if (status != rm::kOk) return refused(order, statusText(status), status);
  return {Answer::kDone, {}, ""};
}

Outcome DriverCalls::carryOut(const Order& order, SuspendMethod method) {
  switch (order.step) {
    case Step::kProve:
      return strangers(order);
    case Step::kDisable:
      if (order.channels.front().dead) return reap(order.channels.front());
      return set(order, true, method == SuspendMethod::kSchedulingPreempt);
    case Step::kEnable:
      return set(order, false, false);
    case Step::kRestart:
    case Step::kPreempt:
      break;
  }
  return commit(order);
}

}  // namespace qgpu::suspend
