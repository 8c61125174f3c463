#pragma once
// How the log of a daemon is written: as text for people and grep, or as JSON for what collects
// logs, an object a line:
//
//   {"time":"2026-01-31T12:00:00.123000Z","level":"info","message":"task-bound","task":12}
//
// Numbers and truths stay what they are. A field that is called as one of the first three has a
// '_' behind its name, so that no name stands there twice.

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/log.h"
#include "runtime/result.h"

namespace qgpu {

enum class LogFormat : std::uint8_t { Text, Json };

const char* logFormatName(LogFormat format);
// text or json.
Result<LogFormat> parseLogFormat(std::string_view text);

// None for text, which is what a log has by itself.
Log::Shape logShape(LogFormat format);

// `unixMs`: when that was.
std::string jsonLogLine(std::int64_t unixMs, LogLevel level, std::string_view event,
                        Log::Fields fields);

}  // namespace qgpu
