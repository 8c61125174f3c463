#include "services/daemons/log_format.h"

#include <cstddef>
#include <type_traits>
#include <variant>

#include "services/base/json.h"
#include "services/base/wall_time.h"

namespace qgpu {
namespace {

constexpr std::size_t kTextMax = 8192;  // bytes of one value; the rest is cut

struct Tell {
  JsonWriter& json;
  void operator()(bool value) const { json.boolean(value); }
  void operator()(std::string_view text) const {
    json.string(text.size() <= kTextMax ? text : std::string(text.substr(0, kTextMax)) + "...");
  }
  template <typename Integer>
  void operator()(Integer value) const {
    static_assert(std::is_integral_v<Integer>);
    json.number(value);
  }
};

}  // namespace

const char* logFormatName(LogFormat format) {
  return format == LogFormat::Json ? "json" : "text";
}

Result<LogFormat> parseLogFormat(std::string_view text) {
  for (const LogFormat format : {LogFormat::Text, LogFormat::Json}) {
    if (text == logFormatName(format)) return format;
  }
  return fail(ErrorCode::InvalidArgument,
              "log format '" + std::string(text) + "' is unknown; use text or json");
}

Log::Shape logShape(LogFormat format) {
  if (format == LogFormat::Text) return {};
  return [](LogLevel level, std::string_view event, Log::Fields fields) {
    return jsonLogLine(unixMsNow(), level, event, fields);
  };
}

std::string jsonLogLine(std::int64_t unixMs, LogLevel level, std::string_view event,
                        Log::Fields fields) {
  JsonWriter json;
  json.beginObject().field("time", rfc3339Micro(unixMs)).field("level", logLevelName(level));
  json.field("message", event);
  for (const LogField& field : fields) {
    const std::string_view name = field.name();
    const bool taken = name == "time" || name == "level" || name == "message";
    json.key(taken ? std::string(name) + "_" : std::string(name));
    std::visit(Tell{json}, field.value());
  }
  json.endObject();
  return json.take();
}

}  // namespace qgpu
