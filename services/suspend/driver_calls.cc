#include "services/suspend/driver_calls.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif

namespace qgpu::suspend {
namespace {

constexpr std::uint32_t kPreemptLimitUs = 100'000;

std::string statusText(std::uint32_t status) {
  if (status == rm::kNoAnswer) return "the driver takes no call";
  char text[48];
  std::snprintf(text, sizeof text, "the driver's status 0x%x", status);
  return text;
}

}  // namespace

// An open file of a channel's process, for a moment; none where the process is gone or does not let
// us, with errno.
class DriverCalls::File {
 public:
  File(const DriverCalls& calls, const Channel& channel) {
    const auto found = calls.processes_.find(channel.process);
    errno = ESRCH;
    if (found == calls.processes_.end()) return;
    fd_ = static_cast<int>(::syscall(SYS_pidfd_getfd, found->second, channel.fd, 0));
  }
  ~File() {
    if (fd_ >= 0) ::close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// Channels whose client is not of the process that named it, or ended.
DriverCalls::Outcome DriverCalls::strangers(const std::vector<Channel>& channels) const {
  std::map<std::pair<std::uint32_t, std::uint32_t>, bool> own;
  Outcome found{Answer::kDone, {}, ""};
  for (const Channel& channel : channels) {
    const auto [at, fresh] = own.try_emplace({channel.process, channel.client}, false);
    if (fresh) {
      const File file(*this, channel);
      if (!file) found.why = std::string("its process's file: ") + std::strerror(errno);
      at->second = file && rm::owns(file.get(), channel.client);
    }
    if (!at->second) found.gone.push_back(channel);
  }
  if (found.gone.empty()) return found;
  found.answer = Answer::kGone;
  if (found.why.empty()) found.why = "the client is not of the process that named it";
  return found;
}

// Without the channels that the driver does not know as such any more, it may not refuse.
DriverCalls::Outcome DriverCalls::refused(const std::vector<Channel>& channels,
                                          std::uint32_t status) const {
  Outcome found{Answer::kFailed, {}, statusText(status)};
  for (const Channel& channel : channels) {
    const File file(*this, channel);
    std::uint32_t objectClass = 0;
    const bool answers =
        file && rm::classOf(file.get(), {channel.client, channel.channel}, objectClass) == rm::kOk;
    if (!answers || !rm::isChannel(objectClass)) found.gone.push_back(channel);
  }
  if (!found.gone.empty()) found.answer = Answer::kGone;
  return found;
}

DriverCalls::Outcome DriverCalls::set(const Order& order, bool off, bool onlyScheduling) {
  if (off) {
    Outcome found = strangers(order.channels);
    if (found.answer != Answer::kDone) return found;
  }
  std::vector<rm::Named> named;
  for (const Channel& channel : order.channels) named.push_back({channel.client, channel.channel});
  const std::uint32_t status =
      card_.disable(off, onlyScheduling, named.data(), static_cast<std::uint32_t>(named.size()));
  return status == rm::kOk ? Outcome{Answer::kDone, {}, ""} : refused(order.channels, status);
}

DriverCalls::Outcome DriverCalls::commit(const Order& order) {
  for (const Channel& channel : order.channels) {
    const File file(*this, channel);
    const rm::Named group{channel.client, channel.group ? channel.group : channel.channel};
    std::uint32_t status = rm::kNoAnswer;
    if (file && order.step == Step::kPreempt) {
      status = rm::preempt(file.get(), group, kPreemptLimitUs);
    } else if (file) {
      status = rm::restartRunlist(file.get(), {channel.client, channel.channel});
    }
    if (status != rm::kOk) return refused(order.channels, status);
  }
  return {Answer::kDone, {}, ""};
}

DriverCalls::Outcome DriverCalls::carryOut(const Order& order, Rung rung) {
  switch (order.step) {
    case Step::kDisable:
      return set(order, true, rung == Rung::kSchedulingPreempt);
    case Step::kEnable:
      return set(order, false, false);
    case Step::kRestart:
    case Step::kPreempt:
      break;
  }
  return commit(order);
}

}  // namespace qgpu::suspend
