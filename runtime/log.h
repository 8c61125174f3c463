#pragma once
// Logging: one event name and its fields, one line each, on stderr or where a test wants them. It
// exists so that no other file knows the logging library, and so that a line has one shape that
// both people and grep read: `2026-01-31T12:00:00.123Z info task-bound task=12 card=opencl-0`.
//
// Programs may have it in another shape (services/daemons/log_format.h).
//
// Where systemd leads stderr to its journal, a line goes there with its priority, and with the task
// and the card that it is about as fields: `journalctl TASK=train`, `journalctl CARD=opencl-0`.
//
// An error line means that someone must look; errors() counts them, so that a test can tell that
// there was none. Safe from any thread. Never log per launch above Trace.

#include <atomic>
#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <variant>

#include "runtime/result.h"
#include "runtime/units.h"

namespace qgpu {

enum class LogLevel : int { Trace, Debug, Info, Warn, Error, Off };

const char* logLevelName(LogLevel level);
// trace, debug, info, warn, error or off.
Result<LogLevel> parseLogLevel(std::string_view text);

// A name and a value; it only refers to texts, which must live until the call returns.
class LogField {
 public:
  template <std::signed_integral T>
  LogField(const char* name, T value) : name_(name), value_(static_cast<std::int64_t>(value)) {}
  template <std::unsigned_integral T>
  LogField(const char* name, T value) : name_(name), value_(static_cast<std::uint64_t>(value)) {}
  LogField(const char* name, bool value) : name_(name), value_(value) {}
  LogField(const char* name, std::string_view text) : name_(name), value_(text) {}
  LogField(const char* name, const std::string& text) : LogField(name, std::string_view(text)) {}
  LogField(const char* name, const char* text) : LogField(name, std::string_view(text)) {}
  template <typename Tag>  // the unit belongs in the name
  LogField(const char* name, Quantity<Tag> quantity) : LogField(name, quantity.value) {}

  std::string_view name() const { return name_; }
  using Value = std::variant<std::int64_t, std::uint64_t, bool, std::string_view>;
  const Value& value() const { return value_; }
  std::string text() const;  // the value as it is, but for what is too long
  // Appends ` name=value`; texts with blanks or quotes are quoted, control characters escaped.
  void appendTo(std::string& line) const;

 private:
  const char* name_;
  Value value_;
};

class Log {
 public:
  using Fields = std::initializer_list<LogField>;
  // Takes a finished line without time and line end.
  using Sink = std::function<void(LogLevel, const std::string& line)>;

  // A whole line of stderr without its end, with whatever it says of the time.
  using Shape = std::function<std::string(LogLevel, std::string_view event, Fields fields)>;

  explicit Log(LogLevel level);      // to stderr: time, level, line; the journal has its priority
  Log(LogLevel level, Shape shape);  // the same in this shape; without one as above
  Log(LogLevel level, Sink sink);    // for tests and for a daemon's own readers
  ~Log();
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  void trace(std::string_view event, Fields fields = {}) { write(LogLevel::Trace, event, fields); }
  void debug(std::string_view event, Fields fields = {}) { write(LogLevel::Debug, event, fields); }
  void info(std::string_view event, Fields fields = {}) { write(LogLevel::Info, event, fields); }
  void warn(std::string_view event, Fields fields = {}) { write(LogLevel::Warn, event, fields); }
  void error(std::string_view event, Fields fields = {}) { write(LogLevel::Error, event, fields); }

  LogLevel level() const { return level_.load(std::memory_order_relaxed); }
  void setLevel(LogLevel level) { level_.store(level, std::memory_order_relaxed); }
  bool wants(LogLevel level) const { return level >= this->level(); }

  // Error lines asked for so far, also those below the level.
  std::uint64_t errors() const { return errors_.load(std::memory_order_relaxed); }

 private:
  Log(LogLevel level, Sink sink, Shape shape);
  void write(LogLevel level, std::string_view event, Fields fields);
  void toStderr(LogLevel level, std::string_view event, Fields fields, const std::string& line);

  struct Backend;  // hides the library, whose headers are large and stay in log.cc
  std::unique_ptr<Backend> backend_;
  std::atomic<LogLevel> level_;
  std::atomic<std::uint64_t> errors_{0};
};

}  // namespace qgpu
