#include "services/demo/tenants/timeline.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "runtime/check.h"

namespace qgpu::demo {
namespace {

constexpr std::string_view kCells = " .:-=+*%#";
constexpr std::int64_t kFullPermille = 950;
constexpr std::size_t kPercentWidth = 5;

std::string percent(std::int64_t permille) {
  const std::string text = std::to_string((permille + 5) / 10) + "%";
  return std::string(kPercentWidth - std::min(kPercentWidth, text.size()), ' ') + text;
}

}  // namespace

const char* className(TenantClass tenantClass) {
  switch (tenantClass) {
    case TenantClass::Online:
      return "online";
    case TenantClass::Offline:
      return "offline";
    default:
      return "ordinary";
  }
}

char timelineCell(std::int64_t permille) {
  if (permille <= 0) return kCells.front();
  const auto steps = static_cast<std::int64_t>(kCells.size()) - 1;
  const std::int64_t step = (permille * steps + kFullPermille - 1) / kFullPermille;
  return kCells[static_cast<std::size_t>(std::min(step, steps))];
}

Timeline::Timeline(std::vector<std::string> rows, std::size_t columns)
    : rows_(std::move(rows)), columns_(columns) {}

void Timeline::addColumn(const std::vector<std::int64_t>& permille) {
  QGPU_CHECK(permille.size() == rows_.size(), "a column has a share for each row");
  history_.push_back(permille);
  if (history_.size() > columns_) history_.pop_front();
}

std::int64_t Timeline::average(std::size_t row) const {
  if (history_.empty()) return 0;
  std::int64_t sum = 0;
  for (const auto& column : history_) sum += column[row];
  return sum / static_cast<std::int64_t>(history_.size());
}

std::string Timeline::line() const {
  std::string out;
  for (std::size_t row = 0; row < rows_.size(); row++) {
    out += (row == 0 ? "" : "  ") + rows_[row] + percent(average(row)) + " [";
    for (const auto& column : history_) out += timelineCell(column[row]);
    out += "]";
  }
  return out;
}

}  // namespace qgpu::demo
