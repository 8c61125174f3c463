#pragma once
// Shows a timeline while an act runs: on a terminal the picture is redrawn in place, elsewhere one
// line a second goes to the log.

#include <cstdint>
#include <string>
#include <vector>

#include "services/demo/timeline.h"

namespace qgpu::demo {

class LiveView {
 public:
  static constexpr std::int64_t kColumnNs = 100'000'000;

  LiveView(std::vector<TimelineRow> rows, std::int64_t startNs);
  ~LiveView();  // leaves the last picture standing
  LiveView(const LiveView&) = delete;
  LiveView& operator=(const LiveView&) = delete;

  // One column: the permille of the last kColumnNs that each row had the card.
  void column(const std::vector<std::int64_t>& permille, std::int64_t nowNs);

  static bool terminal();

 private:
  const bool terminal_;
  const std::int64_t startNs_;
  std::int64_t nextLineNs_;
  bool drawn_ = false;
  Timeline timeline_;
};

}  // namespace qgpu::demo
