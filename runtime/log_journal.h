#pragma once
// The journal of systemd by its own protocol (systemd.io/JOURNAL_NATIVE_PROTOCOL): a datagram for
// each line, with fields beside its text, so that `journalctl TASK=train` finds what concerns a
// task. A stream has lines alone. Nothing here needs systemd to be there.

#include <string>
#include <string_view>

#include "runtime/fd.h"

namespace qgpu {

// One entry: MESSAGE, PRIORITY and whatever else is said of it.
class JournalEntry {
 public:
  // `priority`: as syslog(3) has them. Longer ones go as lines of the stream.
  static constexpr std::size_t kBytesMax = 16 * 1024;

  JournalEntry(std::string_view message, char priority, std::string_view program);

  // A name of upper-case letters; one may be there several times. An empty value says nothing.
  void add(std::string_view name, std::string_view value);
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

// The socket that takes entries.
class JournalSocket {
 public:
  // The one beside the stream that `stream` is connected to, which is how systemd starts a daemon.
  // Empty where it is connected to nothing of that kind.
  static JournalSocket beside(int stream);

  explicit operator bool() const { return static_cast<bool>(fd_); }
  // False where the journal did not take it at once: nobody waits for it here.
  bool send(const JournalEntry& entry) const;

 private:
  Fd fd_;
};

}  // namespace qgpu
