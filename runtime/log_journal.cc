#include "runtime/log_journal.h"

#include <cstdint>
#include <cstring>
#include <sys/socket.h>
#include <sys/un.h>

namespace qgpu {
namespace {

constexpr std::string_view kStreamName = "/stdout";
constexpr std::string_view kSocketName = "/socket";

}  // namespace

JournalEntry::JournalEntry(std::string_view message, char priority, std::string_view program) {
  add("MESSAGE", message);
  add("PRIORITY", {&priority, 1});
  add("SYSLOG_IDENTIFIER", program);
}

// A value with a line end in it goes with its length in front, the least byte first.
void JournalEntry::add(std::string_view name, std::string_view value) {
  if (value.empty()) return;
  bytes_ += name;
  if (value.find('\n') == std::string_view::npos) {
    bytes_ += '=';
  } else {
    bytes_ += '\n';
    for (unsigned shift = 0; shift < 64; shift += 8) {
      bytes_ += static_cast<char>((static_cast<std::uint64_t>(value.size()) >> shift) & 0xffU);
    }
  }
  bytes_ += value;
  bytes_ += '\n';
}

JournalSocket JournalSocket::beside(int stream) {
  JournalSocket none;
  sockaddr_un address{};
  socklen_t size = sizeof address;
  if (::getpeername(stream, reinterpret_cast<sockaddr*>(&address), &size) != 0 ||
      address.sun_family != AF_UNIX || size <= offsetof(sockaddr_un, sun_path)) {
    return none;
  }
  address.sun_path[sizeof address.sun_path - 1] = '\0';
  std::string path = address.sun_path;
  if (!path.ends_with(kStreamName)) return none;
  path.replace(path.size() - kStreamName.size(), kStreamName.size(), kSocketName);
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);  // as long as before
  Fd fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd ||
      ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return none;
  }
  none.fd_ = std::move(fd);
  return none;
}

bool JournalSocket::send(const JournalEntry& entry) const {
  const std::string& bytes = entry.bytes();
  return bytes.size() <= JournalEntry::kBytesMax &&
         ::send(fd_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL) ==
             static_cast<ssize_t>(bytes.size());
}

}  // namespace qgpu
