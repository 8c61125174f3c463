#include "services/attach/sockets/connection.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <utility>

#include "services/cards/suspend/detached.h"

namespace qgpu {
namespace {

constexpr std::size_t kDescriptorsMax = 253;  // that one record may bring (the kernel's SCM_MAX_FD)
constexpr int kDrainedMax = 64;               // records that are passed over at the end

// Where no thread is to be had it stays open: that costs less than a loop that waits.
void closeDetached(Fd fd) {
  const int kept = fd.release();
  if (kept >= 0) suspend::runDetached([kept] { ::close(kept); });
}

// Of a file in memory nobody is asked when it closes, and a small one that can't grow is gone soon.
bool closesAtOnce(const Fd& fd, std::size_t bytesMax) {
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  struct stat facts {};
  return seals >= 0 && (seals & F_SEAL_GROW) != 0 && ::fstat(fd.get(), &facts) == 0 &&
         static_cast<std::uint64_t>(facts.st_size) <= bytesMax;
}

// Owns every descriptor that a record brought.
Fd firstMemoryFile(msghdr& message, std::size_t bytesMax) {
  Fd first;
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; i++) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
      Fd owned(fd);
      if (!closesAtOnce(owned, bytesMax)) {
        closeDetached(std::move(owned));
      } else if (!first) {
        first = std::move(owned);
      }
    }
  }
  return first;
}

}  // namespace

NextRecord peekRecord(const Fd& connection, void* room, std::size_t size) {
  iovec part{room, size};
  msghdr message{};  // without room for descriptors: they stay in the record
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  const ssize_t n = ::recvmsg(connection.get(), &message, MSG_DONTWAIT | MSG_PEEK);
  NextRecord next;
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return next;
  next.what = n > 0 ? NextRecord::What::Record : NextRecord::What::Over;
  next.bytes = n > 0 ? static_cast<std::size_t>(n) : 0;
  next.descriptors = n >= 0 && (message.msg_flags & MSG_CTRUNC) != 0;
  return next;
}

void passRecord(const Fd& connection) {
  char nothing = 0;
  static_cast<void>(::recv(connection.get(), &nothing, sizeof nothing, MSG_DONTWAIT));
}

Fd takeMemoryFile(const Fd& connection, std::size_t bytesMax) {
  char nothing = 0;
  iovec part{&nothing, sizeof nothing};
  alignas(cmsghdr) char control[CMSG_SPACE(kDescriptorsMax * sizeof(int))];
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t n = ::recvmsg(connection.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  return n >= 0 ? firstMemoryFile(message, bytesMax) : Fd();
}

bool sendWelcome(const Fd& connection, const qgpu_welcome& welcome, const int* fds,
                 std::size_t count) {
  iovec part{const_cast<qgpu_welcome*>(&welcome), sizeof welcome};
  alignas(cmsghdr) char control[CMSG_SPACE(3 * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (count != 0) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(count * sizeof(int));
    cmsghdr* c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(count * sizeof(int));
    std::memcpy(CMSG_DATA(c), fds, count * sizeof(int));
  }
  const ssize_t sent = ::sendmsg(connection.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  return sent == static_cast<ssize_t>(sizeof welcome);
}

void sendRefusal(const Fd& connection, std::uint32_t incarnation, const char* reason) {
  qgpu_welcome record{};
  record.magic = QGPU_ATTACH_MAGIC;
  record.version = QGPU_ABI_VERSION;
  record.refused = 1;
  record.incarnation = incarnation;
  std::memcpy(record.reason, reason, std::min(std::strlen(reason), sizeof record.reason - 1));
  sendWelcome(connection, record, nullptr, 0);
}

void letGo(Fd connection) {
  if (!connection) return;
  // What is there now is all that there will be.
  ::shutdown(connection.get(), SHUT_RDWR);
  for (int i = 0; i < kDrainedMax; i++) {
    char byte = 0;
    const NextRecord next = peekRecord(connection, &byte, sizeof byte);
    if (next.descriptors) break;
    if (next.what != NextRecord::What::Record) return;  // nothing is left in it
    passRecord(connection);
  }
  closeDetached(std::move(connection));
}

}  // namespace qgpu
