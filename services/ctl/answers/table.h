#pragma once
// Aligned columns and the units that people read. Pure: values in, text out.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace qgpu::ctl {

enum class Align : std::uint8_t { Left, Right };

class Table {
 public:
  struct Column {
    std::string title;
    Align align = Align::Left;
  };

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // As many cells as there are columns; control characters become '?', so that no tenant's name
  // moves the cursor.
  void add(const std::vector<std::string>& cells);

  // Lines that end without blanks; widths are counted in code points.
  std::string text() const;

 private:
  std::string_view cell(std::size_t at) const;

  std::vector<Column> columns_;
  std::string cells_;              // of all rows, one after the other ...
  std::vector<std::size_t> ends_;  // ... up to where each goes
};

std::string printable(std::string_view text);
std::size_t width(std::string_view text);

std::string humanBytes(std::uint64_t bytes);        // "512 MiB", "1.5 GiB"
std::string humanTime(std::uint64_t ns);            // "850 us", "12.3 s", "2h03m"
std::string humanPermille(std::uint64_t permille);  // "30%", "2.5%"
std::string humanCount(std::uint64_t n);            // "950", "12.3k", "4.5M"

}  // namespace qgpu::ctl
