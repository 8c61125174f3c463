#include "services/suspend/driver_calls.h"

#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif

namespace qgpu::suspend {
namespace {

constexpr std::uint32_t kPreemptLimitUs = 100'000;

DriverCalls::Outcome done() {
  return {Answer::kDone, {}, rm::kOk};
}

}  // namespace

// A process's open file, for a moment; none where the process is gone or does not let us.
class DriverCalls::File {
 public:
  File(const DriverCalls& calls, std::uint32_t process) {
    const auto found = calls.processes_.find(process);
    if (found == calls.processes_.end()) return;
    fd_ = static_cast<int>(::syscall(SYS_pidfd_getfd, found->second.pidfd, found->second.fd, 0));
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
std::vector<Channel> DriverCalls::strangers(const std::vector<Channel>& channels) const {
  std::map<std::pair<std::uint32_t, std::uint32_t>, bool> own;
  std::vector<Channel> list;
  for (const Channel& channel : channels) {
    const auto [at, fresh] = own.try_emplace({channel.process, channel.client}, false);
    if (fresh) {
      const File file(*this, channel.process);
      at->second = file && rm::owns(file.get(), channel.client);
    }
    if (!at->second) list.push_back(channel);
  }
  return list;
}

// Channels that the driver does not know as such any more.
std::vector<Channel> DriverCalls::missing(const std::vector<Channel>& channels) const {
  std::vector<Channel> list;
  for (const Channel& channel : channels) {
    const File file(*this, channel.process);
    std::uint32_t objectClass = 0;
    const bool answers =
        file && rm::classOf(file.get(), {channel.client, channel.channel}, objectClass) == rm::kOk;
    if (!answers || !rm::isChannel(objectClass)) list.push_back(channel);
  }
  return list;
}

DriverCalls::Outcome DriverCalls::set(const Order& order, bool off, bool onlyScheduling) {
  if (off) {
    std::vector<Channel> list = strangers(order.channels);
    if (!list.empty()) return {Answer::kGone, std::move(list), rm::kInvalidClient};
  }
  std::vector<rm::Named> named;
  for (const Channel& channel : order.channels) named.push_back({channel.client, channel.channel});
  const std::uint32_t status =
      card_.disable(off, onlyScheduling, named.data(), static_cast<std::uint32_t>(named.size()));
  if (status == rm::kOk) return done();
  std::vector<Channel> list = missing(order.channels);
  if (!list.empty()) return {Answer::kGone, std::move(list), status};
  return {Answer::kFailed, {}, status};
}

DriverCalls::Outcome DriverCalls::commit(const Order& order) {
  for (const Channel& channel : order.channels) {
    const File file(*this, channel.process);
    const rm::Named named{channel.client, order.step == Step::kPreempt && channel.group
                                              ? channel.group
                                              : channel.channel};
    std::uint32_t status = rm::kNoAnswer;
    if (file && order.step == Step::kPreempt) {
      status = rm::preempt(file.get(), named, kPreemptLimitUs);
    } else if (file) {
      status = rm::restartRunlist(file.get(), named);
    }
    if (status == rm::kOk) continue;
    std::vector<Channel> list = missing(order.channels);
    if (!list.empty()) return {Answer::kGone, std::move(list), status};
    return {Answer::kFailed, {}, status};
  }
  return done();
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
