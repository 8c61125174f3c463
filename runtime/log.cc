#include "runtime/log.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <spdlog/logger.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <type_traits>
#include <unistd.h>
#include <utility>

#include "runtime/fd.h"

namespace qgpu {
namespace {

constexpr std::size_t kTextMax = 1024;  // bytes of one value; the rest is cut
constexpr std::array kNames = {"trace", "debug", "info", "warn", "error", "off"};

spdlog::level::level_enum spdlogLevel(LogLevel level) {
  switch (level) {
    case LogLevel::Trace:
      return spdlog::level::trace;
    case LogLevel::Debug:
      return spdlog::level::debug;
    case LogLevel::Info:
      return spdlog::level::info;
    case LogLevel::Warn:
      return spdlog::level::warn;
    case LogLevel::Error:
      return spdlog::level::err;
    case LogLevel::Off:
      return spdlog::level::off;
  }
  return spdlog::level::off;
}

// As sd-daemon(3) has them: the journal takes a number in front of a line as its priority.
const char* journalPrefix(LogLevel level) {
  switch (level) {
    case LogLevel::Error:
      return "<3>";
    case LogLevel::Warn:
      return "<4>";
    case LogLevel::Info:
      return "<6>";
    case LogLevel::Trace:
    case LogLevel::Debug:
    case LogLevel::Off:
      break;
  }
  return "<7>";
}

// systemd names in JOURNAL_STREAM the stream that leads to the journal; a daemon whose stderr was
// led elsewhere inherits the name all the same.
bool stderrIsJournal() {
  const char* stream = std::getenv("JOURNAL_STREAM");
  struct stat info {};
  return stream != nullptr && ::fstat(STDERR_FILENO, &info) == 0 &&
         std::to_string(info.st_dev) + ":" + std::to_string(info.st_ino) == stream;
}

// --- the journal of systemd by its own protocol (systemd.io/JOURNAL_NATIVE_PROTOCOL) ---
//
// A datagram for each line, with fields beside its text, so that `journalctl TASK=train` finds what
// concerns a task. A stream has lines alone. Nothing here needs systemd to be there.

constexpr std::string_view kStreamName = "/stdout";
constexpr std::string_view kSocketName = "/socket";

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

// What is asked for by name: tasks by number and by name, each card of a list.
void addFields(JournalEntry& entry, std::string_view event, Log::Fields fields) {
  entry.add("EVENT", event);
  bool ofTask = false;
  for (const LogField& field : fields) ofTask = ofTask || field.name() == "task";
  for (const LogField& field : fields) {
    if (field.name() == "task" || (ofTask && field.name() == "name")) {
      entry.add("TASK", field.text());
    } else if (field.name() == "card") {
      const std::string cards = field.text();
      for (std::size_t at = 0; at < cards.size();) {
        const std::size_t end = std::min(cards.find(',', at), cards.size());
        entry.add("CARD", std::string_view(cards).substr(at, end - at));
        at = end + 1;
      }
    }
  }
}

bool isPlain(char c) {
  return c > ' ' && c < 0x7f && c != '"' && c != '\\' && c != '=';
}

void appendEscaped(std::string& line, char c) {
  constexpr const char* kHex = "0123456789abcdef";
  const auto byte = static_cast<unsigned char>(c);
  if (c == '"' || c == '\\') {
    line += '\\';
    line += c;
  } else if (c == '\n') {
    line += "\\n";
  } else if (byte < 0x20 || byte == 0x7f) {
    line += "\\x";
    line += kHex[byte >> 4];
    line += kHex[byte & 15];
  } else {
    line += c;
  }
}

void appendText(std::string& line, std::string_view text) {
  const bool cut = text.size() > kTextMax;
  if (cut) text = text.substr(0, kTextMax);
  bool plain = !text.empty() && !cut;
  for (const char c : text) plain = plain && isPlain(c);
  if (plain) {
    line += text;
    return;
  }
  line += '"';
  for (const char c : text) appendEscaped(line, c);
  line += cut ? "...\"" : "\"";
}

struct Append {
  std::string& line;
  void operator()(std::int64_t value) const { line += std::to_string(value); }
  void operator()(std::uint64_t value) const { line += std::to_string(value); }
  void operator()(bool value) const { line += value ? "true" : "false"; }
  void operator()(std::string_view text) const { appendText(line, text); }
};

}  // namespace

struct Log::Backend {
  Backend(Sink ownSink, Shape ownShape) : sink(std::move(ownSink)), shape(std::move(ownShape)) {}

  const bool journal = stderrIsJournal();
  const JournalSocket entries = journal ? JournalSocket::beside(STDERR_FILENO) : JournalSocket();
  // Where there is no sink of our own.
  spdlog::logger toStderr{"", std::make_shared<spdlog::sinks::stderr_sink_mt>()};
  Sink sink;
  const Shape shape;
  std::mutex mutex;  // of sink
};

const char* logLevelName(LogLevel level) {
  return kNames[static_cast<std::size_t>(level)];
}

Result<LogLevel> parseLogLevel(std::string_view text) {
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (text == kNames[i]) return static_cast<LogLevel>(i);
  }
  return fail(ErrorCode::InvalidArgument,
              "log level '" + std::string(text) +
                  "' is unknown; use trace, debug, info, warn, error or off");
}

void LogField::appendTo(std::string& line) const {
  line += ' ';
  line += name_;
  line += '=';
  std::visit(Append{line}, value_);
}

std::string LogField::text() const {
  const auto plain = [](auto value) -> std::string {
    if constexpr (std::is_same_v<decltype(value), std::string_view>) {
      return std::string(value.substr(0, kTextMax));
    } else if constexpr (std::is_same_v<decltype(value), bool>) {
      return value ? "true" : "false";
    } else {
      return std::to_string(value);
    }
  };
  return std::visit(plain, value_);
}

Log::Log(LogLevel level) : Log(level, Sink(), Shape()) {}
Log::Log(LogLevel level, Shape shape) : Log(level, Sink(), std::move(shape)) {}
Log::Log(LogLevel level, Sink sink) : Log(level, std::move(sink), Shape()) {}

Log::Log(LogLevel level, Sink sink, Shape shape)
    : backend_(std::make_unique<Backend>(std::move(sink), std::move(shape))), level_(level) {
  spdlog::logger& logger = backend_->toStderr;
  logger.set_level(spdlog::level::trace);
  logger.flush_on(spdlog::level::trace);
  logger.set_formatter(std::make_unique<spdlog::pattern_formatter>(
      backend_->journal || backend_->shape ? "%v" : "%Y-%m-%dT%H:%M:%S.%eZ %v",
      spdlog::pattern_time_type::utc));
}

Log::~Log() = default;

void Log::write(LogLevel level, std::string_view event, Fields fields) {
  if (level == LogLevel::Error) errors_.fetch_add(1, std::memory_order_relaxed);
  if (!wants(level)) return;
  if (backend_->shape) {
    return toStderr(level, event, fields, backend_->shape(level, event, fields));
  }
  std::string line(event);
  for (const LogField& field : fields) field.appendTo(line);
  if (!backend_->sink) {
    return toStderr(level, event, fields, std::string(logLevelName(level)) + " " + line);
  }
  const std::lock_guard lock(backend_->mutex);
  backend_->sink(level, line);
}

void Log::toStderr(LogLevel level, std::string_view event, Fields fields, const std::string& line) {
  if (backend_->entries) {
    JournalEntry entry(line, journalPrefix(level)[1], program_invocation_short_name);
    addFields(entry, event, fields);
    if (backend_->entries.send(entry)) return;
  }
  const char* prefix = backend_->journal ? journalPrefix(level) : "";
  backend_->toStderr.log(spdlogLevel(level), "{}{}", prefix, line);
}

}  // namespace qgpu
