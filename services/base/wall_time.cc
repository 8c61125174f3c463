#include "services/base/wall_time.h"

#include <cstdio>
#include <string_view>
#include <time.h>

namespace qgpu {
namespace {

std::string toSeconds(std::int64_t unixMs) {
  const time_t seconds = static_cast<time_t>(unixMs / 1000);
  tm parts{};
  ::gmtime_r(&seconds, &parts);
  char text[32];
  const std::size_t size = ::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts);
  return std::string(text, size);
}

}  // namespace

std::int64_t unixMsNow() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<std::int64_t>(now.tv_sec) * 1000 + now.tv_nsec / 1'000'000;
}

std::string rfc3339(std::int64_t unixMs) {
  return toSeconds(unixMs) + "Z";
}

std::string rfc3339Micro(std::int64_t unixMs) {
  char fraction[16];
  std::snprintf(fraction, sizeof fraction, ".%06dZ", static_cast<int>(unixMs % 1000) * 1000);
  return toSeconds(unixMs) + fraction;
}

std::optional<std::int64_t> parseRfc3339(const std::string& text) {
  tm parts{};
  const char* rest = ::strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &parts);
  if (rest == nullptr) return std::nullopt;
  std::int64_t millis = 0;
  if (*rest == '.') {
    std::int64_t worth = 100;
    for (++rest; *rest >= '0' && *rest <= '9'; ++rest, worth /= 10) millis += (*rest - '0') * worth;
  }
  if (std::string_view(rest) != "Z") return std::nullopt;
  return static_cast<std::int64_t>(::timegm(&parts)) * 1000 + millis;
}

}  // namespace qgpu
