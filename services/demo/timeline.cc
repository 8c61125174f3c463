#include "services/demo/timeline.h"

#include <algorithm>
#include <array>
#include <utility>

#include "runtime/check.h"

namespace qgpu::demo {
namespace {

constexpr std::array<const char*, 9> kBlocks = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
constexpr std::array<const char*, 9> kAscii = {" ", ".", ":", "-", "=", "+", "*", "%", "#"};
constexpr std::int64_t kFullPermille = 950;
constexpr std::size_t kNameWidth = 10;
constexpr std::size_t kClassWidth = 9;
constexpr std::size_t kPercentWidth = 5;

const char* colour(TenantClass tenantClass) {
  switch (tenantClass) {
    case TenantClass::Online:
      return "\x1b[32m";
    case TenantClass::Offline:
      return "\x1b[34m";
    default:
      return "\x1b[36m";
  }
}

std::string padded(std::string text, std::size_t width) {
  text.resize(std::max(width, text.size()), ' ');
  return text;
}

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

const char* timelineCell(std::int64_t permille, TimelineStyle style) {
  const auto& cells = style == TimelineStyle::Ascii ? kAscii : kBlocks;
  if (permille <= 0) return cells.front();
  const auto steps = static_cast<std::int64_t>(cells.size()) - 1;
  const std::int64_t step = (permille * steps + kFullPermille - 1) / kFullPermille;
  return cells[static_cast<std::size_t>(std::min(step, steps))];
}

Timeline::Timeline(std::vector<TimelineRow> rows, std::size_t columns, TimelineStyle style)
    : rows_(std::move(rows)), columns_(columns), style_(style) {}

void Timeline::addColumn(const std::vector<std::int64_t>& permille) {
  QGPU_CHECK(permille.size() == rows_.size(), "a column has a share for each row");
  history_.push_back(permille);
  if (history_.size() > columns_) history_.pop_front();
}

std::int64_t Timeline::average(std::size_t row, std::size_t columns) const {
  const std::size_t count = std::min(columns, history_.size());
  if (count == 0) return 0;
  std::int64_t sum = 0;
  for (std::size_t i = history_.size() - count; i < history_.size(); i++) sum += history_[i][row];
  return sum / static_cast<std::int64_t>(count);
}

std::string Timeline::picture() const {
  constexpr std::size_t kAverageColumns = 10;
  std::string out;
  for (std::size_t row = 0; row < rows_.size(); row++) {
    out += "  " + padded(rows_[row].name, kNameWidth) + " " +
           padded(className(rows_[row].tenantClass), kClassWidth) + "|";
    if (style_ == TimelineStyle::ColouredBlocks) out += colour(rows_[row].tenantClass);
    for (const auto& column : history_) out += timelineCell(column[row], style_);
    if (style_ == TimelineStyle::ColouredBlocks) out += "\x1b[0m";
    out += std::string(columns_ - history_.size(), ' ') + "|" +
           percent(average(row, kAverageColumns)) + "\n";
  }
  return out;
}

std::string Timeline::line(std::size_t columns) const {
  std::string out;
  for (std::size_t row = 0; row < rows_.size(); row++) {
    out += (row == 0 ? "" : "  ") + rows_[row].name + percent(average(row, columns)) + " [";
    for (std::size_t i = history_.size() - std::min(columns, history_.size()); i < history_.size();
         i++) {
      out += timelineCell(history_[i][row], TimelineStyle::Ascii);
    }
    out += "]";
  }
  return out;
}

}  // namespace qgpu::demo
