#pragma once
// Prometheus text (format 0.0.4), family by family. Pure. It exists so that what a node and what a
// cluster counts is written by the same hand: times are seconds written from whole nanoseconds, so
// counters stay exact; label values carry whatever a tenant chose as its name, escaped.

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

namespace qgpu {

using Labels = std::initializer_list<std::pair<std::string_view, std::string_view>>;

std::string secondsText(std::uint64_t ns);
inline std::string countText(std::uint64_t n) {
  return std::to_string(n);
}

// `text` as it stands between the quotes of a label value.
std::string escapeLabel(std::string_view text);

class MetricsText {
 public:
  // What follows belongs to it, until the next one. `name` lives as long.
  void family(std::string_view name, std::string_view type, std::string_view help);
  void sample(Labels labels, const std::string& value) { sampleNamed(name_, labels, value); }
  // Of the family too, with a suffix to its name.
  void sampleNamed(std::string_view name, Labels labels, const std::string& value);
  // A family with one sample.
  void one(std::string_view name, std::string_view type, std::string_view help,
           const std::string& value);

  std::string take() { return std::move(text_); }

 private:
  void line(std::string_view what, std::string_view rest);

  std::string text_;
  std::string_view name_;
};

// What the client of an actor counts itself.
struct ActorClientCounts {
  std::size_t outstanding = 0;
  std::size_t watchers = 0;
  std::uint64_t refused = 0;
  std::uint64_t late = 0;
};

// `who`: for whom requests wait.
void actorClientFamilies(MetricsText& page, const ActorClientCounts& clients,
                         const std::string& who);

}  // namespace qgpu
