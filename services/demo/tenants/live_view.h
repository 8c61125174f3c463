#pragma once
// Shows the tenants while an act runs: on a terminal the screen of `qgpuctl top`, elsewhere, and
// where a person left that screen, one line a second.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "services/demo/tenants/children.h"
#include "services/demo/tenants/timeline.h"

namespace qgpu::demo {

class LiveView {
 public:
  static constexpr std::int64_t kColumnNs = 100'000'000;

  // `screen` draws by itself where stdout is its terminal; null: there is none.
  LiveView(std::vector<std::string> tasks, std::unique_ptr<Child> screen);
  ~LiveView();  // the terminal is as it was before
  LiveView(const LiveView&) = delete;
  LiveView& operator=(const LiveView&) = delete;

  // One column: the permille of the last kColumnNs that each row had the card.
  void column(const std::vector<std::int64_t>& permille, std::int64_t nowNs);

 private:
  std::unique_ptr<Child> screen_;
  std::int64_t startNs_ = 0;  // of the first column
  std::int64_t nextLineNs_ = 0;
  Timeline timeline_;
};

}  // namespace qgpu::demo
