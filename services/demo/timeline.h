#pragma once
// The picture of who runs: one row per task, one column per stretch of time, the darker the more of
// it the task had the card. Pure text; who prints it and when is live_view.h's business.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

namespace qgpu::demo {

constexpr std::int64_t kSecond = 1'000'000'000;  // in nanoseconds

enum class TenantClass { Online, Offline, Ordinary };
const char* className(TenantClass tenantClass);

struct TimelineRow {
  std::string name;
  TenantClass tenantClass = TenantClass::Ordinary;
};

enum class TimelineStyle { Ascii, Blocks, ColouredBlocks };

class Timeline {
 public:
  // Keeps the newest `columns` columns.
  Timeline(std::vector<TimelineRow> rows, std::size_t columns, TimelineStyle style);

  // The permille of the column's time that each row had the card; rows in the constructor's order.
  void addColumn(const std::vector<std::int64_t>& permille);

  // As many lines as rows, each ended by a newline: name, class, columns, share of the last column.
  std::string picture() const;

  // One line for a log, in ASCII: the newest `columns` columns of each row and their average.
  std::string line(std::size_t columns) const;

  std::size_t rows() const { return rows_.size(); }

 private:
  std::int64_t average(std::size_t row, std::size_t columns) const;

  std::vector<TimelineRow> rows_;
  std::size_t columns_;
  TimelineStyle style_;
  std::deque<std::vector<std::int64_t>> history_;
};

// How dark a share is drawn: a blank for none at all, full from 95 percent on.
const char* timelineCell(std::int64_t permille, TimelineStyle style);

}  // namespace qgpu::demo
