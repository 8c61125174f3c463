#pragma once
// The line of who runs: for each task its share and a column per stretch of time, the darker the
// more of it the task had the card. Pure text; who prints it and when is live_view.h's business.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

namespace qgpu::demo {

constexpr std::int64_t kSecond = 1'000'000'000;  // in nanoseconds

enum class TenantClass { Online, Offline, Ordinary };
const char* className(TenantClass tenantClass);

class Timeline {
 public:
  // Keeps the newest `columns` columns of these tasks.
  Timeline(std::vector<std::string> rows, std::size_t columns);

  // The permille of the column's time that each row had the card; rows in the constructor's order.
  void addColumn(const std::vector<std::int64_t>& permille);

  // In ASCII: each row's average and columns.
  std::string line() const;

 private:
  std::int64_t average(std::size_t row) const;

  std::vector<std::string> rows_;
  std::size_t columns_;
  std::deque<std::vector<std::int64_t>> history_;
};

// How dark a share is drawn: a blank for none at all, full from 95 percent on.
char timelineCell(std::int64_t permille);

}  // namespace qgpu::demo
