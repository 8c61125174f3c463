#include "services/base/metrics_text.h"

#include <algorithm>
#include <cstdio>

#include "services/base/json.h"

namespace qgpu {

namespace {

// Stands in a label value as it is.
bool isPlain(char c) {
  return c >= ' ' && c < 0x7f && c != '"' && c != '\\';
}

}  // namespace

std::string secondsText(std::uint64_t ns) {
  constexpr std::uint64_t kNanosPerSecond = 1'000'000'000;
  char text[48];
  std::snprintf(text, sizeof text, "%llu.%09llu",
                static_cast<unsigned long long>(ns / kNanosPerSecond),
                static_cast<unsigned long long>(ns % kNanosPerSecond));
  return text;
}

std::string escapeLabel(std::string_view text) {
  std::string out;
  for (const char c : toUtf8(text)) {
    switch (c) {
      case '\\':
        out += "\\\\";
        break;
      case '"':
        out += "\\\"";
        break;
      case '\n':
        out += "\\n";
        break;
      default:
        out += c;
    }
  }
  return out;
}

void MetricsText::family(std::string_view name, std::string_view type, std::string_view help) {
  name_ = name;
  line("# HELP ", help);
  line("# TYPE ", type);
}

void MetricsText::sampleNamed(std::string_view name, Labels labels, const std::string& value) {
  text_ += name;
  char before = '{';
  for (const auto& [key, label] : labels) {
    text_ += before;
    text_.append(key).append("=\"");
    if (std::all_of(label.begin(), label.end(), isPlain)) {
      text_.append(label);
    } else {
      text_.append(escapeLabel(label));
    }
    text_ += '"';
    before = ',';
  }
  if (labels.size() > 0) text_ += '}';
  text_.append(" ").append(value).append("\n");
}

void MetricsText::one(std::string_view name, std::string_view type, std::string_view help,
                      const std::string& value) {
  family(name, type, help);
  sample({}, value);
}

void MetricsText::line(std::string_view what, std::string_view rest) {
  text_.append(what).append(name_).append(" ").append(rest).append("\n");
}

void actorClientFamilies(MetricsText& page, const ActorClientCounts& clients,
                         const std::string& who) {
  page.one("qgpu_door_requests_waiting", "gauge", "Requests that wait for " + who + ".",
           countText(clients.outstanding));
  page.one("qgpu_door_watchers", "gauge", "Watchers of events.", countText(clients.watchers));
  page.one("qgpu_door_requests_refused_total", "counter", "Requests that found a full queue.",
           countText(clients.refused));
  page.one("qgpu_door_replies_late_total", "counter",
           "Replies that came after their asker had left.", countText(clients.late));
}

}  // namespace qgpu
